"""In-place views: the handle itself gets another layout of its memory, or other memory.

# Note [Views in place]
1. `x.t_()` gives x the spec, offset and record of `x.t()`. The version is incremented although no
   byte changes: a record that saved the handle would find another shape.
2. The old x continues as a hidden root, of which x becomes a view, and the older views of x find
   it: their count of rewrites is behind x's, so the next use of their record moves them to the root
   (`tape.record.needed`).
3. A leaf that requires gradients changes only where nothing is recorded; it stays a leaf, in its
   new shape.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from rushlight.core.dtypes import int32
from rushlight.core.errors import DTypeError, InplaceError, KindError, RushlightError, ShapeError
from rushlight.core.shapes import Shape, Spec, contiguous_strides, numel
from rushlight.devices.shared.allocator import Lent, Storage, room_for
from rushlight.ops.create.creation import (
    channels_last,
    channels_last_3d,
    preserve_format,
    shape_of,
    strides_in,
)
from rushlight.ops.index.strided_views import strided_view
from rushlight.ops.registry import REGISTRY
from rushlight.ops.surface.signatures import explain
from rushlight.ops.view import inplace, views
from rushlight.ops.view.laid import copy_into
from rushlight.tape.memory import replay
from rushlight.tape.memory.windows import check_closed
from rushlight.tape.record import call
from rushlight.tape.record.hook_tables import add_to
from rushlight.tape.record.needed import edge_of
from rushlight.tape.record.state import STATE, impure
from rushlight.tape.record.value import Leaf, Value, history_of
from rushlight.tape.record.written import hide_write, mark_written
from rushlight.tape.vmap.batched import physical_of


def _is_leaf(x: Value) -> bool:
    return type(edge_of(x)) is Leaf


def _root_of(x: Value, spec: Spec) -> Value:
    """The old value of x, which is no view: it becomes the base of x and of its older views."""
    root = call.lay(spec, x._memory, 0, x._node)
    root._history = history_of(x) + 1
    return root


def see_as(x: Value, view: Callable[..., Any], name: str, *args: Any, **named: Any) -> Value:
    """Give x the layout of `view(x, ...)`. See Note [Views in place]."""
    leaf = x._node if _is_leaf(x) else None
    if leaf is not None and STATE.get().grad:
        raise InplaceError(
            f"{name}: a leaf that requires gradients ({x._spec!r}) changes in place; do it under "
            "no_grad(), or use the op without the underscore"
        )
    impure()
    seen = view(x, *args, **named)
    if seen is x:
        return x
    if x._spec.hidden:  # the handle belongs to one vmap: no other code uses it
        x._spec, x.physical = seen._spec, physical_of(seen)  # type: ignore[attr-defined]
        return x
    if x._base is None:
        x._base = _root_of(x, x._spec)
        if STATE.get().dual is not None:
            STATE.get().dual.move(x, x._base)
    else:
        edge_of(x)
    x._spec, x._offset, x._node = seen._spec, seen._offset, seen._node
    x._history = history_of(x._base)
    mark_written(x._memory)
    if leaf is not None:
        leaf.spec = x._spec
        x._node = leaf
    return x


def in_place_view(name: str) -> Callable[..., Any]:
    """The method `<name>_` of a view op."""
    view = REGISTRY[name].function

    def method(self: Value, *args: Any, **named: Any) -> Value:
        try:
            return see_as(self, view, f"{name}_", *args, **named)
        except Exception as error:
            explain(f"{name}_", method, error, (self, *args), named)
            raise

    return method


# ---- other memory, or more of it ----


def _no_record(x: Value, name: str) -> None:
    if edge_of(x) is not None:
        raise RushlightError(
            f"{name}: {x._spec!r} requires gradients, and this has none; use .detach() first"
        )
    if STATE.get().dual is not None:
        STATE.get().dual.refuse(name, "use .detach() first", x)


def grow(storage: Storage, room: int, name: str) -> None:
    """Give a storage a larger block with the old bytes at its start.

    All handles on it stay valid.
    """
    if isinstance(storage, Lent) or not isinstance(storage.blocks, list):
        raise RushlightError(
            f"{name}: the memory belongs to others too (NumPy, a capsule, another process); "
            ".clone() it first"
        )
    with replay.LOCK, replay.Pins([storage]):
        check_closed(storage, name)
        old = replay.keep(storage)
        replay.before_write(storage)
        pool: Any = storage.pool
        larger, old_room = Storage(pool, room), storage.room
        copy, tail = copy_into(pool, int32, (old_room // 4,), (1,), (1,))
        copy(larger.address, old, *tail)
        # `larger` takes the old block, and frees it.
        storage.address, larger.address = larger.address, old
        storage.room, larger.room = larger.room, old_room
        storage.blocks, larger.blocks = larger.blocks, storage.blocks


def _keep_all_bytes(storage: Storage) -> None:
    """Make a storage plain: the new handle may reach bytes of the block that no recipe fills."""
    if storage.recipe is not None:
        replay.keep(storage)


def resize_(self: Value, *sizes: int | Sequence[int], memory_format: Any = None) -> Value:
    """Another shape over the same memory, in a memory format, extended where necessary.

    New elements are uninitialised.
    """
    shape = shape_of(sizes)
    impure()
    if shape == self._spec.shape and memory_format is None:
        _no_record(self, "resize_")
        return self
    return resized(self, shape, strides_in("resize_", shape, memory_format))


def resized(self: Value, shape: Shape, strides: Shape) -> Value:
    """`resize_` to the strides of a dense layout."""
    impure()
    _no_record(self, "resize_")
    if numel(shape) * self._spec.dtype.itemsize >= 1 << 63:
        raise ShapeError(f"resize_: {list(shape)} has more elements than can be counted")
    spec = Spec.of(self._spec.device, self._spec.dtype, shape, strides)
    size = spec.dtype.itemsize
    base = self._base
    span = self._offset // size + numel(shape)
    if (
        base is not None
        and span > base._offset // size + base._spec.numel
        and edge_of(base) is not None
    ):
        raise RushlightError(
            f"resize_: {self._spec!r} is part of a tensor with gradients and {list(shape)} reaches "
            "beyond it; use .clone() first"
        )
    # The strides are dense, so the span is all it needs.
    if span * size > self._memory.room:
        grow(self._memory, room_for(span * size), "resize_")
    _keep_all_bytes(self._memory)
    if base is None and not self._spec.contiguous:
        base = self._base = _root_of(self, self._spec)
    if base is None:
        whole = Spec.of(spec.device, spec.dtype, (max(span, self._spec.numel),))
        self._base = _root_of(self, whole)
    elif span > base._offset // size + base._spec.numel:
        self._base = _root_of(self, Spec.of(spec.device, spec.dtype, (span,)))
    assert self._base is not None
    call.check_reach(spec, self._memory, self._offset)
    self._spec = spec
    self._history = history_of(self._base)
    mark_written(self._memory)
    return self


def resize_as_(self: Value, the_template: Value, memory_format: Any = None) -> Value:
    """`resize_` to the shape of another tensor, and to its memory format with preserve_format."""
    if not isinstance(the_template, Value):
        raise KindError(
            f"resize_as_(): the template is a tensor, got {type(the_template).__name__}"
        )
    if memory_format is preserve_format:
        formats = (channels_last, channels_last_3d)
        same = [f for f in formats if len(f.order or ()) == len(the_template._spec.shape)]
        wanted = [
            f
            for f in same
            if the_template._spec.strides == strides_in("resize_as_", the_template._spec.shape, f)
        ]
        memory_format = wanted[0] if wanted and not the_template._spec.contiguous else None
    return resize_(self, the_template._spec.shape, memory_format=memory_format)


def set_(
    self: Value,
    source: Any = None,
    storage_offset: int = 0,
    size: Sequence[int] | None = None,
    stride: Sequence[int] | None = None,
) -> Value:
    """Use the memory of another tensor (or of a storage, by offset, size and stride).

    Or no memory.
    """
    _no_record(self, "set_")
    device: Any = self._spec.device
    if source is None:
        fresh = Spec.of(device, self._spec.dtype, (0,))
        return adopt(self, call.make_value(fresh, call.make_storage(device, room_for(0))))
    if isinstance(source, Value) and size is None:
        if source._spec.dtype is not self._spec.dtype or source._spec.device is not device:
            raise RushlightError(
                f"set_: the source {source._spec!r} must have the type and device of {self._spec!r}"
            )
        return adopt(self, call.detached(source))
    if not isinstance(getattr(source, "_memory", None), Storage):
        raise KindError(f"set_(): the source is a tensor or a storage, got {type(source).__name__}")
    storage = source._memory
    kind = getattr(source, "dtype", self._spec.dtype)  # bytes have none
    if kind is not self._spec.dtype or storage.pool is not device:
        raise DTypeError(
            f"set_: the source, of {kind.name} on {storage.pool.device.name}, must have the type "
            f"and device of {self._spec!r}"
        )
    itemsize = self._spec.dtype.itemsize
    shape: Shape = (source.nbytes() // itemsize,) if size is None else shape_of((tuple(size),))
    strides = contiguous_strides(shape) if stride is None else tuple(int(n) for n in stride)
    if storage_offset < 0 or min(strides, default=0) < 0:
        raise ShapeError(
            f"set_: strides {list(strides)} and the offset {storage_offset} cannot be negative"
        )
    spec = Spec.of(storage.pool, self._spec.dtype, shape, strides)
    _keep_all_bytes(storage)
    return adopt(self, call.rooted(call.lay(spec, storage, storage_offset * itemsize)))


def adopt(x: Value, other: Value) -> Value:
    """Give x the memory of `other`, a new handle; older views of x keep their memory."""
    impure()
    if other._memory is not x._memory:
        # Records that saved this tensor detect the change by the version.
        other._memory.version += x._memory.version
        mark_written(other._memory)
    x._spec, x._memory, x._offset, x._base = other._spec, other._memory, other._offset, other._base
    x._history = history_of(x) + 1
    if x._base is not None:
        x._base._history = x._history
    return x


def replace_data(x: Value, value: Value) -> None:
    """`x.data = value`: x uses other memory.

    It may have any shape and dtype where x is a leaf or has no record.
    """
    old, new, edge = x._spec, value._spec, edge_of(x)
    same = new.shape == old.shape and new.dtype is old.dtype and new.device is old.device
    if edge is not None and not same and type(edge) is not Leaf:
        raise ShapeError(
            f"data: {new!r} cannot take the place of {old!r}, a result with a record; .detach() it "
            "first"
        )
    if edge is not None and not new.differentiable:
        raise DTypeError(
            f"data: {new!r} cannot take the place of {old!r}, which requires gradients"
        )
    moved = value._memory is not x._memory
    adopt(x, call.detached(value))
    if moved:
        hide_write(x)  # `_version` does not count it, as in PyTorch
    if same and type(edge) is Leaf:
        edge.spec = x._spec  # its gradient has these strides
    if edge is not None and not same:
        leaf = x._node = Leaf(x)
        leaf.hooks, leaf.post_hooks = edge.hooks, edge.post_hooks
        edge.hooks, edge.post_hooks = {}, {}
        add_to(edge.hooks, functools.partial(_refuse_gradient, old, new))


def _refuse_gradient(old: Spec, new: Spec, _: Value) -> None:
    raise ShapeError(
        f"backward: a gradient comes for a leaf {old!r} whose .data has become {new!r} since; set "
        ".data before the forward pass"
    )


def detach_(self: Value) -> Value:
    """Drop the record: x becomes a tensor without gradients."""
    if self._base is not None and edge_of(self) is not None:
        raise RushlightError("detach_: a view cannot be detached in place; use .detach()")
    self._node = None
    if STATE.get().dual is not None:
        STATE.get().dual.forget(self)
    return self


def _strided(x: Value, count: int, row: int) -> Value:
    """`count` elements down the diagonal from the start of a row."""
    strides = x._spec.strides
    return strided_view(x, (count,), (sum(strides),), row * strides[0])


def fill_diagonal_(self: Value, fill_value: float, wrap: bool = False) -> Value:
    """One value where all indices are equal; `wrap`: of a tall matrix, again below each square."""
    shape = self._spec.shape
    if len(shape) < 2 or (len(shape) > 2 and len(set(shape)) > 1):
        raise ShapeError(
            "fill_diagonal_: a matrix, or equal sizes in all dimensions, are needed, got "
            f"{self._spec!r}"
        )
    rows, columns = shape[0], shape[1]
    # Checked before anything is written.
    again = bool(wrap) and len(shape) == 2 and rows > columns + 1
    inplace.copy_(_strided(self, min(shape), 0), fill_value)
    if again:
        step = columns + 1
        for start in range(step, rows, step):
            count = min(rows - start, columns)
            inplace.copy_(_strided(self, count, start), fill_value)
    return self


def fill_(self: Value, value: Any) -> Value:
    """One value everywhere, a number or a 0-dim tensor; also where elements share memory."""
    if isinstance(value, Value) and value._spec.shape:
        raise ShapeError(f"fill_: the value must be a number or 0-dim, got {value._spec!r}")
    if self._spec.contiguous:
        return inplace.copy_(self, value)
    seen = self
    for dim, (size, stride) in enumerate(zip(self._spec.shape, self._spec.strides, strict=True)):
        if stride == 0 and size > 1:  # an expanded dimension is one element
            seen = views.slice_dim(seen, dim, 0, 1)
    inplace.copy_(seen, value)
    return self


def zero_(self: Value) -> Value:
    """Zeros everywhere."""
    return fill_(self, 0)


METHODS = (fill_, zero_, resize_, resize_as_, set_, detach_, fill_diagonal_)
