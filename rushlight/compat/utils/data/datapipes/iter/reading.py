"""Pipes of files: their paths, the open files, what is in them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from rushlight.compat.utils.data.datapipes._decorator import functional_datapipe
from rushlight.compat.utils.data.datapipes.datapipe import IterDataPipe, no_length
from rushlight.compat.utils.data.datapipes.iter.utils import IterableWrapperIterDataPipe
from rushlight.compat.utils.data.datapipes.utils.common import (
    get_file_binaries_from_pathnames,
    get_file_pathnames_from_root,
)


@functional_datapipe("list_files")
class FileListerIterDataPipe(IterDataPipe[str]):
    """Paths of the files of folders.

    Args:
        root (str, sequence or IterDataPipe): The folders.
        masks (str or list): Patterns of names.
        recursive (bool): Whether folders inside are looked into.
        abspath (bool): Whether paths are absolute.
        non_deterministic (bool): Whether the order may be the system's.
        length (int): What `len` gives; -1 for none.
    """

    def __init__(
        self,
        root: str | Sequence[str] | Any = ".",
        masks: str | list[str] = "",
        *,
        recursive: bool = False,
        abspath: bool = False,
        non_deterministic: bool = False,
        length: int = -1,
    ) -> None:
        roots = [root] if isinstance(root, str) else root
        is_pipe = isinstance(roots, IterDataPipe)
        self.datapipe = roots if is_pipe else IterableWrapperIterDataPipe(roots)
        self.masks, self.recursive, self.abspath = masks, recursive, abspath
        self.non_deterministic, self.length = non_deterministic, length

    def __iter__(self) -> Iterator[str]:
        for root in self.datapipe:
            yield from get_file_pathnames_from_root(
                root, self.masks, self.recursive, self.abspath, self.non_deterministic
            )

    def __len__(self) -> int:
        if self.length == -1:
            raise no_length(self)
        return self.length


@functional_datapipe("open_files")
class FileOpenerIterDataPipe(IterDataPipe[Any]):
    """Pairs of a path and its open file.

    Args:
        datapipe (iterable): The paths.
        mode (str): "r", "rb", "rt", "b" or "t".
        encoding (str): Of text.
        length (int): What `len` gives; -1 for none.
    """

    def __init__(
        self,
        datapipe: Iterable[str],
        mode: str = "r",
        encoding: str | None = None,
        length: int = -1,
    ) -> None:
        if mode not in ("b", "t", "rb", "rt", "r"):
            raise ValueError(f"Invalid mode {mode}")
        if "b" in mode and encoding is not None:
            raise ValueError("binary mode doesn't take an encoding argument")
        self.datapipe, self.mode, self.encoding = datapipe, mode, encoding
        self.length = length

    def __iter__(self) -> Iterator[Any]:
        yield from get_file_binaries_from_pathnames(self.datapipe, self.mode, self.encoding)

    def __len__(self) -> int:
        if self.length == -1:
            raise no_length(self)
        return self.length


@functional_datapipe("read_from_stream")
class StreamReaderIterDataPipe(IterDataPipe[Any]):
    """Pairs of a path and what its open file holds.

    Args:
        datapipe (IterDataPipe): Pairs of a path and an open file.
        chunk (int): How much is read at a time, each in a pair of its own; all without it.
    """

    def __init__(self, datapipe: Any, chunk: int | None = None) -> None:
        self.datapipe, self.chunk = datapipe, chunk

    def __iter__(self) -> Iterator[Any]:
        for path, stream in self.datapipe:
            while True:
                read = stream.read(self.chunk)
                if not read:
                    stream.close()
                    break
                yield path, read
