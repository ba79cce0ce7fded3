"""Learning-rate schedules: the base, and rules that are functions of the epoch.

# Note [Schedules]
1. A step increments the epoch and sets each group's rate from the present one (`get_lr`), so that
   several schedules may work on one optimiser. `_get_closed_form_lr` computes it from the initial
   rate, for an epoch given as an argument.
2. The names in state_dict are PyTorch's; functions are not part of it.
3. After an error in `step` or `load_state_dict`, in a user's function for example, the schedule,
   those it is made of and the groups' options are restored: `_whole` keeps copies of their tables.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from rushlight.core.interrupts import Uninterrupted
from rushlight.optim.optimizer import Group, Optimizer


def _tables(scheduler: Any) -> list[dict[str, Any]]:
    """All attributes that a schedule may change."""
    own = scheduler.__dict__
    functions = [f.__dict__ for f in own.get("lr_lambdas", ()) if hasattr(f, "__dict__")]
    inner = [table for part in own.get("_schedulers", ()) for table in _tables(part)]
    groups = own["optimizer"].param_groups if "optimizer" in own else []
    return [own, *functions, *inner, *groups]


def _whole(method: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a method so that errors change nothing. See Note [Schedules] 3."""

    @functools.wraps(method)
    def called(self: Any, *args: Any, **named: Any) -> Any:
        before = [(table, dict(table)) for table in _tables(self)]
        try:
            return method(self, *args, **named)
        except BaseException:
            with Uninterrupted():
                for table, old in before:
                    table.clear()
                    table.update(old)
            raise

    return called


class LRScheduler:
    """The base: `step()` goes to the next epoch and sets each group's rate to that of `get_lr`."""

    _is_initial = False
    _step_count: int
    _last_lr: list[float]

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        if not isinstance(optimizer, Optimizer):
            raise TypeError(
                f"{type(self).__name__}: an Optimizer is needed, got {type(optimizer).__name__}"
            )
        for i, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", group["lr"])
            elif "initial_lr" not in group:
                raise KeyError(
                    f"group {i} has no 'initial_lr': to resume, load the optimiser's state first"
                )
        self.optimizer = optimizer
        self.base_lrs: list[float] = [
            float(group["initial_lr"]) for group in optimizer.param_groups
        ]
        self.last_epoch = last_epoch
        self._initial_step()

    def __init_subclass__(cls, **named: Any) -> None:
        super().__init_subclass__(**named)
        for name in ("step", "load_state_dict"):
            if name in cls.__dict__:
                setattr(cls, name, _whole(cls.__dict__[name]))

    def _initial_step(self) -> None:
        self._step_count = 0
        self._is_initial = True
        try:
            self.step()
        finally:
            del self._is_initial  # the class says False

    @property
    def _groups(self) -> list[Group]:
        return self.optimizer.param_groups

    @property
    def _rates(self) -> list[Any]:
        return [group["lr"] for group in self._groups]

    def get_lr(self) -> list[Any]:
        """The rates of epoch `last_epoch`, from the present rates."""
        raise NotImplementedError(f"{type(self).__name__} does not say what the rates are")

    def get_last_lr(self) -> list[Any]:
        return self._last_lr

    @_whole
    def step(self, epoch: int | None = None) -> None:
        self._step_count += 1
        self._update_lr(epoch)

    def _update_lr(self, epoch: int | None = None) -> None:
        if epoch is None:
            self.last_epoch += 1
            rates = self.get_lr()
        else:
            self.last_epoch = epoch
            rates = getattr(self, "_get_closed_form_lr", self.get_lr)()
        for group, rate in zip(self._groups, rates, strict=True):
            group["lr"] = rate
        self._last_lr = self._rates

    def state_dict(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "optimizer"}

    @_whole
    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        self.__dict__.update(state_dict)


# ---- user functions ----


class LambdaLR(LRScheduler):
    """The initial rate times a function of the epoch, one for all groups or one for each."""

    def __init__(
        self,
        optimizer: Optimizer,
        lr_lambda: Callable[[int], float] | Sequence[Callable[[int], float]],
        last_epoch: int = -1,
    ) -> None:
        count = len(optimizer.param_groups)
        self.lr_lambdas = [lr_lambda] * count if callable(lr_lambda) else list(lr_lambda)
        if len(self.lr_lambdas) != count:
            raise ValueError(
                f"{type(self).__name__}: {len(self.lr_lambdas)} functions for {count} groups"
            )
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        pairs = zip(self.base_lrs, self.lr_lambdas, strict=True)
        return [start * function(self.last_epoch) for start, function in pairs]

    def state_dict(self) -> dict[str, Any]:
        """Functions that are objects are saved by their attributes.

        Plain functions are left out.
        """
        state = super().state_dict()
        plain = type(lambda: None)
        state["lr_lambdas"] = [
            None if isinstance(f, plain) else dict(f.__dict__) for f in self.lr_lambdas
        ]
        return state

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        kept = dict(state_dict)
        for function, held in zip(self.lr_lambdas, kept.pop("lr_lambdas", []), strict=False):
            if held is not None:
                function.__dict__.update(held)
        super().load_state_dict(kept)


class MultiplicativeLR(LambdaLR):
    """The rate times a function of the epoch, at each step."""

    def get_lr(self) -> list[Any]:
        if self._is_initial:
            return self._rates
        pairs = zip(self._rates, self.lr_lambdas, strict=True)
        return [rate * function(self.last_epoch) for rate, function in pairs]


# ---- steps ----


class StepLR(LRScheduler):
    """The rate times `gamma` after every `step_size` epochs."""

    def __init__(
        self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        self.step_size = step_size
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        if self.last_epoch == 0 or self.last_epoch % self.step_size:
            return self._rates
        return [rate * self.gamma for rate in self._rates]

    def _get_closed_form_lr(self) -> list[Any]:
        return [
            start * self.gamma ** (self.last_epoch // self.step_size) for start in self.base_lrs
        ]


class MultiStepLR(LRScheduler):
    """The rate times `gamma` at each of the milestones."""

    def __init__(
        self,
        optimizer: Optimizer,
        milestones: Iterable[int],
        gamma: float = 0.1,
        last_epoch: int = -1,
    ) -> None:
        self.milestones = Counter(milestones)
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        times = self.milestones.get(self.last_epoch, 0)
        return [rate * self.gamma**times for rate in self._rates] if times else self._rates

    def _get_closed_form_lr(self) -> list[Any]:
        passed = sum(
            times for milestone, times in self.milestones.items() if milestone <= self.last_epoch
        )
        return [start * self.gamma**passed for start in self.base_lrs]


class ExponentialLR(LRScheduler):
    """The rate times `gamma` at each step."""

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        return self._rates if self._is_initial else [rate * self.gamma for rate in self._rates]

    def _get_closed_form_lr(self) -> list[Any]:
        return [start * self.gamma**self.last_epoch for start in self.base_lrs]


class ConstantLR(LRScheduler):
    """The rate times a factor until `total_iters` steps have been made."""

    def __init__(
        self,
        optimizer: Optimizer,
        factor: float = 1.0 / 3,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        if not 0 <= factor <= 1:
            raise ValueError(f"ConstantLR: factor must lie between 0 and 1, got {factor}")
        self.factor = factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        if self.last_epoch == 0:
            return [rate * self.factor for rate in self._rates]
        if self.last_epoch != self.total_iters:
            return self._rates
        return [rate * (1 / self.factor) for rate in self._rates]

    def _get_closed_form_lr(self) -> list[Any]:
        factor = 1.0 if self.last_epoch >= self.total_iters else self.factor
        return [start * factor for start in self.base_lrs]


# ---- linear and curved ----


class LinearLR(LRScheduler):
    """The rate times a factor that goes from one number to another in `total_iters` steps."""

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1.0 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        if not 0 < start_factor <= 1 or not 0 <= end_factor <= 1:
            raise ValueError(
                "LinearLR: factors must lie between 0 and 1, the first above 0, got "
                f"{start_factor} and {end_factor}"
            )
        self.start_factor = start_factor
        self.end_factor = end_factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        if self.last_epoch == 0:
            return [rate * self.start_factor for rate in self._rates]
        if self._is_initial or self.last_epoch > self.total_iters:
            return self._rates
        rise = self.end_factor - self.start_factor
        before = self.total_iters * self.start_factor + (self.last_epoch - 1) * rise
        return [rate * (1.0 + rise / before) for rate in self._rates]

    def _get_closed_form_lr(self) -> list[Any]:
        share = min(self.total_iters, self.last_epoch) / self.total_iters
        factor = self.start_factor + (self.end_factor - self.start_factor) * share
        return [start * factor for start in self.base_lrs]


class PolynomialLR(LRScheduler):
    """The initial rate times (1 - epoch / total_iters) ** power, down to 0."""

    def __init__(
        self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1
    ) -> None:
        self.total_iters = total_iters
        self.power = power
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        if self._is_initial or self.last_epoch > self.total_iters:
            return self._rates
        left, before = (
            1.0 - self.last_epoch / self.total_iters,
            1.0 - (self.last_epoch - 1) / self.total_iters,
        )
        return [rate * (left / before) ** self.power for rate in self._rates]

    def _get_closed_form_lr(self) -> list[Any]:
        left = 1.0 - min(self.total_iters, self.last_epoch) / self.total_iters
        return [start * left**self.power for start in self.base_lrs]


class CosineAnnealingLR(LRScheduler):
    """From the initial rate to `eta_min` and back, along half a cosine of `T_max` epochs."""

    def __init__(
        self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1
    ) -> None:
        self.T_max = T_max
        self.eta_min = eta_min
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        if self._is_initial:
            return self._rates
        t = self.last_epoch
        if self._step_count == 1 and t > 0:
            return self._get_closed_form_lr()
        # The lowest point has no ratio to continue from.
        if (t - 1 - self.T_max) % (2 * self.T_max) == 0:
            rise = (1 - math.cos(math.pi / self.T_max)) / 2
            pairs = zip(self._rates, self.base_lrs, strict=True)
            return [rate + (start - self.eta_min) * rise for rate, start in pairs]
        ratio = (1 + math.cos(math.pi * t / self.T_max)) / (
            1 + math.cos(math.pi * (t - 1) / self.T_max)
        )
        return [ratio * (rate - self.eta_min) + self.eta_min for rate in self._rates]

    def _get_closed_form_lr(self) -> list[Any]:
        share = (1 + math.cos(math.pi * self.last_epoch / self.T_max)) / 2
        return [self.eta_min + (start - self.eta_min) * share for start in self.base_lrs]


class CosineAnnealingWarmRestarts(LRScheduler):
    """Half a cosine down to `eta_min` in `T_0` epochs, then a restart.

    Each period is `T_mult` times as long as the one before.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        T_0: int,
        T_mult: int = 1,
        eta_min: float = 0.0,
        last_epoch: int = -1,
    ) -> None:
        if not isinstance(T_0, int) or not isinstance(T_mult, int) or T_0 < 1 or T_mult < 1:
            raise ValueError(
                f"CosineAnnealingWarmRestarts: T_0 and T_mult must be positive integers, got {T_0} "
                f"and {T_mult}"
            )
        self.T_0 = self.T_i = T_0
        self.T_mult = T_mult
        self.eta_min = eta_min
        self.T_cur: float = last_epoch
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        share = (1 + math.cos(math.pi * self.T_cur / self.T_i)) / 2
        return [self.eta_min + (start - self.eta_min) * share for start in self.base_lrs]

    def step(self, epoch: float | None = None) -> None:
        """Go to the next epoch, or to a given one, which need not be whole."""
        self._step_count += 1
        if epoch is None and self.last_epoch < 0:
            epoch = 0
        if epoch is None:
            epoch = self.last_epoch + 1
            self.T_cur += 1
            if self.T_cur >= self.T_i:
                self.T_cur -= self.T_i
                self.T_i *= self.T_mult
        else:
            self._find(epoch)
        self.last_epoch = math.floor(epoch)
        for group, rate in zip(self._groups, self.get_lr(), strict=True):
            group["lr"] = rate
        self._last_lr = self._rates

    def _find(self, epoch: float) -> None:
        """The period of an epoch, and the position in it."""
        if epoch < 0:
            raise ValueError(
                f"CosineAnnealingWarmRestarts: epoch must not be negative, got {epoch}"
            )
        self.T_i, self.T_cur = self.T_0, epoch
        if self.T_mult == 1:
            self.T_cur = epoch % self.T_0
            return
        while self.T_cur >= self.T_i:
            self.T_cur -= self.T_i
            self.T_i *= self.T_mult
