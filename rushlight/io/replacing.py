"""Files that are replaced when the new one is complete and on the disk."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Callable
from typing import Any


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
