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


class HuggingFaceStorageWriter(FileSystemWriter):
    """A folder that `save` writes as Hugging Face's libraries read it: whole tensors by name.

    Args:
        path (path): The folder.
        fqn_to_index_mapping (dict): The number of the file of each tensor, from 1 on.
        *options: Have no effect.
        **named: Have no effect.
    """

    def __init__(
        self,
        path: str | Path,
        fqn_to_index_mapping: dict[str, int] | None = None,
        *options: Any,
        **named: Any,
    ) -> None:
        super().__init__(path)
        self.numbers = dict(fqn_to_index_mapping or {})


class HuggingFaceStorageReader(FileSystemReader):
    """A folder of safetensors files, as Hugging Face's libraries write it."""


def folder_of(name: str, checkpoint_id: str | Path | None, storage: Any) -> Path:
    """The folder that a call names, by itself or by its reader or writer."""
    if checkpoint_id is not None:
        return Path(checkpoint_id)
    if not isinstance(storage, (FileSystemReader, FileSystemWriter)):
        raise ValueError(
            f"{name}: checkpoint_id= is needed, or a FileSystemReader or FileSystemWriter"
        )
    return storage.path
