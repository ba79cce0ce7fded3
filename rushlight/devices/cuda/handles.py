"""Handles of CUDA's libraries: one for each thread, as a library wants it."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Holder:
    """A thread's handle. When the thread ends, the next thread reuses it: making one is slow."""

    def __init__(self, handle: int, free: list[int]) -> None:
        self.handle = handle
        self.free = free

    def __del__(self) -> None:
        self.free.append(self.handle)


class Handles:
    """`current()` is the calling thread's handle, which `make` makes.

    `bind` makes the context current on this thread: always in a process with `several` cards.
    """

    def __init__(self, make: Callable[[], int], bind: Callable[[], object], several: bool) -> None:
        self.make = make
        self.bind = bind
        self.several = several
        self.local = threading.local()
        self.free: list[int] = []

    def current(self) -> int:
        holder: Holder | None = getattr(self.local, "holder", None)
        if holder is None or self.several:
            self.bind()
        if holder is None:
            made = self.free.pop() if self.free else self.make()
            holder = self.local.holder = Holder(made, self.free)
        return holder.handle
