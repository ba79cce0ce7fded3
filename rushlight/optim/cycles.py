"""Learning rates, with momentum, that rise and fall: CyclicLR, OneCycleLR."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rushlight.optim.optimizer import Group, Optimizer
from rushlight.optim.schedules import LRScheduler


def _each(name: str, optimizer: Optimizer, given: float | Sequence[float]) -> list[float]:
    """One number for each group."""
    count = len(optimizer.param_groups)
    if not isinstance(given, (list, tuple)):
        return [given] * count  # type: ignore[list-item]
    if len(given) != count:
        raise ValueError(f"{name}: {len(given)} numbers for {count} groups")
    return list(given)


def _takes_betas(name: str, optimizer: Optimizer) -> bool:
    if "betas" not in optimizer.defaults and "momentum" not in optimizer.defaults:
        raise ValueError(
            f"{name}: the optimiser has neither momentum nor betas; pass cycle_momentum=False"
        )
    return "betas" in optimizer.defaults


def _set_momentum(group: Group, momentum: float, betas: bool) -> None:
    if betas:
        group["betas"] = (momentum, *group["betas"][1:])
    else:
        group["momentum"] = momentum


class _WithMomentum(LRScheduler):
    """A schedule that may change the momentum too."""

    cycle_momentum: bool
    use_beta1: bool

    def _start_momentum(
        self,
        optimizer: Optimizer,
        base: float | Sequence[float],
        most: float | Sequence[float],
        last_epoch: int,
    ) -> None:
        name = type(self).__name__
        self.use_beta1 = _takes_betas(name, optimizer)
        self.base_momentums = _each(name, optimizer, base)
        self.max_momentums = _each(name, optimizer, most)
        if last_epoch != -1:
            return
        for group, low, high in zip(
            optimizer.param_groups, self.base_momentums, self.max_momentums, strict=True
        ):
            _set_momentum(group, high, self.use_beta1)
            group["max_momentum"], group["base_momentum"] = high, low


class CyclicLR(_WithMomentum):
    """From `base_lr` up to `max_lr` and down again, repeatedly; the momentum goes the other way.

    The height of the cycles stays ("triangular"), halves ("triangular2"), decays with each step
    ("exp_range"), or is `scale_fn` of the number of the cycle or of the step.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        base_lr: float | Sequence[float],
        max_lr: float | Sequence[float],
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: str = "triangular",
        gamma: float = 1.0,
        scale_fn: Callable[[float], float] | None = None,
        scale_mode: str = "cycle",
        cycle_momentum: bool = True,
        base_momentum: float | Sequence[float] = 0.8,
        max_momentum: float | Sequence[float] = 0.9,
        last_epoch: int = -1,
    ) -> None:
        if mode not in ("triangular", "triangular2", "exp_range") and scale_fn is None:
            raise ValueError(
                f"CyclicLR: mode is 'triangular', 'triangular2' or 'exp_range', got {mode!r}"
            )
        starts = _each("CyclicLR", optimizer, base_lr)
        if last_epoch == -1:
            for start, group in zip(starts, optimizer.param_groups, strict=True):
                group["lr"] = start
        self.max_lrs = _each("CyclicLR", optimizer, max_lr)
        up = float(step_size_up)
        self.total_size = up + (up if step_size_down is None else float(step_size_down))
        self.step_ratio = up / self.total_size
        self.mode = mode
        self.gamma = gamma
        self._scale_fn_custom = scale_fn
        self.scale_mode = (
            scale_mode if scale_fn is not None else "iterations" if mode == "exp_range" else "cycle"
        )
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self._start_momentum(optimizer, base_momentum, max_momentum, last_epoch)
        super().__init__(optimizer, last_epoch)
        self.base_lrs = starts

    def scale_fn(self, x: float) -> float:
        if self._scale_fn_custom is not None:
            return self._scale_fn_custom(x)
        return {"triangular": 1.0, "triangular2": 1 / 2.0 ** (x - 1), "exp_range": self.gamma**x}[
            self.mode
        ]

    def get_lr(self) -> list[Any]:
        cycle = math.floor(1 + self.last_epoch / self.total_size)
        x = 1.0 + self.last_epoch / self.total_size - cycle
        height = x / self.step_ratio if x <= self.step_ratio else (x - 1) / (self.step_ratio - 1)
        height_scale = self.scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch)
        if self.cycle_momentum:
            for group, low, high in zip(
                self._groups, self.base_momentums, self.max_momentums, strict=True
            ):
                _set_momentum(group, high - (high - low) * height * height_scale, self.use_beta1)
        return [
            low + (high - low) * height * height_scale
            for low, high in zip(self.base_lrs, self.max_lrs, strict=True)
        ]

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"_scale_fn_custom": None}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        super().load_state_dict(
            {name: value for name, value in state_dict.items() if name != "_scale_fn_custom"}
        )


def _cosine(start: float, end: float, share: float) -> float:
    return end + (start - end) / 2.0 * (math.cos(math.pi * share) + 1)


def _interpolate(start: float, end: float, share: float) -> float:
    return (end - start) * share + start


# A phase of one cycle: its last step, and the names of a group's start and end values of rate and
# momentum.
Phase = tuple[float, str, str, str, str]


class OneCycleLR(_WithMomentum):
    """Up to `max_lr` in a share of all steps, then down far below the start.

    The momentum goes the other way.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float | Sequence[float],
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = True,
        base_momentum: float | Sequence[float] = 0.85,
        max_momentum: float | Sequence[float] = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ) -> None:
        if total_steps is None:
            if epochs is None or steps_per_epoch is None:
                raise ValueError("OneCycleLR: pass total_steps, or epochs and steps_per_epoch")
            total_steps = epochs * steps_per_epoch
        if not isinstance(total_steps, int) or total_steps <= 0:
            raise ValueError(
                f"OneCycleLR: the number of steps must be a positive integer, got {total_steps}"
            )
        if not isinstance(pct_start, float) or not 0 <= pct_start <= 1:
            raise ValueError(
                f"OneCycleLR: pct_start must be a float between 0 and 1, got {pct_start}"
            )
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(
                f"OneCycleLR: anneal_strategy is 'cos' or 'linear', got {anneal_strategy!r}"
            )
        self.total_steps = total_steps
        self._anneal_func_type = anneal_strategy
        self._phases = _phases(total_steps, pct_start, three_phase)
        if last_epoch == -1:
            for group, most in zip(
                optimizer.param_groups, _each("OneCycleLR", optimizer, max_lr), strict=True
            ):
                group["initial_lr"], group["max_lr"] = most / div_factor, most
                group["min_lr"] = group["initial_lr"] / final_div_factor
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self._start_momentum(optimizer, base_momentum, max_momentum, last_epoch)
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        now = self.last_epoch
        if now > self.total_steps:
            raise ValueError(
                f"OneCycleLR: step {now} of {self.total_steps}; make it with more total_steps"
            )
        before = 0.0
        end, start_rate, end_rate, start_momentum, end_momentum = self._phases[-1]
        for phase in self._phases:
            end, start_rate, end_rate, start_momentum, end_momentum = phase
            if now <= end or phase is self._phases[-1]:
                break
            before = end
        share = (now - before) / (end - before)
        between = _cosine if self._anneal_func_type == "cos" else _interpolate
        if self.cycle_momentum:
            for group in self._groups:
                _set_momentum(
                    group,
                    between(group[start_momentum], group[end_momentum], share),
                    self.use_beta1,
                )
        return [between(group[start_rate], group[end_rate], share) for group in self._groups]


def _phases(total: int, share: float, three: bool) -> list[Phase]:
    up = (float(share * total) - 1, "initial_lr", "max_lr", "max_momentum", "base_momentum")
    if not three:
        return [up, (total - 1, "max_lr", "min_lr", "base_momentum", "max_momentum")]
    down = (float(2 * share * total) - 2, "max_lr", "initial_lr", "base_momentum", "max_momentum")
    return [up, down, (total - 1, "initial_lr", "min_lr", "max_momentum", "max_momentum")]
