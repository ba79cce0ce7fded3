"""Where checkpoints are, under PyTorch's names: readers and writers are folders here."""

from __future__ import annotations

from pathlib import Path
from typing import Any


class FileSystemWriter:
    """A folder that `save` writes.

    Args:
        path (path): The folder.
        *options: Have no effect: each rank writes one file.
        **named: Have no effect.
    """

    def __init__(self, path: str | Path, *options: Any, **named: Any) -> None:
        self.path = Path(path)


class FileSystemReader:
    """A folder that `load` reads.

    Args:
        path (path): The folder.
        *options: Have no effect.
        **named: Have no effect.
    """

    def __init__(self, path: str | Path, *options: Any, **named: Any) -> None:
        self.path = Path(path)


def folder_of(name: str, checkpoint_id: str | Path | None, storage: Any) -> Path:
    """The folder that a call names, by itself or by its reader or writer."""
    if checkpoint_id is not None:
        return Path(checkpoint_id)
    if not isinstance(storage, (FileSystemReader, FileSystemWriter)):
        raise ValueError(
            f"{name}: checkpoint_id= is needed, or a FileSystemReader or FileSystemWriter"
        )
    return storage.path
