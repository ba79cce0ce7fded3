"""Learning rates that change from epoch to epoch. Each rule is a function of the epoch and the starting rate."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rushlight.optim.optimizer import Optimizer


class LRScheduler:
    """The base: `step()` goes to the next epoch and sets each group's rate to `rate_at(start, group number)`."""

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        for i, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", group["lr"])
            elif "initial_lr" not in group:
                raise KeyError(f"group {i} has no 'initial_lr': to resume, load the optimiser's state first")
        self.optimizer = optimizer
        self.base_lrs: list[float] = [float(group["initial_lr"]) for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        self.step()

    def rate_at(self, start: float, group: int) -> float:
        """The rate of a group in epoch `last_epoch`."""
        raise NotImplementedError(f"{type(self).__name__} does not say what the rates are")

    def get_lr(self) -> list[float]:
        return [self.rate_at(start, i) for i, start in enumerate(self.base_lrs)]

    def get_last_lr(self) -> list[float]:
        return [group["lr"] for group in self.optimizer.param_groups]

    def step(self) -> None:
        self.last_epoch += 1
        for group, rate in zip(self.optimizer.param_groups, self.get_lr(), strict=True):
            group["lr"] = rate

    def state_dict(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("optimizer", "lr_lambdas")}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        self.__dict__.update(state_dict)


class LambdaLR(LRScheduler):
    """The starting rate times a function of the epoch, one for all groups or one for each."""

    def __init__(
        self,
        optimizer: Optimizer,
        lr_lambda: Callable[[int], float] | Sequence[Callable[[int], float]],
        last_epoch: int = -1,
    ) -> None:
        count = len(optimizer.param_groups)
        self.lr_lambdas = [lr_lambda] * count if callable(lr_lambda) else list(lr_lambda)
        if len(self.lr_lambdas) != count:
            raise ValueError(f"LambdaLR: {len(self.lr_lambdas)} functions for {count} groups")
        super().__init__(optimizer, last_epoch)

    def rate_at(self, start: float, group: int) -> float:
        return start * self.lr_lambdas[group](self.last_epoch)


class StepLR(LRScheduler):
    """The rate times `gamma` after every `step_size` epochs."""

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1) -> None:
        self.step_size = step_size
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def rate_at(self, start: float, group: int) -> float:
        return float(start * self.gamma ** (self.last_epoch // self.step_size))


class CosineAnnealingLR(LRScheduler):
    """From the starting rate down to `eta_min` in `T_max` epochs, along half a cosine."""

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1) -> None:
        self.T_max = T_max
        self.eta_min = eta_min
        super().__init__(optimizer, last_epoch)

    def rate_at(self, start: float, group: int) -> float:
        return self.eta_min + (start - self.eta_min) * (1 + math.cos(math.pi * self.last_epoch / self.T_max)) / 2
