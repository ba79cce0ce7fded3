"""NCCL as a transport, through CuPy: bytes in the memory of CUDA cards.

MPI carries what NCCL needs to begin: the identifier that rank 0 makes. Sums are made by the
engine's kernels (Note [Sums of ranks]), so NCCL only moves bytes.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from typing import Any

from rushlight.distributed.environment import Place, local_rank
from rushlight.distributed.errors import DistributedError
from rushlight.distributed.transport import Span, Transport

_BYTE = 1  # ncclUint8


def is_installed() -> bool:
    """Whether CuPy is there, with NCCL."""
    return importlib.util.find_spec("cupy") is not None


def library() -> tuple[Any, Any]:
    """CuPy's CUDA module and its NCCL."""
    try:
        import cupy
        from cupy.cuda import nccl
    except ImportError as error:
        raise DistributedError(
            f"distributed: NCCL is reached through CuPy, which is missing it ({error}). Install "
            "cupy-cuda13x and nvidia-nccl-cu13, or init_process_group('mpi')"
        ) from None
    return cupy.cuda, nccl


def start(place: Place, below: Transport) -> NCCLTransport:
    """A communicator over all ranks, one card each."""
    cuda, nccl = library()
    agree: Callable[[Any], Any] = getattr(below, "agree", lambda make: make())
    cards = cuda.runtime.getDeviceCount()
    seen = getattr(below, "gathered", lambda value: [value])((_host(), local_rank() % cards))
    shared = sorted({card for card in seen if seen.count(card) > 1})
    if shared:
        ranks = [n for n, card in enumerate(seen) if card == shared[0]]
        raise DistributedError(
            f"distributed: ranks {ranks} share card {shared[0][1]} of {shared[0][0]}; NCCL needs a "
            "card for each. Start fewer processes, or init_process_group('mpi'), which copies "
            "through the host",
            ranks[0],
            "init_process_group",
        )
    cuda.Device(local_rank() % cards).use()
    name = agree(nccl.get_unique_id)
    made = nccl.NcclCommunicator(place.size, name, place.rank)
    return NCCLTransport(cuda, nccl, made, place.rank, place.size, below)


def _host() -> str:
    import socket

    return socket.gethostname()


class _Event:
    """Work on a stream; done when the event after it is."""

    def __init__(self, cuda: Any, kept: Any) -> None:
        self.event = cuda.Event(disable_timing=True)
        self.event.record()
        self.kept = kept

    def done(self) -> bool:
        if self.event.done:
            self.kept = None
            return True
        return False


class NCCLTransport:
    """Bytes between CUDA cards."""

    name = "nccl"
    on_host = False

    def __init__(
        self, cuda: Any, nccl: Any, comm: Any, rank: int, size: int, below: Transport
    ) -> None:
        self.cuda, self.nccl, self.comm = cuda, nccl, comm
        self.rank, self.size = rank, size
        self.below = below

    @property
    def _stream(self) -> int:
        pointer: int = self.cuda.get_current_stream().ptr
        return pointer

    def exchange(self, sent: Sequence[Span], received: Sequence[Span]) -> _Event:
        stream = self._stream
        self.nccl.groupStart()
        for n in range(self.size):
            if sent[n].nbytes:
                self.comm.send(sent[n].address, sent[n].nbytes, _BYTE, n, stream)
            if received[n].nbytes:
                self.comm.recv(received[n].address, received[n].nbytes, _BYTE, n, stream)
        self.nccl.groupEnd()
        return _Event(self.cuda, (sent, received))

    def spread(self, sent: Span, received: Sequence[Span]) -> _Event:
        out = [sent] * self.size
        if not received[self.rank].nbytes:
            out[self.rank] = Span(0, 0, None)
        return self.exchange(out, received)

    def broadcast(self, span: Span, root: int) -> _Event:
        self.comm.bcast(span.address, span.nbytes, _BYTE, root, self._stream)
        return _Event(self.cuda, span)

    def send(self, span: Span, to: int, tag: int) -> _Event:
        self.comm.send(span.address, span.nbytes, _BYTE, to, self._stream)
        return _Event(self.cuda, span)

    def receive(self, span: Span, source: int, tag: int) -> _Event:
        if source < 0:
            raise DistributedError("recv: NCCL receives from a rank that is named; give src")
        self.comm.recv(span.address, span.nbytes, _BYTE, source, self._stream)
        return _Event(self.cuda, span)

    def subset(self, ranks: Sequence[int], number: int) -> NCCLTransport:
        inner: Any = self.below.subset(ranks, number)
        name = inner.agree(self.nccl.get_unique_id)
        rank = list(ranks).index(self.rank)
        comm = self.nccl.NcclCommunicator(len(ranks), name, rank)
        return NCCLTransport(self.cuda, self.nccl, comm, rank, len(ranks), inner)

    def close(self) -> None:
        self.comm.destroy()
