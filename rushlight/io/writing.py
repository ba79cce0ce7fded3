"""`save`: Python's pickle with tensors in it; a temporary file replaces the old one.

# Note [What a file holds]
1. A tensor alone is written as its elements. Tensors that share memory are written as that memory,
   once, from the first byte in use to the last, and their offsets in it.
2. Bytes in between that no saved tensor uses are written as zeros: a block may hold old data.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import secrets
import stat
from collections.abc import Callable
from typing import Any

from rushlight import interop
from rushlight.core import dtypes
from rushlight.core.shapes import Spec
from rushlight.devices.shared.allocator import Storage
from rushlight.tape.record import call
from rushlight.tape.record.value import Leaf, Value

ALIGNED = 64  # the alignment of a shared memory, and so of its tensors


def _storage_of(obj: Any) -> Storage | None:
    """The storage of a tensor that has elements in memory, else None."""
    try:
        return obj._memory if isinstance(obj, Value) and obj._spec.numel else None
    except Exception:  # a sparse tensor, or a parameter without a shape yet: it has no spec
        return None


class _Nowhere:
    def write(self, data: Any) -> int:
        return len(data)


class _Counting(pickle.Pickler):
    """Walks the object to be saved, and notes the tensors of each storage."""

    def __init__(self) -> None:
        super().__init__(_Nowhere(), protocol=4)
        self.seen: dict[int, list[Value]] = {}

    def reducer_override(self, obj: Any) -> Any:
        storage = _storage_of(obj)
        if storage is None:
            return NotImplemented
        self.seen.setdefault(id(storage), []).append(obj)
        return tuple, (), interop.noted(obj)


def _elements_seen(spec: Spec) -> Any:
    """For each position from a layout's first element to its last, whether an element is there."""
    import numpy as np

    dims = sorted(
        (step, n) for n, step in zip(spec.shape, spec.strides, strict=True) if n > 1 and step
    )
    run = 1
    # The next dimension continues at the end of the last, or before.
    while dims and dims[0][0] <= run:
        step, n = dims.pop(0)
        run += step * (n - 1)
    seen = np.zeros(run + sum(step * (n - 1) for step, n in dims), dtype=bool)
    seen[:run] = True
    for step, n in dims:  # n copies, each `step` after the one before, doubled each time
        have = 1
        while have < n:
            more = min(have, n - have)
            seen[step * more :] |= seen[: -step * more].copy()
            have += more
    return seen


class _Memory:
    """Represents memory that several tensors share; written once."""

    def __init__(self, values: list[Value]) -> None:
        self.values = values
        self.first = min(value._offset for value in values) // ALIGNED * ALIGNED
        self.end = max(value._offset + value._spec.high for value in values)

    def content(self) -> bytearray:
        import numpy as np

        one = self.values[0]
        span = self.end - self.first
        spec = Spec.of(one._spec.device, dtypes.uint8, (span,))
        raw = interop.to_bytes(call.lay(spec, one._memory, self.first))
        seen = np.zeros(span, dtype=bool)
        for value in self.values:
            places, size = _elements_seen(value._spec), value._spec.dtype.itemsize
            start = value._offset - self.first
            seen[start : start + size * len(places)] |= np.repeat(places, size)
        if not seen.all():
            np.frombuffer(raw, np.uint8)[~seen] = 0
        return raw

    def __reduce__(self) -> Any:
        pool: Any = self.values[0]._spec.device
        dtype = self.values[0]._spec.dtype  # a dtype of the device
        count = -(-(self.end - self.first) // dtype.itemsize)
        raw = bytes(self.content().ljust(count * dtype.itemsize, b"\0"))
        return interop.from_pickle, (raw, dtype, (count,), pool.device.name, False)


class _Sharing(pickle.Pickler):
    def __init__(self, file: Any, groups: dict[int, list[Value]]) -> None:
        super().__init__(file, protocol=4)
        self.memories = {key: _Memory(values) for key, values in groups.items()}

    def reducer_override(self, obj: Any) -> Any:
        storage = _storage_of(obj)
        if storage is None or type(obj) is not call.Handle:
            return NotImplemented
        spec = obj._spec
        leaf = type(obj._node) is Leaf
        memory = self.memories.get(id(storage))
        if memory is None:
            # A bytearray would be pickled as a call and copied by the reader.
            raw = bytes(interop.to_bytes(obj))
            return (
                interop.from_pickle,
                (raw, spec.dtype, spec.shape, spec.device.device.name, leaf),
                interop.noted(obj),
            )
        given = (memory, spec.dtype, spec.shape, spec.strides, obj._offset - memory.first, leaf)
        return interop.from_shared, given, interop.noted(obj)


def _write(obj: Any, file: Any) -> None:
    count = _Counting()
    count.dump(obj)
    _Sharing(file, {key: values for key, values in count.seen.items() if len(values) > 1}).dump(obj)


def replacing(path: str | bytes | os.PathLike[Any], write: Callable[[Any], None]) -> None:
    """Have `write` fill a new file, which replaces `path` when it is complete and on the disk.

    A link is followed to its target. A path that is no ordinary file (a pipe, a device) is written
    to. After an error no other file is left, and the error names the path.
    """
    target = os.path.realpath(os.fsdecode(path))
    old: os.stat_result | None = None
    with contextlib.suppress(FileNotFoundError):
        old = os.stat(target)
    if old is not None and not stat.S_ISREG(old.st_mode):
        with open(target, "wb") as file:
            write(file)
        return
    # The umask applies to the mode given to `open`.
    mode = 0o666 if old is None else stat.S_IMODE(old.st_mode) & 0o777
    folder = os.path.dirname(target)
    temporary = os.path.join(folder, f".rushlight-{os.getpid()}-{secrets.token_hex(8)}.part")
    flags = (
        os.O_WRONLY
        | os.O_CREAT
        | os.O_EXCL
        | getattr(os, "O_NOFOLLOW", 0)
        | getattr(os, "O_BINARY", 0)
    )
    try:
        with open(temporary, "wb", opener=lambda name, _: os.open(name, flags, mode)) as file:
            if old is not None:
                _copy_owner_and_mode(file.fileno(), old, mode)
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        if isinstance(error, OSError) and error.errno and error.filename in (None, temporary):
            raise _naming(target, error) from error
        raise
    _sync_folder(folder)


def _naming(target: str, error: OSError) -> OSError:
    """An error of the temporary file as one of the file that was to be written."""
    why = str(error.strerror)
    if isinstance(error, PermissionError):
        why += " to write a new file in its folder, which would replace it when complete"
    return OSError(error.errno, why, target)


def _sync_folder(folder: str) -> None:
    """Write a folder's names to the disk, where the system can: after a rename, the new one."""
    with contextlib.suppress(OSError):  # Windows opens no folder, some file systems sync none
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _copy_owner_and_mode(handle: int, old: os.stat_result, mode: int) -> None:
    """Give a new file the owner and mode of the old one, as far as that is allowed."""
    if not hasattr(os, "fchmod"):
        return
    made = os.fstat(handle)
    if (made.st_uid, made.st_gid) != (old.st_uid, old.st_gid):
        with contextlib.suppress(OSError):
            os.fchown(handle, old.st_uid, old.st_gid)
    os.fchmod(handle, mode)


def save(
    obj: Any,
    f: Any,
    pickle_module: Any = None,
    pickle_protocol: int = 4,
    _use_new_zipfile_serialization: bool = True,
    _disable_byteorder_record: bool = False,
) -> None:
    """Write tensors in any nesting of containers to a path or a file.

    A path is replaced only when all is written and on the disk: a process that is killed, or a
    machine that stops, leaves the old file or the new one. Tensors that share memory share it again
    when they are loaded; one alone is written without the rest of its memory. The arguments after
    `f` concern PyTorch's own format and are accepted for compatibility.

    Args:
        obj: Tensors, numbers, text and containers of them.
        f (path or file): Where it is written.
        pickle_module (module): Has no effect.
        pickle_protocol (int): Has no effect.
    """
    if hasattr(f, "write"):
        _write(obj, f)
        if hasattr(f, "flush"):  # other processes may open the file before it is closed
            f.flush()
        return
    if not isinstance(f, (str, bytes, os.PathLike)):
        raise AttributeError(
            f"save: a path, or a file with write(), is needed, got {type(f).__name__}"
        )
    replacing(f, lambda file: _write(obj, file))
