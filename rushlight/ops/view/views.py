"""Views, and ops that copy where no view is possible."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from itertools import accumulate, groupby
from typing import Any

from rushlight.core.dtypes import DType, promote
from rushlight.core.errors import BoundsError, KindError, ShapeError
from rushlight.core.shapes import (
    Shape,
    Spec,
    broadcast_strides,
    check_inside,
    contiguous_strides,
    joined_strides,
    numel,
    order_of,
    view_strides,
    with_dim,
    wrap_dim,
)
from rushlight.ops.family.build import built
from rushlight.ops.family.kernel_op import KernelOp
from rushlight.ops.family.view import View, Views, shift_first
from rushlight.ops.pointwise import arithmetic as e
from rushlight.ops.registry import composite
from rushlight.ops.view.laid import copy_into, fill_kernel, in_layout
from rushlight.ops.view.retype import retyped
from rushlight.tape.record import call
from rushlight.tape.record.needed import Needed
from rushlight.tape.record.op import Grad, Op, Plan, Static, check_devices
from rushlight.tape.record.state import STATE
from rushlight.tape.record.value import Value

View3 = tuple[Shape, Shape, int]
get_state = STATE.get
MOST_PARTS = 1 << 20  # views that one number may request, of an empty dimension too


_reshape = View(
    "reshape",
    lambda shape, strides, target: (target, view_strides(shape, strides, target) or (), 0),
    lambda g, x, target: reshape(g, x.shape),
    "The same elements in another shape.",
    shift=lambda lead, sizes, static: ((*sizes, *static[0]),),
)

# With the value's own shape it makes a record, where `reshape` returns the value itself.
same_view = _reshape


def resolve_shape(shape: Sequence[int], count: int, op: str, source: Shape) -> Shape:
    """Fill in one -1."""
    sizes = tuple(int(n) for n in shape)
    if sizes.count(-1) == 1:
        known = numel([n for n in sizes if n != -1])
        if known == 0 or count % known:
            raise ShapeError(
                f"{op}: shape {list(source)} of {count} elements does not divide into {list(sizes)}"
            )
        sizes = tuple(count // known if n == -1 else n for n in sizes)
    if numel(sizes) != count or any(n < 0 for n in sizes):
        raise ShapeError(
            f"{op}: shape {list(source)} has {count} elements, {list(sizes)} does not; "
            f"choose sizes whose product is {count}, at most one of them -1"
        )
    return sizes


def _sizes(shape: tuple[Any, ...]) -> Sequence[int]:
    return shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape


@composite("reshape", pure=True, fresh=True)
def reshape(input: Value, *shape: int | Sequence[int]) -> Value:
    """The same elements in another shape: a view where the layout allows it, else a copy.

    Example:
        >>> torch.reshape(torch.arange(6), (2, -1))
        tensor([[0, 1, 2],
                [3, 4, 5]])
    """
    known = (
        _reshape.plans.get(((shape[0],), input._spec))
        if shape and isinstance(shape[0], tuple)
        else None
    )
    if known is not None and known.out.shape != input._spec.shape:
        return call.run(known, (input,))
    target = resolve_shape(_sizes(shape), input._spec.numel, "reshape", input._spec.shape)
    if target == input._spec.shape:
        return input
    if view_strides(input._spec.shape, input._spec.strides, target) is None:
        input = e.clone(input)
    return call.call(_reshape, (input,), (target,))


@composite("view", top=False, pure=True)
def view(input: Value, *size: int | Sequence[int] | DType, dtype: DType | None = None) -> Value:
    """The same memory in another shape, or as another type; an error where that needs a copy."""
    wanted: Any = size[0] if dtype is None and len(size) == 1 else dtype
    if dtype is not None or isinstance(wanted, DType):
        return retyped(input, wanted)
    target = resolve_shape(_sizes(size), input._spec.numel, "view", input._spec.shape)
    if view_strides(input._spec.shape, input._spec.strides, target) is None:
        raise ShapeError(
            f"view: shape {list(input._spec.shape)} with strides {list(input._spec.strides)} "
            f"cannot be seen as {list(target)} without a copy; use .reshape(...)"
        )
    return call.call(_reshape, (input,), (target,))


_permute = View(
    "permute",
    lambda shape, strides, order: (
        tuple(shape[i] for i in order),
        tuple(strides[i] for i in order),
        0,
    ),
    lambda g, x, order: permute(g, tuple(order.index(i) for i in range(len(order)))),
    "Dimensions in another order.",
    shift=lambda lead, sizes, static: ((*range(lead), *[i + lead for i in static[0]]),),
)


@composite("permute", pure=True)
def permute(input: Value, *dims: int | Sequence[int]) -> Value:
    """Dimensions in another order; a view."""
    rank = len(input._spec.shape)
    order = tuple(wrap_dim(d, rank, "permute") for d in _sizes(dims))
    if sorted(order) != list(range(rank)):
        raise ShapeError(f"permute: {list(order)} does not name each of {rank} dimensions once")
    return call.call(_permute, (input,), (order,))


@composite("transpose", inplace="view", pure=True)
def transpose(input: Value, dim0: int, dim1: int) -> Value:
    """Two dimensions exchanged; a view."""
    rank = len(input._spec.shape)
    first, second = wrap_dim(dim0, rank, "transpose"), wrap_dim(dim1, rank, "transpose")
    if rank == 0:
        return input
    order = list(range(rank))
    order[first], order[second] = second, first
    return call.call(_permute, (input,), (tuple(order),))


_expand = View(
    "expand",
    lambda shape, strides, target: (target, broadcast_strides(shape, strides, target), 0),
    lambda g, x, target: g,  # the walk sums over broadcast dimensions
    "Size-1 dimensions repeated.",
    batching="view.expand",
)


@composite("expand", pure=True, fresh=True)
def expand(input: Value, *size: int | Sequence[int]) -> Value:
    """Dimensions of size 1 repeated without a copy; -1 keeps a size."""
    shape = input._spec.shape
    wanted = tuple(_sizes(size))
    lead = len(wanted) - len(shape)
    target = tuple(shape[i - lead] if n == -1 and i >= lead else n for i, n in enumerate(wanted))
    fits = lead >= 0 and all(n == m or m == 1 for n, m in zip(target[lead:], shape, strict=True))
    if not fits or any(n < 0 for n in target):
        raise ShapeError(
            f"expand: shape {list(shape)} does not expand to {list(wanted)}; only sizes of 1 repeat"
        )
    return input if target == shape else call.call(_expand, (input,), (target,))


# Such a long step does not matter where there is one element only: its stride might exceed int64.
FAR = 1 << 31


def sliced(shape: Shape, strides: Shape, dim: int, start: int, count: int, step: int) -> View3:
    step = step if count > 1 or step < FAR else 1
    new_shape = (*shape[:dim], count, *shape[dim + 1 :])
    new_strides = (*strides[:dim], strides[dim] * step, *strides[dim + 1 :])
    return new_shape, new_strides, start * strides[dim]


# See Note [Moving views]: the parameter is the start of the slice.
_slice: View = View(
    "slice",
    lambda shape, strides, dim, count, step: sliced(shape, strides, dim, 1, count, step),
    lambda g, x, static, params: _adjoint(g, x.shape, _slice, static, params),
    "Every step-th element of a dimension.",
    moving=True,
    shift=shift_first,
)


def slice_dim(x: Value, dim: int, start: int, count: int, step: int = 1) -> Value:
    if start == 0 and step == 1 and count == x._spec.shape[dim]:
        return x
    plan = _slice.plans.get(((dim, count, step), x._spec))
    if plan is None or not plan.outs or (state := get_state()).special:
        return call.call(_slice, (x,), (dim, count, step), (start,))
    return call.run_view(plan, x, (start,), start * plan.stride, state)


@composite("narrow", fresh=True)
def narrow(input: Value, dim: int, start: int | Value, length: int) -> Value:
    """`length` elements of a dimension, from `start`; a view."""
    if not input._spec.shape:
        raise ShapeError(f"narrow: {input._spec!r} has no dimension to be narrowed")
    dim = wrap_dim(dim, len(input._spec.shape), "narrow")
    size = input._spec.shape[dim]
    if isinstance(start, Value) and (start._spec.shape or start._spec.dtype.kind not in "iu"):
        raise ShapeError(
            f"narrow: start must be a number or a 0-dim integer tensor, got {start._spec!r}"
        )
    first = int(start)  # type: ignore[arg-type]
    if first < 0:
        first += size
    if not 0 <= first <= size:
        raise IndexError(f"narrow: start {start} does not lie in dimension {dim} of size {size}")
    if not first <= first + length <= size:
        raise BoundsError(
            f"narrow: {length} elements from {start} do not lie in dimension {dim} of size {size}"
        )
    return slice_dim(input, dim, first, length)


def selected(shape: Shape, strides: Shape, dim: int, index: int) -> View3:
    return shape[:dim] + shape[dim + 1 :], strides[:dim] + strides[dim + 1 :], index * strides[dim]


# The parameter is the index.
_select: View = View(
    "select",
    lambda shape, strides, dim: selected(shape, strides, dim, 1),
    lambda g, x, static, params: _adjoint(g, x.shape, _select, static, params),
    "One index of a dimension.",
    moving=True,
    shift=shift_first,
)


_picks = _select.plans


def pick(x: Value, dim: int, index: int) -> Value | None:
    """`select` of a dimension from the front; None where the index is out of range."""
    spec = x._spec
    key = (dim, spec) if dim else spec
    plan = _picks.get(key)
    if plan is None:
        if dim >= len(spec.shape):
            return None
        plan = _picks.keep(key, call.plan_for(_select, (x,), (dim,)))
    size = spec.shape[dim]
    if index < 0:
        index += size
    if not 0 <= index < size:
        return None
    state = get_state()
    if state.special or not plan.outs:
        return call.run(plan, (x,), (index,))
    return call.run_view(plan, x, (index,), index * plan.stride, state)


@composite("select")
def select(input: Value, dim: int, index: int) -> Value:
    """One index of a dimension, which is removed; a view."""
    dim = wrap_dim(dim, len(input._spec.shape), "select")
    size = input._spec.shape[dim] if input._spec.shape else 0
    index = index if index.__class__ is int else operator.index(index)
    if not -size <= index < size:
        raise IndexError(
            f"select: index {index} is out of range for dimension {dim} of size {size}"
        )
    return call.call(_select, (input,), (dim,), (index % size,))


_unsqueeze = View(
    "reshape",
    lambda shape, strides, dim: (*with_dim(shape, strides, dim), 0),
    lambda g, x, dim: reshape(g, x.shape),
    "The same elements with a dimension of one element.",
    shift=shift_first,
)


@composite("unsqueeze", inplace="view", pure=True)
def unsqueeze(input: Value, dim: int) -> Value:
    """A new dimension of size 1; a view."""
    dim = wrap_dim(dim, len(input._spec.shape) + 1, "unsqueeze")
    return call.call(_unsqueeze, (input,), (dim,))


@composite("squeeze", inplace="view", pure=True, fresh=True)
def squeeze(input: Value, dim: int | Sequence[int] | None = None) -> Value:
    """Without dimensions of size 1; a view."""
    shape = input._spec.shape
    if dim is None:
        dims = set(range(len(shape)))
    else:
        listed = [
            wrap_dim(d, len(shape), "squeeze") for d in ([dim] if isinstance(dim, int) else dim)
        ]
        dims = set(listed)
        if len(dims) != len(listed):
            raise ShapeError(f"squeeze: a dimension is named twice in {listed}")
    target = tuple(n for i, n in enumerate(shape) if not (i in dims and n == 1))
    return input if target == shape else call.call(_reshape, (input,), (target,))


@composite("flatten", pure=True)
def flatten(input: Value, start_dim: int = 0, end_dim: int = -1) -> Value:
    """Dimensions start_dim to end_dim as one."""
    shape = input._spec.shape
    first, last = (
        wrap_dim(start_dim, len(shape), "flatten"),
        wrap_dim(end_dim, len(shape), "flatten"),
    )
    if not shape:
        return reshape(input, (1,))
    if first > last:
        raise ShapeError(
            f"flatten: start_dim {start_dim} comes after end_dim {end_dim} in {input._spec!r}"
        )
    return reshape(input, (*shape[:first], numel(shape[first : last + 1]), *shape[last + 1 :]))


@composite("contiguous", top=False, pure=True)
def contiguous(x: Value) -> Value:
    """The value itself where it is contiguous, else a contiguous copy."""
    return x if x._spec.contiguous else e.clone(x)


def broadcast_copy(x: Value, shape: Shape) -> Value:
    """A copy whose dimensions merge around any axis of `shape`; sizes of 1 stay."""
    return e.clone(x)


# ---- any view of a base, by shape, strides and offset: slices and writes are made of them ----

as_strided = View(
    "as_strided",
    lambda shape, strides, *seen: seen,
    lambda g, x, *seen: place_in(g, x._spec, seen),
    "A view by shape, strides and offset.",
    batching="view.strided",
)


def _plan_place(op: Op, ins: Sequence[Spec], static: Static) -> Plan:
    """Zeros of `shape`, with g at the view."""
    (g,) = ins
    shape, (seen_shape, seen_strides, skip) = static
    out = Spec.of(g.device, g.dtype, shape)
    check_inside(
        "place_view",
        out,
        Spec.of(g.device, g.dtype, seen_shape, seen_strides),
        skip * g.dtype.itemsize,
    )
    fill = built(g.device, fill_kernel(g.dtype))
    source = broadcast_strides(g.shape, g.strides, seen_shape)
    copy, tail = copy_into(g.device, g.dtype, seen_shape, seen_strides, source)
    nbytes = skip * g.dtype.itemsize

    def launch(target: int, gradient: int) -> None:
        fill(target, out.numel)
        if g.numel:
            copy(target + nbytes, gradient, *tail)

    return Plan(op, ins, [out], launch, static)


_place_view = KernelOp(
    "place_view",
    _plan_place,
    [lambda g, out, x, shape, seen: call.call(as_strided, (contiguous(g),), seen)],
    [()],
    "Zeros, with a value where a view sees.",
    batching="view.place",
)


def _plan_part(op: Op, ins: Sequence[Spec], static: Static) -> Plan:
    """Zeros of `shape`, with g at a moving view; the parameter is the view's."""
    (g,) = ins
    shape, view, key = static
    seen_shape, seen_strides, unit = view.rule(shape, contiguous_strides(shape), *key)
    out = Spec.of(g.device, g.dtype, shape)
    fill = built(g.device, fill_kernel(g.dtype))
    source = broadcast_strides(g.shape, g.strides, seen_shape)
    copy, tail = copy_into(g.device, g.dtype, seen_shape, seen_strides, source)
    nbytes = unit * g.dtype.itemsize

    def launch(target: int, gradient: int, place: int) -> None:
        fill(target, out.numel)
        if g.numel:
            copy(target + place * nbytes, gradient, *tail)

    return Plan(op, ins, [out], launch, static)


class PlacePart(KernelOp):
    """The adjoint of a moving view: its derivative is that view."""

    __slots__ = ()

    def make_grad(self, plan: Plan, needs: int) -> Grad:
        _, view, key = plan.static

        def rule(grads: list[Any], values: list[Any], params: tuple[Any, ...]) -> list[Any]:
            return [call.call(view, (contiguous(grads[0]),), key, params)]

        return Grad(needs, (), (), rule, hands_on=True)


_place_part = PlacePart(
    "place_part",
    _plan_part,
    [None],
    [()],
    "Zeros, with a value where a moving view sees.",
    batching="view.part",
)


def _adjoint(g: Value, shape: Shape, view: View, key: Static, params: tuple[Any, ...]) -> Value:
    return call.call(_place_part, (g,), (tuple(shape), view, key), params)


def place_view(g: Value, shape: Shape, seen: Any) -> Value:
    return call.call(_place_view, (g,), (tuple(shape), tuple(seen)))


def place_in(g: Value, base: Spec, seen: Any) -> Value:
    """Zeros in the layout of a base, with a value where a view of it sees."""
    if base.contiguous or not base.dense:
        return place_view(g, base.shape, seen)
    order = order_of(base.shape, [base.strides])
    block = place_view(g, tuple([base.shape[d] for d in order]), seen)
    return permute(block, tuple([order.index(d) for d in range(len(order))]))


def _plan_write(op: Op, ins: Sequence[Spec], static: Static) -> Plan:
    """A copy of the base with the view's elements replaced; in place, only the view is written."""
    base, value = ins
    seen_shape, seen_strides, skip = static
    strides = base.strides if base.dense else contiguous_strides(base.shape)
    out = Spec.of(base.device, base.dtype, base.shape, strides)
    seen = Spec.of(base.device, base.dtype, seen_shape, seen_strides)
    check_inside("write_view", out, seen, skip * base.dtype.itemsize)
    whole, whole_tail = copy_into(base.device, base.dtype, base.shape, out.strides, base.strides)
    source = broadcast_strides(value.shape, value.strides, seen_shape)
    part, tail = copy_into(base.device, base.dtype, seen_shape, seen_strides, source)
    nbytes = skip * base.dtype.itemsize

    def launch(target: int, old: int, new: int) -> None:
        if target != old and out.numel:
            whole(target, old, *whole_tail)
        if value.numel:
            part(target + nbytes, new, *tail)

    return Plan(op, ins, [out], launch, static)


write_view = KernelOp(
    "write_view",
    _plan_write,
    [
        lambda g, out, base, value, *seen: write_zero(in_layout(g, out._spec), seen),
        lambda g, out, base, value, *seen: call.call(as_strided, (in_layout(g, out._spec),), seen),
    ],
    [(), ()],
    "A base with the elements that a view sees replaced.",
    batching="view.write",
)


def write_zero(g: Value, seen: Any) -> Value:
    from_zero = call.call(as_strided, (g,), seen)
    return call.call(write_view, (g, e.mul(from_zero, 0.0)), seen)


# ---- joining ----


def _plan_cat(op: Op, ins: Sequence[Spec], static: Static) -> Plan:
    """A launch for two neighbours of equal layout, or four: more streams slow large copies down."""
    dim, shape = static
    out = Spec.of(check_devices("cat", ins), ins[0].dtype, shape, joined_strides(ins, shape))
    steps = []
    starts, first = list(accumulate((0, *[spec.shape[dim] for spec in ins]))), 0
    while first < len(ins):
        spec = ins[first]
        near = ins[first : first + (4 if spec.numel <= 1 << 16 else 2)]
        count = next((i for i, other in enumerate(near) if other is not spec), len(near))
        if spec.numel:
            copy, tail = copy_into(
                out.device, out.dtype, spec.shape, out.strides, spec.strides, count
            )
            skips = [
                starts[first + i] * out.strides[dim] * out.dtype.itemsize for i in range(count)
            ]
            steps.append((copy, skips, slice(first, first + count), tail))
        first += count

    def launch(target: int, *sources: int) -> None:
        for copy, skips, which, tail in steps:
            copy(*[target + skip for skip in skips], *sources[which], *tail)

    return Plan(op, ins, [out], launch, static)


class Cat(KernelOp):
    """`cat` has any number of inputs: its derivative splits the gradient, in one record."""

    __slots__ = ()

    def make_grad(self, plan: Plan, needs: int) -> Grad:
        dim = plan.static[0]
        counts = tuple([spec.shape[dim] for spec in plan.ins])

        def rule(grads: list[Any], values: list[Any], params: tuple[Any, ...]) -> list[Any]:
            return [
                part if needs >> i & 1 else None
                for i, part in enumerate(parts(grads[0], dim, counts))
            ]

        return Grad(needs, (), (), rule)


_cat = Cat(
    "cat", _plan_cat, [], [], "Values one after another along a dimension.", batching="view.cat"
)


def several(op: str, tensors: Any) -> list[Value]:
    """The tensors in a sequence argument; a tensor is no sequence."""
    if isinstance(tensors, Value):
        raise KindError(
            f"{op}: takes a sequence of tensors, got {tensors._spec!r}; write [x], or list(x) for "
            "its parts"
        )
    return list(tensors)


@composite("cat", method=False, out="cast", pure=True)
def cat(tensors: Sequence[Value], dim: int = 0) -> Value:
    """Values concatenated along a dimension."""
    values = several("cat", tensors)
    if not values:
        raise ShapeError("cat: expected at least one tensor, got an empty list")
    common = values[0]._spec.dtype
    for v in values[1:]:
        common = promote(common, v._spec.dtype)
    # PyTorch lets a 1-d empty tensor join any others; without others any dimension is valid.
    joined = [v for v in values if v._spec.shape != (0,)]
    if not joined:
        joined, dim = values[:1], 0
    values = joined
    first = values[0]._spec.shape
    if any(not v._spec.shape for v in values):
        listed = ", ".join(repr(v._spec) for v in values)
        raise ShapeError(
            f"cat: a 0-dim tensor cannot be joined with others, got {listed}; use stack, or "
            ".reshape(1) it"
        )
    dim = wrap_dim(dim, len(first), "cat")
    for v in values:
        shape = v._spec.shape
        if (
            len(shape) != len(first)
            or shape[:dim] + shape[dim + 1 :] != first[:dim] + first[dim + 1 :]
        ):
            listed = ", ".join(repr(w._spec) for w in values)
            raise ShapeError(f"cat: shapes {listed} must agree in every dimension but {dim}")
    values = [e.cast(v, common) for v in values]
    total = sum(v._spec.shape[dim] for v in values)
    return call.call(_cat, values, (dim, (*first[:dim], total, *first[dim + 1 :])))


@composite("stack", method=False, out="cast", pure=True)
def stack(tensors: Sequence[Value], dim: int = 0) -> Value:
    """Values stacked along a new dimension."""
    tensors = several("stack", tensors)
    if len({v._spec.shape for v in tensors}) > 1:
        raise ShapeError(
            f"stack: all shapes must be equal, got {', '.join(repr(v._spec) for v in tensors)}"
        )
    return cat([unsqueeze(v, dim) for v in tensors], dim)


# ---- splitting ----


def _runs(shape: Shape, strides: Shape, dim: int, counts: tuple[int, ...]) -> list[View3]:
    starts = accumulate((0, *counts[:-1]))
    return [
        sliced(shape, strides, dim, start, count, 1)
        for start, count in zip(starts, counts, strict=True)
    ]


def _side_by_side(
    grads: Sequence[Value | None], x: Any, dim: int, counts: tuple[int, ...]
) -> Value:
    """The gradients of ranges of a dimension, concatenated; neighbours without one are zeros."""
    pieces: list[Value] = []
    for missing, run in groupby(zip(grads, counts, strict=True), lambda pair: pair[0] is None):
        if missing:
            shape = (*x.shape[:dim], sum(count for _, count in run), *x.shape[dim + 1 :])
            pieces.append(Needed.full(Spec.of(x._spec.device, x.dtype, shape), 0.0))
        else:
            pieces += [g for g, _ in run if g is not None]
    return cat(pieces, dim)


_split = Views("split", _runs, _side_by_side, "Runs of a dimension that cover it.", shift_first)
_unbind = Views(
    "unbind",
    lambda shape, strides, dim: [selected(shape, strides, dim, i) for i in range(shape[dim])],
    lambda grads, x, dim: _side_by_side(
        [None if g is None else unsqueeze(g, dim) for g in grads], x, dim, (1,) * len(grads)
    ),
    "Every index of a dimension.",
    shift_first,
)


def parts(x: Value, dim: int, counts: Sequence[int]) -> tuple[Value, ...]:
    """Ranges of a dimension that cover it; views, whose gradients are combined once."""
    if len(counts) == 1:
        return (x,)
    return tuple(call.call(_split, (x,), (dim, tuple(counts))))


@composite("split", pure=True, fresh=True, keywords={"split_size": "split_size_or_sections"})
def split(
    tensor: Value, split_size_or_sections: int | Sequence[int], dim: int = 0
) -> tuple[Value, ...]:
    """Parts of a dimension; views.

    Example:
        >>> torch.split(torch.arange(5), 2)
        (tensor([0, 1]), tensor([2, 3]), tensor([4]))
    """
    if not tensor._spec.shape:
        raise ShapeError(f"split: {tensor._spec!r} has no dimension to be divided")
    dim = wrap_dim(dim, len(tensor._spec.shape), "split")
    size = tensor._spec.shape[dim]
    if isinstance(split_size_or_sections, int):
        step = split_size_or_sections
        if step < 0 or (step == 0 and size):
            raise ShapeError(f"split: size of a part must be positive, got {step}")
        sections = [min(step, size - at) for at in range(0, size, step or 1)] or [0]
    else:
        sections = [int(n) for n in split_size_or_sections]
        if any(n < 0 for n in sections):
            raise ShapeError(f"split: sizes of parts must not be negative, got {sections}")
        if sum(sections) != size:
            raise ShapeError(
                f"split: parts {sections} do not add up to {size}, the size of dimension {dim}"
            )
    return parts(tensor, dim, sections)


def check_parts(op: str, count: int) -> None:
    if count > MOST_PARTS:
        raise ShapeError(
            f"{op}: {count} parts, most of them empty, are too many; at most {MOST_PARTS} can be "
            "asked for"
        )


@composite("chunk", pure=True, fresh=True)
def chunk(input: Value, chunks: int, dim: int = 0) -> tuple[Value, ...]:
    """A dimension in at most `chunks` equal parts; views."""
    if not input._spec.shape:
        raise ShapeError(f"chunk: {input._spec!r} has no dimension to be divided")
    dim = wrap_dim(dim, len(input._spec.shape), "chunk")
    if chunks <= 0:
        raise ShapeError(f"chunk: the number of parts must be positive, got {chunks}")
    if not input._spec.shape[dim]:
        check_parts("chunk", chunks)
        return split(input, [0] * chunks, dim)
    return split(input, max(1, -(-input._spec.shape[dim] // chunks)), dim)


@composite("unbind", pure=True)
def unbind(input: Value, dim: int = 0) -> tuple[Value, ...]:
    """All slices of a dimension; views."""
    dim = wrap_dim(dim, len(input._spec.shape), "unbind")
    if not input._spec.shape:
        raise IndexError("unbind: a 0-dim tensor has no dimension to take apart")
    count = input._spec.shape[dim]
    if count < 2:
        return tuple([select(input, dim, i) for i in range(count)])
    return tuple(call.call(_unbind, (input,), (dim,)))
