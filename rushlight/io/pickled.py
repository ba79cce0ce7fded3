"""`load`: reads files of `save` and of PyTorch, and maps tensors to devices."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from typing import IO, Any

from rushlight import interop
from rushlight.core.dtypes import DType
from rushlight.io import pytorch, reading
from rushlight.io.constructors import Mover
from rushlight.io.limits import UnsafeFile
from rushlight.ops.create import creation
from rushlight.ops.create.creation import resolve_pool
from rushlight.tape.record.value import Value
from rushlight.tensor import device


class _Trusting(pickle.Unpickler):
    """Python's unpickler, which runs code of the file; makes tensors by `move`."""

    def __init__(self, file: Any, move: Mover | None, **named: Any) -> None:
        super().__init__(file, **named)
        self.move = move

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("rushlight.interop", "from_pickle") and self.move is not None:
            return self.made
        return super().find_class(module, name)

    def persistent_load(self, name: Any) -> Any:
        """A zip file as a pickle reader takes it: "P" asks for an object by a name."""
        raise UnsafeFile(reading.foreign("a zip file"))

    def made(
        self, raw: bytes, dtype: DType, shape: tuple[int, ...], device: str, requires_grad: bool
    ) -> Value:
        assert self.move is not None
        value = self.move(interop.from_pickle(raw, dtype, shape, "cpu", False), device)
        return creation.requiring(value, requires_grad)


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
        pickle_module (module): Used where `weights_only` is False; by default Python's.
        weights_only (bool): False runs the file's own code: only for files that you trust.
        mmap (bool): Map the file into memory instead of reading it.
        pickle_load_args: Passed on to the pickle module.
    """
    how = (map_location, weights_only is None or weights_only, pickle_load_args)
    if hasattr(f, "read"):
        return _read_pickle(f, *how)
    if not isinstance(f, (str, bytes, os.PathLike)):
        raise AttributeError(
            f"load: a path, or a file with read(), is needed, got {type(f).__name__}"
        )
    with open(f, "rb") as file:
        return _read_pickle(file, *how)


def _read_pickle(file: IO[bytes], map_location: Any, careful: bool, named: dict[str, Any]) -> Any:
    move = _placing(map_location)
    if _is_pytorchs(file):
        named.pop("fix_imports", None)
        return pytorch.read(file, move, **named)
    if not careful:
        return _Trusting(file, move, **named).load()
    named.pop("fix_imports", None)  # Python 2's names
    return reading.read(file, move, **named)


def _is_pytorchs(file: IO[bytes]) -> bool:
    """Whether PyTorch wrote it: an archive, or a file that begins with its number."""
    if not getattr(file, "seekable", bool)():
        return False
    start = file.tell()
    head = file.read(len(pytorch.OLDER))
    file.seek(start)
    return head[:4] == reading.ZIP or head == pytorch.OLDER


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
