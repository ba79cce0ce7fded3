"""`save` and `load`: Python's pickle with tensors in it. Files of PyTorch's own format are another matter."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from typing import IO, Any

from rushlight import interop
from rushlight.core.dtypes import DType
from rushlight.core.errors import RushlightError
from rushlight.ops import creation
from rushlight.ops.creation import resolve_pool
from rushlight.tape import call
from rushlight.tape.value import Leaf, Value
from rushlight.tensor import device

# What a file may name when it is not trusted: the makers of tensors and plain containers, nothing that acts.
_HARMLESS = {
    ("builtins", "set"),
    ("builtins", "frozenset"),
    ("builtins", "complex"),
    ("builtins", "slice"),
    ("builtins", "bytearray"),
    ("collections", "Counter"),
    ("collections", "OrderedDict"),
    ("collections", "defaultdict"),
    ("rushlight.core.dtypes", "by_name"),
    ("rushlight.core.shapes", "Size"),
    ("rushlight.interop", "from_pickle"),
    ("rushlight.interop", "from_shared"),
    ("rushlight.naming", "device"),
    ("rushlight.nn.parameter", "Parameter"),
    ("rushlight.nn.parameter", "from_pickle"),
    ("rushlight.sparse.coo", "from_pickle"),
    ("rushlight.storage", "_from_bytes"),
    ("rushlight.storage", "_over"),
}


SAFE: dict[str, Any] = {}  # what the program has named besides, by "module.name"


class UnsafeFile(RushlightError, pickle.UnpicklingError):
    """A file that asks for more than tensors and plain containers, and was not said to be trusted."""


class _Reader(pickle.Unpickler):
    """Makes tensors where `place` says."""

    def __init__(self, file: Any, careful: bool, place: Callable[[Value, str], Value] | None, **named: Any) -> None:
        super().__init__(file, **named)
        self.careful = careful
        self.place = place

    def find_class(self, module: str, name: str) -> Any:
        if self.careful and (module, name) not in _HARMLESS:
            if f"{module}.{name}" in SAFE:
                return SAFE[f"{module}.{name}"]
            raise UnsafeFile(
                f"load: the file asks for {module}.{name}, which is not a tensor or a plain container; name it with "
                f"serialization.add_safe_globals, or pass weights_only=False if you trust where the file is from"
            )
        if (module, name) == ("rushlight.interop", "from_pickle") and self.place is not None:
            return self.made
        return super().find_class(module, name)

    def made(self, raw: bytes, dtype: DType, shape: tuple[int, ...], device: str, requires_grad: bool) -> Value:
        assert self.place is not None
        value = self.place(interop.from_pickle(raw, dtype, shape, "cpu", False), device)
        return creation.requiring(value, requires_grad)


def _storage_of(obj: Any) -> Any:
    """The storage of a tensor that has elements in memory, else None."""
    try:
        return obj.memory if isinstance(obj, Value) and obj.spec.numel else None
    except Exception:  # a sparse tensor, or a parameter before its shape is known: whatever it says, it has no spec
        return None


class _Counting(pickle.Pickler):
    """Walks what is to be saved, and counts the tensors of each storage."""

    def __init__(self) -> None:
        super().__init__(_Nowhere(), protocol=4)
        self.seen: dict[int, int] = {}

    def reducer_override(self, obj: Any) -> Any:
        storage = _storage_of(obj)
        if storage is None:
            return NotImplemented
        self.seen[id(storage)] = self.seen.get(id(storage), 0) + 1
        return tuple, (), interop.noted(obj)


class _Nowhere:
    def write(self, data: Any) -> int:
        return len(data)


class _Memory:
    """Stands in the file for memory that several tensors share; written once."""

    def __init__(self, value: Value) -> None:
        self.value = interop.whole(value)

    def __reduce__(self) -> Any:
        spec = self.value.spec
        pool: Any = spec.device
        return interop.from_pickle, (interop.to_bytes(self.value), spec.dtype, spec.shape, pool.device.name, False)


class _Sharing(pickle.Pickler):
    def __init__(self, file: Any, shared: set[int]) -> None:
        super().__init__(file, protocol=4)
        self.shared = shared
        self.memories: dict[int, _Memory] = {}

    def reducer_override(self, obj: Any) -> Any:
        storage = _storage_of(obj)
        if storage is None or id(storage) not in self.shared or type(obj) is not call.Handle:
            return NotImplemented
        memory = self.memories.setdefault(id(storage), _Memory(obj))
        spec = obj.spec
        leaf = type(obj.node) is Leaf
        given = (memory, spec.dtype, spec.shape, spec.strides, obj.offset, leaf)
        return interop.from_shared, given, interop.noted(obj)


def _write(obj: Any, file: Any) -> None:
    count = _Counting()
    count.dump(obj)
    _Sharing(file, {storage for storage, tensors in count.seen.items() if tensors > 1}).dump(obj)


def save(
    obj: Any,
    f: Any,
    pickle_module: Any = None,
    pickle_protocol: int = 4,
    _use_new_zipfile_serialization: bool = True,
    _disable_byteorder_record: bool = False,
) -> None:
    """Write tensors in any nesting of containers to a path or a file; a path is replaced only when all is written.

    Tensors that share memory share it again when they are loaded; one alone is written without what else its memory holds.
    The arguments behind `f` are about PyTorch's own format and taken so that its calls run.
    """
    if hasattr(f, "write"):
        _write(obj, f)
        if hasattr(f, "flush"):  # others may open the file before it is closed
            f.flush()
        return
    if not isinstance(f, (str, bytes, os.PathLike)):
        raise AttributeError(f"save: a path, or a file with write(), is needed, got {type(f).__name__}")
    temporary = f"{os.fsdecode(f)}.part"
    with open(temporary, "wb") as file:
        _write(obj, file)
    os.replace(temporary, f)


def load(
    f: Any,
    map_location: Any = None,
    pickle_module: Any = None,
    *,
    weights_only: bool | None = None,
    mmap: bool | None = None,
    **pickle_load_args: Any,
) -> Any:
    """Read what `save` wrote, tensors and plain containers only unless `weights_only` is False.

    `map_location` says on which device tensors are made: a device, a dict of devices by those they were saved from, or a
    function of a storage on the CPU and the device it was saved from, which gives a storage where they shall be, or None.
    """
    reading = (map_location, weights_only is None or weights_only, pickle_load_args)
    if hasattr(f, "read"):
        return _read(f, *reading)
    if not isinstance(f, (str, bytes, os.PathLike)):
        raise AttributeError(f"load: a path, or a file with read(), is needed, got {type(f).__name__}")
    with open(f, "rb") as file:
        return _read(file, *reading)


def _read(file: IO[bytes], map_location: Any, careful: bool, named: dict[str, Any]) -> Any:
    return _Reader(file, careful, _placing(map_location), **named).load()


def _placing(map_location: Any) -> Callable[[Value, str], Value] | None:
    """What puts a value on the CPU, by the device it was saved from, where it is wanted; None: as it was saved."""
    if map_location is None:
        return None
    if callable(map_location) and not isinstance(map_location, device):

        def ask(value: Any, was: str) -> Any:
            storage = map_location(value.untyped_storage(), was if was == "cpu" else f"{was}:0")
            return value.to(was if storage is None else storage.device)

        return ask
    if isinstance(map_location, dict):
        wanted = {str(key).removesuffix(":0"): place for key, place in map_location.items()}
        return lambda value, was: value.to(wanted.get(was, was))  # type: ignore[attr-defined]
    resolve_pool(map_location)  # says what is wrong with it
    return lambda value, was: value.to(map_location)  # type: ignore[attr-defined]
