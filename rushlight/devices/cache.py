"""Built code on disk, a folder per device. A file is its content's hash and the content; others are ignored."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

from rushlight.core.config import cache_folder

HASH_BYTES = 32


def _path(device: str, key: str) -> Path | None:
    folder = cache_folder()
    return None if folder is None else folder / device / f"{key}.o"


def read_object(device: str, key: str) -> bytes | None:
    """The code kept under `key`, if it is there and whole."""
    path = _path(device, key)
    if path is None:
        return None
    try:
        content = path.read_bytes()
    except OSError:
        return None
    digest, code = content[:HASH_BYTES], content[HASH_BYTES:]
    return code if code and hashlib.sha256(code).digest() == digest else None


def write_object(device: str, key: str, code: bytes) -> None:
    """Keep code; a disk that refuses only costs time at the next start."""
    path = _path(device, key)
    if path is None:
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.chmod(path.parent, 0o700)
        handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".part")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(hashlib.sha256(code).digest() + code)
            os.replace(temporary, path)
        except OSError:
            os.unlink(temporary)
    except OSError:
        return
