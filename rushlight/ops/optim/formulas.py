"""Formulas of the optimisers beside SGD and Adam; see ops/optim/fused.py for how they are used.

Every body is called with the parameter, its state, the gradient, and the step's numbers.
"""

from __future__ import annotations

import functools

from rushlight.ops.surface.inplace import Update
from rushlight.scalar import build as s
from rushlight.scalar.ir import Expr, const


def _gradient(p: Expr, g: Expr, decay: Expr, decays: bool, maximize: bool) -> Expr:
    g = -g if maximize else g
    return g + p * decay if decays else g


@functools.cache
def adadelta(decays: bool, maximize: bool) -> Update:
    """On p, square_avg, acc_delta, g."""

    def body(
        p: Expr, v: Expr, w: Expr, g: Expr, lr: Expr, rho: Expr, rest: Expr, eps: Expr, decay: Expr
    ) -> tuple[Expr, ...]:
        g = _gradient(p, g, decay, decays, maximize)
        v = v * rho + g * g * rest
        delta = s.sqrt(w + eps) / s.sqrt(v + eps) * g
        return p - delta * lr, v, w * rho + delta * delta * rest

    return Update(
        "adadelta",
        body,
        3,
        5,
        "Steps in the units of the parameter: root mean squares of steps and gradients.",
    )


@functools.cache
def adagrad(decays: bool, maximize: bool) -> Update:
    """On p, sum, g."""

    def body(p: Expr, total: Expr, g: Expr, rate: Expr, eps: Expr, decay: Expr) -> tuple[Expr, ...]:
        g = _gradient(p, g, decay, decays, maximize)
        total = total + g * g
        return p - rate * (g / (s.sqrt(total) + eps)), total

    return Update("adagrad", body, 2, 3, "The gradient over the root of the sum of its squares.")


@functools.cache
def adamax(decays: bool, maximize: bool) -> Update:
    """On p, exp_avg, exp_inf, g."""

    def body(
        p: Expr,
        m: Expr,
        top: Expr,
        g: Expr,
        rate: Expr,
        towards: Expr,
        keep: Expr,
        eps: Expr,
        decay: Expr,
    ) -> tuple[Expr, ...]:
        g = _gradient(p, g, decay, decays, maximize)
        m = m + (g - m) * towards
        top = s.maximum(top * keep, s.absolute(g) + eps)
        return p - rate * (m / top), m, top

    return Update("adamax", body, 3, 5, "Mean gradient over its fading largest size.")


def _decayed(
    p: Expr, g: Expr, decay: Expr, decays: bool, decoupled: bool, maximize: bool
) -> tuple[Expr, Expr]:
    """Decoupled decay scales p, the other adds to g."""
    if decays and decoupled:
        return p * decay, -g if maximize else g
    return p, _gradient(p, g, decay, decays, maximize)


@functools.cache
def nadam(decays: bool, decoupled: bool, maximize: bool) -> Update:
    """On p, exp_avg, exp_avg_sq, g."""

    def body(p: Expr, m: Expr, v: Expr, g: Expr, *numbers: Expr) -> tuple[Expr, ...]:
        towards, keep, rest, correction, now, ahead, eps, decay = numbers
        p, g = _decayed(p, g, decay, decays, decoupled, maximize)
        m = m + (g - m) * towards
        v = v * keep + g * g * rest
        size = s.sqrt(v / correction) + eps
        return p - now * (g / size) - ahead * (m / size), m, v

    return Update("nadam", body, 3, 8, "Adam that looks ahead with its momentum.")


@functools.cache
def radam(decays: bool, decoupled: bool, maximize: bool, rectified: bool) -> Update:
    """On p, exp_avg, exp_avg_sq, g; before enough steps are made the variance is not used."""

    def body(p: Expr, m: Expr, v: Expr, g: Expr, *numbers: Expr) -> tuple[Expr, ...]:
        towards, keep, rest, rate, correction, eps, decay = numbers
        p, g = _decayed(p, g, decay, decays, decoupled, maximize)
        m = m + (g - m) * towards
        v = v * keep + g * g * rest
        step = m * rate
        return p - (step * (correction / (s.sqrt(v) + eps)) if rectified else step), m, v

    return Update("radam", body, 3, 7, "Adam whose first steps do not trust the variance.")


@functools.cache
def rmsprop(decays: bool, maximize: bool, centred: bool, has_momentum: bool) -> Update:
    """On p, square_avg, (grad_avg,) (momentum_buffer,) g."""

    def body(p: Expr, v: Expr, *rest: Expr) -> tuple[Expr, ...]:
        *kept, g, rate, keep, share, eps, momentum, decay = rest
        g = _gradient(p, g, decay, decays, maximize)
        v = v * keep + g * g * share
        spread = v
        if centred:
            kept[0] = kept[0] + (g - kept[0]) * share
            spread = v - kept[0] * kept[0]
        step = g / (s.sqrt(spread) + eps)
        if has_momentum:
            kept[-1] = step = kept[-1] * momentum + step
        return (p - rate * step, v, *kept)

    return Update(
        "rmsprop",
        body,
        2 + centred + has_momentum,
        6,
        "The gradient over the root of its mean square.",
    )


@functools.cache
def asgd(decays: bool, maximize: bool) -> Update:
    """On p, ax, g: a step, and the mean of the parameters so far."""

    def body(
        p: Expr, mean: Expr, g: Expr, shrink: Expr, rate: Expr, share: Expr, decay: Expr
    ) -> tuple[Expr, ...]:
        p = p * shrink - rate * _gradient(p, g, decay, decays, maximize)
        return p, mean + (p - mean) * share

    return Update(
        "asgd", body, 2, 4, "A step against the gradient, and a running mean of where it led."
    )


@functools.cache
def rprop(maximize: bool) -> Update:
    """On p, prev, step_size, g: sizes grow where the sign stays and shrink where it turns."""

    def body(p: Expr, before: Expr, size: Expr, g: Expr, *numbers: Expr) -> tuple[Expr, ...]:
        shrink, grow, least, most = numbers
        zero, one = const(0, p.dtype), const(1, p.dtype)
        g = -g if maximize else g
        turn = g * before
        size = size * s.where(turn > 0, grow, s.where(turn < 0, shrink, one))
        size = s.minimum(s.maximum(size, least), most)
        g = s.where(turn < 0, zero, g)
        return p - s.where(g > 0, size, s.where(g < 0, -size, zero)), g, size

    return Update(
        "rprop",
        body,
        3,
        4,
        "Steps of a size of their own for each element, by the sign of its gradient.",
    )
