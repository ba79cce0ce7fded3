"""Windows of the last dimensions as views, their transpose, and padding."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Sequence
from typing import Any

from rushlight.core.dtypes import compute_type
from rushlight.core.errors import ShapeError
from rushlight.core.shapes import Shape, Spec, check_inside, collapse, contiguous_strides
from rushlight.ops.create.creation import full_spec
from rushlight.ops.family.build import built
from rushlight.ops.family.kernel_op import KernelOp
from rushlight.ops.family.map import Formula, map_kernel
from rushlight.ops.family.view import View, shift_none
from rushlight.ops.view import views
from rushlight.ops.view.laid import copy_into, fill_kernel
from rushlight.scalar.ir import arg
from rushlight.tape.record import call
from rushlight.tape.record.op import Op, Plan, Static
from rushlight.tape.record.value import Value

Sizes = tuple[int, ...]
Given = int | Sequence[int]  # one number for every spatial dimension, or one for each
# Elements along a dimension: no memory has more, and positions times any step fit int64.
_MOST_PADDED = 1 << 47
Sides = tuple[tuple[int, int], ...]  # elements before and after, for each of the last dimensions


def numbers(value: Given) -> Sizes:
    """One integer, in any form, as a tuple of one; several unchanged."""
    try:
        return (operator.index(value),)  # type: ignore[arg-type]
    except TypeError:
        return tuple(map(operator.index, value))  # type: ignore[arg-type]


def each(value: Given, rank: int, op: str, name: str, least: int | None = None) -> Sizes:
    """A number for each of `rank` spatial dimensions, none smaller than `least`."""
    listed = (value,) if isinstance(value, int) else numbers(value)
    if len(listed) == 1:
        listed *= rank
    if len(listed) != rank:
        raise ShapeError(f"{op}: {name} must be one number or {rank}, got {list(listed)}")
    if least is not None and min(listed) < least:
        fit = "be positive" if least else "not be negative"
        raise ShapeError(f"{op}: {name} must {fit}, got {list(listed)}")
    return listed


def windows_of(
    shape: Shape, strides: Shape, kernel: Sizes, stride: Sizes, dilation: Sizes
) -> tuple[Shape, Shape, int]:
    """(..., H, W) viewed as (..., rows, columns, kh, kw), without a copy.

    Any number of dimensions.
    """
    lead = len(shape) - len(kernel)
    sizes, inner = shape[lead:], strides[lead:]
    counts = tuple(
        (n - d * (k - 1) - 1) // s + 1
        for n, k, s, d in zip(sizes, kernel, stride, dilation, strict=True)
    )
    taken = [s if n > 1 or s < views.FAR else 1 for n, s in zip(counts, stride, strict=True)]
    steps = tuple(st * s for st, s in zip(inner, taken, strict=True))
    inside = tuple(st * d for st, d in zip(inner, dilation, strict=True))
    return (*shape[:lead], *counts, *kernel), (*strides[:lead], *steps, *inside), 0


_windows = View(
    "windows",
    windows_of,
    lambda g, x, *static: fold(g, x.shape, *static),
    "Every window of the last dimensions, as a view.",
    shift=shift_none,
)


def _is_apart(shape: Shape, kernel: Sizes, stride: Sizes, dilation: Sizes) -> bool:
    """Whether windows share no element."""
    sizes = zip(shape[len(shape) - len(kernel) :], kernel, stride, dilation, strict=True)
    return all(s >= d * (k - 1) + 1 or s > n - d * (k - 1) - 1 for n, k, s, d in sizes)


def _plan_place(
    op: Op, ins: Sequence[Spec], static: Static, out: Spec, seen_strides: Shape
) -> Plan:
    """Windows that share no element: copies, over zeros where they leave elements out.

    A copy takes two of a window's columns; the windows of a row lie along its last dimension.
    """
    (g,) = ins
    pool: Any = g.device
    rank = len(static[1])
    lead, columns = len(g.shape) - 2 * rank, g.shape[-1]
    inner = [d for i in range(rank - 1) for d in (lead + i, lead + rank + i)]
    order = (*range(lead), *inner, lead + rank - 1)
    shape, to, of = (tuple(n[d] for d in order) for n in (g.shape, seen_strides, g.strides))
    steps = [st[-1] * g.dtype.itemsize for st in (seen_strides, g.strides)]
    copies = []
    for first in range(0, columns if g.numel else 0, 2):
        chosen = range(first, min(first + 2, columns))
        beside = len(chosen) == 2 and seen_strides[-1] == 1
        copy, tail = copy_into(pool, g.dtype, shape, to, of, len(chosen), beside)
        copies.append((copy, tail, [[i * step for i in chosen] for step in steps]))
    fill = built(pool, fill_kernel(g.dtype)) if g.numel < out.numel else None

    def launch(target: int, gradient: int) -> None:
        if fill is not None:
            fill(target, out.numel)
        for copy, tail, (to, of) in copies:
            copy(*[target + at for at in to], *[gradient + at for at in of], *tail)

    return Plan(op, ins, [out], launch, static)


def _plan_fold(op: Op, ins: Sequence[Spec], static: Static) -> Plan:
    """The transpose of windows: their elements added at their positions, in a fixed order."""
    (g,) = ins
    shape, kernel, stride, dilation = static
    pool: Any = g.device
    out = Spec.of(pool, g.dtype, shape)
    seen_shape, seen_strides, _ = windows_of(
        shape, contiguous_strides(shape), kernel, stride, dilation
    )
    check_inside("fold_windows", out, Spec.of(pool, g.dtype, seen_shape, seen_strides), 0)
    if g.shape != seen_shape:
        raise ShapeError(
            f"fold_windows: {g!r} is not the windows {list(seen_shape)} of {list(shape)}"
        )
    if _is_apart(shape, kernel, stride, dilation):
        return _plan_place(op, ins, static, out, seen_strides)
    inner = len(seen_shape) - len(kernel)
    compute = compute_type(g.dtype)
    formula = Formula((g.dtype, g.dtype), (), (g.dtype,), (arg(0, compute) + arg(1, compute),))
    sizes, steps = collapse(
        seen_shape[:inner], [st[:inner] for st in (seen_strides, seen_strides, g.strides)]
    )
    kernel_, tail = map_kernel(formula, sizes, steps, 1)
    add, fill = built(pool, kernel_), built(pool, fill_kernel(g.dtype))

    def place(at: tuple[int, ...], strides: Shape) -> int:
        return sum(i * st for i, st in zip(at, strides[inner:], strict=True)) * g.dtype.itemsize

    # A kernel larger than the input has no windows.
    offsets = itertools.product(*map(range, kernel)) if g.numel else ()
    places = [(place(at, seen_strides), place(at, g.strides)) for at in offsets]

    def launch(target: int, gradient: int) -> None:
        fill(target, out.numel)
        for at, source in places:
            add(target + at, target + at, gradient + source, *tail)

    return Plan(op, ins, [out], launch, static)


_fold = KernelOp(
    "fold_windows",
    _plan_fold,
    [lambda g, out, x, shape, *static: call.call(_windows, (g,), static)],
    [()],
    "Windows added back where they came from.",
    batching="view.fold",
)


def fold(g: Value, shape: Shape, kernel: Sizes, stride: Sizes, dilation: Sizes) -> Value:
    return call.call(_fold, (g,), (tuple(shape), kernel, stride, dilation))


def windows(x: Value, kernel: Sizes, stride: Sizes, dilation: Sizes) -> Value:
    return call.call(_windows, (x,), (kernel, stride, dilation))


def bordered(x: Value, sides: Sides, value: float) -> Value:
    """The last dimensions padded by `value`; no side is negative."""
    if not any(map(any, sides)):
        return x
    lead = len(x._spec.shape) - len(sides)
    grown = tuple(n + a + b for n, (a, b) in zip(x._spec.shape[lead:], sides, strict=True))
    shape = (*x._spec.shape[:lead], *grown)
    strides = contiguous_strides(shape)
    skip = sum(a * st for (a, _), st in zip(sides, strides[lead:], strict=True))
    seen = (x._spec.shape, strides, skip)
    if value == 0:
        return views.place_view(x, shape, seen)
    border = full_spec(Spec.of(x._spec.device, x._spec.dtype, shape), value)
    return call.call(views.write_view, (border, x), seen)


def check_fits(
    op: str, shown: Sequence[Value], sizes: Sizes, kernel: Sizes, dilation: Sizes
) -> None:
    """Check that every padded size holds a window, and is in range.

    Errors name the operands `shown`.
    """
    for n, k, d in zip(sizes, kernel, dilation, strict=True):
        if n > _MOST_PADDED:
            named = ", ".join(repr(v._spec) for v in shown)
            raise ShapeError(f"{op}: a padded input of {n} is more than can be addressed; {named}")
        if n < d * (k - 1) + 1:
            named = ", ".join(repr(v._spec) for v in shown)
            raise ShapeError(
                f"{op}: a window of {k} (dilation {d}) is larger than the padded input of {n}; "
                f"{named}"
            )
