"""Storages: the memory of tensors, as bytes (`UntypedStorage`) or as numbers (`TypedStorage`).

A storage handle holds the engine's own `Storage`; two tensors share memory exactly if they have the
same handle. Elements are read and written through a tensor over all of the memory, so a write
counts as in place.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

from rushlight import interop, sharing
from rushlight.core import dtypes
from rushlight.core.dtypes import DType
from rushlight.core.errors import RushlightError, ShapeError
from rushlight.core.shapes import Size, Spec
from rushlight.devices.shared.allocator import Lent, Part, Storage, room_for
from rushlight.lazy import shown
from rushlight.naming import device_of
from rushlight.ops.create import creation
from rushlight.ops.surface import inplace_views
from rushlight.tape.memory import replay
from rushlight.tape.memory.region import drop
from rushlight.tape.memory.windows import Window, check_closed, has_window
from rushlight.tape.record import call
from rushlight.tape.record.value import Value
from rushlight.tape.record.written import mark_written
from rushlight.tensor import tensor

__all__ = ["TypedStorage", "UntypedStorage"]


def __dir__() -> list[str]:
    return shown(__name__)


_HANDLES: weakref.WeakValueDictionary[int, UntypedStorage] = weakref.WeakValueDictionary()
# Storages that were resized.
_SIZES: weakref.WeakKeyDictionary[Storage, int] = weakref.WeakKeyDictionary()

# PyTorch's cast methods of storages, by dtype.
CASTS = {
    "float": dtypes.float32,
    "double": dtypes.float64,
    "half": dtypes.float16,
    "bfloat16": dtypes.bfloat16,
    "byte": dtypes.uint8,
    "char": dtypes.int8,
    "short": dtypes.int16,
    "int": dtypes.int32,
    "long": dtypes.int64,
    "bool": dtypes.bool_,
    "complex_float": dtypes.complex64,
    "complex_double": dtypes.complex128,
}


class UntypedStorage:
    """The bytes behind a tensor.

    UntypedStorage(n), UntypedStorage([bytes]), or a tensor's `untyped_storage()`.
    """

    __slots__ = ("__weakref__", "_memory", "used")

    _memory: Storage
    used: int

    def __new__(cls, size: Any = 0, *, device: Any = None) -> UntypedStorage:
        if isinstance(size, int):
            return untyped_storage(creation.empty(size, dtype=dtypes.uint8, device=device))
        return untyped_storage(tensor(list(size), dtype=dtypes.uint8, device=device))

    # ---- attributes ----

    @property
    def device(self) -> Any:
        return device_of(self._memory.pool.device.name)

    @property
    def is_cuda(self) -> bool:
        return bool(self.device.type == "cuda")

    is_sparse = is_sparse_csr = False

    @property
    def _cdata(self) -> int:
        return id(self._memory)

    def nbytes(self) -> int:
        return self.used

    size = __len__ = nbytes

    def element_size(self) -> int:
        return 1

    def data_ptr(self) -> int:
        """The address of the first byte; 0 where there is none.

        The memory is never dropped after this.
        """
        if not self.used:
            return 0
        return replay.keep(self._memory)

    def get_device(self) -> int:
        return 0 if self.is_cuda else -1

    def is_pinned(self) -> bool:
        return self._memory.is_pinned

    def is_shared(self) -> bool:
        return self.is_cuda or sharing.block_of(self._memory) is not None

    def share_memory_(self) -> UntypedStorage:
        """Move the bytes to memory shared between processes."""
        if not self.is_cuda:
            sharing.share(self._memory)
        return self

    def resizable(self) -> bool:
        memory = self._memory
        return not (
            isinstance(memory, Lent) or sharing.block_of(memory) is not None or has_window(memory)
        )

    def untyped(self) -> UntypedStorage:
        return self

    # ---- elements ----

    def elements(self, dtype: DType = dtypes.uint8) -> Any:
        """A tensor over all of the memory."""
        spec = Spec.of(self._memory.pool, dtype, (self.used // dtype.itemsize,))
        return call.lay(spec, self._memory)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return self._part(place)
        return self.elements()[_checked_index(place, self.used)].item()

    def _part(self, place: slice) -> UntypedStorage:
        """A storage of some of the bytes, in the same memory where the host has it."""
        start, stop, step = place.indices(self.used)
        if step != 1:
            raise RushlightError("the bytes of a slice of a storage follow one another: step 1")
        pool: Any = self._memory.pool
        if stop <= start or not pool.device.limits.host_memory:
            return untyped_storage(self.elements()[start:stop].clone())
        window = Window(self._memory)
        memory = Part(pool, window.address + start, stop - start, window)
        spec = Spec.of(pool, dtypes.uint8, (stop - start,))
        return untyped_storage(call.lay(spec, memory))

    def __setitem__(self, place: Any, value: Any) -> None:
        self.elements()[place if isinstance(place, slice) else _checked_index(place, self.used)] = (
            value
        )

    def __iter__(self) -> Iterator[int]:
        return iter(self.tolist())

    def tolist(self) -> list[int]:
        return self.elements().tolist()

    def fill_(self, value: int) -> UntypedStorage:
        self.elements().fill_(value)
        return self

    def copy_(self, source: Any, non_blocking: Any = None) -> UntypedStorage:
        """Copy the bytes of another storage of the same size."""
        other: UntypedStorage = source.untyped()
        if other.nbytes() != self.used:
            raise RushlightError(
                f"copy_: a storage of {other.nbytes()} bytes does not fit one of {self.used}"
            )
        self.elements().copy_(other.elements())
        return self

    def clone(self) -> UntypedStorage:
        return untyped_storage(self.elements().clone())

    def to(self, *, device: Any, non_blocking: Any = False) -> UntypedStorage:
        moved = self.elements().to(device)
        return self if moved._memory is self._memory else untyped_storage(moved)

    def cpu(self) -> UntypedStorage:
        return self.to(device="cpu")

    def cuda(self, device: Any = None, non_blocking: Any = False) -> UntypedStorage:
        return self.to(device="cuda" if device is None else device)

    def type(self, dtype: Any = None, non_blocking: Any = False) -> Any:
        return "torch.UntypedStorage" if dtype is None else self._cast(_dtype_of(dtype))

    def _cast(self, dtype: DType) -> TypedStorage:
        """Each byte as a number of another dtype."""
        return typed_storage(self.elements().to(dtype))

    def resize_(self, nbytes: int) -> UntypedStorage:
        """Change the number of bytes, keeping the first ones; new bytes are uninitialised.

        At 0 the memory is freed.
        """
        if not self.resizable():
            raise RushlightError(
                "resize_: a storage that is shared, belongs to NumPy or is seen by it has the size "
                "it has; .clone() it"
            )
        if nbytes < 0:
            raise ShapeError(f"resize_: a storage cannot have {nbytes} bytes")
        storage = self._memory
        if storage.recipe is not None:
            replay.keep(storage)
        if storage.address is None:  # freed
            _restored(storage, room_for(nbytes))
        elif nbytes == 0:
            _released(storage)
        elif nbytes > storage.room:
            inplace_views.grow(storage, room_for(nbytes), "resize_")
        self.used = _SIZES[storage] = nbytes
        return self

    # ---- as an object ----

    def __repr__(self) -> str:
        return _text(self, f"device={self.device}")

    @staticmethod
    def from_file(filename: str, shared: bool = False, nbytes: int = 0) -> UntypedStorage:
        """The bytes of a file; with `shared`, writes go to it."""
        import numpy as np

        array = np.memmap(filename, np.uint8, "r+" if shared else "c", shape=(nbytes,))
        made: Any = interop.from_numpy(np.asarray(array))
        storage: UntypedStorage = made.untyped_storage()
        return storage

    def __copy__(self) -> UntypedStorage:
        return self.clone()

    def __deepcopy__(self, memo: dict[Any, Any]) -> UntypedStorage:
        return self.clone()

    def __reduce__(self) -> Any:
        return _from_bytes, (
            bytes(interop.to_bytes(self.elements())),
            self._memory.pool.device.name,
        )


def _released(storage: Storage) -> None:
    """Free the block; reads of the storage raise until it has one again."""
    with replay.LOCK, replay.Pins([storage]):
        check_closed(storage, "resize_")
        replay.keep(storage)
        replay.before_write(storage)
        mark_written(storage)
        drop(storage)


def _restored(storage: Storage, room: int) -> None:
    """Allocate a block again, with room for all tensors over the old one."""
    room = max(room, storage.room)
    storage.blocks, storage.room = storage.pool.blocks(room), room
    storage.address = storage.pool.take(room)


class _Kind(type):
    """The metaclass of `TypedStorage` and FloatStorage etc.: isinstance is decided by dtype."""

    dtype: DType | None

    def __instancecheck__(cls, given: Any) -> bool:
        return isinstance(type(given), _Kind) and (cls.dtype is None or given.dtype is cls.dtype)

    def __call__(
        cls,
        *args: Any,
        wrap_storage: UntypedStorage | None = None,
        dtype: Any = None,
        device: Any = None,
    ) -> Any:
        dtype = cls.dtype or dtype or dtypes.get_default()
        if wrap_storage is not None:
            return _over(wrap_storage, dtype)
        if len(args) == 1 and not isinstance(args[0], int):
            return typed_storage(tensor(list(args[0]), dtype=dtype, device=device))
        return typed_storage(creation.empty(*(args or (0,)), dtype=dtype, device=device))


class TypedStorage(metaclass=_Kind):
    """A storage as numbers of one dtype: `Tensor.storage()`, and FloatStorage([1, 2, 3])."""

    __slots__ = ("_untyped_storage",)

    dtype: Any = None
    _untyped_storage: UntypedStorage

    @property
    def _memory(self) -> Storage:
        return self._untyped_storage._memory

    @property
    def device(self) -> Any:
        return self._untyped_storage.device

    @property
    def is_cuda(self) -> bool:
        return self._untyped_storage.is_cuda

    is_sparse = False

    @property
    def _cdata(self) -> int:
        return self._untyped_storage._cdata

    def untyped(self) -> UntypedStorage:
        return self._untyped_storage

    def nbytes(self) -> int:
        return self._untyped_storage.nbytes()

    def size(self) -> int:
        return self.nbytes() // self.element_size()

    __len__ = size

    def element_size(self) -> int:
        return int(self.dtype.itemsize)

    def data_ptr(self) -> int:
        return self._untyped_storage.data_ptr()

    def get_device(self) -> int:
        return self._untyped_storage.get_device()

    def is_pinned(self) -> bool:
        return self._untyped_storage._memory.is_pinned

    def is_shared(self) -> bool:
        return self._untyped_storage.is_shared()

    def share_memory_(self) -> TypedStorage:
        self._untyped_storage.share_memory_()
        return self

    def resizable(self) -> bool:
        return self._untyped_storage.resizable()

    def resize_(self, size: int) -> TypedStorage:
        self._untyped_storage.resize_(size * self.element_size())
        return self

    def _elements(self) -> Any:
        return self._untyped_storage.elements(self.dtype)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            raise RushlightError(
                "slices of a storage are taken of its bytes: use .untyped()[a:b], or slice the "
                "tensor"
            )
        return self._elements()[_checked_index(place, self.size())].item()

    def __setitem__(self, place: Any, value: Any) -> None:
        self._elements()[
            place if isinstance(place, slice) else _checked_index(place, self.size())
        ] = value

    def __iter__(self) -> Iterator[Any]:
        return iter(self.tolist())

    def tolist(self) -> list[Any]:
        return self._elements().tolist()

    def fill_(self, value: Any) -> TypedStorage:
        self._elements().fill_(value)
        return self

    def copy_(self, source: Any, non_blocking: Any = None) -> TypedStorage:
        """Copy the numbers of another storage of the same length, of any dtype."""
        if len(source) != len(self):
            raise RushlightError(
                f"copy_: a storage of {len(source)} elements does not fit one of {len(self)}"
            )
        self._elements().copy_(source.untyped().elements(getattr(source, "dtype", dtypes.uint8)))
        return self

    def clone(self) -> TypedStorage:
        return typed_storage(self._elements().clone())

    def to(self, *, device: Any, non_blocking: Any = False) -> TypedStorage:
        return _over(self._untyped_storage.to(device=device), self.dtype)

    def cpu(self) -> TypedStorage:
        return self.to(device="cpu")

    def cuda(self, device: Any = None, non_blocking: Any = False) -> TypedStorage:
        return self.to(device="cuda" if device is None else device)

    def type(self, dtype: Any = None, non_blocking: Any = False) -> Any:
        """The name of the class, or the numbers in another dtype."""
        return (
            f"torch.{_word(self.dtype)}Storage" if dtype is None else self._cast(_dtype_of(dtype))
        )

    def pickle_storage_type(self) -> str:
        return f"{_word(self.dtype)}Storage"

    def _cast(self, dtype: DType) -> TypedStorage:
        return self if dtype is self.dtype else typed_storage(self._elements().to(dtype))

    def __repr__(self) -> str:
        return _text(self, f"dtype=torch.{self.dtype.name}, device={self.device}")

    def __copy__(self) -> TypedStorage:
        return self.clone()

    def __deepcopy__(self, memo: dict[Any, Any]) -> TypedStorage:
        return self.clone()

    def __reduce__(self) -> Any:
        return _over, (self._untyped_storage, self.dtype)


def _casting(dtype: DType) -> Any:
    return lambda self: self._cast(dtype)


for _name, _dtype in CASTS.items():
    for _class in (UntypedStorage, TypedStorage):
        setattr(_class, _name, _casting(_dtype))


def _word(dtype: DType) -> str:
    return {"complex64": "ComplexFloat", "complex128": "ComplexDouble"}.get(
        dtype.name
    ) or dtypes.WORDS[dtype]


def _kind(dtype: DType) -> Any:
    spelled = {
        "__slots__": (),
        "__module__": "rushlight",  # where a pickle finds it
        "dtype": dtype,
        "__doc__": f"Storages of {dtype.name}.",
    }
    return _Kind(f"{_word(dtype)}Storage", (TypedStorage,), spelled)


KINDS = {f"{_word(dtype)}Storage": _kind(dtype) for dtype in dtypes.ANY}
# Float8 types have classes without public names, as in PyTorch.
KINDS_BY_TYPE = {kind.dtype: kind for kind in KINDS.values()} | {
    dtype: _kind(dtype) for dtype in dtypes.FLOAT8
}


def _dtype_of(kind: Any) -> DType:
    """A dtype, from itself, a storage class or its name ("torch.FloatStorage")."""
    if isinstance(kind, str):
        kind = KINDS.get(kind.removeprefix("torch."), kind)
    found = getattr(kind, "dtype", kind)
    if not isinstance(found, DType):
        raise TypeError(f"type: expected a dtype or the name of a storage class, got {kind!r}")
    return found


def _checked_index(place: Any, size: int) -> int:
    if not hasattr(place, "__index__"):
        raise RushlightError(f"a storage is indexed by an integer, got {type(place).__name__}")
    at = place.__index__()
    if not -size <= at < size:
        raise IndexError(f"index {at} out of range for storage of size {size}")
    return at % size


def _text(storage: Any, what: str) -> str:
    lines = "".join(f" {each}\n" for each in storage)
    return (
        f"{lines}[rushlight.storage.{type(storage).__mro__[-2].__name__}({what}) of size "
        f"{len(storage)}]"
    )


def _from_bytes(elements: bytes | list[int], device: str) -> UntypedStorage:
    """The storage of a pickle; older ones have a list of numbers."""
    raw = bytes(elements)
    return untyped_storage(interop.from_pickle(raw, dtypes.uint8, (len(raw),), device, False))


def _over(untyped: UntypedStorage, dtype: DType) -> TypedStorage:
    if not isinstance(untyped, UntypedStorage) or dtype not in KINDS_BY_TYPE:
        raise TypeError("a typed storage is made of an untyped one and a type")
    made = object.__new__(KINDS_BY_TYPE[dtype])
    made._untyped_storage = untyped
    return made


# ---- methods of Tensor ----


def untyped_storage(self: Any) -> UntypedStorage:
    """The storage of this tensor."""
    storage = self._memory
    found = _HANDLES.get(id(storage))
    owner = self if self._base is None else self._base
    used = _SIZES.get(storage, min(owner._offset + owner._spec.nbytes, storage.room))
    if found is None or found._memory is not storage:
        found = object.__new__(UntypedStorage)
        found._memory, found.used = storage, 0
        _HANDLES[id(storage)] = found
    # A tensor may have been resized.
    found.used = used if storage in _SIZES else max(found.used, used)
    return found


def typed_storage(self: Any) -> TypedStorage:
    """The storage of this tensor, as numbers of its dtype."""
    return _over(untyped_storage(self), self._spec.dtype)


def storage_type(self: Any) -> Any:
    """The class of the tensor's storage: FloatStorage for float32."""
    return KINDS_BY_TYPE[self._spec.dtype]


def new(self: Any, *args: Any, device: Any = None) -> Any:
    """PyTorch's older constructor of a tensor of the same dtype: from sizes, or from data."""
    where = self.device if device is None else device
    if len(args) == 1 and isinstance(args[0], (UntypedStorage, TypedStorage)):
        return creation.empty(0, dtype=self.dtype, device=where).set_(args[0])
    if len(args) == 1 and isinstance(args[0], Value):
        return args[0].detach()  # type: ignore[attr-defined]
    if len(args) == 1 and not isinstance(args[0], (int, Size)):
        return tensor(args[0], dtype=self.dtype, device=where)
    return creation.empty(*(args or (0,)), dtype=self.dtype, device=where)
