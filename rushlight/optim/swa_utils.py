"""Averages of a model's weights: AveragedModel, the schedule SWALR, and update_bn."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable
from typing import Any

from rushlight.lazy import shown
from rushlight.nn.module import Module
from rushlight.nn.norm import _BatchNorm
from rushlight.ops.view.inplace import finish_all, prepare_copy
from rushlight.optim.optimizer import Group, Optimizer
from rushlight.optim.schedules import LRScheduler
from rushlight.tape.record.state import no_grad
from rushlight.tensor import Tensor, tensor

__all__ = [
    "SWALR",
    "AveragedModel",
    "get_ema_avg_fn",
    "get_ema_multi_avg_fn",
    "get_swa_avg_fn",
    "get_swa_multi_avg_fn",
    "update_bn",
]


def __dir__() -> list[str]:
    return shown(__name__)


Average = Callable[[Any, Any, Any], Any]


def _check_decay(decay: float) -> None:
    if not 0 <= decay <= 1:
        raise ValueError(
            f"Invalid decay value {decay} provided. Please provide a value in [0,1] range."
        )


def get_ema_multi_avg_fn(decay: float = 0.999) -> Callable[[list[Any], list[Any], Any], None]:
    """A function that moves each of a list of averages towards new values by 1 - decay."""
    _check_decay(decay)

    def moved(ema_param_list: list[Any], current_param_list: list[Any], _: Any) -> None:
        with no_grad():
            for average, now in zip(ema_param_list, current_param_list, strict=True):
                if average.dtype.kind in "fc":
                    average.lerp_(now.to(average.dtype), 1 - decay)
                else:
                    average.copy_(average * decay + now * (1 - decay))

    return moved


def get_swa_multi_avg_fn() -> Callable[[list[Any], list[Any], Any], None]:
    """A function that adds another value to each of a list of means, in place."""

    def moved(
        averaged_param_list: list[Any], current_param_list: list[Any], num_averaged: Any
    ) -> None:
        with no_grad():
            for average, now in zip(averaged_param_list, current_param_list, strict=True):
                if average.dtype.kind in "fc":
                    average.lerp_(now.to(average.dtype), 1 / (int(num_averaged) + 1))
                else:
                    average.add_((now - average) // (int(num_averaged) + 1))

    return moved


def get_ema_avg_fn(decay: float = 0.999) -> Average:
    """decay * average + (1 - decay) * present."""
    _check_decay(decay)

    def moved(ema_param: Any, current_param: Any, num_averaged: Any) -> Any:
        with no_grad():
            return ema_param * decay + current_param * (1 - decay)

    return moved


def get_swa_avg_fn() -> Average:
    """The mean with one more value."""

    def moved(averaged_param: Any, current_param: Any, num_averaged: Any) -> Any:
        with no_grad():
            return averaged_param + (current_param - averaged_param) / (num_averaged + 1)

    return moved


class AveragedModel(Module):
    """A copy of a model whose parameters are an average over `update_parameters(model)` calls.

    By default the mean; `avg_fn(average, present, count)`, or `multi_avg_fn` on lists and in place,
    changes that. Buffers are averaged too where `use_buffers`, else copied.
    """

    n_averaged: Tensor

    def __init__(
        self,
        model: Module,
        device: Any = None,
        avg_fn: Average | None = None,
        multi_avg_fn: Callable[[list[Any], list[Any], Any], None] | None = None,
        use_buffers: bool = False,
    ) -> None:
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise AssertionError(
                "AveragedModel: only one of avg_fn and multi_avg_fn should be provided"
            )
        self.module = copy.deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        self.register_buffer("n_averaged", tensor(0, device=device))
        self.avg_fn = avg_fn
        self.multi_avg_fn = multi_avg_fn
        self.use_buffers = use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    def _averaged(self, model: Module) -> list[Any]:
        return (
            [*model.parameters(), *model.buffers()]
            if self.use_buffers
            else list(model.parameters())
        )

    def update_parameters(self, model: Module) -> None:
        """Add the model's parameters to the average: all of them or, after an error, none."""
        mine = [p.detach() for p in self._averaged(self.module)]
        now = [n.detach().to(a.device) for a, n in zip(mine, self._averaged(model), strict=True)]
        count = int(self.n_averaged.item())
        with no_grad():
            if not count:
                new = now
            elif self.avg_fn is not None:
                pairs = zip(mine, now, strict=True)
                new = [
                    self.avg_fn(average, value, self.n_averaged.to(average.device))
                    for average, value in pairs
                ]
            else:
                new = [average.clone() for average in mine]
                (self.multi_avg_fn or get_swa_multi_avg_fn())(new, now, self.n_averaged)
            moved = list(zip(mine, new, strict=True))
            if not self.use_buffers:
                moved += list(zip(self.module.buffers(), model.buffers(), strict=True))
            moved.append((self.n_averaged, self.n_averaged + 1))
            finish_all(
                [prepare_copy(own.detach(), given.detach().to(own.device)) for own, given in moved]
            )


def update_bn(loader: Iterable[Any], model: Module, device: Any = None) -> None:
    """Recompute the running statistics of a model's batch norms in one pass over the data.

    After an error the old ones are restored.
    """
    norms = [module for module in model.modules() if isinstance(module, _BatchNorm)]
    if not norms:
        return
    kept = [module.momentum for module in norms]
    was_training = model.training
    statistics = [b.detach() for module in norms for b in module.buffers(recurse=False)]
    with no_grad():
        back = [prepare_copy(b, b.clone()) for b in statistics]
        try:
            model.train()
            for module in norms:
                module.reset_running_stats()
                module.momentum = None  # a mean of all batches
            for batch in loader:
                given = batch[0] if isinstance(batch, (list, tuple)) else batch
                model(given if device is None else given.to(device))
        except BaseException:
            finish_all(back)
            raise
        finally:
            for module, momentum in zip(norms, kept, strict=True):
                module.momentum = momentum
            model.train(was_training)


class SWALR(LRScheduler):
    """Anneals each group's rate to `swa_lr` within `anneal_epochs`, along a cosine or a line.

    The rate stays there.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        swa_lr: Any,
        anneal_epochs: int = 10,
        anneal_strategy: str = "cos",
        last_epoch: int = -1,
    ) -> None:
        groups = optimizer.param_groups
        rates = list(swa_lr) if isinstance(swa_lr, (list, tuple)) else [swa_lr] * len(groups)
        if len(rates) != len(groups):
            raise ValueError(
                f"SWALR: expected {len(groups)} values for swa_lr, one for each group, but got "
                f"{len(rates)}"
            )
        for group, rate in zip(groups, rates, strict=True):
            group["swa_lr"] = rate
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(
                f"anneal_strategy must by one of 'cos' or 'linear', instead got {anneal_strategy}"
            )
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise ValueError(f"anneal_epochs must be equal or greater than 0, got {anneal_epochs}")
        self._anneal_strategy = anneal_strategy
        self.anneal_epochs = anneal_epochs
        super().__init__(optimizer, last_epoch)

    def _share(self, step: int) -> float:
        """The annealed share, from 0 to 1."""
        t = max(0.0, min(1.0, step / max(1, self.anneal_epochs)))
        return t if self._anneal_strategy == "linear" else (1 - math.cos(math.pi * t)) / 2

    def get_lr(self) -> list[Any]:
        step = self._step_count - 1
        if self.anneal_epochs == 0:
            step = max(1, step)
        before, now = self._share(step - 1), self._share(step)

        def rate(group: Group) -> Any:
            end = group["swa_lr"]
            start = end if before == 1 else (group["lr"] - before * end) / (1 - before)
            return end * now + start * (1 - now)

        return [rate(group) for group in self._groups]
