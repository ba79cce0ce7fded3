"""Checks of the functions that pipes call, and open files."""

from __future__ import annotations

import fnmatch
import functools
import inspect
import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any


def validate_input_col(fn: Callable[..., Any], input_col: Any) -> None:
    """A ValueError where a function does not take as many columns.

    Args:
        fn (callable): The function.
        input_col (key, list or tuple): The columns; None is the whole sample.
    """
    count = len(input_col) if isinstance(input_col, (list, tuple)) else 1
    try:
        signature = inspect.signature(fn)
    except (TypeError, ValueError):  # a builtin tells nothing
        return
    try:
        signature.bind(*[None] * count)
    except TypeError as error:
        name = getattr(fn, "__name__", repr(fn))
        raise ValueError(f"{name} does not take {count} columns: {error}") from None


def _is_local_fn(fn: Any) -> bool:
    """Whether a function was made inside of another."""
    return "<locals>" in getattr(fn, "__qualname__", "")


def _check_unpickable_fn(fn: Callable[..., Any]) -> None:
    """A warning where a function cannot be sent to a worker."""
    if not callable(fn):
        raise TypeError(f"A callable function is expected, but {type(fn)} is provided.")
    inner = fn.func if isinstance(fn, functools.partial) else fn
    local = _is_local_fn(inner)
    if local or getattr(inner, "__name__", "") == "<lambda>":
        warnings.warn(
            f"{'A local function' if local else 'A lambda'} cannot be pickled, so it reaches no "
            "worker process that does not begin as a fork; use a function of a module",
            UserWarning,
            stacklevel=4,
        )


def match_masks(name: str, masks: str | list[str]) -> bool:
    """Whether a name matches one of the patterns; no pattern matches all.

    Args:
        name (str): The name.
        masks (str or list): Patterns of `fnmatch`.
    """
    every = [masks] if isinstance(masks, str) else masks
    return not masks or any(fnmatch.fnmatch(name, mask) for mask in every)


def get_file_pathnames_from_root(
    root: str,
    masks: str | list[str],
    recursive: bool = False,
    abspath: bool = False,
    non_deterministic: bool = False,
) -> Iterable[str]:
    """The paths of the files of a folder, by name.

    Args:
        root (str): The folder, or a file.
        masks (str or list): Patterns of names.
        recursive (bool): Whether folders inside are looked into.
        abspath (bool): Whether paths are absolute.
        non_deterministic (bool): Whether the order may be the system's.
    """

    def broken(error: OSError) -> None:
        warnings.warn(f"{error.filename}: {error.strerror}", stacklevel=2)
        raise error

    if os.path.isfile(root):
        path = os.path.abspath(root) if abspath else root
        if match_masks(os.path.basename(path), masks):
            yield path
        return
    for folder, folders, files in os.walk(root, onerror=broken):
        where = os.path.abspath(folder) if abspath else folder
        if not non_deterministic:
            files.sort()
            folders.sort()
        for name in files:
            if match_masks(name, masks):
                yield os.path.join(where, name)
        if not recursive:
            break


def get_file_binaries_from_pathnames(
    pathnames: Iterable[str], mode: str, encoding: str | None = None
) -> Iterator[tuple[str, StreamWrapper]]:
    """Paths and open files.

    Args:
        pathnames (iterable): The paths.
        mode (str): As `open` takes it.
        encoding (str): As `open` takes it.
    """
    way = f"r{mode}" if mode in ("b", "t") else mode
    for path in [pathnames] if isinstance(pathnames, str) else pathnames:
        if not isinstance(path, str):
            raise TypeError(f"Expected string type for pathname, but got {type(path)}")
        yield path, StreamWrapper(open(path, way, encoding=encoding), name=path)  # noqa: SIM115


class StreamWrapper:
    """An open file or stream, which is closed when nobody holds it.

    Args:
        file_obj (file): The file.
        parent_stream (StreamWrapper): One that stays open as long.
        name (str): What its text shows.
    """

    def __init__(self, file_obj: Any, parent_stream: Any = None, name: str | None = None) -> None:
        if parent_stream is not None and not isinstance(parent_stream, StreamWrapper):
            raise RuntimeError(
                f"Parent stream should be StreamWrapper, {type(parent_stream)} was given"
            )
        self.file_obj = file_obj
        self.parent_stream = parent_stream
        self.name = name
        self.closed = False

    @classmethod
    def close_streams(cls, v: Any, depth: int = 0) -> None:
        """Close the streams in lists, tuples and dicts.

        Args:
            v: A stream or a container.
            depth (int): How deep it lies; no more than ten.
        """
        if depth > 10:
            return
        if isinstance(v, StreamWrapper):
            v.close()
        elif isinstance(v, dict):
            for inner in v.values():
                cls.close_streams(inner, depth + 1)
        elif isinstance(v, (list, tuple)):
            for inner in v:
                cls.close_streams(inner, depth + 1)

    def close(self) -> None:
        """Close it; once."""
        if not self.closed:
            self.closed = True
            self.file_obj.close()

    def autoclose(self) -> None:
        """Close it: nothing is counted here."""
        self.close()

    def __getattr__(self, name: str) -> Any:
        if name == "file_obj":
            raise AttributeError(name)
        return getattr(self.file_obj, name)

    def __del__(self) -> None:
        if "file_obj" in self.__dict__:
            self.close()

    def __iter__(self) -> Iterator[Any]:
        yield from self.file_obj

    def __next__(self) -> Any:
        return next(self.file_obj)

    def __repr__(self) -> str:
        return f"StreamWrapper<{self.file_obj if self.name is None else self.name}>"
