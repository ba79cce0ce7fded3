"""Indexing with brackets, reading and writing.

# Note [Subscripts]
1. Ints, slices, None and ... are views and are applied first; the rest are index tensors and their
   dimensions.
2. A list is an index tensor; one of the host is brought to x's device. A bool mask of n dimensions
   stands for n index vectors, those of its true elements. A bool, Python's or 0-dim, stands for a
   new dimension, taken once or not at all.
3. Index tensors broadcast against each other. Where they are adjacent their dimensions take that
   position, else they come first.
4. A 0-dim integer tensor is an int, read from the device, so that x[i] is a view for every i. Where
   it differs between the examples of a `vmap` it is not read: the result is a copy, and a write
   treats it as an index tensor next to the others, which gives the same shape.
5. A list alone in the brackets that holds lists, tensors, slices, None or ... counts as the tuple
   of its items.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from rushlight.core.dtypes import INDEX, INTEGER, bool_, int64, uint8
from rushlight.core.errors import DTypeError, ShapeError
from rushlight.core.shapes import Shape, Spec, broadcast_shapes, numel
from rushlight.ops.arguments import in_range
from rushlight.ops.create.creation import check_holds, full_spec
from rushlight.ops.family import read_back
from rushlight.ops.family.declare import brought
from rushlight.ops.index import gather, nonzero, scatter_onto, select
from rushlight.ops.pointwise import arithmetic as e
from rushlight.ops.registry import composite
from rushlight.ops.view import inplace, views
from rushlight.tape.program.memo import memo
from rushlight.tape.record.value import Value

Key = Any
Left = list[tuple[int, Value]]


def _from_list(x: Value, key: Any) -> Value:
    """A list of numbers, lists and tensors as an index tensor on x's device."""
    if isinstance(key, Value):
        if key._spec.numel != 1:
            raise TypeError(
                f"index: a list of indices holds tensors of one element, got {key._spec!r}; stack "
                "them"
            )
        return views.reshape(key, ())
    if isinstance(key, (list, tuple, range)) or getattr(key, "shape", ()) != ():
        key = list(key)
    elif isinstance(key, (bool, int)) or hasattr(key, "__index__"):
        number = key if isinstance(key, bool) else in_range("index", "index", operator.index(key))
        return full_spec(
            Spec.of(x._spec.device, bool_ if isinstance(key, bool) else int64, ()), number
        )
    elif hasattr(key, "tolist"):
        return _from_list(x, key.tolist())
    else:
        raise IndexError(
            f"index: a list of indices holds integers and bools, got {type(key).__name__}"
        )
    if not key:
        return full_spec(Spec.of(x._spec.device, int64, (0,)), 0)
    parts = [_from_list(x, item) for item in key]
    if any(part._spec.shape != parts[0]._spec.shape for part in parts):
        raise IndexError("index: nested lists of indices must have equal lengths at each level")
    return views.stack(parts, 0)


def _is_index(key: Any) -> bool:
    """An int, but for 0-dim tensors: NumPy's integers too."""
    return (
        not isinstance(key, (bool, Value))
        and hasattr(key, "__index__")
        and not hasattr(key, "tolist")
    )


def _end(end: Any) -> int | None:
    """A number of a slice."""
    if end is None:
        return None
    try:
        return operator.index(end)
    except TypeError:
        raise TypeError(
            "index: slice indices must be integers or None or have an __index__ method, got "
            f"{end!r:.80} of type {type(end).__name__}"
        ) from None


def _normal(x: Value, key: Any) -> Any:
    """One entry of a key as int, slice, None, Ellipsis, bool or tensor."""
    if isinstance(key, Value):
        if key._spec.shape or key._spec.dtype is bool_:
            key = brought(key, x._spec.device)
        if key._spec.dtype is uint8:
            return e.cast(key, bool_)  # a mask, as in PyTorch
        return key if key._spec.shape or key._spec.dtype not in INTEGER else e.cast(key, int64)
    if type(key) is int or key is None or key is Ellipsis or isinstance(key, bool):
        return key
    if isinstance(key, slice):
        return slice(*[_end(end) for end in (key.start, key.stop, key.step)])
    if _is_index(key):
        return int(key.__index__())
    # a NumPy number.
    if hasattr(key, "tolist") and getattr(key, "shape", None) == () and isinstance(key.item(), int):
        return key.item()
    if isinstance(key, (list, tuple, range)) or _is_array(key):
        return _from_list(x, key)
    kind = TypeError if isinstance(key, str) else IndexError
    raise kind(
        "index: only integers, slices (`:`), ellipsis (`...`), None and integer or bool tensors or "
        f"lists of them are valid indices, got {type(key).__name__}"
    )


def _is_tuple(key: Any) -> bool:
    """Whether a list stands for a tuple. See Note [Subscripts]."""
    parts = (Value, list, tuple, range, slice, type(None), type(Ellipsis))
    return (
        isinstance(key, list)
        and len(key) < 32
        and any(isinstance(k, parts) or _is_array(k) for k in key)
    )


def _is_array(key: Any) -> bool:
    return not isinstance(key, Value) and getattr(key, "shape", ()) != ()


def _width(key: Any) -> int:
    """The number of dimensions an entry uses."""
    if key is None or key is Ellipsis or isinstance(key, bool):
        return 0
    return len(key._spec.shape) if isinstance(key, Value) and key._spec.dtype is bool_ else 1


def _expanded(x: Value, key: Key) -> list[Any]:
    """The key as a list with an entry per dimension, Ellipsis filled in."""
    several = isinstance(key, tuple) or _is_tuple(key)
    keys = [_normal(x, k) for k in key] if several else [_normal(x, key)]
    used = sum(map(_width, keys))
    rank = len(x._spec.shape)
    if used > rank:
        raise IndexError(
            f"index: too many indices, {used}, for a tensor of dimension {rank} ({x._spec!r})"
        )
    fill = [slice(None)] * (rank - used)
    dots = [i for i, k in enumerate(keys) if k is Ellipsis]
    if not dots:
        return keys + fill
    # Further ones stand for no dimension.
    rest = [k for k in keys[dots[0] + 1 :] if k is not Ellipsis]
    return keys[: dots[0]] + fill + rest


def _slice(x: Value, dim: int, key: slice) -> Value:
    size = x._spec.shape[dim]
    if key.step is not None and key.step <= 0:
        raise ValueError(
            f"index: slice steps must be positive, got {key.step}; use flip for reversed order"
        )
    start, stop, step = key.indices(size)
    return views.slice_dim(x, dim, start, max(0, -(-(stop - start) // step)), step)


def _mask(x: Value, dim: int, mask: Value, left: Left) -> tuple[Value, int]:
    """Append a bool mask's index vectors to `left`; returns x and the dimension after it."""
    shape = mask._spec.shape
    if not shape:
        left.append((dim, nonzero.chosen(views.reshape(mask, (1,)))))
        return views.unsqueeze(x, dim), dim + 1
    seen = x._spec.shape[dim : dim + len(shape)]
    if seen != shape:
        raise IndexError(
            f"index: the shape of the mask {list(shape)} does not match the shape of the indexed "
            f"tensor {list(x._spec.shape)} at index {dim}"
        )
    if (
        len(shape) > 1
        and x._spec.contiguous
        and x._spec.numel
        and not (x._spec.hidden or mask._spec.hidden)
    ):
        # The masked dimensions merged: a position in it is one number, without coordinates.
        seen = (*x._spec.shape[:dim], numel(shape), *x._spec.shape[dim + len(shape) :])
        left.append((dim, nonzero.chosen(mask)))
        return views.view(x, seen), dim + 1
    left.extend((dim + i, index) for i, index in enumerate(select.nonzero_each(mask)))
    return x, dim + len(shape)


def _picked(x: Value, dim: int, index: Value) -> Value:
    """One index of a dimension, given by a 0-dim tensor, which is not read.

    The dimension is removed.
    """
    place = views.reshape(gather.from_end(index, x._spec.shape[dim]), (1,))
    shape = x._spec.shape
    return views.reshape(gather.index_select(x, dim, place), shape[:dim] + shape[dim + 1 :])


def basic(x: Value, keys: list[Any], writing: bool = False) -> tuple[Value, Left]:
    """Apply ints, slices and None as views; returns tensors and their dimensions.

    Note [Subscripts].
    """
    left: Left = []
    picked: Left = []
    dim, given, taken = 0, x, 0  # the dimensions that ints removed are counted in errors
    for key in keys:
        if isinstance(key, Value) and key._spec.dtype in INDEX and not key._spec.shape:
            if key._spec.hidden and writing:
                picked.append((dim, key))
                dim += 1
                continue
            if not key._spec.hidden:
                key = int(read_back.read(key)[0])
        if key is None:
            x = views.unsqueeze(x, dim)
            dim += 1
        elif isinstance(key, bool):
            x = views.unsqueeze(x, dim)
            left.append((dim, full_spec(Spec.of(x._spec.device, int64, (int(key),)), 0)))
            dim += 1
        elif isinstance(key, slice):
            x = _slice(x, dim, key)
            dim += 1
        elif isinstance(key, int):
            size = x._spec.shape[dim]
            if not -size <= key < size:
                raise IndexError(
                    f"index: {key} is out of range for dimension {dim + taken} of size {size} "
                    f"({given._spec!r})"
                )
            x = views.select(x, dim, key)
            taken += 1
        elif key._spec.dtype is bool_:
            x, dim = _mask(x, dim, key, left)
        elif key._spec.dtype in INDEX and not key._spec.shape:
            x = _picked(x, dim, key)
        elif key._spec.dtype in INDEX:
            left.append((dim, key))
            dim += 1
        else:
            raise IndexError(
                f"index: tensors used as indices must be int64, int32 or bool, got {key._spec!r}"
            )
    return _beside(x, picked, left) if picked else (x, left)


def _beside(x: Value, picked: Left, left: Left) -> tuple[Value, Left]:
    """x with the dimensions of 0-dim indices moved, and all indices by dimension.

    They come before the first other index.
    """
    own = [d for d, _ in picked]
    rest = [d for d in range(len(x._spec.shape)) if d not in own]
    at = rest.index(left[0][0]) if left else 0
    order = [*rest[:at], *own, *rest[at:]]
    return views.permute(x, tuple(order)), [
        (order.index(d), index) for d, index in (*picked, *left)
    ]


WHOLE = slice(None)


def part(x: Value, keys: Sequence[Any]) -> Value | None:
    """The view of x by ints, slices, None and `...`; None where a key is refused, or is another."""
    left = len(x._spec.shape)
    for key in keys:
        kind = key.__class__
        if kind is slice or kind is int:
            left -= 1
        elif key is not None and key is not Ellipsis:
            return None
    if left < 0:
        return None
    made, dim = x, 0
    for key in keys:
        if key.__class__ is slice:
            if key != WHOLE:
                try:
                    start, stop, step = key.indices(made._spec.shape[dim])
                except (TypeError, ValueError):  # of floats, or a step of 0
                    return None
                if step < 0:
                    return None
                count = stop - start if step == 1 else -((start - stop) // step)
                made = views.slice_dim(made, dim, start, count if count > 0 else 0, step)
            dim += 1
        elif key is None:
            made = views.unsqueeze(made, dim)
            dim += 1
        elif key is Ellipsis:
            dim, left = dim + left, 0
        else:
            picked = views.pick(made, dim, key)
            if picked is None:
                return None
            made = picked
    return made if made is not x else views.view(x, x._spec.shape)


def get_item(x: Value, key: Key) -> Value:
    """x[key]."""
    if isinstance(key, Value) and key._spec.dtype is bool_ and _masks_rows(x, key):
        return _masked_rows(x, key)
    seen, left = basic(x, _expanded(x, key))
    if not left:
        # A view even of everything, so that a write to it writes to x and the handle is new.
        return seen if seen is not x else views.view(x, x._spec.shape)
    return read_at(seen, left)


def _masks_rows(x: Value, mask: Value) -> bool:
    """Whether a mask alone selects rows of x: its first dimensions, merged."""
    shape = mask._spec.shape
    known = not (x._spec.hidden or mask._spec.hidden) and x._spec.device is mask._spec.device
    return bool(known and shape and x._spec.numel and x._spec.shape[: len(shape)] == shape)


def _masked_rows(x: Value, mask: Value) -> Value:
    index = nonzero.chosen(mask)
    rest = x._spec.shape[len(mask._spec.shape) :]
    if not index._spec.numel:
        return views.slice_dim(views.reshape(x, (mask._spec.numel, *rest)), 0, 0, 0)
    rows = views.reshape(x, (mask._spec.numel, *rest))
    return gather.placed(rows, index) if rest else gather.gather(rows, 0, index)


class Places:
    """Index tensors on several dimensions as one index into those dimensions merged."""

    def __init__(self, x: Value, left: Left) -> None:
        shape = x._spec.shape
        self.dims = [d for d, _ in left]
        self.rest = [d for d in range(len(shape)) if d not in self.dims]
        self.sizes = tuple(shape[d] for d in self.dims)
        self.kept = tuple(shape[d] for d in self.rest)
        try:
            self.shape = broadcast_shapes(
                [i._spec.shape for _, i in left], "index", [i._spec for _, i in left]
            )
        except ShapeError as error:
            raise IndexError(
                f"index: the index tensors do not broadcast against each other: {error}"
            ) from None
        together = self.dims == list(range(self.dims[0], self.dims[0] + len(self.dims)))
        self.before = self.dims[0] if together else 0
        flat = self._merged([index for _, index in left])
        self.flat = views.reshape(views.expand(flat, self.shape), (numel(self.shape),))

    def _merged(self, indices: list[Value]) -> Value:
        """One index into the merged dimensions."""
        if len(indices) == 1:
            return gather.from_end(indices[0], self.sizes[0])
        return gather.merged_index(indices, self.sizes)

    def merged(self, x: Value) -> Value:
        """x with the indexed dimensions merged and first."""
        return views.reshape(
            views.permute(x, (*self.dims, *self.rest)), (numel(self.sizes), *self.kept)
        )

    def restored(self, merged: Value) -> Value:
        """The inverse of `merged`."""
        order = (*self.dims, *self.rest)
        whole = views.reshape(merged, (*self.sizes, *self.kept))
        return views.permute(whole, tuple(order.index(i) for i in range(len(order))))

    def result_shape(self) -> Shape:
        return (*self.kept[: self.before], *self.shape, *self.kept[self.before :])

    def placed(self, picked: Value) -> Value:
        """Slices of the merged tensor in the shape of the result."""
        whole = views.reshape(picked, (*self.shape, *self.kept))
        count, before = len(self.shape), self.before
        if not before or not count:
            return whole
        rank = len(whole._spec.shape)
        order = (*range(count, count + before), *range(count), *range(count + before, rank))
        return views.contiguous(views.permute(whole, order))  # so that .view(...) of it works

    def unplaced(self, result: Value) -> Value:
        """The inverse of `placed`."""
        count, before = len(self.shape), self.before
        if before and count:
            rank = len(result._spec.shape)
            order = (*range(before, before + count), *range(before), *range(before + count, rank))
            result = views.permute(result, order)
        return views.reshape(result, (numel(self.shape), *self.kept))


def _check_empty(places: Places) -> None:
    if numel(places.shape) and not numel(places.sizes):
        raise IndexError(
            f"index: a dimension of size 0 is indexed ({list(places.sizes)}); there is nothing to "
            "take"
        )


def read_at(x: Value, left: Left) -> Value:
    dim, index = left[0]
    if len(left) == 1 and len(index._spec.shape) == 1 and index._spec.numel and x._spec.numel:
        return gather.index_select(x, dim, gather.from_end(index, x._spec.shape[dim]))
    places = Places(x, left)
    _check_empty(places)
    if not numel(places.result_shape()):
        return views.reshape(
            views.slice_dim(views.reshape(x, (x._spec.numel,)), 0, 0, 0), places.result_shape()
        )
    return places.placed(gather.placed(places.merged(x), places.flat))


def write_at(x: Value, left: Left, values: Value, accumulate: bool) -> Value:
    """x with values, broadcast, at the positions of index tensors, or added there."""
    places = Places(x, left)
    _check_empty(places)
    shape = places.result_shape()
    given = values._spec.shape
    while len(given) > len(shape) and given[0] == 1:  # PyTorch drops leading dimensions of 1
        given = given[1:]
    if broadcast_shapes([shape, given], "index", [x._spec, values._spec]) != shape:
        raise ShapeError(
            f"index: values {values._spec!r} do not broadcast to the indexing result {list(shape)}"
        )
    if not numel(shape):
        return e.clone(x)
    dim, index = left[0]
    if len(left) == 1 and len(index._spec.shape) == 1:
        put = select.added_slices if accumulate else select.written_slices
        return put(x, dim, places.flat, views.expand(views.reshape(values, given), shape))
    merged = places.merged(x)
    new = places.unplaced(views.expand(views.reshape(values, given), shape))
    if accumulate:
        return places.restored(select.added_slices(merged, 0, places.flat, new))
    return places.restored(select.written_slices(merged, 0, places.flat, new))


@memo
def _written(x: Value, values: Value, dims: tuple[int, ...], *indices: Value) -> Value:
    return write_at(x, list(zip(dims, indices, strict=True)), values, accumulate=False)


def _mask_over(x: Value, keys: list[Any]) -> Value | None:
    """A single mask with only whole slices around it, shaped to broadcast against x."""
    masks = [
        (i, k)
        for i, k in enumerate(keys)
        if isinstance(k, Value) and k._spec.dtype is bool_ and k._spec.shape
    ]
    plain = all(isinstance(k, slice) and k == slice(None) for k in keys if not isinstance(k, Value))
    if len(masks) != 1 or not plain or len([k for k in keys if isinstance(k, Value)]) != 1:
        return None
    at, mask = masks[0]
    shape = mask._spec.shape
    if x._spec.shape[at : at + len(shape)] != shape:
        return None
    return views.reshape(mask, shape + (1,) * (len(x._spec.shape) - at - len(shape)))


def set_item(x: Value, key: Key, value: Any) -> None:
    """x[key] = value."""
    # A write refuses memory that overlaps itself.
    inplace.check_record(x, "x[...] = value")
    if key is False:
        return
    keys = _expanded(x, None if key is True else key)
    if not isinstance(value, Value):
        value = _number(x, value)
    value = brought(value, x._spec.device)
    mask = _mask_over(x, keys) if value._spec.numel == 1 else None
    if mask is not None:
        new = e.cast(views.reshape(value, ()), x._spec.dtype)
        inplace.copy_(x, e.select(mask, new, x))
        return
    seen, left = basic(x, keys, writing=True)
    if left:
        _check_kind(x, keys, value)
        new = e.cast(value, x._spec.dtype)
        if scatter_onto.is_worth(seen, (new, *[index for _, index in left])):
            inplace.check_writable(seen, "x[...] = value")
            made = scatter_onto.write(seen, lambda: write_at(seen, left, new, accumulate=False))
            if made is None:
                return
            value = made
        else:
            value = _written(seen, new, tuple([d for d, _ in left]), *[index for _, index in left])
    elif len(value._spec.shape) > len(seen._spec.shape):
        drop = len(value._spec.shape) - len(seen._spec.shape)
        if all(n == 1 for n in value._spec.shape[:drop]):
            value = views.reshape(value, value._spec.shape[drop:])
    inplace.copy_(seen, value)


def _check_kind(x: Value, keys: list[Any], value: Value) -> None:
    """Refuse values of another dtype, which index tensors do not convert.

    One value for masks is converted.
    """
    if value._spec.dtype is x._spec.dtype:
        return
    used = [k for k in keys if isinstance(k, Value) and (k._spec.shape or k._spec.dtype is bool_)]
    if value._spec.numel != 1 or not used or any(k._spec.dtype is not bool_ for k in used):
        raise DTypeError(
            f"x[...] = value: index tensors put values of type {x._spec.dtype.name} into "
            f"{x._spec!r}, got {value._spec!r}; cast with .to(x.dtype)"
        )


def _number(x: Value, value: Any) -> Value:
    if hasattr(value, "item") and getattr(value, "shape", None) == ():
        value = value.item()
    if not isinstance(value, (bool, int, float, complex)):
        raise TypeError(
            f"x[...] = value: the value must be a tensor or a number, got {type(value).__name__}"
        )
    check_holds("x[...] = value", value, value, x._spec.dtype)
    return full_spec(Spec.of(x._spec.device, x._spec.dtype, ()), value)


@composite("index_put", inplace="scatter", inplace_top=True, pure=True, autocast={"gpu": "widest"})
def index_put(
    input: Value, indices: Sequence[Value | None], values: Value, accumulate: bool = False
) -> Value:
    """The input with values at the positions of index tensors, or added there.

    None stands for all of a dimension. Example:
        >>> places = (torch.tensor([0, 1]), torch.tensor([2, 0]))
        >>> torch.index_put(torch.zeros(2, 3), places, torch.tensor([1.0, 2.0]))
        tensor([[0., 0., 1.],
                [2., 0., 0.]])
    """
    if values._spec.dtype is not input._spec.dtype:
        raise DTypeError(
            f"index_put: values {values._spec!r} must have the dtype of {input._spec!r}; cast with "
            ".to(dtype)"
        )
    if not values._spec.shape:
        values = brought(values, input._spec.device)
    keys = [slice(None) if k is None else k for k in indices]
    if len(keys) > len(input._spec.shape):
        raise IndexError(
            f"index_put: {len(keys)} indices for a tensor of dimension {len(input._spec.shape)}"
        )
    if any(isinstance(k, Value) and k._spec.dtype in INDEX and not k._spec.shape for k in keys):
        # Here a 0-dim index is an index tensor, not an int.
        keys = [
            views.reshape(k, (1,)) if isinstance(k, Value) and not k._spec.shape else k
            for k in keys
        ]
    seen, left = basic(input, _expanded(input, tuple(keys)))
    if not left:
        return e.clone(values)
    return views.contiguous(
        views.reshape(write_at(seen, left, values, accumulate), input._spec.shape)
    )
