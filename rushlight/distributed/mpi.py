"""MPI as a transport, by mpi4py: bytes in host memory.

# Note [Waiting for MPI]
1. Every move is a non-blocking call whose request is tested until it is done, so that a rank that
   died, or a time limit, ends the wait. MPI itself would wait for ever.
2. MPI is never finalised while a rank is missing: that would wait for it. A process that leaves
   with trouble ends without it (`World.leave`).
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rushlight.distributed.environment import Place
from rushlight.distributed.errors import DistributedError
from rushlight.distributed.store import connect
from rushlight.distributed.transport import Span

_FIX = "pip install 'rushlight[distributed]' brings mpi4py and MPICH"
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


def start(place: Place, timeout: float) -> MPITransport:
    """Initialise MPI; a process that no `mpiexec` started joins by Note [Rendezvous]."""
    MPI = library()
    if not MPI.Is_initialized():
        if not place.managed and place.size > 1:
            if MPI.get_vendor()[0] == "Open MPI":
                raise DistributedError(
                    "distributed: Open MPI joins no processes that were started singly; start the "
                    "program by its mpiexec, or install the wheel mpich"
                )
            peer = connect(place.host, place.port, timeout)
            peer.sendall(b"pmi %d\n" % place.rank)
            given = (peer.detach(), place.rank, place.size)
            os.environ.update(zip(_PMI, map(str, given), strict=True))
        MPI.Init_thread(MPI.THREAD_MULTIPLE)
        if not place.managed:
            for name in _PMI:  # children are no members
                os.environ.pop(name, None)
    return MPITransport(MPI, MPI.COMM_WORLD.Dup(), MPI.COMM_WORLD.Dup())


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


class MPITransport:
    """Bytes between the processes of an MPI communicator. See Note [Waiting for MPI]."""

    name = "mpi"
    on_host = True

    def __init__(self, MPI: Any, together: Any, between: Any) -> None:
        self.MPI = MPI
        self.together = together  # collectives
        self.between = between  # messages from one to one
        self.rank = together.rank
        self.size = together.size

    def agree(self, make: Callable[[], Any]) -> Any:
        """What rank 0 makes, on all ranks."""
        return self.together.bcast(make() if self.rank == 0 else None, 0)

    def gathered(self, value: Any) -> list[Any]:
        """Every rank's value."""
        found: list[Any] = self.together.allgather(value)
        return found

    def _buffer(self, span: Span) -> Any:
        return self.MPI.buffer.fromaddress(span.address, span.nbytes)

    def exchange(self, sent: Sequence[Span], received: Sequence[Span]) -> _Requests:
        MPI, comm, me = self.MPI, self.together, self.rank
        if received[me].nbytes:
            self._buffer(received[me])[:] = self._buffer(sent[me])
        others = [(me + step) % self.size for step in range(1, self.size)]
        requests = [
            comm.Irecv([self._buffer(received[n]), MPI.BYTE], n)
            for n in others
            if received[n].nbytes
        ]
        requests += [
            comm.Isend([self._buffer(sent[n]), MPI.BYTE], n) for n in others if sent[n].nbytes
        ]
        return _Requests(requests, (sent, received))

    def spread(self, sent: Span, received: Sequence[Span]) -> _Requests:
        return self.exchange([sent] * self.size, received)

    def broadcast(self, span: Span, root: int) -> _Requests:
        request = self.together.Ibcast([self._buffer(span), self.MPI.BYTE], root)
        return _Requests([request], span)

    def send(self, span: Span, to: int, tag: int) -> _Requests:
        request = self.between.Isend([self._buffer(span), self.MPI.BYTE], to, tag)
        return _Requests([request], span)

    def receive(self, span: Span, source: int, tag: int) -> _Requests:
        given = self.MPI.ANY_SOURCE if source < 0 else source
        request = self.between.Irecv([self._buffer(span), self.MPI.BYTE], given, tag)
        return _Requests([request], span, self.MPI.Status())

    def subset(self, ranks: Sequence[int], number: int) -> MPITransport:
        chosen = self.together.group.Incl(list(ranks))
        made = self.together.Create_group(chosen, number)
        return MPITransport(self.MPI, made, made.Dup())

    def end(self, whole: bool) -> None:
        """Finalise MPI with all ranks, or remove the shared memory that it would have removed."""
        if whole:
            self.MPI.Finalize()
            return
        with contextlib.suppress(OSError):
            lines = Path("/proc/self/maps").read_text().splitlines()
            for name in {line.split()[-1] for line in lines if "/mpich_shm_" in line}:
                Path(name).unlink(missing_ok=True)

    def close(self) -> None:
        self.together.Free()
        self.between.Free()
