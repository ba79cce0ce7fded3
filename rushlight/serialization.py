"""Saving and loading under PyTorch's module name, and the classes that untrusted files may name."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import IO, Any

from rushlight.io import names
from rushlight.io.constructors import SAFE
from rushlight.io.pickled import load
from rushlight.io.writing import save
from rushlight.lazy import shown

__all__ = [
    "add_safe_globals",
    "clear_safe_globals",
    "default_restore_location",
    "get_safe_globals",
    "load",
    "location_tag",
    "safe_globals",
    "save",
]


DEFAULT_PROTOCOL = 2  # of pickle
FILE_LIKE = str | os.PathLike[str] | IO[bytes]
MAP_LOCATION = Callable[[Any, str], Any] | Any | str | dict[str, str] | None


def __dir__() -> list[str]:
    return shown(__name__)


def location_tag(storage: Any) -> str:
    """Where a file says that a storage lies: "cpu", "cuda:0".

    Args:
        storage (UntypedStorage or TypedStorage): The storage.
    """
    where = storage.device
    return "cpu" if where.type == "cpu" else f"{where.type}:{where.index or 0}"


def default_restore_location(storage: Any, location: str) -> Any:
    """The storage on the device of a name, for functions that are given as `map_location`.

    Args:
        storage (UntypedStorage or TypedStorage): The storage.
        location (str): The device.
    """
    return storage if location_tag(storage) == location else storage.to(device=location)


def add_safe_globals(safe_globals: Sequence[Any]) -> None:
    """Let `load(..., weights_only=True)` make these classes, or call these functions.

    (class, "module.name") registers it under that name; a layer has PyTorch's name as well.
    """
    for given in safe_globals:
        named, name = (
            given
            if isinstance(given, tuple)
            else (given, f"{given.__module__}.{given.__qualname__}")
        )
        SAFE[name] = named
        if (known := names.of(named)) is not None:
            SAFE[f"{known.module}.{known.name}"] = named


def get_safe_globals() -> list[Any]:
    """The added classes and functions."""
    return list({id(named): named for named in SAFE.values()}.values())


def clear_safe_globals() -> None:
    """Remove all that were added."""
    SAFE.clear()


class safe_globals:
    """`add_safe_globals` for a block."""

    def __init__(self, safe_globals: Sequence[Any]) -> None:
        self.given = safe_globals
        self.before: dict[str, Any] = {}

    def __enter__(self) -> None:
        self.before = dict(SAFE)
        add_safe_globals(self.given)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        SAFE.clear()
        SAFE.update(self.before)
