"""Shapes, strides and broadcasting. Strides count elements."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from operator import index
from typing import Any, SupportsIndex, overload

from rushlight.core.dtypes import SHOWN_PACKAGE, DType
from rushlight.core.errors import ShapeError
from rushlight.core.locks import reentrant_lock

Shape = tuple[int, ...]


def _ints_of(sizes: tuple[Any, ...]) -> tuple[int, ...]:
    for i, size in enumerate(sizes):
        if size.__class__ is not int and not hasattr(size, "__index__"):
            raise TypeError(
                f"Size() takes an iterable of 'int' (item {i} is {type(size).__name__!r})"
            )
    return tuple([size.__index__() for size in sizes])


class Size(tuple[int, ...]):
    """A shape as users see it: a tuple with `numel`, whose slices and sums are of its class."""

    __slots__ = ()

    def __new__(cls, sizes: Any = ()) -> Size:
        whole = tuple(sizes)
        for size in whole:
            if size.__class__ is not int:
                whole = _ints_of(whole)
                break
        return tuple.__new__(cls, whole)

    def numel(self) -> int:
        """The number of elements of a tensor of this shape."""
        return numel(self)

    def __repr__(self) -> str:
        return f"{SHOWN_PACKAGE[-1]}.Size({list(self)})"

    def __reduce__(self) -> Any:
        return _size, (tuple(self),)  # a function: `rushlight run` gives classes PyTorch's names

    @overload
    def __getitem__(self, key: SupportsIndex) -> int: ...
    @overload
    def __getitem__(self, key: slice) -> Size: ...
    def __getitem__(self, key: Any, get: Any = tuple.__getitem__, new: Any = tuple.__new__) -> Any:
        part = get(self, key)
        return part if part.__class__ is int else new(Size, part)

    def __add__(self, other: Any) -> Any:
        return Size(tuple.__add__(self, other)) if isinstance(other, tuple) else NotImplemented

    def __radd__(self, other: Any) -> Any:
        return Size(tuple.__add__(other, self)) if isinstance(other, tuple) else NotImplemented

    def __mul__(self, count: Any) -> Any:
        return Size(tuple.__mul__(self, count))

    __rmul__ = __mul__


def _size(sizes: tuple[int, ...]) -> Size:
    return tuple.__new__(Size, sizes)


def numel(shape: Sequence[int]) -> int:
    total = 1
    for size in shape:
        total *= size
    return total


def contiguous_strides(shape: Sequence[int]) -> Shape:
    strides = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= size or 1
    return tuple(strides[::-1])


def is_contiguous(shape: Shape, strides: Shape) -> bool:
    step = 1
    if 0 in shape:
        return True
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size != 1:
            if stride != step:
                return False
            step *= size
    return True


def is_dense(shape: Shape, strides: Shape) -> bool:
    """Whether a layout is that of a contiguous block with its dimensions in another order."""
    step = 1
    if 0 in shape:
        return True
    for stride, size in sorted(zip(strides, shape, strict=True)):
        if size != 1:
            if stride != step:
                return False
            step *= size
    return True


def broadcast_shapes(shapes: Sequence[Shape], op: str, operands: Sequence[object] = ()) -> Shape:
    """The common shape of `shapes`, aligned at the right; an error shows `operands` if given."""
    rank = max((len(s) for s in shapes), default=0)
    result = [1] * rank
    for shape in shapes:
        for i, size in enumerate(shape, rank - len(shape)):
            if size == result[i] or size == 1:
                continue
            if result[i] != 1:
                listed = ", ".join(map(repr, operands)) or ", ".join(str(list(s)) for s in shapes)
                raise ShapeError(
                    f"{op}: shapes {listed} do not broadcast: sizes {result[i]} and {size} meet at "
                    f"dimension {i - rank}; make them equal or one of them 1"
                )
            result[i] = size
    return tuple(result)


def broadcast_strides(shape: Shape, strides: Shape, target: Shape) -> Shape:
    """Strides that walk `target` over memory of `shape`; broadcast dimensions get stride 0."""
    lead = len(target) - len(shape)
    inner = (
        0 if size == 1 and want != 1 else stride
        for size, stride, want in zip(shape, strides, target[lead:], strict=True)
    )
    return (0,) * lead + tuple(inner)


def collapse(shape: Shape, operands: Sequence[Shape]) -> tuple[Shape, tuple[Shape, ...]]:
    """Merge neighbouring dimensions that every operand walks as one, and drop those of size 1."""
    if 0 in shape:  # no elements, so any strides will do
        return (0,), ((1,),) * len(operands)
    sizes: list[int] = []
    steps: list[list[int]] = [[] for _ in operands]
    for dim, size in enumerate(shape):
        if size == 1:
            continue
        row = [strides[dim] for strides in operands]
        if sizes and all(s[-1] == step * size for s, step in zip(steps, row, strict=True)):
            sizes[-1] *= size
            for s, step in zip(steps, row, strict=True):
                s[-1] = step
        else:
            sizes.append(size)
            for s, step in zip(steps, row, strict=True):
                s.append(step)
    return tuple(sizes), tuple(tuple(s) for s in steps)


# Note [Layouts of results]
# 1. A value without a base is dense (`Spec.dense`) and at offset 0: a block of memory whose
#    dimensions lie in some order. So a plan states the strides of its results as it states their
#    shapes, and a call, a recipe or a record needs to know nothing more of them. A channels_last
#    parameter is a leaf without a base like any other.
# 2. The strides of results are PyTorch's. An elementwise op follows its operands
#    (`followed_strides`); its kernel walks memory in the order of the result's strides, so
#    operands of one layout are walked as one line. What a formula draws or computes from a
#    position is that of the row-major order in every layout.
# 3. An op on images follows the memory format of its input, and a convolution also that of its
#    weight (`ops/view/layouts.py`): channels_last where their strides suggest it
#    (`suggests_last`), else contiguous.
# 4. `clone`, casts and `*_like` keep the strides of a dense operand, and the order of dimensions
#    of any other (`kept_strides`). The tape's and the ops' own copy, `e.clone`, is contiguous.
# 5. The gradient of a leaf has the leaf's strides where those are dense, else it is contiguous.
# 6. Bits do not depend on layouts more than on views: a kernel sums along the same axis in the same
#    order.


def strides_in_order(shape: Sequence[int], order: Sequence[int]) -> Shape:
    """The strides of a block with its dimensions in an order, outermost first."""
    strides = [1] * len(shape)
    step = 1
    for dim in reversed(order):
        strides[dim] = step
        step *= max(shape[dim], 1)
    return tuple(strides)


def strides_last(shape: Sequence[int]) -> Shape:
    """The strides of a block with its channels, dimension 1, last."""
    return strides_in_order(shape, (0, *range(2, len(shape)), 1))


def order_of(shape: Shape, operands: Sequence[Shape]) -> list[int]:
    """The order of dimensions, outermost first, in which operands of these strides are walked.

    The strides are those of the broadcast operands. The first operand that tells two dimensions
    apart decides; a broadcast dimension tells nothing.
    """

    def compared(a: int, b: int) -> int:
        for strides in operands:
            first, second = abs(strides[a]), abs(strides[b])
            if first == 0 or second == 0:
                continue
            if first != second:
                return 1 if first > second else -1
            if shape[a] > shape[b]:
                return 1
        return 0

    order = list(range(len(shape)))[::-1]  # innermost first
    for i in range(1, len(order)):
        at = i
        for before in range(i - 1, -1, -1):
            sign = compared(order[before], order[at])
            if sign > 0:
                order[before], order[at] = order[at], order[before]
                at = before
            elif sign < 0:
                break
    return order[::-1]


def followed_strides(shape: Shape, operands: Sequence[Spec], with_number: bool = False) -> Shape:
    """The strides of an elementwise result of this shape. See Note [Layouts of results].

    A number is an operand of another shape: then dimensions of one element, too, keep their order.
    """
    if not with_number and all(spec.shape == shape for spec in operands):
        if all(spec.contiguous for spec in operands):
            return contiguous_strides(shape)
        if len(shape) == 4 and all(is_last(spec) for spec in operands):
            return strides_last(shape)
        first = operands[0]
        if first.dense and all(spec.strides == first.strides for spec in operands):
            return first.strides
    steps = [broadcast_strides(spec.shape, spec.strides, shape) for spec in operands]
    return strides_in_order(shape, order_of(shape, steps))


def kept_strides(spec: Spec) -> Shape:
    """The strides of a copy that preserves the format of its source."""
    if spec.dense:
        return spec.strides
    return strides_in_order(spec.shape, order_of(spec.shape, [spec.strides]))


def is_last(spec: Spec) -> bool:
    """Whether a value of four or five dimensions is a block with its channels last."""
    return len(spec.shape) in (4, 5) and all(
        n == 1 or have == want
        for n, have, want in zip(spec.shape, spec.strides, strides_last(spec.shape), strict=True)
    )


def suggests_last(spec: Spec) -> bool:
    """Whether strides suggest that channels are last, as PyTorch reads them; they may have gaps."""
    shape, strides = spec.shape, spec.strides
    if len(shape) not in (4, 5) or strides[1] == 0:
        return False
    least = 0
    for dim in (1, *range(len(shape) - 1, 1, -1), 0):
        if shape[dim] == 0 or strides[dim] < least or (dim == 0 and least == strides[1]):
            return False
        least = strides[dim] * max(shape[dim], 1)
    return True


def joined_strides(parts: Sequence[Spec], shape: Shape) -> Shape:
    """The strides of values one after another: channels last where each suggests it."""
    if all(suggests_last(spec) for spec in parts):
        return strides_last(shape)
    return contiguous_strides(shape)


def wrap_dim(dim: int, rank: int, op: str) -> int:
    bound = max(rank, 1)
    # A bool is a `keepdim` or another flag in the position of a dimension.
    if dim.__class__ is bool:
        raise TypeError(f"{op}: a dimension is a whole number, got {dim}; give flags by name")
    if not -bound <= dim < bound:
        raise IndexError(
            f"{op}: dimension {dim} is out of range for a tensor of {rank} dimensions "
            f"(expected {-bound} to {bound - 1})"
        )
    return dim + bound if dim < 0 else dim


def view_strides(shape: Shape, strides: Shape, target: Shape) -> Shape | None:
    """Strides of `target` over the same memory, or None when a copy is needed."""
    if numel(shape) == 0:
        return contiguous_strides(target)
    sizes, (steps,) = collapse(shape, (strides,))
    result = [1] * len(target)
    chunk = len(sizes) - 1
    left = sizes[chunk] if chunk >= 0 else 1
    step = steps[chunk] if chunk >= 0 else 1
    for dim in range(len(target) - 1, -1, -1):
        size = target[dim]
        if size == 1:
            result[dim] = step
            continue
        if left == 1:
            chunk -= 1
            if chunk < 0:
                return None
            left, step = sizes[chunk], steps[chunk]
        if left % size:
            return None
        result[dim] = step
        step *= size
        left //= size
    return tuple(result)


def with_dim(shape: Shape, strides: Shape, dim: int) -> tuple[Shape, Shape]:
    """A layout with a dimension of one element, whose stride is PyTorch's."""
    step = shape[dim] * strides[dim] if dim < len(shape) else 1
    return (*shape[:dim], 1, *shape[dim:]), (*strides[:dim], step, *strides[dim:])


# Note [Reach]
# 1. Elements of a spec lie in the bytes [low, high) counted from the address of its first element;
#    an empty spec reaches nothing. `Spec.of`, which makes every spec except a batch's examples
#    (Note [Batching]), refuses negative sizes and layouts that no address can hold, so every spec
#    has a true reach.
# 2. A value is a spec laid over a storage at an offset: offset + low >= 0 and offset + high <=
#    storage.room. A new result has a block of its spec's reach (`Plan.rooms`). A view made by a
#    plan is checked when the plan is made: it reaches no further than its input (`check_inside`),
#    which lies in the storage; a view that begins at a launch parameter is compared with its input
#    at each call (Note [Moving views]). Every other layout over existing memory (storages, NumPy,
#    DLPack, shared memory, files, `as_strided` beyond its input) goes through `call.lay`, which
#    checks it against the storage.
# 3. A kernel touches no more than its sizes and strides say, and those come from specs.
#    `RUSHLIGHT_CHECK=1` verifies this for every launch (`devices/shared/checking.py`).

MOST_DIMS = 64
_BEYOND = 1 << 63  # bytes; an offset must fit an int64


def reach(shape: Sequence[int], strides: Sequence[int], itemsize: int) -> tuple[int, int]:
    """The bytes [low, high) of a layout's elements, counted from its first. See Note [Reach]."""
    if len(shape) != len(strides):
        raise ShapeError(
            f"a layout of sizes {list(shape)} needs as many strides, got {list(strides)}"
        )
    if len(shape) > MOST_DIMS:
        raise ShapeError(f"a tensor has at most {MOST_DIMS} dimensions, got {len(shape)}")
    low = high = 0
    for size, stride in zip(shape, strides, strict=True):
        if size < 0:
            raise ShapeError(f"a size cannot be negative, got {list(shape)}")
        if size >= _BEYOND or not -_BEYOND < stride < _BEYOND:
            raise _beyond(shape, strides)
        if stride < 0:
            low += (size - 1) * stride
        else:
            high += (size - 1) * stride
    if not all(shape):
        return 0, 0
    low, high = low * itemsize, (high + 1) * itemsize
    if max(high, numel(shape) * itemsize) >= _BEYOND or low <= -_BEYOND:
        raise _beyond(shape, strides)
    return low, high


def _beyond(shape: Sequence[int], strides: Sequence[int]) -> ShapeError:
    return ShapeError(
        f"sizes {list(shape)} with strides {list(strides)} are more than can be addressed"
    )


def check_inside(op: str, x: Spec, part: Spec, skip: int) -> None:
    """Refuse a view of x, `skip` bytes after its first element, that reaches beyond x.

    See Note [Reach].
    """
    if part.numel and (skip + part.low < x.low or skip + part.high > x.high):
        raise ShapeError(
            f"{op}: a view of sizes {list(part.shape)}, strides {list(part.strides)} and offset "
            f"{skip} bytes "
            f"reaches beyond {x!r} with strides {list(x.strides)}"
        )


class Spec:
    """Everything a kernel needs of an operand besides its address; one object per distinct content.

    Specs are interned, so a plan can be found by identity (`Spec.of` is the only maker). The table
    holds them weakly: a spec is freed with the last value or plan that has it, so new shapes do not
    fill memory.
    """

    __slots__ = (
        "__weakref__",
        "contiguous",
        "dense",
        "device",
        "differentiable",
        "dtype",
        "high",
        "low",
        "nbytes",
        "numel",
        "shape",
        "size",
        "strides",
    )

    device: Any  # the pool of the device
    dtype: DType
    shape: Shape
    size: Size  # the shape as users see it
    strides: Shape
    contiguous: bool
    dense: bool  # contiguous, if its dimensions were in another order
    differentiable: bool  # a floating-point or complex type
    nbytes: int
    numel: int
    low: int  # bytes from the first element's address to the lowest byte of an element; at most 0
    high: int  # bytes to the end of the highest; see Note [Reach]
    hidden: tuple[int, ...] = ()  # set where it is one example of a batch: Note [Batching]

    @staticmethod
    def of(device: object, dtype: DType, shape: Shape, strides: Shape | None = None) -> Spec:
        if strides is None:
            strides = contiguous_strides(shape)
        key = (device, dtype, shape, strides)
        known = _SPECS.get(key)
        spec = None if known is None else known()
        if spec is None:
            spec = Spec()
            shape, strides = tuple(map(index, shape)), tuple(map(index, strides))
            spec.low, spec.high = reach(shape, strides, dtype.itemsize)
            spec.device, spec.dtype, spec.shape, spec.strides = device, dtype, shape, strides
            spec.size = Size(shape)
            spec.numel = numel(shape)
            spec.differentiable = dtype.kind in "fc"
            spec.nbytes = spec.numel * dtype.itemsize
            spec.contiguous = is_contiguous(shape, strides)
            spec.dense = spec.contiguous or is_dense(shape, strides)
            spec = interned(_SPECS, key, spec)
        return spec

    def __repr__(self) -> str:
        return f"{self.dtype.name}{list(self.shape)}"


class InternedRef(weakref.ref[Any]):
    """A weak entry of a table, which removes itself."""

    __slots__ = ("key", "table")

    key: Any
    table: dict[Any, InternedRef]


_INTERNING = reentrant_lock()  # an entry may remove itself while its own thread adds another
_SPECS: dict[Any, InternedRef] = {}


def interned(table: dict[Any, InternedRef], key: Any, spec: Any) -> Any:
    """The table's object for a key: `spec`, unless another thread has added one first."""
    with _INTERNING:
        known = table.get(key)
        present = None if known is None else known()
        if present is not None:
            return present
        entry = InternedRef(spec, _leave)
        entry.key, entry.table = key, table
        table[key] = entry
        return spec


def _leave(entry: InternedRef) -> None:
    with _INTERNING:
        # Otherwise a new one of the same content is there already.
        if entry.table.get(entry.key) is entry:
            del entry.table[entry.key]


# ---- layouts in one memory ----


def may_overlap(a: Spec, a_offset: int, b: Spec, b_offset: int) -> bool:
    """Whether two layouts in one memory may share an element; offsets are in bytes.

    Exact for parts of one dense tensor that differ by indices and slices with step 1.
    """
    if not (a.numel and b.numel):
        return False
    if a_offset + a.high <= b_offset + b.low or b_offset + b.high <= a_offset + a.low:
        return False
    if a.dtype.itemsize != b.dtype.itemsize:
        return True
    used = (a.shape, a.strides), (b.shape, b.strides)
    steps = {st for sizes, strides in used for n, st in zip(sizes, strides, strict=True) if n > 1}
    ladder = sorted(steps, reverse=True)
    if ladder and ladder[-1] <= 0:
        return True
    first, second = _box(a, a_offset, ladder), _box(b, b_offset, ladder)
    if first is None or second is None:
        return True
    return all(
        low < other + more and other < low + count
        for (low, count), (other, more) in zip(first, second, strict=True)
    )


def _box(spec: Spec, offset: int, ladder: list[int]) -> list[tuple[int, int]] | None:
    """The first index and the count for each stride, and what is left; None where they overlap."""
    left, found, above = offset // spec.dtype.itemsize, [], 0
    dims = [(st, n) for n, st in zip(spec.shape, spec.strides, strict=True) if n > 1]
    sizes = dict(dims)
    if len(sizes) < len(dims) or offset % spec.dtype.itemsize:
        return None
    for step in ladder:
        low, left = divmod(left, step)
        count = sizes.get(step, 1)
        if above and (low + count) * step > above:
            return None
        found.append((low, count))
        above = step
    return [*found, (left, 1)]
