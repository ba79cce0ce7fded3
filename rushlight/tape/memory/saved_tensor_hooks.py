"""Saved values as the user wants them kept: PyTorch's hooks for saved tensors.

# Note [Saved tensor hooks]
1. While `State.saving` is set, each value that a record saves, input or result, is given to `pack` when it is recorded, and
   the record keeps what that gives. `unpack` of it stands for the value whenever the derivative runs.
2. So the value's own memory is free as soon as nobody else holds it. Its place in the graph is kept, not by the user but here:
   what `unpack` gives is differentiated through as the value was.
3. Both run where nothing is recorded, outside regions, and without hooks of this kind.
4. A record whose saves are packed has `dropped` set to PACKED; everything that reads saves goes through `saves_of`.
5. What `unpack` gives is laid out as the value was, where it lies in another way: the bits are those without hooks.
6. Where `unpack` gives memory that `pack` saw or gave, a write to it since is found by its version, as always. A copy of the
   user's own cannot be watched.
7. A checkpoint inside the hooks goes before them: it keeps nothing that could be packed.
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
from rushlight.tape.record.state import Changed
from rushlight.tape.record.value import Node, Output, Value
from rushlight.tape.record.written import describe_writes

PACKED: tuple[Any, ...] = (object(),)  # stands in `Node.dropped`, and is known by identity


class Saving:
    """A pair of hooks for saved tensors; `State.saving` holds the innermost."""

    __slots__ = ("pack", "unpack")

    def __init__(self, pack: Callable[[Any], Any], unpack: Callable[[Any], Any]) -> None:
        self.pack = pack
        self.unpack = unpack

    def pack_saves(self, node: Node) -> None:
        """Let the record keep what `pack` gives in place of its saves."""
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
        """Hear of memory that is about to be written to."""


class Packed:
    """What stands for a saved value."""

    __slots__ = ("edge", "given", "held", "origin", "saving", "spec", "version")

    def __init__(self, saving: Saving, value: Value, node: Node) -> None:
        storage = value._memory
        self.saving = saving
        self.spec = value._spec
        self.edge = value._node
        self.origin = weakref.ref(storage)
        self.version = storage.version
        with Changed(grad=False, region=None, saving=None):
            self.held = saving.pack(call.detached(value))
        if storage.version != self.version:
            raise InplaceError(
                f"{node.name()}: a pack hook wrote to the tensor it was given ({value._spec!r}), which others see too; "
                f"let it write to a clone"
            )
        self.given: int | None = self.held._memory.version if _is_dense(self.held) else None

    def open(self, node: Node, edge: Any) -> Value:
        """The value again, at its place in the graph."""
        with Changed(grad=False, region=None, saving=None):
            value = self.saving.unpack(self.held)
        name, spec = node.name(), self.spec
        if not _is_dense(value):
            raise TypeError(
                f"{name}: an unpack hook gave a {type(value).__name__} in place of a saved tensor {spec!r}"
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
                f"{name}: an unpack hook gave {value._spec!r} in place of a saved tensor {spec!r}; move it back"
            )
        storage: Storage = value._memory
        written = self.origin() is storage and storage.version != self.version
        if written or (
            self.given is not None
            and storage is self.held._memory
            and storage.version != self.given
        ):
            raise InplaceError(
                f"{name}: a value saved for its backward was overwritten in place {describe_writes([storage])}; it was "
                f"saved at {node.place}; write to a clone instead, after backward, or let the pack hook give a copy"
            )
        if _order(value._spec) != _order(spec):
            value = _laid_out(value, spec)
        return call.rooted(call.make_value(value._spec, value._memory, value._offset, edge))


def _order(spec: Spec) -> list[tuple[bool, int]]:
    """How a value lies, but for gaps: its dimensions from the outermost in memory on, and which are expanded."""
    sizes, strides = spec.shape, spec.strides
    dims = [d for d in range(len(sizes)) if sizes[d] > 1]
    return [(strides[d] == 0, d) for d in sorted(dims, key=lambda d: (-strides[d], d))]


def _laid_out(value: Value, spec: Spec) -> Value:
    """A copy that lies as `spec` does: a product of matrices rounds by how they lie, and the bits must be the same."""
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
    """What `saves_of` gives, for a record whose saves are packed."""
    packed_outs: Any = node.outs
    packed_ins: Any = node.saved
    several = len(node.plan.outs) > 1
    outs = [
        packed.open(node, Output(node, j) if several else node)
        for j, packed in zip(node.grad.saves_out, packed_outs, strict=True)
    ]
    return outs, [packed.open(node, packed.edge) for packed in packed_ins]
