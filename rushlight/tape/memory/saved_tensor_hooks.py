"""PyTorch's hooks for saved tensors.

# Note [Saved tensor hooks]
1. While `State.saving` is set, each value that a record saves, input or result, is given to `pack`
   when it is recorded, and the record keeps the result. `unpack` of it replaces the value whenever
   the derivative runs.
2. So the value's own memory is freed with its last other holder. Its node in the graph is kept
   here: the result of `unpack` is differentiated through as the value was.
3. Both run where nothing is recorded, outside regions, and without hooks of this kind.
4. A record whose saves are packed has `dropped` set to PACKED; everything that reads saves goes
   through `saves_of`.
5. The result of `unpack` is copied to the value's layout, where its own differs: the bits are those
   without hooks.
6. Where `unpack` returns memory that `pack` received or returned, a write to it since is found by
   its version. Writes to a user's own copy are not detected.
7. A checkpoint inside the hooks takes precedence: it keeps nothing that could be packed.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

from rushlight.core.errors import DeviceError, DTypeError, InplaceError, ShapeError
from rushlight.core.shapes import Spec
from rushlight.devices.shared.allocator import Storage
from rushlight.tape.record import call
from rushlight.tape.record.needed import Needed
from rushlight.tape.record.source_line import OwnLines
from rushlight.tape.record.state import Changed
from rushlight.tape.record.value import Node, Output, Value
from rushlight.tape.record.written import describe_writes

PACKED: tuple[Any, ...] = (object(),)  # stored in `Node.dropped`, and compared by identity


class Saving:
    """A pair of hooks for saved tensors; `State.saving` holds the innermost."""

    __slots__ = ("pack", "unpack")

    def __init__(self, pack: Callable[[Any], Any], unpack: Callable[[Any], Any]) -> None:
        self.pack = pack
        self.unpack = unpack

    def pack_saves(self, node: Node) -> None:
        """Replace the record's saves by the results of `pack`."""
        saved, plan = node.saved, node.plan
        assert saved is not None
        if not (saved or node.outs):
            return
        results = [
            call.make_value(plan.outs[j], s)
            for j, s in zip(node.grad.saves_out, node.outs, strict=True)
        ]
        node.saved = tuple([Packed(self, value, node) for value in saved])  # type: ignore[misc]
        node.outs = tuple([Packed(self, value, node) for value in results])  # type: ignore[misc]
        node.dropped = PACKED

    def before_write(self, storages: Sequence[Storage]) -> None:
        """Called for memory before it is written to."""


class Packed:
    """The packed form of a saved value."""

    __slots__ = ("edge", "given", "held", "origin", "saving", "spec", "version")

    def __init__(self, saving: Saving, value: Value, node: Node) -> None:
        storage = value._memory
        self.saving = saving
        self.spec = value._spec
        self.edge = value._node
        self.origin = weakref.ref(storage)
        self.version = storage.version
        with Changed(grad=False, region=None, saving=None), OwnLines():
            self.held = saving.pack(call.detached(value))
        storage.pool.make_room(0)  # a limit binds what the hook keeps, too
        if _is_dense(self.held):
            self.held._memory.pool.make_room(0)
        if storage.version != self.version:
            raise InplaceError(
                f"{node.op_name}: a pack hook wrote to the tensor it was given ({value._spec!r}), "
                "which others see too; let it write to a clone"
            )
        self.given: int | None = self.held._memory.version if _is_dense(self.held) else None

    def open(self, node: Node, edge: Any) -> Value:
        """The unpacked value, with its node in the graph."""
        with Changed(grad=False, region=None, saving=None):
            value = self.saving.unpack(self.held)
        name, spec = node.op_name, self.spec
        if not _is_dense(value):
            raise TypeError(
                f"{name}: an unpack hook gave a {type(value).__name__} in place of a saved tensor "
                f"{spec!r}"
            )
        if value._spec.shape != spec.shape:
            raise ShapeError(
                f"{name}: an unpack hook gave {value._spec!r} in place of a saved tensor {spec!r}"
            )
        if value._spec.dtype is not spec.dtype:
            raise DTypeError(
                f"{name}: an unpack hook gave {value._spec!r} in place of a saved tensor {spec!r}"
            )
        if value._spec.device is not spec.device:
            raise DeviceError(
                f"{name}: an unpack hook gave {value._spec!r} in place of a saved tensor {spec!r}; "
                "move it back"
            )
        storage: Storage = value._memory
        written = self.origin() is storage and storage.version != self.version
        if written or (
            self.given is not None
            and storage is self.held._memory
            and storage.version != self.given
        ):
            raise InplaceError(
                f"{name}: a value saved for its backward was overwritten in place "
                f"{describe_writes([storage])}; it was saved at {node.place}; write to a clone "
                "instead, after backward, or let the pack hook give a copy"
            )
        if _order(value._spec) != _order(spec):
            value = _laid_out(value, spec)
        value._memory.pool.make_room(0)  # a limit binds what the hook made, too
        return call.rooted(call.make_value(value._spec, value._memory, value._offset, edge))


def _order(spec: Spec) -> list[tuple[bool, int]]:
    """A value's layout without gaps: its dimensions, outermost first, and which are expanded."""
    sizes, strides = spec.shape, spec.strides
    dims = [d for d in range(len(sizes)) if sizes[d] > 1]
    return [(strides[d] == 0, d) for d in sorted(dims, key=lambda d: (-strides[d], d))]


def _laid_out(value: Value, spec: Spec) -> Value:
    """A copy in the layout of `spec`: matrix products round by layout, and bits must be equal."""
    given, sizes = value._spec, spec.shape
    order = [d for _, d in _order(spec)] + [d for d in range(len(sizes)) if sizes[d] < 2]
    shape = [1 if spec.strides[d] == 0 else sizes[d] for d in order]
    turned = Spec.of(
        given.device, given.dtype, tuple(shape), tuple([given.strides[d] for d in order])
    )
    with Changed(grad=False, region=None, saving=None):
        copy = Needed.clone(call.make_view(value, turned, value._offset))
    strides = [0] * len(sizes)
    for d, step in zip(order, copy._spec.strides, strict=True):
        strides[d] = 0 if spec.strides[d] == 0 else step
    return call.lay(Spec.of(given.device, given.dtype, sizes, tuple(strides)), copy._memory)


def _is_dense(thing: Any) -> bool:
    return isinstance(thing, Value) and hasattr(thing, "_memory")


def unpacked(node: Node) -> tuple[Sequence[Value], Sequence[Value]]:
    """The result of `saves_of`, for a record whose saves are packed."""
    packed_outs: Any = node.outs
    packed_ins: Any = node.saved
    several = len(node.plan.outs) > 1
    outs = [
        packed.open(node, Output(node, j) if several else node)
        for j, packed in zip(node.grad.saves_out, packed_outs, strict=True)
    ]
    return outs, [packed.open(node, packed.edge) for packed in packed_ins]
