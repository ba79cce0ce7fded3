"""Copies in a given layout, and the launches of copies: Note [Layouts of results]."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rushlight.core.dtypes import DType, compute_type
from rushlight.core.shapes import Shape, Spec, collapse
from rushlight.kernel.shapes import Map
from rushlight.ops.family.build import built
from rushlight.ops.family.map import Formula, MapOp, map_kernel
from rushlight.ops.family.view import View
from rushlight.ops.pointwise import arithmetic as e
from rushlight.scalar.ir import arg, const
from rushlight.tape.record import call
from rushlight.tape.record.op import Static
from rushlight.tape.record.value import Value


def fill_kernel(dtype: DType) -> Map:
    """out[p] = 0."""
    return Map((dtype,), (), (), (const(0, compute_type(dtype)),), 0, ("1",))


def copy_into(
    pool: Any,
    dtype: DType,
    shape: Shape,
    target: Shape,
    source: Shape,
    count: int = 1,
    beside: bool = False,
) -> tuple[Any, tuple[int, ...]]:
    """A launch that copies tensors between two layouts of one shape, and its numbers.

    `beside`: of two, the second's target begins an element after the first's.
    """
    values = tuple(arg(i, compute_type(dtype)) for i in range(count))
    formula = Formula((dtype,) * count, (), (dtype,) * count, values)
    sizes, (to, of) = collapse(shape, (target, source))
    kernel, tail = map_kernel(formula, sizes, [to] * count + [of] * count, count)
    if beside and dtype.kind != "c" and kernel.rank and to[-1] == 2:
        kernel = replace(kernel, steps=("e", "o", *kernel.steps[2:]))
    return built(pool, kernel), tail


def _contiguous(x: Value) -> Value:
    return x if x._spec.contiguous else e.clone(x)


class Laid(MapOp):
    """A copy whose strides are `static`; of two operands their sum."""

    __slots__ = ()

    def strides(self, shape: Shape, ins: Sequence[Spec], static: Static) -> Shape:
        return static

    def formula(self, ins: Sequence[Spec], static: Static) -> Formula:
        dtype, compute = ins[0].dtype, compute_type(ins[0].dtype)
        made = arg(0, compute) if len(ins) == 1 else arg(0, compute) + arg(1, compute)
        return Formula((dtype,) * len(ins), (), (dtype,), (made,))


_laid = Laid("clone", "A copy with given strides.")
_laid_sum = Laid("add", "A sum with given strides.")


def laid(x: Value, strides: Shape) -> Value:
    """A copy with these strides, which are dense; of an example of a batch a contiguous one."""
    return e.clone(x) if x._spec.hidden else call.call(_laid, (x,), strides)


# Dimensions of one element have no step; a memory format states one all the same.
_restride = View(
    "as_strided",
    lambda shape, strides, wanted: (shape, wanted, 0),
    lambda g, x, wanted: g,
    "The same elements with other strides along dimensions of one element.",
)


def laid_sum(x: Value, y: Value, strides: Shape) -> Value:
    """x + y, of one dtype and broadcast to x's shape, with these dense strides."""
    if x._spec.hidden or y._spec.hidden or x._spec.strides == strides:
        return e.add(x, y)
    return call.call(_laid_sum, (x, y), strides)


def in_layout(x: Value, spec: Spec) -> Value:
    """The value itself where it lies as the dense `spec`, of its shape, else a copy that does."""
    return _contiguous(x) if spec.contiguous else in_strides(x, spec.strides)


def in_strides(x: Value, strides: Shape) -> Value:
    """The value where it has these dense strides, or a view that has; else a copy."""
    own = x._spec
    if own.strides == strides:
        return x
    if own.hidden:
        return _contiguous(x)
    both = zip(own.shape, own.strides, strides, strict=True)
    if all(n == 1 or have == want for n, have, want in both):
        return call.call(_restride, (x,), (strides,))
    return laid(x, strides)
