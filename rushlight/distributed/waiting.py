"""Waiting for other ranks: until the bytes came, a rank is gone, or the time is over."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from typing import NamedTuple

from rushlight.distributed import environment
from rushlight.distributed.errors import DistributedError
from rushlight.distributed.store import Watch
from rushlight.distributed.transport import Moving

_NAP = 50e-6


class Pace:
    """How long a wait tests without sleep: where processes share cores, another needs the core."""

    FREE, CROWDED = 0.01, 0.0002
    eager = FREE

    @classmethod
    def choose(cls, processes: int) -> None:
        """Set it for a number of processes on this host."""
        cls.eager = cls.CROWDED if processes > environment.core_count() else cls.FREE


class Call(NamedTuple):
    """One call of a collective: its name, its group's name, members and number."""

    name: str
    group: str
    ranks: Sequence[int]
    number: int

    def __str__(self) -> str:
        return f"{self.name} (call {self.number} of group {self.group!r})"


def finish(moving: Moving, call: Call, watch: Watch | None, timeout: float) -> None:
    """Wait for bytes under way. A rank that is gone or late is named by a DistributedError."""
    try:
        if moving.done():
            return
        began = time.monotonic()
        eager = began + (Pace.eager if threading.current_thread() is threading.main_thread() else 0)
        pause, count = os.sched_yield, 0
        while not moving.done():
            count += 1
            if watch is not None and (watch.trouble is not None or watch.left):
                _check(call, watch)
            if count & 63 == 0 or pause is _nap:
                now = time.monotonic()
                if now - began > timeout:
                    raise late(call, watch, timeout)
                if now > eager:
                    pause = _nap
            pause()
    except DistributedError:
        raise
    except RuntimeError as error:  # mpi4py's own
        raise DistributedError(
            f"{call}: MPI refused it: {error}. TORCH_DISTRIBUTED_DEBUG=DETAIL compares the calls "
            "of all ranks",
            collective=call.name,
        ) from error


def _nap() -> None:
    time.sleep(_NAP)


def _check(call: Call, watch: Watch) -> None:
    if watch.trouble is not None:
        rank, why = watch.trouble
        raise DistributedError(f"{call}: rank {rank} is gone: {why}", rank, call.name)
    for rank, made in watch.left.items():
        if rank in call.ranks and made.get(call.group, 0) < call.number:
            raise DistributedError(
                f"{call}: rank {rank} ended its program after {made.get(call.group, 0)} calls",
                rank,
                call.name,
            )


def late(call: Call, watch: Watch | None, timeout: float) -> DistributedError:
    """The error of a call that took too long: who is elsewhere."""
    others = {} if watch is None else watch.places(call.ranks)
    mine = str(call)
    behind = {
        rank: others.get(rank, "it does not answer: stopped, or its machine is gone")
        for rank in call.ranks
        if others.get(rank) != mine
    }
    told = "; ".join(f"rank {rank}: {text}" for rank, text in behind.items())
    return DistributedError(
        f"{call}: not ended within {timeout:g} s. {told or 'All ranks are in it'}",
        next(iter(behind), -1),
        call.name,
    )
