"""Bounded caches of results of specs, sizes and static arguments: plans, programs, ops.

A full cache is cleared, so a program with ever new shapes does not fill memory. All of them are
cleared when the default dtype changes, on which the promotion of integers depends.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

from rushlight.core.dtypes import when_default_changes

T = TypeVar("T")


class Cache(dict[Any, Any]):
    """A table of at most `MOST` entries."""

    __slots__ = ("__weakref__",)

    MOST: ClassVar[int] = 2048  # a training step with fixed shapes has some dozens
    every: ClassVar[dict[int, weakref.ref[Cache]]] = {}

    def __init__(self) -> None:
        key = id(self)
        # What takes it out again is no Python code, in which Ctrl-C would be lost.
        Cache.every[key] = weakref.ref(self, functools.partial(Cache.every.pop, key))

    def keep(self, key: Any, made: T) -> T:
        """Store an entry."""
        if len(self) >= Cache.MOST:
            self.clear()
        self[key] = made
        return made


def cached(function: Callable[..., T]) -> Callable[..., T]:
    """The function, its results kept in a cache by its positional arguments."""
    known = Cache()

    @functools.wraps(function)
    def call(*args: Any) -> T:
        found: Any = known.get(args, known)
        return known.keep(args, function(*args)) if found is known else found

    return call


def forget() -> None:
    """Empty every cache."""
    for known in list(Cache.every.values()):
        cache = known()
        if cache is not None:
            cache.clear()


when_default_changes.append(forget)
