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
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rushlight.distributed.environment import Place
from rushlight.distributed.errors import DistributedError
from rushlight.distributed.store import Watch, connect
from rushlight.distributed.transport import MARK_BITS, Polled, Span, below

_FIX = "pip install 'rushlight[distributed]' brings mpi4py and MPICH"
_PATIENCE = 10.0  # seconds for the others while MPI ends
_GROUPS = 1 << 10  # whose messages are told apart; a tag has room for them and for a mark
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
            _unname_memory()
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
        with _without_named_files():
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
    _unname_memory()  # all ranks have opened it, since they made these communicators
    return MPITransport(MPI, made[0], made[1], range(place.size), 0)


@contextlib.contextmanager
def _without_named_files() -> Iterator[None]:
    """UCX, below MPICH, makes no files in /dev/shm, which a process killed meanwhile would leave.

    MPICH shares the memory of a host by itself.
    """
    chosen = "UCX_TLS" not in os.environ
    if chosen:
        os.environ["UCX_TLS"] = "^posix"
    try:
        yield
    finally:
        if chosen:
            os.environ.pop("UCX_TLS", None)


def _unname_memory() -> None:
    """Remove the names of the memory that MPI shares, so that it ends with the last process."""
    with contextlib.suppress(OSError):
        lines = Path("/proc/self/maps").read_text().splitlines()
        for name in {line.split()[-1] for line in lines if "/mpich_shm_" in line}:
            Path(name).unlink(missing_ok=True)


class _Requests(Polled):
    """Requests of MPI; the buffers live as long as they do.

    MPI takes a message that is shorter than its buffer, so `received` has the bytes of each of the
    last requests.
    """

    __slots__ = ("MPI", "requests", "received", "kept", "status", "source")

    def __init__(self, MPI: Any, requests: list[Any], received: list[int], kept: Any) -> None:
        self.MPI = MPI
        self.requests = requests
        self.received = received
        self.kept = kept
        self.status: Any = MPI.Status() if received else None
        self.source = -1

    def done(self) -> bool:
        requests, received, status = self.requests, self.received, self.status
        while received:
            if not requests[-1].Test(status):
                return False
            requests.pop()
            wanted, came = received.pop(), status.Get_count(self.MPI.BYTE)
            self.source = status.Get_source()
            if came != wanted:
                raise RuntimeError(
                    f"rank {self.source} sent {came} bytes where {wanted} were expected"
                )
        while requests:
            if not requests[-1].Test():
                return False
            requests.pop()
        self.kept = None
        return True


class _Relay(Polled):
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
    moves = True
    shares = True

    def __init__(
        self, MPI: Any, together: Any, between: Any, ranks: Sequence[int], number: int
    ) -> None:
        self.MPI = MPI
        self.together = together  # collectives
        self.between = between  # messages from one to one
        self.ranks = list(ranks)
        self.number = number
        self.base = number % _GROUPS << MARK_BITS
        self.rank = self.ranks.index(together.rank)
        self.size = len(self.ranks)
        self.others = [(self.rank + step) % self.size for step in range(1, self.size)]

    def agree(self, make: Callable[[], Any]) -> Any:
        """What rank 0 makes, on all; used once, before there is a store."""
        return self.together.bcast(make() if self.together.rank == 0 else None, 0)

    def _buffer(self, span: Span) -> Any:
        return [self.MPI.buffer.fromaddress(span.address, span.nbytes), self.MPI.BYTE]

    def _send(self, span: Span, to: int, mark: int) -> Any:
        return self.together.Isend(self._buffer(span), self.ranks[to], self.base | mark)

    def _receive(self, span: Span, source: int, mark: int) -> Any:
        return self.together.Irecv(self._buffer(span), self.ranks[source], self.base | mark)

    def exchange(self, sent: Sequence[Span], received: Sequence[Span], mark: int) -> _Requests:
        me = self.rank
        if received[me].nbytes:
            ctypes.memmove(received[me].address, sent[me].address, received[me].nbytes)
        coming = [n for n in self.others if received[n].nbytes]
        taken = [self._receive(received[n], n, mark) for n in coming]
        requests = [self._send(sent[n], n, mark) for n in self.others if sent[n].nbytes]
        sizes = [received[n].nbytes for n in coming]
        return self._requests(requests + taken, sizes, (sent, received))

    def spread(self, sent: Span, received: Sequence[Span], mark: int) -> _Requests:
        return self.exchange([sent] * self.size, received, mark)

    def broadcast(self, span: Span, root: int, mark: int) -> _Relay:
        place = (self.rank - root) % self.size
        targets = below(self.rank, root, self.size)
        above = None
        if place:
            parent = (place - (1 << (place.bit_length() - 1)) + root) % self.size
            above = self._requests([self._receive(span, parent, mark)], [span.nbytes], span)
        return _Relay(
            above, lambda: self._requests([self._send(span, n, mark) for n in targets], [], span)
        )

    def _requests(self, requests: list[Any], received: list[int], kept: Any) -> _Requests:
        return _Requests(self.MPI, requests, received, kept)

    def send(self, span: Span, to: int, tag: int) -> _Requests:
        request = self.between.Isend(self._buffer(span), self.ranks[to], self._tag(tag))
        return self._requests([request], [], span)

    def receive(self, span: Span, source: int, tag: int) -> _Requests:
        given = self.MPI.ANY_SOURCE if source < 0 else self.ranks[source]
        request = self.between.Irecv(self._buffer(span), given, self._tag(tag))
        return self._requests([request], [span.nbytes], span)

    def _tag(self, tag: int) -> int:
        """MPI's tag: the group's number and the caller's."""
        if not 0 <= tag < 1 << 14:
            raise ValueError(f"send: tag {tag} is not between 0 and {(1 << 14) - 1}")
        return self.number % _GROUPS << 14 | tag

    def batch(self) -> contextlib.nullcontext[None]:
        return contextlib.nullcontext()

    def subset(self, ranks: Sequence[int], number: int) -> MPITransport:
        chosen = [self.ranks[rank] for rank in ranks]
        return MPITransport(self.MPI, self.together, self.between, chosen, number)

    def end(self, whole: bool) -> None:
        """Finalise MPI, where all ranks do."""
        if whole:
            _aside("MPI_Finalize").join(_PATIENCE)

    def close(self) -> None:
        """Nothing is held for a group of some ranks."""
