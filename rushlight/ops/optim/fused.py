"""Optimisers' formulas: a whole step of one parameter is one kernel, written into the parameter and its state.

What changes from step to step (rates, bias corrections) is a launch parameter, worked out in float64 by the optimiser;
what changes the formula (weight decay or none, ...) chooses another kernel.
"""

from __future__ import annotations

import functools

from rushlight.ops.surface.inplace import Update
from rushlight.scalar import build as s
from rushlight.scalar.ir import Expr


@functools.cache
def adam(decoupled: bool, decays: bool, amsgrad: bool, maximize: bool) -> Update:
    """On p, exp_avg, exp_avg_sq, (max_exp_avg_sq,) g. Decoupled decay scales p, the other adds to g."""

    def body(p: Expr, m: Expr, v: Expr, *rest: Expr) -> tuple[Expr, ...]:
        *top, g, towards_g, keep, towards_square, rate, correction, eps, decay = rest
        if maximize:
            g = -g
        if decays and decoupled:
            p = p * decay
        elif decays:
            g = g + p * decay
        m = m + (g - m) * towards_g
        v = v * keep + g * g * towards_square
        top = [s.maximum(t, v) for t in top]
        size = s.sqrt(top[0] if top else v) / correction + eps
        return (p - rate * (m / size), m, v, *top)

    name = "adamw" if decoupled else "adam"
    return Update(
        name, body, 4 if amsgrad else 3, 7, "Mean gradient over the root of its mean square."
    )


@functools.cache
def sgd(has_momentum: bool, nesterov: bool, decays: bool, maximize: bool) -> Update:
    """On p, (momentum_buffer,) g."""

    def body(p: Expr, *rest: Expr) -> tuple[Expr, ...]:
        *buffers, g, rate, decay, momentum, share, ahead = rest
        if maximize:
            g = -g
        if decays:
            g = g + p * decay
        if not has_momentum:
            return (p - g * rate,)
        buffer = buffers[0] * momentum + g * share
        g = g + buffer * ahead if nesterov else buffer
        return p - g * rate, buffer

    return Update(
        "sgd", body, 2 if has_momentum else 1, 5, "A step against the gradient, with momentum."
    )
