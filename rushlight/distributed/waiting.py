"""Waiting for other ranks: until the bytes came, a rank is gone, or the time is over."""

from __future__ import annotations

import os
import threading
import time
import zlib
from collections.abc import Sequence
from typing import NamedTuple

from rushlight.distributed import environment
from rushlight.distributed.errors import DistributedError
from rushlight.distributed.store import RAISED, Watch
from rushlight.distributed.transport import MARK_BITS, Moving

_LOOK = 1.0  # seconds until others are first asked which call they are in


class Pace:
    """How long a wait tests without sleep: where processes share cores, another needs the core.

    A wait that the other rank ends at once takes a share of it (`Moving.eager`).
    """

    FREE, CROWDED = 0.01, 0.0002
    eager = FREE

    @classmethod
    def choose(cls, processes: int) -> None:
        """Set it for a number of processes on this host."""
        cls.eager = cls.CROWDED if processes > environment.core_count() else cls.FREE


class Call(NamedTuple):
    """One call of a collective: its name, its group's name, members and number, its operands."""

    name: str
    group: str
    ranks: Sequence[int]
    number: int
    shape: str = ""
    mark: int = 0  # of its messages

    def __str__(self) -> str:
        shape = f"({self.shape})" if self.shape else ""
        return f"{self.name}{shape} (call {self.number} of group {self.group!r})"


def marked(text: str) -> int:
    """A number below `1 << MARK_BITS` for a text, the same in every process."""
    return zlib.crc32(text.encode()) & (1 << MARK_BITS) - 1


def finish(moving: Moving, call: Call, watch: Watch | None, timeout: float) -> None:
    """Wait for bytes under way. A rank that is gone or late is named by a DistributedError."""
    try:
        if moving.done():
            return
        began = time.monotonic()
        in_main = threading.current_thread() is threading.main_thread()
        eager = began + (Pace.eager * moving.eager if in_main else 0)
        rest = moving.rest
        pause, count = os.sched_yield, 0
        wait = _LOOK
        look = began + wait
        while not moving.done():
            count += 1
            if watch is not None and (watch.trouble is not None or watch.left):
                _check(call, watch)
            if count & 63 == 0 or pause is rest:
                now = time.monotonic()
                if now - began > timeout:
                    raise late(call, watch, timeout)
                if now > eager:
                    pause = rest
                if now > look:
                    wait *= 2
                    look = now + wait
                    _compare(call, watch)
            pause()
    except DistributedError:
        raise
    except RuntimeError as error:  # of MPI, or of a message's size
        raise DistributedError(
            f"{call}: {error}. TORCH_DISTRIBUTED_DEBUG=DETAIL compares the calls of all ranks",
            collective=call.name,
        ) from error


def _compare(call: Call, watch: Watch | None) -> None:
    """Ask the others which call they made; messages of two calls never meet (`Call.mark`)."""
    if watch is None or not call.number:
        return
    made = watch.places(call.ranks, call.group, call.number)
    for rank, where in made.items():
        if where.mark == RAISED:
            raise DistributedError(f"{call}: rank {rank}: {where.text}", rank, call.name)
    known = {rank: where for rank, where in made.items() if where.mark >= 0}
    if any(where.mark != call.mark for where in known.values()):
        raise differing(call, {rank: where.text for rank, where in known.items()})


def differing(call: Call, told: dict[int, str]) -> DistributedError:
    """The error of ranks that made different calls; the odd one is to blame."""
    texts = list(told.values())
    usual = max(texts, key=texts.count)
    odd = next((rank for rank in told if told[rank] != usual), -1)
    shown = "; ".join(f"rank {rank}: {text}" for rank, text in sorted(told.items()))
    return DistributedError(f"{call}: the ranks' calls differ: {shown}", odd, call.name)


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
    others = {} if watch is None else watch.places(call.ranks, call.group, call.number)
    mine = str(call)
    # Those that answered come first: one that does not may have raised this very error already.
    elsewhere = {
        rank: others[rank].text
        for rank in call.ranks
        if rank in others and others[rank].text != mine
    }
    silent = [rank for rank in call.ranks if rank not in others]
    behind = elsewhere | dict.fromkeys(
        silent, "it does not answer: stopped, or its machine is gone"
    )
    told = "; ".join(f"rank {rank}: {text}" for rank, text in behind.items())
    return DistributedError(
        f"{call}: not ended within {timeout:g} s. {told or 'All ranks are in it'}",
        next(iter(behind), -1),
        call.name,
    )
