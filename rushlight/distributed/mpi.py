"""MPI as a transport, by mpi4py: bytes in host memory.

# Note [Waiting for MPI]
1. Every move is a non-blocking call whose request is tested until it is done, so that a rank that
   died, or a time limit, ends the wait. MPI itself would wait for ever.
2. Groups of some ranks are numbers that mark their messages, so making one waits for nobody.
3. What MPI does only while it waits, to begin and to end, runs in a thread that can be left
   behind. MPI is not finalised while a rank is missing (`World.leave`).
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rushlight.distributed.environment import Place
from rushlight.distributed.errors import DistributedError
from rushlight.distributed.store import Watch, connect
from rushlight.distributed.transport import Span

_FIX = "pip install 'rushlight[distributed]' brings mpi4py and MPICH"
_PATIENCE = 10.0  # seconds for the others while MPI ends
_PMI = ("PMI_FD", "PMI_RANK", "PMI_SIZE")


def is_installed() -> bool:
    """Whether mpi4py is there."""
    return importlib.util.find_spec("mpi4py") is not None


def library() -> Any:
    """The module `mpi4py.MPI`, which is not initialised by its import."""
    try:
        import mpi4py
    except ImportError:
        raise DistributedError(f"distributed: mpi4py is not installed. {_FIX}") from None
    mpi4py.rc.initialize = False
    mpi4py.rc.finalize = False
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise DistributedError(f"distributed: there is no MPI library ({error}). {_FIX}") from None
    return MPI


def host_name() -> str:
    """The name by which other hosts reach this one; a single host reaches itself by number."""
    name = socket.gethostname()
    try:
        return socket.gethostbyname(name)
    except OSError:
        return "127.0.0.1"


def _loaded() -> Any:
    """The MPI library that mpi4py loaded."""
    lines = Path("/proc/self/maps").read_text().splitlines() if sys.platform == "linux" else []
    names = {line.split()[-1] for line in lines if "/libmpi" in line}
    return ctypes.CDLL(min(names, key=len) if names else None)


def _aside(function: str, *arguments: Any) -> threading.Thread:
    """Call MPI in a thread, without Python's lock, which mpi4py's own calls of it would keep."""
    call = getattr(_loaded(), function)
    thread = threading.Thread(target=call, args=arguments, name=function, daemon=True)
    thread.start()
    return thread


def _begin(done: Callable[[], bool], watch: Watch | None, timeout: float) -> None:
    """Wait while MPI begins; a rank that dies meanwhile ends the wait."""
    until = time.monotonic() + timeout
    while not done():
        trouble = None if watch is None else watch.trouble
        rank, why = trouble or (-1, f"MPI did not begin within {timeout:g} s")
        if trouble is not None or time.monotonic() > until:
            who = f"rank {rank} is gone: " if rank >= 0 else ""
            raise DistributedError(f"init_process_group: {who}{why}", rank, "init_process_group")
        time.sleep(0.001)


def start(place: Place, timeout: float, watch: Watch | None = None) -> MPITransport:
    """Initialise MPI; a process that no `mpiexec` started joins by Note [Rendezvous]."""
    MPI = library()
    if not MPI.Is_initialized():
        if not place.managed:
            if MPI.get_vendor()[0] == "Open MPI":
                raise DistributedError(
                    "distributed: Open MPI joins no processes that were started singly; start the "
                    "program by its mpiexec, or install the wheel mpich"
                )
            peer = connect(place.host, place.port, timeout)
            peer.sendall(b"pmi %d\n" % place.rank)
            given = (peer.detach(), place.rank, place.size)
            os.environ.update(zip(_PMI, map(str, given), strict=True))
        level = ctypes.byref(ctypes.c_int())
        thread = _aside("MPI_Init_thread", None, None, MPI.THREAD_MULTIPLE, level)
        _begin(lambda: not thread.is_alive(), watch, timeout)
        if not place.managed:
            for name in _PMI:  # children are no members
                os.environ.pop(name, None)
        for comm in (MPI.COMM_WORLD, MPI.COMM_SELF):
            comm.Set_errhandler(MPI.ERRORS_RETURN)
    made = []
    for _ in range(2):
        comm, request = MPI.COMM_WORLD.Idup()
        _begin(request.Test, watch, timeout)
        made.append(comm)
    return MPITransport(MPI, made[0], made[1], range(place.size), 0)


class _Requests:
    """Requests of MPI; the buffers live as long as they do."""

    __slots__ = ("requests", "kept", "status", "source")

    def __init__(self, requests: list[Any], kept: Any, status: Any = None) -> None:
        self.requests = requests
        self.kept = kept
        self.status = status
        self.source = -1

    def done(self) -> bool:
        requests = self.requests
        while requests:
            if not requests[-1].Test(self.status):
                return False
            requests.pop()
        if self.status is not None:
            self.source = self.status.Get_source()
        self.kept = None
        return True


class _Relay:
    """A broadcast on its way: received from above, then sent to those below."""

    __slots__ = ("above", "start", "below")

    def __init__(self, above: _Requests | None, start: Callable[[], _Requests]) -> None:
        self.above = above
        self.start = start
        self.below: _Requests | None = None

    def done(self) -> bool:
        if self.below is None:
            if self.above is not None and not self.above.done():
                return False
            self.below = self.start()
        return self.below.done()


class MPITransport:
    """Bytes between some processes of the MPI world. See Note [Waiting for MPI]."""

    name = "mpi"
    on_host = True

    def __init__(
        self, MPI: Any, together: Any, between: Any, ranks: Sequence[int], number: int
    ) -> None:
        self.MPI = MPI
        self.together = together  # collectives
        self.between = between  # messages from one to one
        self.ranks = list(ranks)
        self.number = number
        self.rank = self.ranks.index(together.rank)
        self.size = len(self.ranks)

    def agree(self, make: Callable[[], Any]) -> Any:
        """What rank 0 makes, on all; used once, before there is a store."""
        return self.together.bcast(make() if self.together.rank == 0 else None, 0)

    def _buffer(self, span: Span) -> Any:
        return [self.MPI.buffer.fromaddress(span.address, span.nbytes), self.MPI.BYTE]

    def _send(self, span: Span, to: int) -> Any:
        return self.together.Isend(self._buffer(span), self.ranks[to], self.number)

    def _receive(self, span: Span, source: int) -> Any:
        return self.together.Irecv(self._buffer(span), self.ranks[source], self.number)

    def exchange(self, sent: Sequence[Span], received: Sequence[Span]) -> _Requests:
        me = self.rank
        if received[me].nbytes:
            ctypes.memmove(received[me].address, sent[me].address, received[me].nbytes)
        others = [(me + step) % self.size for step in range(1, self.size)]
        requests = [self._receive(received[n], n) for n in others if received[n].nbytes]
        requests += [self._send(sent[n], n) for n in others if sent[n].nbytes]
        return _Requests(requests, (sent, received))

    def spread(self, sent: Span, received: Sequence[Span]) -> _Requests:
        return self.exchange([sent] * self.size, received)

    def broadcast(self, span: Span, root: int) -> _Relay:
        """By a binomial tree: rank n, counted from the root, has it from n without its top bit."""
        place, size = (self.rank - root) % self.size, self.size
        first = place.bit_length()
        below = [place + (1 << bit) for bit in range(first, size.bit_length())]
        targets = [(n + root) % size for n in reversed(below) if n < size]
        above = None
        if place:
            parent = (place - (1 << (first - 1)) + root) % size
            above = _Requests([self._receive(span, parent)], span)
        return _Relay(above, lambda: _Requests([self._send(span, n) for n in targets], span))

    def send(self, span: Span, to: int, tag: int) -> _Requests:
        request = self.between.Isend(self._buffer(span), self.ranks[to], self._tag(tag))
        return _Requests([request], span)

    def receive(self, span: Span, source: int, tag: int) -> _Requests:
        given = self.MPI.ANY_SOURCE if source < 0 else self.ranks[source]
        request = self.between.Irecv(self._buffer(span), given, self._tag(tag))
        return _Requests([request], span, self.MPI.Status())

    def _tag(self, tag: int) -> int:
        """MPI's tag: the group's number and the caller's."""
        if not 0 <= tag < 1 << 14:
            raise ValueError(f"send: tag {tag} is not between 0 and {(1 << 14) - 1}")
        return self.number % (1 << 10) << 14 | tag

    def subset(self, ranks: Sequence[int], number: int) -> MPITransport:
        chosen = [self.ranks[rank] for rank in ranks]
        return MPITransport(self.MPI, self.together, self.between, chosen, number)

    def end(self, whole: bool) -> None:
        """Finalise MPI with all ranks, or remove the shared memory that it would have removed."""
        if whole:
            _aside("MPI_Finalize").join(_PATIENCE)
            return
        with contextlib.suppress(OSError):
            lines = Path("/proc/self/maps").read_text().splitlines()
            for name in {line.split()[-1] for line in lines if "/mpich_shm_" in line}:
                Path(name).unlink(missing_ok=True)

    def close(self) -> None:
        """Nothing is held for a group of some ranks."""
