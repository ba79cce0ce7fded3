"""`load`: reads files of `save` and of PyTorch, and maps tensors to devices."""

from __future__ import annotations

import mmap as mapping
import os
import pickle
from collections.abc import Callable
from typing import IO, Any

from rushlight.core.errors import RushlightError
from rushlight.io import pytorch
from rushlight.io.limits import TruncatedFile
from rushlight.ops.create.creation import resolve_pool
from rushlight.tape.record.value import Value
from rushlight.tensor import device


def load(
    f: Any,
    map_location: Any = None,
    pickle_module: Any = None,
    *,
    weights_only: bool | None = None,
    mmap: bool | None = None,
    **pickle_load_args: Any,
) -> Any:
    """Read a file of `save`: tensors and plain containers only, unless `weights_only` is False.

    `map_location` is the device on which tensors are made: a device, a dict from saved devices to
    devices, or a function of a storage on the CPU and the saved device, which returns a storage on
    the wanted device, or None.

    Args:
        f (path or file): What is read.
        map_location: The device of the tensors: a device, a dict or a function, as above.
        pickle_module (module): Its Unpickler reads the file, which is trusted then.
        weights_only (bool): False runs the file's own code: only for files that you trust.
        mmap (bool): Leave the elements in the file until they are used. Writes to the tensors do
            not change the file, which must not be changed by others while they live.
        pickle_load_args: Passed on to the pickle module.
    """
    careful = pickle_module is None if weights_only is None else weights_only
    if careful and pickle_module is not None:
        raise RushlightError(
            "load: weights_only=True reads a file without a pickle module; leave pickle_module out"
        )
    unpickler = None if careful else (pickle_module or pickle).Unpickler
    way = pytorch.Way(_placing(map_location), unpickler, pickle_load_args)
    if hasattr(f, "read"):
        if mmap:
            raise ValueError("load: mmap=True needs the path of a file, got a file object")
        return _read(f, way)
    if not isinstance(f, (str, bytes, os.PathLike)):
        raise AttributeError(
            f"load: a path, or a file with read(), is needed, got {type(f).__name__}"
        )
    with open(f, "rb") as file:
        if not mmap:
            return _read(file, way)
        if not os.fstat(file.fileno()).st_size:
            raise TruncatedFile("load: Ran out of input: the file is empty")
        # A write to the memory copies the page and leaves the file as it is.
        return _read(file, way, mapping.mmap(file.fileno(), 0, access=mapping.ACCESS_COPY))


def _read(file: IO[bytes], way: pytorch.Way, mapped: Any = None) -> Any:
    if mapped is not None or _is_pytorchs(file):
        return pytorch.read(file, way, mapped)
    if way.unpickler is None:
        return way.reader(file).load()
    return pytorch.trusting(way.unpickler, pytorch.Trusted(way.move))(file, **way.named).load()


def _is_pytorchs(file: IO[bytes]) -> bool:
    """Whether it has PyTorch's format: an archive, or the older one."""
    if not getattr(file, "seekable", bool)():
        return False
    start = file.tell()
    head = file.read(pytorch.HEAD)
    file.seek(start)
    return isinstance(head, bytes) and pytorch.is_pytorchs(head)


def _placing(map_location: Any) -> Callable[[Value, str], Value] | None:
    """A function that moves a value from the CPU, by the device it was saved from.

    None: to that device.
    """
    if map_location is None:
        return None
    if callable(map_location) and not isinstance(map_location, device):

        def ask(value: Any, was: str) -> Any:
            storage = map_location(value.untyped_storage(), was if was == "cpu" else f"{was}:0")
            return value.to(was if storage is None else storage.device)

        return ask
    if isinstance(map_location, dict):
        wanted = {str(key).removesuffix(":0"): move for key, move in map_location.items()}
        return lambda value, was: value.to(wanted.get(was, was))  # type: ignore[attr-defined]
    resolve_pool(map_location)  # raises the precise error
    return lambda value, was: value.to(map_location)  # type: ignore[attr-defined]
