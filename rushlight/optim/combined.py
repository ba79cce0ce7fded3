"""Schedules of schedules, and a schedule by a metric.

They are SequentialLR, ChainedScheduler and ReduceLROnPlateau.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any, SupportsFloat

from rushlight.optim.optimizer import Optimizer
from rushlight.optim.schedules import LRScheduler
from rushlight.tensor import Tensor


def _check_schedulers(name: str, optimizer: Optimizer, schedulers: Sequence[Any]) -> None:
    if not schedulers:
        raise ValueError(f"{name}: at least one scheduler is needed")
    for i, scheduler in enumerate(schedulers):
        if not hasattr(scheduler, "optimizer"):
            raise TypeError(
                f"{name}: number {i}, {type(scheduler).__name__}, is no scheduler: it has no "
                "optimizer"
            )
        if isinstance(scheduler, ReduceLROnPlateau):
            raise ValueError(
                f"{name}: number {i}, ReduceLROnPlateau, steps by a measurement and cannot be one "
                "of them"
            )
        if scheduler.optimizer is not optimizer:
            raise ValueError(
                f"{name}: number {i}, {type(scheduler).__name__}, is of another optimiser"
            )


class _Several(LRScheduler):
    """A schedule made of others; their states are part of its state."""

    _schedulers: list[Any]

    def state_dict(self) -> dict[str, Any]:
        state = {
            name: value for name, value in super().state_dict().items() if name != "_schedulers"
        }
        return {**state, "_schedulers": [scheduler.state_dict() for scheduler in self._schedulers]}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        kept = dict(state_dict)
        for scheduler, state in zip(self._schedulers, kept.pop("_schedulers"), strict=True):
            scheduler.load_state_dict(state)
        self.__dict__.update(kept)


def _undo(scheduler: Any) -> None:
    """Undo the step that the constructor of a schedule made."""
    for inner in getattr(scheduler, "_schedulers", ()):
        _undo(inner)
    if not hasattr(scheduler, "_schedulers"):
        scheduler.last_epoch -= 1


class SequentialLR(_Several):
    """One schedule after the other, changing at the milestones."""

    def __init__(
        self,
        optimizer: Optimizer,
        schedulers: list[Any],
        milestones: list[int],
        last_epoch: int = -1,
    ) -> None:
        _check_schedulers("SequentialLR", optimizer, schedulers)
        if len(milestones) != len(schedulers) - 1:
            raise ValueError(
                f"SequentialLR: {len(schedulers)} schedulers change at {len(schedulers) - 1} "
                f"milestones, got {milestones}"
            )
        self._schedulers = schedulers
        self._milestones = milestones
        self.last_epoch = last_epoch + 1
        self.optimizer = optimizer
        for group in optimizer.param_groups:
            group["lr"] = group["initial_lr"]
        for scheduler in schedulers:
            _undo(scheduler)
        first = schedulers[bisect_right(milestones, 0)]
        first._initial_step()
        self._last_lr = first.get_last_lr()

    def step(self, epoch: int | None = None) -> None:
        self.last_epoch += 1
        at = bisect_right(self._milestones, self.last_epoch)
        scheduler = self._schedulers[at]
        if at > 0 and self._milestones[at - 1] == self.last_epoch:
            scheduler._update_lr(0)
        else:
            scheduler.step()
        self._last_lr = scheduler.get_last_lr()


class ChainedScheduler(_Several):
    """Several schedules at once: each changes the rate that the one before set."""

    def __init__(self, schedulers: Sequence[Any], optimizer: Optimizer | None = None) -> None:
        listed = list(schedulers)
        if not listed:
            raise ValueError("ChainedScheduler: at least one scheduler is needed")
        self.optimizer = optimizer if optimizer is not None else listed[0].optimizer
        _check_schedulers("ChainedScheduler", self.optimizer, listed)
        self._schedulers = listed
        self._last_lr = self._rates

    def step(self, epoch: int | None = None) -> None:
        for scheduler in self._schedulers:
            scheduler.step()
        self._last_lr = self._rates


class ReduceLROnPlateau(LRScheduler):
    """The rate times `factor` when a metric has not improved for `patience` epochs."""

    def __init__(
        self,
        optimizer: Optimizer,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: float | Sequence[float] = 0,
        eps: float = 1e-8,
    ) -> None:
        if factor >= 1:
            raise ValueError(f"ReduceLROnPlateau: factor must be below 1, got {factor}")
        if not isinstance(optimizer, Optimizer):
            raise TypeError(
                f"ReduceLROnPlateau: an Optimizer is needed, got {type(optimizer).__name__}"
            )
        if mode not in ("min", "max") or threshold_mode not in ("rel", "abs"):
            raise ValueError(
                "ReduceLROnPlateau: mode is 'min' or 'max' and threshold_mode 'rel' or 'abs', got "
                f"{mode!r} and {threshold_mode!r}"
            )
        self.optimizer = optimizer
        count = len(optimizer.param_groups)
        many = isinstance(min_lr, (list, tuple))
        self.min_lrs: list[Any] = list(min_lr) if many else [min_lr] * count  # type: ignore[arg-type]
        if len(self.min_lrs) != count:
            raise ValueError(f"ReduceLROnPlateau: {len(self.min_lrs)} of min_lr for {count} groups")
        self.factor = factor
        self.patience = patience
        self.cooldown = cooldown
        self.eps = eps
        self.mode = mode
        self.threshold = threshold
        self.threshold_mode = threshold_mode
        self.best = math.inf if mode == "min" else -math.inf
        self.cooldown_counter = self.num_bad_epochs = 0
        self.last_epoch = 0
        self._last_lr = self._rates

    @property
    def in_cooldown(self) -> bool:
        return self.cooldown_counter > 0

    def is_better(self, a: float, best: float) -> bool:
        sign = -1 if self.mode == "min" else 1
        bound = (
            best * (1 + sign * self.threshold)
            if self.threshold_mode == "rel"
            else best + sign * self.threshold
        )
        return a < bound if self.mode == "min" else a > bound

    def step(self, metrics: SupportsFloat, epoch: int | None = None) -> None:
        """After an epoch, with the metric: a number or a tensor of one element."""
        current = float(metrics.detach() if isinstance(metrics, Tensor) else metrics)
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        if self.is_better(current, self.best):
            self.best, self.num_bad_epochs = current, 0
        else:
            self.num_bad_epochs += 1
        if self.in_cooldown:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            self._reduce_lr(self.last_epoch)
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0
        self._last_lr = self._rates

    def _reduce_lr(self, epoch: int) -> None:
        """Lower the rates; a class may override it."""
        least = self.min_lrs + self.min_lrs[:1] * (len(self._groups) - len(self.min_lrs))
        for group, low in zip(self._groups, least, strict=True):
            old = float(group["lr"])
            new = max(old * self.factor, low)
            if old - new > self.eps:
                group["lr"] = new
