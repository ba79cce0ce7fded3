"""Passes of a Rowwise kernel that share a stage (Note [Stages]) give the bits they give alone."""

import numpy as np
import pytest

from rushlight import scalar as s
from rushlight.core.dtypes import float32, int32
from rushlight.devices.cpu import open_device
from rushlight.emit.llvm.rowwise import plan
from rushlight.kernel.shapes import Reduce, Rowwise

X, Y = s.arg(0, float32), s.arg(1, float32)
TOTAL, SQUARES, TOP, MIXED, COUNT = (
    *(s.row(k, float32) for k in range(4)),
    s.row(4, int32),
)
PASSES = (
    Reduce("sum", X),
    Reduce("sum", (X - TOTAL) * (X - TOTAL)),
    Reduce("max", Y),
    Reduce("min", X * Y - SQUARES),
    Reduce("sum", s.cast(Y > 0, int32)),
)
KINDS = ("row",) * 5 + ("element",)
STORES = (TOTAL, SQUARES, TOP, MIXED, s.cast(COUNT, float32), X * TOP + MIXED)


def kernel(vector, passes=PASSES, stores=STORES, kinds=KINDS):
    steps = tuple(
        "1" if vector == "inner" or kind == "element" else "0"
        for kind in (*kinds, "element", "element")
    )
    steps = ("n",) * len(steps) if vector == "any" else steps
    return Rowwise(
        (float32,) * len(stores), kinds, (float32, float32), (), passes, stores, vector, steps
    )


def run(device, built, vector, x, y):
    """Each output of the kernel over the middle dimension of (outer, axis, inner)."""
    outer, axis, inner = x.shape
    outs = [
        np.full(x.shape if kind == "element" else (outer, 1, inner), np.nan, np.float32)
        for kind in built.kinds
    ]
    arrays = [*outs, x, y]
    strides = [
        0 if a.shape[d] == 1 and d == 1 else a.strides[d] // 4 for a in arrays for d in range(3)
    ]
    device.build(built)(*(a.ctypes.data for a in arrays), outer, axis, inner, *strides)
    return outs


def operands(shape):
    numbers = np.random.default_rng(0)
    return tuple(numbers.standard_normal(shape).astype(np.float32) for _ in range(2))


def test_passes_without_need_of_each_other_are_one_stage():
    planned = plan(kernel("axis"))
    assert planned.stages == (range(2), range(2, 3), range(3, 5))
    assert [p.kind for p in planned.kernel.passes] == ["sum", "max", "sum", "min", "sum"]
    # In the old place, and in the new.
    first, second, third = (s.row(k, float32) for k in (0, 2, 1))
    assert planned.kernel.stores[:3] == (first, second, third)


def test_the_last_pass_stays_last():
    passes = (Reduce("max", X), Reduce("sum", s.exp(X - TOTAL)), Reduce("sum", Y))
    planned = plan(kernel("axis", passes, (TOTAL, SQUARES, TOP), ("row",) * 3))
    assert planned.stages == (range(1), range(1, 3)) and planned.kernel.passes[-1].body is Y


SHAPES = [
    ("axis", (5, 3, 1)),
    ("axis", (40, 1000, 1)),
    ("axis", (2, 70_001, 1)),  # few long rows: blocks are tasks
    ("inner", (3, 300, 70)),
    ("any", (3, 300, 2)),
]


@pytest.mark.parametrize(("vector", "shape"), SHAPES, ids=str)
def test_bits_are_those_of_each_pass_alone(vector, shape):
    device = open_device()
    x, y = operands(shape)
    total, squares, top, mixed, count, elements = run(device, kernel(vector), vector, x, y)
    for found, reduce in ((total, PASSES[0]), (top, PASSES[2])):
        (alone,) = run(device, kernel(vector, (reduce,), (TOTAL,), ("row",)), vector, x, y)
        np.testing.assert_array_equal(found, alone)
    (alone,) = run(device, kernel(vector, PASSES[:2], (SQUARES,), ("row",)), vector, x, y)
    np.testing.assert_array_equal(squares, alone)
    exact = x.astype(np.float64)
    centred = exact - exact.sum(1, keepdims=True)
    np.testing.assert_allclose(squares, (centred**2).sum(1, keepdims=True), rtol=1e-4)
    np.testing.assert_array_equal(count, (y > 0).sum(1, keepdims=True))
    np.testing.assert_array_equal(mixed, (x * y - squares).min(1, keepdims=True))
    np.testing.assert_array_equal(top, y.max(1, keepdims=True))
    np.testing.assert_allclose(elements, x * top + mixed, rtol=1e-6, atol=1e-6)
