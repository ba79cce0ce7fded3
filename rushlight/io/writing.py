"""`save`: PyTorch's archive, or its older format, of any nesting of containers and tensors.

# Note [Writing pickles]
1. The objects are a pickle of protocol 2, which is what PyTorch's careful reader takes. Tensors are
   calls of PyTorch's own functions; they ask for memory by key, and it follows the pickle.
2. A first pass finds the memory of all tensors (Note [What a file holds]): a file tells its size
   where it is first asked for. It reads no elements.
3. PyTorch has no other device than the CPU, CUDA and those of other makers. Memory of devices that
   it does not know is said to be of the CPU, and a member of the archive, `DEVICES`, tells the
   device: PyTorch overlooks it, `load` here does not.
"""

from __future__ import annotations

import codecs
import collections
import io
import json
import os
import pickle
import sys
from collections.abc import Sequence
from types import FunctionType
from typing import Any, ClassVar

from rushlight import interop
from rushlight.core import dtypes
from rushlight.core.dtypes import DType
from rushlight.core.errors import RushlightError
from rushlight.core.shapes import Size, Spec
from rushlight.devices.shared.allocator import Storage
from rushlight.devices.shared.registry import parted
from rushlight.io import names
from rushlight.io.archive import ALIGNED, ArchiveWriter, write_all
from rushlight.io.memory import Memory, storage_of
from rushlight.io.names import Named
from rushlight.io.replacing import replacing
from rushlight.naming import device
from rushlight.nn import pickling
from rushlight.nn.module import Module
from rushlight.nn.parameter import Buffer, Parameter
from rushlight.ops.create import creation
from rushlight.ops.create.creation import MemoryFormat
from rushlight.sparse.coo import SparseTensor
from rushlight.sparse.csr import CsrTensor
from rushlight.storage import KINDS_BY_TYPE, TypedStorage, UntypedStorage
from rushlight.tape.record.value import Value

DEVICES = ".rushlight/devices"
OLDER_NUMBER, OLDER_VERSION = 0x1950A86A20F9469CFC6C, 1001  # how a file of the older format begins
_PROTOCOL = 2
_PLAIN = (str, int, float)
_LAYOUTS = ("strided", "sparse_coo", "sparse_csr")


def _state_of(value: Any) -> Any:
    """What a pickle of a tensor has besides its elements."""
    if isinstance(value, Buffer):
        return {**value.__dict__, "persistent": value.persistent, "_is_buffer": True}
    if isinstance(value, Parameter) or not _is_users(type(value)):
        return value.__dict__ or None
    return value.__reduce__()[1][2]


def _is_users(kind: Any) -> bool:
    """Whether a class of tensors, or a function, is none of this package."""
    return kind.__module__.partition(".")[0] not in ("rushlight", "torch")  # Note [Import hook] 5


def _has_own_way(kind: Any) -> bool:
    """Whether a user's class of tensors says how it is pickled."""
    own = (kind.__reduce__, kind.__reduce_ex__)
    return own[1] is not object.__reduce_ex__ or _is_users(own[0])


class _Nowhere:
    def write(self, raw: Any) -> int:
        return len(raw)


class _Finding(pickle.Pickler):
    """Walks the object to be saved, and notes the memory of its tensors."""

    def __init__(self) -> None:
        super().__init__(_Nowhere(), protocol=4)
        self.found: dict[int, Memory] = {}

    def note(self, storage: Storage, spec: Spec, offset: int) -> None:
        self.found.setdefault(id(storage), Memory(storage)).add(spec, offset)

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, (UntypedStorage, TypedStorage)):
            elements = _elements(obj)
            self.note(obj._memory, elements._spec, 0)
            return tuple, ()
        storage = storage_of(obj)
        if storage is None or _has_own_way(type(obj)):
            return pickling.reduced(obj) if isinstance(obj, Module) else NotImplemented
        self.note(storage, obj._spec, obj._offset)
        return tuple, (), _state_of(obj)


def _elements(storage: UntypedStorage | TypedStorage) -> Any:
    dtype = storage.dtype if isinstance(storage, TypedStorage) else dtypes.uint8
    return storage.untyped().elements(dtype)


_InPython: Any = vars(pickle)["_Pickler"]


class _Writing(_InPython):
    """Python's pickler, in Python: the one in C cannot write a name that is not imported."""

    dispatch: ClassVar[dict[type, Any]] = dict(_InPython.dispatch)

    def __init__(
        self,
        file: Any,
        protocol: int,
        found: dict[int, Memory],
        older: bool,
        first: Sequence[Module],
    ) -> None:
        super().__init__(file, protocol=protocol)
        self.first = first
        self.found = found
        self.older = older
        self.memories: list[Memory] = []  # by key
        self.open: set[int] = set()

    def save(self, obj: Any, save_persistent_id: bool = True) -> None:
        """Numbers and text at once: they are most of what a large container has."""
        if self.first:  # see `_deep_modules`
            first, self.first = self.first, ()
            for module in first:
                self.save(module)
                self.write(pickle.POP)
        if type(obj) in _PLAIN and id(obj) not in self.memo:
            self.dispatch[type(obj)](self, obj)
        else:
            super().save(obj, save_persistent_id)

    # ---- names ----

    def save_global(self, obj: Any, name: str | None = None) -> None:
        known = names.of(obj)
        if known is None:
            super().save_global(obj, name)
        else:
            self.save_named(known, obj)

    def save_named(self, named: Named, obj: Any = None) -> None:
        if self.proto >= 4:
            self.save(named.module)
            self.save(named.name)
            self.write(pickle.STACK_GLOBAL)
        else:
            self.write(pickle.GLOBAL + f"{named.module}\n{named.name}\n".encode())
        self.memoize(named if obj is None else obj)

    def save_bytes(self, obj: bytes) -> None:
        """Bytes; of none at all, a call that PyTorch's careful reader knows."""
        if not obj and self.proto < 3:
            self.save_reduce(codecs.encode, ("", "latin1"), obj=obj)
        else:
            super().save_bytes(obj)

    def save_dtype(self, obj: DType | MemoryFormat) -> None:
        self.save_named(Named("torch", obj.name), obj)

    dispatch[FunctionType] = save_global
    dispatch[Named] = save_named
    dispatch[bytes] = save_bytes
    dispatch[DType] = dispatch[MemoryFormat] = save_dtype

    # ---- memory ----

    def persistent_id(self, obj: Any) -> Any:
        """How a file asks for memory."""
        if isinstance(obj, (UntypedStorage, TypedStorage)):
            elements = _elements(obj)
            memory = self.memory(obj._memory, elements._spec, 0)
            typed = isinstance(obj, TypedStorage) and obj.dtype is memory.dtype
            return self.asked(memory, memory.dtype if typed else None)
        return self.asked(obj, obj.dtype) if type(obj) is Memory else None

    def asked(self, memory: Memory, dtype: DType | None) -> Any:
        kind, size = _STORAGES[dtypes.uint8] if self.older else names.UNTYPED, 1
        if dtype is not None:
            kind, size = _STORAGES[dtype], dtype.itemsize
        where = creation.shown_name(memory.device)
        where = f"{where}:{parted(memory.device)[1]}" if where == "cuda" else "cpu"
        return ("storage", kind, memory.key, where, memory.end // size, *[None] * self.older)

    def memory(self, storage: Storage, spec: Spec, offset: int) -> Memory:
        """The memory of a layout; one that the first pass did not see has its own."""
        found = self.found.get(id(storage))
        if found is None or (spec, offset) not in found.layouts:
            found = self.found[id(storage)] = Memory(storage)
            found.add(spec, offset)
        if not found.key:
            found.key = str(len(self.memories))
            self.memories.append(found)
        return found

    # ---- objects ----

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, Value):
            if _has_own_way(type(obj)):
                return NotImplemented
            if id(obj) in self.open:
                raise RushlightError(
                    "save: an attribute of a tensor leads back to the tensor, which no file can "
                    "tell; remove the attribute"
                )
            self.open.add(id(obj))
            return self.tensor(obj)
        if isinstance(obj, Module):
            return pickling.reduced(obj)
        make = _REDUCED.get(type(obj))
        return NotImplemented if make is None else make(obj)

    def tensor(self, value: Any) -> Any:
        if isinstance(value, (SparseTensor, CsrTensor)):
            return self.sparse(value)
        storage = storage_of(value)
        if storage is None:  # a parameter without a shape
            return type(value), value.__reduce__()[1]
        kind, state = type(value), _state_of(value)
        if isinstance(value, Parameter):
            data = _Call(*self.layout(value, storage, False))
            if kind is not Parameter:  # a user's class, which is called
                return kind, (data, value.requires_grad), value.__dict__ or None
            given: tuple[Any, ...] = (data, value.requires_grad, collections.OrderedDict())
            if state is None:
                return names.PARAMETER, given
            return names.PARAMETER_WITH_STATE, (*given, state)
        function, args = self.layout(value, storage, value.requires_grad)
        if function is names.TYPED_TENSOR and value.requires_grad and not _is_users(kind):
            # PyTorch's call refuses a gradient; the state says that one is wanted.
            function, args = self.layout(value, storage, False)
            state = {**(state or {}), "requires_grad": True}
        if state is None and not _is_users(kind):
            return function, args
        shown = names.PLAIN if kind is Buffer else kind
        return names.WITH_STATE, (function, shown, args, state or {})

    def layout(
        self, value: Any, storage: Storage, requires_grad: bool
    ) -> tuple[Named, tuple[Any, ...]]:
        """PyTorch's call that makes a tensor."""
        spec: Spec = value._spec
        if spec.hidden:
            interop.to_bytes(value)  # raises
        shape, strides = tuple(spec.shape), tuple(spec.strides)
        if spec.device.device.name == "null":
            return names.WITHOUT_MEMORY, (spec.dtype, shape, strides, requires_grad)
        memory = self.memory(storage, spec, value._offset)
        offset = value._offset // spec.dtype.itemsize if spec.numel else 0
        hooks: Any = collections.OrderedDict()
        given = (memory, offset, shape, strides, requires_grad, hooks)
        if memory.dtype is spec.dtype:
            return names.TENSOR, given
        return names.TYPED_TENSOR, (*given, spec.dtype)

    def sparse(self, value: Any) -> Any:
        """PyTorch's call forgets whether a gradient is wanted; the state says it."""
        _, (*parts, wanted), own = value.__reduce__()
        layout = creation.sparse_csr if isinstance(value, CsrTensor) else creation.sparse_coo
        parts[-1 if layout is creation.sparse_csr else 2] = Size(value.shape)
        state = {**(own or {}), **({"requires_grad": True} if wanted else {})}
        given = (layout, tuple(parts))
        if not state:
            return names.SPARSE, given
        return names.WITH_STATE, (names.SPARSE, names.PLAIN, given, state)


class _Call:
    """A call inside the arguments of another."""

    __slots__ = ("args", "function")

    def __init__(self, function: Any, args: tuple[Any, ...]) -> None:
        self.function = function
        self.args = args


def _layout(kind: MemoryFormat) -> Any:
    """A layout is a call, a memory format is a name."""
    return (names.LAYOUT, (f"torch.{kind.name}",)) if kind.name in _LAYOUTS else NotImplemented


# How objects are written that are no tensors.
_REDUCED: dict[type, Any] = {
    Size: lambda size: (names.SIZE, (tuple(size),)),
    device: lambda place: (
        names.DEVICE,
        (place.type,) if place.index is None else (place.type, place.index),
    ),
    MemoryFormat: _layout,
    _Call: lambda call: (call.function, call.args),
}
_STORAGES = {dtype: Named("torch", kind.__name__) for dtype, kind in KINDS_BY_TYPE.items()}


# ---- files ----


def _deep_modules(obj: Any) -> list[Module]:
    """Modules inside of many others, the deepest first.

    A pickler calls itself for what is inside of an object, but knows what it has written: these
    are written before the rest, so that no chain of calls is longer than _DEPTH modules.
    """
    waiting: list[tuple[Any, int]] = [(obj, 0)]
    seen: set[int] = set()
    found: list[tuple[int, Module]] = []
    while waiting:
        each, depth = waiting.pop()
        if isinstance(each, Module):
            if id(each) in seen:
                continue
            seen.add(id(each))
            if depth and depth % _DEPTH == 0:
                found.append((depth, each))
            waiting += [(child, depth + 1) for child in each.children()]
        elif depth == 0 and isinstance(each, dict | list | tuple):
            waiting += [
                (item, 1)
                for item in (each.values() if isinstance(each, dict) else each)
                if isinstance(item, Module)
            ]
    return [module for _, module in sorted(found, key=lambda pair: -pair[0])]


_DEPTH = 25


def _pickled(obj: Any, protocol: int, older: bool) -> tuple[bytes, list[Memory]]:
    """The pickle of an object, and the memory that it asks for."""
    first = _deep_modules(obj)
    finding = _Finding()
    for each in (*first, obj):
        finding.dump(each)
    file = io.BytesIO()
    writing = _Writing(file, protocol, finding.found, older, first)
    writing.dump(obj)
    return file.getvalue(), writing.memories


def _write_archive(obj: Any, file: Any, protocol: int, tells_order: bool) -> None:
    pickled, memories = _pickled(obj, protocol, False)
    archive = ArchiveWriter(file, "archive")
    archive.add("data.pkl", pickled)
    archive.add(".format_version", b"1")
    archive.add(".storage_alignment", str(ALIGNED).encode())
    if tells_order:
        archive.add("byteorder", sys.byteorder.encode())
    # A number is read from here alone: files of PyTorch may be from a machine with other cards.
    known = ("cpu", "cuda")
    others = [m for m in memories if creation.shown_name(m.device) not in known or ":" in m.device]
    if others:
        archive.add(DEVICES, json.dumps({m.key: m.device for m in others}).encode())
    for memory in memories:
        archive.add(f"data/{memory.key}", memory.content())
    archive.add("version", b"3\n")
    archive.add(".data/serialization_id", archive.number().encode())
    archive.finish()


def _write_older(obj: Any, file: Any, protocol: int) -> None:
    """The format before archives: pickles one behind the other, then memory."""
    pickled, memories = _pickled(obj, protocol, True)
    sizes = {"short": 2, "int": 4, "long": 4}
    about = {
        "protocol_version": OLDER_VERSION,
        "little_endian": sys.byteorder == "little",
        "type_sizes": sizes,
    }
    for part in (OLDER_NUMBER, OLDER_VERSION, about):
        write_all(file, pickle.dumps(part, protocol))
    write_all(file, pickled)
    write_all(file, pickle.dumps([memory.key for memory in memories], protocol))
    for memory in memories:
        count = memory.end // (1 if memory.dtype is None else memory.dtype.itemsize)
        write_all(file, count.to_bytes(8, "little"))
        write_all(file, bytes(memory.content()))


def save(
    obj: Any,
    f: Any,
    pickle_module: Any = None,
    pickle_protocol: int = _PROTOCOL,
    _use_new_zipfile_serialization: bool = True,
    _disable_byteorder_record: bool = False,
) -> None:
    """Write tensors in any nesting of containers to a path or a file, as PyTorch does.

    PyTorch loads the file, and so does `load`. A path is replaced only when all is written and on
    the disk: a process that is killed, or a machine that stops, leaves the old file or the new one.
    Tensors keep their strides and offsets, and those that share memory share it again when they
    are loaded. Layers are written by PyTorch's names for them.

    Args:
        obj: Tensors, numbers, text, layers and containers of them.
        f (path or file): Where it is written.
        pickle_module (module): Has no effect.
        pickle_protocol (int): The protocol of the pickle; `load(..., weights_only=True)` of PyTorch
            reads no other than 2.
    """

    def write(file: Any) -> None:
        if _use_new_zipfile_serialization:
            _write_archive(obj, file, pickle_protocol, not _disable_byteorder_record)
        else:
            _write_older(obj, file, pickle_protocol)

    if hasattr(f, "write"):
        write(f)
        if hasattr(f, "flush"):  # other processes may open the file before it is closed
            f.flush()
        return
    if not isinstance(f, (str, bytes, os.PathLike)):
        raise AttributeError(
            f"save: a path, or a file with write(), is needed, got {type(f).__name__}"
        )
    replacing(f, write)
