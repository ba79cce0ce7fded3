"""Indexed reads and writes: gather, scatter, rows of a table."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import partial
from typing import Any

from rushlight.core.dtypes import INDEX, INTEGER, bool_, int32, int64
from rushlight.core.errors import BoundsError, DTypeError, ShapeError
from rushlight.core.shapes import Shape, Spec, collapse, numel, wrap_dim
from rushlight.devices.shared.allocator import Scratch, room_for
from rushlight.kernel.shapes import Gather, Scatter
from rushlight.ops.create.creation import full_spec
from rushlight.ops.family.build import built
from rushlight.ops.family.declare import elementwise
from rushlight.ops.family.kernel_op import KernelOp
from rushlight.ops.index import scatter_onto as onto
from rushlight.ops.pointwise import arithmetic as e
from rushlight.ops.reduce import reductions
from rushlight.ops.registry import composite
from rushlight.ops.view import views
from rushlight.ops.view.laid import copy_into, fill_kernel
from rushlight.scalar import build as s
from rushlight.scalar.ir import Expr
from rushlight.tape.record import call
from rushlight.tape.record.op import Op, Plan, Static, check_devices
from rushlight.tape.record.value import Value

Block = tuple[int, int, int]


def check_index(op: str, index: Value) -> Value:
    if isinstance(index, Value) and index._spec.numel == 0 and index._spec.dtype in INTEGER:
        return e.cast(index, int64)  # nothing is looked up, so PyTorch accepts any integer dtype
    if not isinstance(index, Value) or index._spec.dtype not in INDEX:
        got = repr(index._spec) if isinstance(index, Value) else type(index).__name__
        raise DTypeError(
            f"{op}: the index must be an int64 or int32 tensor, got {got}; cast with .long()"
        )
    return index


def checked(
    pool: Any, launch: Any, label: str, limit: int | None, tail: tuple[int, ...] = ()
) -> Any:
    """A launch that raises for a bad index at once on synchronous devices.

    `launch` takes the address of a status word and `tail` after the others. `limit` is told; None
    where it is of merged dimensions. See Note [Status words].
    """
    device = pool.device
    word = device.status_word(label)
    # The `null` device checks no index.
    if device.limits.asynchronous or not device.limits.host_memory:
        return lambda *args: launch(*args, word, *tail)
    # Not in use: each launch has its own, so that threads get theirs.
    words: list[tuple[int, ctypes.c_int32]] = []

    def run(*args: Any) -> None:
        mine = words.pop() if words else _new_word()
        place, status = mine
        launch(*args, place, *tail)
        if status.value:
            bounds = "of its dimension" if limit is None else f"0 to {limit - 1}"
            raise BoundsError(f"{label}: an index is outside the range {bounds}")
        words.append(mine)

    return run


def _new_word() -> tuple[int, ctypes.c_int32]:
    word = ctypes.c_int32(0)
    return ctypes.addressof(word), word


def sides_of(shape: Shape, strides: Shape, dim: int) -> Block:
    """(outer, axis, inner) strides of a layout whose dimensions merge on both sides of `dim`."""
    if 0 in shape:  # no element is read, so any strides do
        return 0, 0, 0
    ends = []
    for part in (slice(0, dim), slice(dim + 1, None)):
        sizes, (steps,) = collapse(shape[part], (strides[part],))
        if len(sizes) > 1:
            raise AssertionError("layout does not merge")
        ends.append(steps[0] if sizes else 0)
    return ends[0], strides[dim], ends[1]


def merges(value: Value, dim: int) -> Value:
    """The value, or a contiguous copy where its dimensions do not merge around `dim`."""
    spec = value._spec
    for part in (slice(0, dim), slice(dim + 1, None)):
        if len(collapse(spec.shape[part], (spec.strides[part],))[0]) > 1:
            return e.clone(value)
    return value


def block_of(shape: Shape, dim: int) -> Block:
    return numel(shape[:dim]), shape[dim], numel(shape[dim + 1 :])


# ---- gather along a dimension ----


def plan_gather(op: Op, ins: Sequence[Spec], static: Static) -> Plan:
    (dim,) = static
    x, index = ins
    pool = check_devices("gather", ins)
    out = Spec.of(pool, x.dtype, index.shape)
    outer, count, inner = block_of(index.shape, dim)
    limit = x.shape[dim]
    strides = (*sides_of(out.shape, out.strides, dim), *sides_of(x.shape, x.strides, dim))
    tail = (outer, count, inner, limit, *strides, *sides_of(index.shape, index.strides, dim))
    run = built(pool, Gather(x.dtype, index.dtype))
    launch = checked(pool, run, "gather", limit, tail)
    return Plan(op, ins, [out], launch, static)


_gather = KernelOp(
    "gather",
    plan_gather,
    [lambda g, out, x, index, dim: scatter_zero(g, index, dim, x.shape), None],
    [(1,), ()],
    "The elements of x at index along a dimension.",
    batching="index.gather",
    operand_names=("self", "index"),
)


def _lifted(x: Value) -> Value:
    return x if x._spec.shape else views.reshape(x, (1,))


@composite("gather", out="exact", pure=True)
def gather(input: Value, dim: int, index: Value, *, sparse_grad: bool = False) -> Value:
    """out[i][j] = input[index[i][j]][j] for dim 0, and so on.

    Example:
        >>> x = torch.tensor([[1, 2], [3, 4]])
        >>> torch.gather(x, 1, torch.tensor([[0, 0], [1, 0]]))
        tensor([[1, 1],
                [4, 3]])
    """
    dim = wrap_dim(dim, len(input._spec.shape), "gather")
    index = check_index("gather", index)
    if not input._spec.shape or not index._spec.shape:  # a 0-dim operand counts as one of 1 element
        return views.reshape(gather(_lifted(input), dim, _lifted(index)), index._spec.shape)
    shape, wanted = input._spec.shape, index._spec.shape
    if index._spec.numel == 0:
        # An empty result with a record: a gradient, empty too, may come back.
        return views.reshape(
            views.slice_dim(views.reshape(input, (input._spec.numel,)), 0, 0, 0), wanted
        )
    if len(shape) != len(wanted) or any(
        n > m for i, (n, m) in enumerate(zip(wanted, shape, strict=True)) if i != dim
    ):
        raise ShapeError(
            f"gather: index {index._spec!r} must have as many dimensions as {input._spec!r} and be "
            f"no larger except in dimension {dim}"
        )
    for i, n in enumerate(wanted):
        if i != dim:
            input = views.slice_dim(input, i, 0, n)
    return call.call(_gather, (merges(input, dim), merges(index, dim)), (dim,))


# ---- scatter-add ----


def plan_scatter(kind: str, op: Op, ins: Sequence[Spec], static: Static) -> Plan:
    """out = x, then src is combined in at index; "onto": x is not copied, so out has x's layout."""
    dim, *onto = static
    x, index, src = ins
    pool = check_devices(op.name, ins)
    out = x if onto else Spec.of(pool, x.dtype, x.shape)
    copy, copy_tail = copy_into(pool, x.dtype, x.shape, out.strides, x.strides)
    scatter = scatter_launch(pool, kind, out, index, src, dim, op.name)

    def launch(target: int, old: int, at: int, new: int) -> None:
        if target != old and out.numel:
            copy(target, old, *copy_tail)
        scatter(target, new, at)

    return Plan(op, ins, [out], launch, static)


def scatter_launch(
    pool: Any, kind: str, out: Spec, index: Spec, src: Spec, dim: int, label: str
) -> Any:
    """launch(out, src, index)."""
    outer, count, inner = block_of(index.shape, dim)
    limit = out.shape[dim]
    seen = tuple(out.strides)
    narrowed = tuple(n if i != dim else out.shape[dim] for i, n in enumerate(index.shape))
    strides = (*sides_of(narrowed, seen, dim), *sides_of(src.shape, src.strides, dim))
    tail = (outer, count, inner, limit, *strides, *sides_of(index.shape, index.strides, dim))
    run = built(pool, Scatter(out.dtype, index.dtype, kind))
    return checked(pool, run, label, limit, tail)


_scatter_add = KernelOp(
    "scatter_add",
    partial(plan_scatter, "add"),
    [
        lambda g, out, x, index, src, dim: g,
        None,
        lambda g, out, x, index, src, dim: gather(g, dim, index),
    ],
    [(), (), (1,)],
    "x with src added at index along a dimension.",
    batching="index.scatter",
    operand_names=("self", "index", "src"),
)


@composite("scatter_add", inplace="scatter", out="exact", pure=True, autocast={"gpu": "widest"})
def scatter_add(input: Value, dim: int, index: Value, src: Value) -> Value:
    """input with src added at the positions of index along a dimension, in order.

    Example:
        >>> index = torch.tensor([0, 1, 0])
        >>> torch.scatter_add(torch.zeros(2), 0, index, torch.tensor([1.0, 2.0, 3.0]))
        tensor([4., 2.])
    """
    dim = wrap_dim(dim, len(input._spec.shape), "scatter_add")
    check_index("scatter_add", index)
    if not (input._spec.shape and index._spec.shape and src._spec.shape):
        whole = scatter_add(_lifted(input), dim, _lifted(index), _lifted(src))
        return views.reshape(whole, input._spec.shape)
    if index._spec.numel == 0:
        return _untouched(input, src)
    shape, wanted, given = input._spec.shape, index._spec.shape, src._spec.shape
    same_rank = len(shape) == len(wanted) == len(given)
    if not same_rank or any(
        n > m or (n > k and i != dim)
        for i, (n, m, k) in enumerate(zip(wanted, given, shape, strict=True))
    ):
        raise ShapeError(
            f"scatter_add: index {index._spec!r} must fit into src {src._spec!r} and, except in "
            f"dimension {dim}, into {input._spec!r}"
        )
    if src._spec.dtype is not input._spec.dtype:
        raise DTypeError(
            f"scatter_add: src {src._spec!r} must have the dtype of {input._spec!r}; cast with "
            ".to(dtype)"
        )
    if input._spec.dtype is bool_:
        return e.cast(scatter_add(e.cast(input, int32), dim, index, e.cast(src, int32)), bool_)
    for i, n in enumerate(wanted):
        src = views.slice_dim(src, i, 0, n)
    # The kernel iterates over index and out with merged dimensions; a smaller index needs the full
    # shape around it.
    if any(n != k for i, (n, k) in enumerate(zip(wanted, shape, strict=True)) if i != dim):
        return _scatter_part(input, dim, index, src)
    return onto.scatter(_scatter_add, input, merges(index, dim), merges(src, dim), dim)


def _untouched(x: Value, src: Value) -> Value:
    """A copy of x, recorded as a function of src too: its gradient is zero, not absent."""
    if not x._spec.differentiable or src._spec.dtype is not x._spec.dtype:
        return e.clone(x)
    never = full_spec(Spec.of(x._spec.device, bool_, ()), 0)
    return e.select(never, reductions.sum(src), x)


def _scatter_part(x: Value, dim: int, index: Value, src: Value) -> Value:
    """Scatter into the corner of x that the index covers."""
    part = x
    for i, n in enumerate(index._spec.shape):
        if i != dim:
            part = views.slice_dim(part, i, 0, n)
    added = onto.scatter(_scatter_add, part, merges(index, dim), merges(src, dim), dim)
    if added._memory is x._memory:
        return x
    seen = (part._spec.shape, views.contiguous(x)._spec.strides, 0)
    return call.call(views.write_view, (views.contiguous(x), added), seen)


def _plan_scatter_zero(op: Op, ins: Sequence[Spec], static: Static) -> Plan:
    """out = 0, then g is added at index: in one buffer, where scatter_add of zeros has two."""
    dim, shape = static
    g, index = ins
    pool = check_devices("gather", ins)
    out = Spec.of(pool, g.dtype, shape)
    fill = built(pool, fill_kernel(g.dtype))
    scatter = scatter_launch(pool, "add", out, index, g, dim, "gather")

    def launch(target: int, given: int, at: int) -> None:
        fill(target, out.numel)
        scatter(target, given, at)

    return Plan(op, ins, [out], launch, static)


_scatter_zero = KernelOp(
    "scatter_zero",
    _plan_scatter_zero,
    [lambda gg, out, g, index, dim, shape: gather(gg, dim, index), None],
    [(1,), ()],
    "Zeros with g added at index along a dimension.",
    batching="index.scatter_zero",
)


def scatter_zero(g: Value, index: Value, dim: int, shape: Shape) -> Value:
    """The gradient of gathered values: the shape differs from index's in `dim` alone."""
    return call.call(_scatter_zero, (merges(g, dim), merges(index, dim)), (dim, tuple(shape)))


# ---- rows of a table ----


def plan_rows(op: Op, ins: Sequence[Spec], static: Static, merged: bool = False) -> Plan:
    """out[..., :] = table[index[...], :]; the table's rows are those of `merged` dimensions."""
    table, index = ins
    pool = check_devices(op.name, ins)
    size = numel(table.shape[1:])
    out = Spec.of(pool, table.dtype, (*index.shape, *table.shape[1:]))
    limit = table.shape[0]
    tail = (1, index.numel, size, limit, 0, size, 1, 0, size, 1, 0, 1, 0)
    run = built(pool, Gather(table.dtype, index.dtype))
    told = None if merged else limit
    launch = checked(pool, run, op.name, told, tail)
    return Plan(op, ins, [out], launch, static)


def _plan_rows_grad(op: Op, ins: Sequence[Spec], static: Static) -> Plan:
    """table of zeros, then table[index[k]] += g[k], k ascending."""
    g, index = ins
    (shape,) = static
    pool = check_devices("embedding", ins)
    out = Spec.of(pool, g.dtype, shape)
    size = numel(shape[1:])
    tail = (1, index.numel, size, shape[0], 0, size, 1, 0, size, 1, 0, 1, 0)
    fill = built(pool, fill_kernel(g.dtype))
    run = built(pool, Scatter(g.dtype, index.dtype))
    scatter = checked(pool, run, "embedding", shape[0], tail)

    def launch(target: int, gradient: int, at: int) -> None:
        fill(target, out.numel)
        scatter(target, gradient, at)

    return Plan(op, ins, [out], launch, static)


_rows_grad = KernelOp(
    "embedding_grad",
    _plan_rows_grad,
    [lambda g, out, x, index, shape: rows(g, index), None],
    [(1,), ()],
    "The gradient of a table whose rows were read.",
    batching="index.rows_grad",
)


def _plan_rows_piece(op: Op, ins: Sequence[Spec], static: Static) -> Plan:
    """`_plan_rows_grad`, but an index outside of the table is of another piece."""
    g, index = ins
    (shape,) = static
    pool = check_devices(op.name, ins)
    out = Spec.of(pool, g.dtype, shape)
    size = numel(shape[1:])
    tail = (1, index.numel, size, shape[0], 0, size, 1, 0, size, 1, 0, 1, 0)
    fill = built(pool, fill_kernel(g.dtype))
    scatter = built(pool, Scatter(g.dtype, index.dtype))

    def launch(target: int, gradient: int, at: int) -> None:
        fill(target, out.numel)
        with Scratch(pool, room_for(4)) as (unread,):
            scatter(target, gradient, at, unread, *tail)

    return Plan(op, ins, [out], launch, static)


_rows_piece = KernelOp(
    "embedding_grad", _plan_rows_piece, [None, None], [(), ()], "Some rows of a table's gradient."
)


def rows_piece(g: Value, index: Value, low: int, high: int, shape: Shape) -> Value:
    """The rows `low` to `high` of `rows_grad`, with its bits."""
    moved = e.sub(views.contiguous(index), low)
    return call.call(_rows_piece, (views.contiguous(g), moved), ((high - low, *shape[1:]),))


def _rows(name: str, *operand_names: str, merged: bool = False) -> KernelOp:
    """Rows of a table, under the name that errors and records show."""
    return KernelOp(
        name,
        partial(plan_rows, merged=merged),
        [lambda g, out, table, index: rows_grad(g, index, table.shape), None],
        [(1,), ()],
        "Rows of a table.",
        batching="index.rows",
        operand_names=operand_names,
        piece=lambda low, high, g, out, table, index: rows_piece(g, index, low, high, table.shape),
    )


_embedded = _rows("embedding", "weight", "indices")
_selected = _rows("index_select", "self", "index")
_classes = _rows("one_hot", "self", "index")
_placed = _rows("index", "self", "indices", merged=True)


def rows(table: Value, index: Value, op: KernelOp = _embedded) -> Value:
    """table[index] along the first dimension."""
    return call.call(op, (views.contiguous(table), views.contiguous(index)))


def classes(table: Value, index: Value) -> Value:
    """The rows of class numbers; one that the table does not have is an error of `one_hot`."""
    return rows(table, index, _classes)


def placed(table: Value, index: Value) -> Value:
    """The rows of dimensions that were merged: x[i, j]."""
    return rows(table, index, _placed)


def rows_grad(g: Value, index: Value, shape: Shape) -> Value:
    """Rows added up in a table of zeros of a shape, in the order of the index."""
    return call.call(_rows_grad, (views.contiguous(g), views.contiguous(index)), (tuple(shape),))


@composite("index_select", out="exact", pure=True)
def index_select(input: Value, dim: int, index: Value) -> Value:
    """The slices of a dimension at a 1-d index.

    Example:
        >>> x = torch.arange(6).reshape(2, 3)
        >>> torch.index_select(x, 1, torch.tensor([2, 0]))
        tensor([[2, 0],
                [5, 3]])
    """
    dim = wrap_dim(dim, len(input._spec.shape), "index_select")
    check_index("index_select", index)
    if len(index._spec.shape) > 1:
        raise BoundsError(f"index_select: the index must have one dimension, got {index._spec!r}")
    if not input._spec.shape:
        if index._spec.numel != 1:
            raise ShapeError(
                f"index_select: a 0-dim tensor takes an index of 1 element, got {index._spec!r}"
            )
        return views.reshape(index_select(views.reshape(input, (1,)), 0, index), ())
    index = views.reshape(index, (index._spec.numel,))
    if dim == 0:
        return rows(input, index, _selected)
    shape = input._spec.shape
    count = index._spec.numel
    if not count or not input._spec.numel:
        return views.transpose(rows(views.transpose(input, 0, dim), index, _selected), 0, dim)
    place = views.reshape(index, tuple(count if i == dim else 1 for i in range(len(shape))))
    wanted = views.expand(place, (*shape[:dim], count, *shape[dim + 1 :]))
    return call.call(_gather, (merges(input, dim), merges(wanted, dim)), (dim,))


_from_end = elementwise(
    "index_from_end",
    lambda i, n: s.where(i < 0, i + n, i),
    "An index, from the end where negative.",
    INTEGER,
    listed=False,
)


def _inside_body(i: Expr, n: Expr) -> Expr:
    at = s.where(i < 0, i + n, i)
    return s.where((at < 0) | (at >= n), -1, at)


def _merged_body(flat: Expr, i: Expr, n: Expr) -> Expr:
    at = s.where(i < 0, i + n, i)
    return s.where((flat < 0) | (at < 0) | (at >= n), -1, flat * n + at)


_inside = elementwise(
    "index_inside", _inside_body, "An index, -1 where it is beyond the size.", INTEGER, listed=False
)
_merged = elementwise(
    "index_merged", _merged_body, "One index of two dimensions, -1 for none.", INTEGER, listed=False
)


def merged_index(indices: Sequence[Value], sizes: Sequence[int]) -> Value:
    """A linear index into the merged dimensions.

    -1 where one is out of range of its own dimension.
    """
    flat: Value = _inside(indices[0], sizes[0])
    for index, size in zip(indices[1:], sizes[1:], strict=True):
        flat = _merged(flat, index, size)
    return flat


def from_end(index: Value, size: int) -> Value:
    """An index with negative entries counted from the end."""
    return _from_end(index, size)


def take_slices(x: Value, dim: int, index: Value) -> Value:
    """The slices of a dimension at a 1-d index: one kernel where x merges around `dim`."""
    shape = x._spec.shape
    line = views.reshape(index, (1,) * dim + (index._spec.numel,) + (1,) * (len(shape) - dim - 1))
    return gather(x, dim, views.expand(line, (*shape[:dim], index._spec.numel, *shape[dim + 1 :])))
