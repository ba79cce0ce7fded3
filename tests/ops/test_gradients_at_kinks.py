"""Gradients at ties, bounds and zeros, to second order, on every device.

The numbers are those of PyTorch 2.13 on its CPU. `second` is the gradient of the sum of the first
gradient; it is left out where PyTorch's is NaN or missing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import rushlight as rl
from rushlight.nn import functional as F

INF = math.inf
Z = [-1.0, -0.0, 0.0, 1.0]
ROWS = [[1.0, 2.0, 2.0], [3.0, 3.0, 3.0]]
THIRD = 1 / 3
EDGES = [-2.0, -1.0, 0.0, 1.0, 2.0]
FAR = [-200.0, 0.0, 200.0]


class Kink(NamedTuple):
    """A function, its inputs, and the gradients of the sum of its result."""

    name: str
    function: Callable[..., Any]
    inputs: list[Any]
    first: list[Any]
    second: list[Any] | None = None


def first_of(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args: function(*args)[0]


TIES = [
    Kink("amax", lambda x: x.amax(1), [ROWS], [[[0, 0.5, 0.5], [THIRD] * 3]]),
    Kink("amin", lambda x: x.amin(1), [ROWS], [[[1, 0, 0], [THIRD] * 3]]),
    Kink("amax of all", lambda x: x.amax(), [ROWS], [[[0, 0, 0], [THIRD] * 3]]),
    Kink("max of all", lambda x: x.max(), [ROWS], [[[0, 0, 0], [THIRD] * 3]]),
    Kink("aminmax", lambda x: rl.aminmax(x)[1], [ROWS], [[[0, 0, 0], [THIRD] * 3]]),
    Kink("max along", first_of(lambda x: x.max(1)), [ROWS], [[[0, 1, 0], [1, 0, 0]]]),
    Kink("min along", first_of(lambda x: x.min(1)), [ROWS], [[[1, 0, 0], [1, 0, 0]]]),
    Kink("median of all", lambda x: x.median(), [[2.0, 1.0, 2.0, 3.0]], [[0.5, 0, 0.5, 0]]),
    Kink("topk", first_of(lambda x: x.topk(2, 1)), [ROWS], [[[0, 1, 1], [1, 1, 0]]]),
    Kink("sort", lambda x: x.sort(1)[0].cumsum(1), [ROWS], [[[3, 2, 1], [3, 2, 1]]]),
    Kink("cummax", first_of(lambda x: x.cummax(0)), [[1.0, 1.0, 0.0, 2.0, 2.0]], [[1, 2, 0, 1, 1]]),
    Kink("cummin", first_of(lambda x: x.cummin(0)), [[1.0, 1.0, 2.0, 0.0, 0.0]], [[1, 2, 0, 1, 1]]),
    Kink("maximum", rl.maximum, [[1.0, 2.0, 3.0], [1.0, 5.0, 0.0]], [[0.5, 0, 1], [0.5, 1, 0]]),
    Kink("minimum", rl.minimum, [[1.0, 2.0, 3.0], [1.0, 5.0, 0.0]], [[0.5, 1, 0], [0.5, 0, 1]]),
    Kink("fmax", rl.fmax, [[1.0, 2.0, 3.0], [1.0, 5.0, 0.0]], [[1, 0, 1], [0, 1, 0]]),
    Kink("fmin", rl.fmin, [[1.0, 2.0, 3.0], [1.0, 5.0, 0.0]], [[1, 1, 0], [0, 0, 1]]),
    Kink(
        "max_pool1d", lambda x: F.max_pool1d(x, 2), [[[[4.0, 4.0, 1.0, 2.0]]]], [[[[1, 0, 0, 1]]]]
    ),
    Kink("scatter_reduce amax", lambda x: _largest(x), [[2.0, 2.0, 1.0]], [[0.5, 0.5, 0]]),
]
BOUNDS = [
    Kink("clamp", lambda x: x.clamp(-1, 1), [EDGES], [[0, 1, 1, 1, 0]]),
    Kink("clamp below", lambda x: x.clamp(min=-1), [EDGES], [[0, 1, 1, 1, 1]]),
    Kink("clamp above", lambda x: x.clamp(max=1), [EDGES], [[1, 1, 1, 1, 0]]),
    Kink(
        "clamp by tensors",
        rl.clamp,
        [EDGES, [-1.0] * 5, [1.0] * 5],
        [[0, 1, 1, 1, 0], [1, 0, 0, 0, 0], [0, 0, 0, 0, 1]],
    ),
    Kink("hardtanh", F.hardtanh, [EDGES], [[0, 0, 1, 0, 0]], [[0] * 5]),
    Kink("relu6", F.relu6, [[-1.0, 0.0, 3.0, 6.0, 7.0]], [[0, 0, 1, 0, 0]], [[0] * 5]),
    Kink(
        "threshold", lambda x: F.threshold(x, 1.0, 5.0), [[0.0, 1.0, 2.0]], [[0, 0, 1]], [[0] * 3]
    ),
    Kink("hardswish", F.hardswish, [[-3.0, 0.0, 3.0]], [[0, 0.5, 1]], [[0, THIRD, 0]]),
    Kink("hardshrink", F.hardshrink, [[-0.5, 0.0, 0.5, 1.0]], [[0, 0, 0, 1]], [[0] * 4]),
    Kink("softshrink", F.softshrink, [[-0.5, 0.0, 0.5, 1.0]], [[0, 0, 0, 1]], [[0] * 4]),
    Kink(
        "smooth_l1",
        lambda x: _loss(F.smooth_l1_loss, x),
        [[0.0, 1.0, -1.0, 2.0]],
        [[0, 1, -1, 1]],
        [[1, 0, 0, 0]],
    ),
    Kink(
        "huber",
        lambda x: _loss(F.huber_loss, x),
        [[0.0, 1.0, -1.0, 2.0]],
        [[0, 1, -1, 1]],
        [[1, 0, 0, 0]],
    ),
    Kink("floor", rl.floor, [Z], [[0] * 4]),
    Kink("round", rl.round, [[0.5, 1.5]], [[0, 0]]),
    Kink("frac", rl.frac, [Z], [[1] * 4]),
    Kink("fmod", rl.fmod, [[5.0, -5.0], [2.0, 2.0]], [[1, 1], [-2, 2]]),
    Kink("remainder", rl.remainder, [[5.0, -5.0], [2.0, 2.0]], [[1, 1], [-2, 3]]),
]
POWERS = [
    Kink("x ** 0", lambda x: x**0, [Z], [[0] * 4]),
    Kink("x ** 0.0", lambda x: x**0.0, [Z], [[0] * 4]),
    Kink("x ** 1", lambda x: x**1, [Z], [[1] * 4], [[0] * 4]),
    Kink("x ** 2", lambda x: x**2, [Z], [[-2, 0, 0, 2]], [[2] * 4]),
    Kink("x ** 3", lambda x: x**3, [Z], [[3, 0, 0, 3]], [[-6, 0, 0, 6]]),
    Kink("x ** 1.5", lambda x: x**1.5, [[0.0, 1.0, 4.0]], [[0, 1.5, 3]], [[INF, 0.75, 0.375]]),
    Kink(
        "x ** 0.5",
        lambda x: x**0.5,
        [[0.0, 1.0, 4.0]],
        [[INF, 0.5, 0.25]],
        [[-INF, -0.25, -0.03125]],
    ),
    Kink("x ** -1", lambda x: x**-1, [[0.0, 1.0, -2.0]], [[-INF, -1, -0.25]], [[INF, 2, -0.25]]),
    Kink(
        "pow",
        rl.pow,
        [[0.0, 0.0, 0.0, 2.0], [0.0, 1.0, 2.0, 3.0]],
        [[0, 1, 0, 12], [0, 0, 0, 8 * math.log(2)]],
    ),
    Kink("0 ** x", lambda x: 0.0**x, [[0.0, 1.0, 2.0]], [[0] * 3]),
    Kink("sqrt", rl.sqrt, [[0.0, 1.0, 4.0]], [[INF, 0.5, 0.25]], [[-INF, -0.25, -0.03125]]),
    Kink("rsqrt", rl.rsqrt, [[0.0, 1.0, 4.0]], [[-INF, -0.5, -0.0625]], [[INF, 0.75, 0.0234375]]),
    Kink("log", rl.log, [[0.0, 1.0]], [[INF, 1]], [[-INF, -1]]),
    Kink(
        "prod",
        lambda x: x.prod(1),
        [[[0.0, 2.0, 3.0], [0.0, 0.0, 3.0], [4.0, 2.0, 3.0]]],
        [[[6, 0, 0], [0, 0, 0], [6, 12, 8]]],
        [[[5, 3, 2], [3, 3, 0], [5, 7, 6]]],
    ),
    Kink(
        "cumprod",
        lambda x: x.cumprod(0),
        [[2.0, 0.0, 3.0, 0.0, 5.0]],
        [[1, 8, 0, 0, 0]],
        [[4, 42, 2, 36, 0]],
    ),
]
UNITS = [
    Kink("abs", rl.abs, [Z], [[-1, 0, 0, 1]]),
    Kink("sign", rl.sign, [Z], [[0] * 4]),
    Kink("relu", rl.relu, [Z], [[0, 0, 0, 1]], [[0] * 4]),
    Kink("leaky_relu", lambda x: F.leaky_relu(x, 0.5), [Z], [[0.5, 0.5, 0.5, 1]], [[0] * 4]),
    Kink("elu", F.elu, [Z], [[math.exp(-1), 1, 1, 1]], [[math.exp(-1), 0, 0, 0]]),
    Kink(
        "selu", F.selu, [Z], [[0.6467686, 1.7580993, 1.7580993, 1.0507010]], [[0.6467686, 0, 0, 0]]
    ),
    Kink("silu", F.silu, [FAR], [[0, 0.5, 1]], [[0, 0.5, 0]]),
    Kink("softplus", F.softplus, [FAR], [[0, 0.5, 1]], [[0, 0.25, 0]]),
    Kink("logsigmoid", F.logsigmoid, [FAR], [[1, 0.5, 0]], [[0, -0.25, 0]]),
    Kink("i0", rl.special.i0, [[0.0]], [[0]], [[0.5]]),
]
NORMS = [
    Kink("norm", lambda x: x.norm(), [[0.0, 0.0]], [[0, 0]]),
    Kink("1-norm", lambda x: rl.linalg.vector_norm(x, 1), [[0.0, 0.0, 1.0]], [[0, 0, 1]]),
    Kink("3-norm", lambda x: rl.linalg.vector_norm(x, 3), [[0.0, 0.0]], [[0, 0]], [[0, 0]]),
    Kink("largest", lambda x: rl.linalg.vector_norm(x, INF), [[0.0, 2.0, -2.0]], [[0, 0.5, -0.5]]),
    Kink("matrix norm", rl.linalg.matrix_norm, [[[0.0, 0.0], [0.0, 0.0]]], [[[0, 0], [0, 0]]]),
    Kink("std", lambda x: x.std(), [[1.0, 1.0, 1.0]], [[0, 0, 0]], [[0, 0, 0]]),
    Kink("var", lambda x: x.var(), [[1.0, 1.0, 1.0]], [[0, 0, 0]], [[0, 0, 0]]),
    Kink("dist", rl.dist, [[1.0, 1.0], [1.0, 1.0]], [[0, 0], [0, 0]]),
    Kink(
        "cdist",
        lambda x: rl.cdist(x, rl.zeros_like(x[:1])),
        [[[0.0, 0.0], [3.0, 4.0]]],
        [[[0, 0], [0.6, 0.8]]],
    ),
    Kink("atan2", rl.atan2, [[0.0, 1.0], [0.0, 0.0]], [[0, 0], [0, -1]]),
    Kink("softmax", lambda x: x.softmax(0), [[-INF, 0.0]], [[0, 0]], [[0, 0]]),
    Kink("logaddexp", rl.logaddexp, [[-INF, 0.0], [0.0, -INF]], [[0, 1], [1, 0]]),
]
KINKS = TIES + BOUNDS + POWERS + UNITS + NORMS


def _largest(x: Any) -> Any:
    index = rl.zeros(3, dtype=rl.int64, device=x.device)
    return rl.zeros_like(x[:1]).detach().scatter_reduce(0, index, x, "amax", include_self=False)


def _loss(loss: Callable[..., Any], x: Any) -> Any:
    return loss(x, rl.zeros_like(x), reduction="none")


def differs(got: Any, want: Any) -> bool:
    return not np.allclose(np.asarray(got.tolist()), np.asarray(want, float), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kink", KINKS, ids=lambda kink: kink.name)
def test_kink(kink: Kink, device: str):
    leaves = [rl.tensor(x, device=device, requires_grad=True) for x in kink.inputs]
    out = kink.function(*leaves)
    found = rl.autograd.grad(out, leaves, rl.ones_like(out), create_graph=True)
    bad = [
        (i, g.tolist(), want)
        for i, (g, want) in enumerate(zip(found, kink.first, strict=True))
        if differs(g, want)
    ]
    assert not bad, f"{kink.name}: (input, gradient, PyTorch's) {bad}"
    if kink.second is not None:
        total = sum((g.sum() for g in found[1:]), found[0].sum())
        again = rl.autograd.grad(total, leaves)
        wrong = [
            (g.tolist(), want)
            for g, want in zip(again, kink.second, strict=True)
            if differs(g, want)
        ]
        assert not wrong, f"{kink.name}: (second gradient, PyTorch's) {wrong}"
