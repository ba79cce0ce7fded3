"""The disk cache of built code, a folder per device.

It is machine code that will run, so it is read only from where no other user can write.

# Note [Kernel cache]
1. The folder and the device's folder in it belong to this user, are no links, and no other user may
   write to them. This is checked once per process. Otherwise nothing is read or written, with one
   warning.
2. An entry is an ordinary file of this user that no other user may write to, checked each time:
   whoever may rename folders above can only put this user's own files there. It is opened without
   following links or blocking, so that a pipe in its place does not stop the program.
3. It begins with a version and its key, and has a hash of device, key and code. An entry that does
   not match is built again and replaced, with one warning per process.
4. It is written beside its place and renamed when complete. A disk that refuses only costs time at
   the next start.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import tempfile
import warnings
from pathlib import Path

from rushlight.core.config import cache_folder
from rushlight.core.errors import RushlightWarning

VERSION = b"rushlight kernel 1\n"
_HASH_BYTES = 32
_FLAGS = (
    os.O_RDONLY
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_BINARY", 0)
)
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH

# Folders checked; None where one is not safe.
_folders: dict[tuple[Path, str], str | None] = {}
_said: set[str] = set()


def read_object(device: str, key: str) -> bytes | None:
    """The code stored under `key`, if it is there and intact."""
    folder = _folder(device)
    if folder is None:
        return None
    path = f"{folder}/{key}.kernel"
    try:
        handle = os.open(path, _FLAGS)
    except FileNotFoundError:
        return None
    except OSError as error:
        _say("entry", f"{path} cannot be read ({error.strerror}); its kernel is built again")
        return None
    found = os.fstat(handle)
    if not stat.S_ISREG(found.st_mode) or not _is_own(found):
        os.close(handle)
        _say(
            "entry",
            f"{path} is not a file that only this user can write to; its kernel is built again",
        )
        return None
    with open(handle, "rb", buffering=0) as file:
        content = file.readall()
    begin = _header(key)
    start = len(begin) + _HASH_BYTES
    code = content[start:]
    if not code or content[:start] != begin + _digest(device, key, code):
        _say("entry", f"{path} is damaged; its kernel is built again")
        return None
    return code


def write_object(device: str, key: str, code: bytes) -> None:
    """Store code."""
    folder = _folder(device)
    if folder is None:
        return
    try:
        handle, temporary = tempfile.mkstemp(dir=folder, suffix=".part")
    except FileNotFoundError:
        _folders.clear()  # somebody removed the folder: made again at the next call
        return
    except OSError:
        return
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(_header(key) + _digest(device, key, code) + code)
        os.replace(temporary, f"{folder}/{key}.kernel")
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        if not isinstance(error, OSError):
            raise


def _header(key: str) -> bytes:
    return VERSION + key.encode() + b"\n"


def _digest(device: str, key: str, code: bytes) -> bytes:
    return hashlib.sha256(b"\n".join((device.encode(), key.encode(), code))).digest()


def _say(what: str, message: str) -> None:
    """Warn, once per process."""
    if what not in _said:
        _said.add(what)
        warnings.warn(f"kernel cache: {message}", RushlightWarning, stacklevel=3)


def _folder(device: str) -> str | None:
    """The folder of a device's code, made if necessary.

    None where there is none or it is not safe.
    """
    base = cache_folder()
    if base is None:
        return None
    known = _folders.get((base, device), "")
    if known == "":
        known = _folders[base, device] = _checked_folder(base, device)
    return known


def _checked_folder(base: Path, device: str) -> str | None:
    folder = base / device
    try:
        base.parent.mkdir(parents=True, exist_ok=True)
        for part in (base, folder):
            part.mkdir(mode=0o700, exist_ok=True)
            found = os.lstat(part)
            if not stat.S_ISDIR(found.st_mode) or not _is_own(found):
                _say_unused(part, "it is a link, not this user's, or others may write to it")
                return None
        if stat.S_IMODE(found.st_mode) != 0o700:
            os.chmod(folder, 0o700)
    except OSError:  # a read-only disk: entries that are there are read
        return str(folder) if folder.is_dir() else None
    return str(folder)


def _say_unused(folder: Path, why: str) -> None:
    _say(
        "folder",
        f"{folder} is not used: {why}. Kernels are built anew in each process; make it private "
        f"(chmod 700), or set RUSHLIGHT_CACHE to a folder of your own or to 'off'",
    )


def _is_own(found: os.stat_result) -> bool:
    """Whether a path belongs to this user and no other user may write to it."""
    if not hasattr(os, "geteuid"):  # systems whose permissions are not modes
        return True
    return found.st_uid == os.geteuid() and not found.st_mode & _OTHERS_WRITE
