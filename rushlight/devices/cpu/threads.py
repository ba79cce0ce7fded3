"""The thread pool: a few pthreads that run a kernel's tasks together with the caller.

Its code is in `pool_text`.

# Note [Pool]
1. One job at a time. `busy` is the right to open one; a caller that finds it taken runs its tasks
   alone.
2. `word` is the job's state: generation (from bit 32 on), open (bit 16), active workers (below). A
   worker joins by counting itself in while the job is open; the caller closes the job and then
   waits only for the workers that joined, so a worker that wakes up late costs nothing.
3. Each thread has a fixed range of tasks and takes pieces of it by its counter, then helps with the
   others' ranges. Results do not depend on which thread runs a task.
4. Workers spin for a fifth of a millisecond, then sleep on a condition; `sleepers` tells the caller
   whether to wake them, which it does only for work that outlasts the waking.
5. Workers report their processor. A caller that sees a worker on its own sends it to the others
   before it opens the job: the system may leave the two on one processor forever, since a worker
   never runs for long.
6. Threads start at the first job. After a fork the child has none: all state is cleared and they
   start anew.
"""

from __future__ import annotations

import ctypes
import os
import platform
import sys

from rushlight.core import locks
from rushlight.core.config import thread_count
from rushlight.devices.cpu.native import Source, fill, load
from rushlight.devices.cpu.pool_text import MOST, pool_text

_PTHREADS = (
    "pthread_create",
    "pthread_mutex_lock",
    "pthread_mutex_unlock",
    "pthread_cond_wait",
    "pthread_cond_broadcast",
    "pthread_mutex_init",
    "pthread_cond_init",
)


def _addresses(names: tuple[str, ...]) -> list[int]:
    library = ctypes.CDLL(None)
    return [ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0 for name in names]


class Pool:
    """The loaded pool: the address of run_tasks(kernel, args, tasks, work), and its settings."""

    def __init__(self) -> None:
        family = platform.machine()
        source = Source(f"pool for {family}", lambda: pool_text(family))
        names = ("run_tasks", "reset", "wanted", "pthreads", "linux", "allowed")
        self.run_tasks, reset, wanted, pthreads, linux, allowed = load(source, *names)
        self._wanted = ctypes.c_int64.from_address(wanted)
        self._reset = ctypes.CFUNCTYPE(None)(reset)
        self.threads = sys.platform != "win32"
        if self.threads:
            fill(pthreads, _addresses(_PTHREADS))
            self._track_processors(linux, allowed)
            self._reset()
            os.register_at_fork(after_in_child=self._reset)

    @staticmethod
    def _track_processors(linux: int, allowed: int) -> None:
        """Give the pool what rule 5 needs, where the system has it."""
        names = ("sched_getcpu", "gettid", "sched_setaffinity")
        library = ctypes.CDLL(None)
        if sys.platform != "linux" or not all(hasattr(library, name) for name in names):
            return
        own = os.sched_getaffinity(0)
        if len(own) > 1:
            mask = sum(1 << number for number in own if number < 1024)
            ctypes.memmove(allowed, mask.to_bytes(128, sys.byteorder), 128)
            fill(linux, _addresses(names))

    def want(self, count: int) -> None:
        self._wanted.value = max(1, min(count, MOST)) if self.threads else 1


_pool: Pool | None = None
_LOADING = locks.lock()
_count = 0  # set by the user; 0 takes the configuration's


def count() -> int:
    return _count or thread_count()


def set_count(wanted: int) -> None:
    """Set the number of threads that a large kernel may use."""
    global _count
    if wanted < 1:
        raise ValueError(
            f"set_num_threads: {wanted} threads cannot run anything; ask for 1 or more"
        )
    _count = wanted
    if _pool is not None:
        _pool.want(wanted)


def runner() -> int:
    """The address of run_tasks(kernel, args, tasks, work)."""
    global _pool
    with _LOADING:
        if _pool is None:
            _pool = Pool()
            _pool.want(count())
        return _pool.run_tasks
