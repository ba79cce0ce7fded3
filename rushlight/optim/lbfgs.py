"""L-BFGS: Newton steps with an inverse Hessian approximated from past steps and gradients."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from rushlight.core.errors import RushlightError
from rushlight.ops.create import creation
from rushlight.ops.optim.whole_steps import Moves, held_apart
from rushlight.ops.view import views
from rushlight.ops.view.inplace import finish_all, prepare_copy
from rushlight.optim.optimizer import Optimizer
from rushlight.tape.record.state import enable_grad, no_grad
from rushlight.tensor import Tensor

# Of Wolfe's conditions: the share of the expected decrease, the flatness.
_RISE, _SLOPE = (
    1e-4,
    0.9,
)
_LEAST_BRACKET = 1e-9


@dataclass
class _Point:
    """A point along the direction: distance, loss, gradient, and directional derivative."""

    t: float
    loss: float
    gradient: Any
    slope: float


def _number(loss: Any) -> float:
    return float(loss.detach() if isinstance(loss, Tensor) else loss)


def _lowest_between(a: _Point, b: _Point, bounds: tuple[float, float] | None = None) -> float:
    """The minimum of the cubic through two points and their slopes."""
    low, high = bounds or (min(a.t, b.t), max(a.t, b.t))
    first = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.t - b.t)
    square = first * first - a.slope * b.slope
    if square < 0 or math.isnan(square):
        return (low + high) / 2
    root = math.sqrt(square)
    if a.t > b.t:
        a, b = b, a
    below = b.slope - a.slope + 2 * root
    place = b.t - (b.t - a.t) * ((b.slope + root - first) / below) if below else math.nan
    return (low + high) / 2 if math.isnan(place) else min(max(place, low), high)


class _LineSearch:
    """Searches along a direction for a point that fulfils Wolfe's conditions."""

    def __init__(
        self, evaluate: Callable[[float], _Point], start: _Point, size: float, most: int
    ) -> None:
        self.evaluate, self.start, self.size, self.most = evaluate, start, size, most
        self.calls = 0

    def at(self, t: float) -> _Point:
        self.calls += 1
        return self.evaluate(t)

    def _too_high(self, point: _Point) -> bool:
        return point.loss > self.start.loss + _RISE * point.t * self.start.slope

    def _flat(self, point: _Point) -> bool:
        return abs(point.slope) <= -_SLOPE * self.start.slope

    def run(self, t: float) -> _Point:
        before, now = self.start, self.at(t)
        rounds = 0
        while rounds < self.most:
            if self._too_high(now) or (rounds > 1 and now.loss >= before.loss):
                return self._narrow(before, now, rounds)
            if self._flat(now):
                return now
            if now.slope >= 0:
                return self._narrow(before, now, rounds)
            further = _lowest_between(before, now, (now.t + 0.01 * (now.t - before.t), now.t * 10))
            before, now = now, self.at(further)
            rounds += 1
        return min(self.start, now, key=lambda point: point.loss)

    def _narrow(self, a: _Point, b: _Point, rounds: int) -> _Point:
        """Search between two points; one between them fulfils the conditions."""
        ends = [a, b]
        low = 0 if a.loss <= b.loss else 1
        stuck = False
        while rounds < self.most and abs(ends[1].t - ends[0].t) * self.size >= _LEAST_BRACKET:
            t, stuck = self._inside(ends, stuck)
            point = self.at(t)
            rounds += 1
            if self._too_high(point) or point.loss >= ends[low].loss:
                ends[1 - low] = point
                low = 0 if ends[0].loss <= ends[1].loss else 1
                continue
            if self._flat(point):
                return point
            if point.slope * (ends[1 - low].t - ends[low].t) >= 0:
                ends[1 - low] = ends[low]
            ends[low] = point
        return ends[low]

    def _inside(self, ends: list[_Point], stuck: bool) -> tuple[float, bool]:
        """The next point; a second one near an end, or on it, is moved away from it."""
        t = _lowest_between(ends[0], ends[1])
        first, last = sorted(point.t for point in ends)
        margin = 0.1 * (last - first)
        if min(last - t, t - first) >= margin:
            return t, False
        if not stuck and first < t < last:
            return t, True
        return (last - margin if abs(t - last) < abs(t - first) else first + margin), False


def _reals(x: Any) -> Any:
    """A complex tensor as its real and imaginary parts, which are optimised; another unchanged."""
    return x.view_as_real() if x.dtype.kind == "c" else x


class LBFGS(Optimizer):
    """One `step(closure)` makes up to `max_iter` steps.

    The closure clears gradients, computes the loss and calls backward.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = None,
    ) -> None:
        if lr < 0:
            raise ValueError(f"LBFGS: lr must not be negative, got {lr}")
        if line_search_fn not in (None, "strong_wolfe"):
            raise RushlightError(
                f"LBFGS: line_search_fn is None or 'strong_wolfe', got {line_search_fn!r}"
            )
        options = {
            "lr": lr,
            "max_iter": max_iter,
            "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval,
        }
        options |= {"tolerance_grad": tolerance_grad, "tolerance_change": tolerance_change}
        super().__init__(
            params, {**options, "history_size": history_size, "line_search_fn": line_search_fn}
        )
        if len(self.param_groups) != 1:
            raise ValueError(
                "LBFGS: all parameters are in one group; it takes no options for some of them"
            )

    @property
    def _params(self) -> list[Tensor]:
        return self.param_groups[0]["params"]

    def _gradient(self) -> Any:
        parts = [
            creation.zeros_like(p) if p.grad is None else p.grad.detach() for p in self._params
        ]
        return held_apart(views.cat([views.reshape(_reals(part), (-1,)) for part in parts]))

    def _move(self, t: float, direction: Any) -> None:
        start = 0
        for p in self._params:
            reals = _reals(p)
            part: Any = views.slice_dim(direction, 0, start, reals.numel())
            reals.add_(part.reshape(reals.shape), alpha=t)
            start += reals.numel()

    def _evaluate(self, closure: Callable[[], Any], t: float, direction: Any) -> _Point:
        """The loss at a distance along the direction; the parameters are restored."""
        kept = [p.detach().clone() for p in self._params]
        self._move(t, direction)
        with enable_grad():
            loss = _number(closure())
        gradient = self._gradient()
        for p, old in zip(self._params, kept, strict=True):
            p.copy_(old)
        return _Point(t, loss, gradient, gradient.dot(direction).item())

    @no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """After an error the parameters and the history are restored."""
        if closure is None:
            raise TypeError("LBFGS.step: a closure that computes the loss anew is needed")
        known: dict[str, Any] = self.state.get(self._params[0], {})
        state = {
            name: list(value) if isinstance(value, list) else value for name, value in known.items()
        }
        back = [prepare_copy(p.detach(), p.detach().clone()) for p in self._params]
        try:
            loss = self._step(closure, state)
        except BaseException:
            finish_all(back)
            raise
        moves = Moves()
        moves.put(self.state, self._params[0], known)
        moves.replace(known, state)
        moves.make()
        return loss

    def _step(self, closure: Callable[[], Any], state: dict[str, Any]) -> Any:
        group = self.param_groups[0]
        state.setdefault("func_evals", 0)
        state.setdefault("n_iter", 0)
        with enable_grad():
            first = closure()
        calls = 1
        state["func_evals"] += 1
        now = _Point(0.0, _number(first), self._gradient(), 0.0)
        if now.gradient.abs().max().item() <= group["tolerance_grad"]:
            return first
        for n in range(1, group["max_iter"] + 1):
            state["n_iter"] += 1
            direction = self._direction(now.gradient, group["history_size"], state)
            state["prev_flat_grad"] = held_apart(now.gradient.clone())
            state["prev_loss"] = now.loss
            t = float(group["lr"])
            if state["n_iter"] == 1:
                size = now.gradient.abs().sum().item()
                t *= 1.0 if size <= 1 else 1.0 / size
            now.slope = now.gradient.dot(direction).item()
            state["d"], state["t"] = held_apart(direction), t
            if now.slope > -group["tolerance_change"]:
                break
            before, last = now.loss, n == group["max_iter"]
            now, made = self._advance(closure, t, direction, now, group["max_eval"] - calls, last)
            t = state["t"] = now.t
            calls += made
            state["func_evals"] += made
            moved = direction.abs().max().item() * abs(t)
            flat = now.gradient.abs().max().item() <= group["tolerance_grad"]
            stands = (
                moved <= group["tolerance_change"]
                or abs(now.loss - before) < group["tolerance_change"]
            )
            if last or calls >= group["max_eval"] or flat or stands:
                break
        return first

    def _advance(
        self,
        closure: Callable[[], Any],
        t: float,
        direction: Any,
        now: _Point,
        left: int,
        last: bool,
    ) -> tuple[_Point, int]:
        """Make a step; returns the new point, and the number of loss evaluations."""
        if self.param_groups[0]["line_search_fn"] is not None:
            start = _Point(0.0, now.loss, now.gradient, now.slope)
            size = direction.abs().max().item()
            search = _LineSearch(
                lambda at: self._evaluate(closure, at, direction), start, size, left
            )
            found = search.run(t)
            self._move(found.t, direction)
            return found, search.calls
        self._move(t, direction)
        if last:  # with a random loss another evaluation is of no use
            return _Point(t, now.loss, now.gradient, now.slope), 0
        with enable_grad():
            loss = _number(closure())
        return _Point(t, loss, self._gradient(), 0.0), 1

    def _direction(self, gradient: Any, most: int, state: dict[str, Any]) -> Any:
        """Minus the gradient times the approximated inverse Hessian."""
        if state["n_iter"] == 1:
            state.update(old_dirs=[], old_stps=[], ro=[], H_diag=1.0)
            return -gradient
        y, s = gradient - state["prev_flat_grad"], state["d"] * state["t"]
        changes, steps, ro = state["old_dirs"], state["old_stps"], state["ro"]
        along = y.dot(s).item()
        if along > 1e-10:
            if len(changes) == most:
                for kept in (changes, steps, ro):
                    kept.pop(0)
            changes.append(held_apart(y))
            steps.append(held_apart(s))
            ro.append(1.0 / along)
            state["H_diag"] = along / y.dot(y).item()
        q = -gradient
        shares = []
        for change, step, factor in zip(
            reversed(changes), reversed(steps), reversed(ro), strict=True
        ):
            share = step.dot(q).item() * factor
            shares.append(share)
            q = q - change * share
        r = q * state["H_diag"]
        for change, step, factor, share in zip(changes, steps, ro, reversed(shares), strict=True):
            r = r + step * (share - change.dot(r).item() * factor)
        return r
