"""`save` and `load`: Python's pickle with tensors in it. Files of PyTorch's own format are another matter."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from typing import IO, Any

from rushlight import interop
from rushlight.core.errors import RushlightError
from rushlight.ops.creation import resolve_pool
from rushlight.tape import call
from rushlight.tape.value import Leaf, Value

# What a file may name when it is not trusted: the makers of tensors and plain containers, nothing that acts.
_HARMLESS = {
    ("builtins", "set"),
    ("builtins", "frozenset"),
    ("builtins", "complex"),
    ("builtins", "slice"),
    ("builtins", "bytearray"),
    ("collections", "OrderedDict"),
    ("collections", "defaultdict"),
    ("rushlight.core.dtypes", "by_name"),
    ("rushlight.core.shapes", "Size"),
    ("rushlight.interop", "from_pickle"),
    ("rushlight.interop", "from_shared"),
    ("rushlight.nn.parameter", "Parameter"),
    ("rushlight.nn.parameter", "from_pickle"),
    ("rushlight.sparse.coo", "from_pickle"),
}


class _Careful(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _HARMLESS:
            return super().find_class(module, name)
        raise RushlightError(
            f"load: the file asks for {module}.{name}, which is not a tensor or a plain container; "
            f"pass weights_only=False if you trust where the file is from"
        )


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


def save(obj: Any, f: Any) -> None:
    """Write tensors in any nesting of containers to a path or a file; a path is replaced only when all is written.

    Tensors that share memory share it again when they are loaded; one alone is written without what else its memory holds.
    """
    if hasattr(f, "write"):
        _write(obj, f)
        return
    temporary = f"{os.fspath(f)}.part"
    with open(temporary, "wb") as file:
        _write(obj, file)
    os.replace(temporary, f)


def load(f: Any, map_location: Any = None, weights_only: bool = True) -> Any:
    """Read what `save` wrote; `map_location` names the device its tensors go to."""
    if hasattr(f, "read"):
        return _read(f, map_location, weights_only)
    with open(f, "rb") as file:
        return _read(file, map_location, weights_only)


def _read(file: IO[bytes], map_location: Any, weights_only: bool) -> Any:
    result = (_Careful if weights_only else pickle.Unpickler)(file).load()
    if map_location is None:
        return result
    pool: Any = resolve_pool(map_location)
    return _mapped(result, lambda value: value.to(pool.device.name))  # type: ignore[attr-defined]


def _mapped(thing: Any, change: Callable[[Value], Value]) -> Any:
    if isinstance(thing, Value):
        return change(thing)
    if isinstance(thing, dict):
        for key in thing:
            thing[key] = _mapped(thing[key], change)
        return thing
    if isinstance(thing, (list, tuple)):
        return type(thing)(_mapped(item, change) for item in thing)
    return thing
