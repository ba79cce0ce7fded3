"""Times of launches by CUDA events before and after each: Note [Marks].

An event is stamped when the GPU reaches it. On an idle GPU that is before the kernel has arrived,
so a short launch shows a few microseconds more than its kernel takes.
"""

from __future__ import annotations

import threading
import time
from typing import Any

from rushlight.core import locks
from rushlight.devices.cuda.driver import DEFAULT_STREAM

WAITING = 1 << 14  # launches whose events wait to be read

Pair = tuple[int, int]


class _Begun(threading.local):
    def __init__(self) -> None:
        self.launches: list[int] = []  # of this thread, that have not ended


class CudaMarks:
    """See Note [Marks]; `runtime` is CuPy's."""

    means = "CUDA events before and after a launch"

    def __init__(self, runtime: Any) -> None:
        self.runtime = runtime
        self.lock = locks.reentrant_lock()
        self.begun = _Begun()
        self.idle: list[int] = []  # events
        self.pairs: list[Pair] = []
        self.known: list[tuple[float, float] | None] = []
        self.depth = 0  # launches that have begun and not ended, of all threads
        self.zero: int = runtime.eventCreate()
        runtime.deviceSynchronize()
        runtime.eventRecord(self.zero, DEFAULT_STREAM)
        runtime.eventSynchronize(self.zero)
        self.clock = time.perf_counter()

    def _event(self) -> int:
        return self.idle.pop() if self.idle else int(self.runtime.eventCreate())

    def begin(self) -> int:
        with self.lock:
            if len(self.pairs) >= WAITING and not self.depth:
                self._take()
            pair = self._event(), self._event()
            self.begun.launches.append(len(self.pairs))
            self.pairs.append(pair)
            self.depth += 1
            self.runtime.eventRecord(pair[0], DEFAULT_STREAM)
            return len(self.known) + len(self.pairs) - 1

    def end(self) -> None:
        with self.lock:
            self.depth -= 1
            pair = self.pairs[self.begun.launches.pop()]
            self.runtime.eventRecord(pair[1], DEFAULT_STREAM)

    def read(self) -> list[tuple[float, float] | None]:
        with self.lock:
            self._take()
            known, self.known = self.known, []
        return known

    def _take(self) -> None:
        runtime = self.runtime
        runtime.deviceSynchronize()
        for begin, end in self.pairs:
            start = self.clock + runtime.eventElapsedTime(self.zero, begin) * 1e-3
            self.known.append((start, start + runtime.eventElapsedTime(begin, end) * 1e-3))
            self.idle += (begin, end)
        self.pairs = []

    def close(self) -> None:
        with self.lock:
            for event in (*[e for pair in self.pairs for e in pair], *self.idle, self.zero):
                self.runtime.eventDestroy(event)
            self.pairs, self.idle = [], []
