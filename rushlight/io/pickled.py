"""`save` and `load`: Python's pickle with tensors in it. Files of PyTorch's own format are another matter."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from typing import IO, Any

from rushlight.core.errors import RushlightError
from rushlight.ops.creation import resolve_pool
from rushlight.tape.value import Value

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
    ("rushlight.interop", "from_pickle"),
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


def save(obj: Any, f: Any) -> None:
    """Write tensors in any nesting of containers to a path or a file; a path is replaced only when all is written."""
    if hasattr(f, "write"):
        pickle.dump(obj, f, protocol=4)
        return
    temporary = f"{os.fspath(f)}.part"
    with open(temporary, "wb") as file:
        pickle.dump(obj, file, protocol=4)
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
