"""Gradient rules by name: a function of tensors, and inputs away from kinks.

`test_gradient_rules.py` checks each to second order and that no operand leaves the device.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import rushlight as rl
import rushlight.nn.functional as F
from tests.devices.services import sample

Rule = tuple[Callable, tuple[np.ndarray, ...]]

A, POSITIVE, ROW, COLUMN = (
    sample(3, 4),
    sample(3, 4, seed=2, low=0.5),
    sample(1, 4, seed=3, low=0.5),
    sample(3, 1, seed=4),
)
DISTINCT = np.random.default_rng(5).permutation(24).reshape(2, 3, 4).astype(np.float32) / 12 - 1
IMAGE = (
    np.random.default_rng(6).permutation(2 * 4 * 36).reshape(2, 4, 6, 6).astype(np.float32) / 144
    - 1
)
LINE = sample(2, 4, 7)
INDEX = np.array([2, 0, 2])
TABLE = np.array([[0, 2, 1, 1], [2, 2, 0, 1]])

UNARY = (
    "neg",
    "abs",
    "exp",
    "square",
    "relu",
    "sigmoid",
    "tanh",
    "sin",
    "cos",
    "floor",
    "ceil",
    "round",
)

RULES: dict[str, Rule] = {
    "add": (lambda x, y: x + y, (COLUMN, ROW)),
    "sub": (lambda x, y: x - y, (COLUMN, ROW)),
    "mul": (lambda x, y: x * y, (COLUMN, ROW)),
    "div": (lambda x, y: x / y, (COLUMN, ROW)),
    **{name: (getattr(rl, name), (A,)) for name in UNARY},
    "log": (rl.log, (POSITIVE,)),
    "sqrt": (rl.sqrt, (POSITIVE,)),
    "gelu": (F.gelu, (A,)),
    "silu": (F.silu, (A,)),
    "sum": (lambda x: x.sum((0, 2)), (DISTINCT,)),
    "mean": (lambda x: x.mean((0, -1), keepdim=True), (DISTINCT,)),
    "max": (lambda x: x.amax((0, 1)), (DISTINCT,)),
    "min": (lambda x: x.amin(-1), (DISTINCT,)),
    "matmul": (rl.matmul, (sample(2, 3, 4), sample(2, 4, 5, seed=1))),
    "reshape": (lambda x: x.reshape(4, 6), (DISTINCT,)),
    "transpose": (lambda x: x.transpose(0, 2), (DISTINCT,)),
    "narrow": (lambda x: x.narrow(1, 1, 2), (DISTINCT,)),
    "affine": (lambda x: x * 2.5 + 1.5, (A,)),
    "conv1d": (lambda x, w, b: F.conv1d(x, w, b, 2, 1), (LINE, sample(3, 4, 3, seed=1), sample(3))),
    "conv2d": (
        lambda x, w, b: F.conv2d(x, w, b, 2, 1),
        (IMAGE, sample(3, 4, 3, 3, seed=1), sample(3)),
    ),
    "maxpool": (lambda x: F.max_pool2d(x, 3, 2), (IMAGE,)),
    "avgpool": (lambda x: F.avg_pool2d(x, 3, 2), (IMAGE,)),
    "cat": (lambda x, y: rl.cat([x, y, x], 1), (A, POSITIVE)),
    "powf": (lambda x: x**2.5, (POSITIVE,)),
    "clamp": (lambda x: x.clamp(-0.6, 0.9), (A,)),
    "where": (lambda x, y: rl.where(x > y, x, y * x), (COLUMN, ROW)),
    "gather": (lambda x: x.gather(0, rl.tensor(TABLE, device=x.device)), (A,)),
    "pad": (lambda x: F.pad(x, (1, 2, 0, 1)), (A,)),
    "index_select": (lambda x: x.index_select(0, rl.tensor(INDEX, device=x.device)), (A,)),
    "to_dtype": (lambda x: x.to(rl.float32) * 2, (A,)),
}


def loss(rule: str, inputs: list[rl.Tensor]) -> rl.Tensor:
    """A nonlinear function of every element, so that second derivatives are not zero."""
    out = RULES[rule][0](*inputs)
    weight = rl.arange(1, out.numel() + 1, device=out.device).reshape(out.shape) / out.numel()
    return ((out * 1.25).sin() * weight).sum()


def first_and_second(
    rule: str, inputs: list[rl.Tensor]
) -> tuple[tuple[rl.Tensor, ...], tuple[rl.Tensor, ...]]:
    """The gradients, and those of the gradients' weighted sum."""
    first = rl.autograd.grad(loss(rule, inputs), inputs, create_graph=True)
    total = sum((g * (i + 1.5)).sum() for i, g in enumerate(first))
    return first, rl.autograd.grad(total, inputs)
