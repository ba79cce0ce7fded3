"""NCCL as a transport, through CuPy: bytes in the memory of CUDA cards.

The store carries what NCCL needs to begin: the identifier that a group's first rank makes. Sums are
made by the engine's kernels (Note [Sums of ranks]), so NCCL only moves bytes.
"""

from __future__ import annotations

import contextlib
import importlib.util
import socket
from collections.abc import Iterator, Sequence
from typing import Any

from rushlight.distributed.environment import Place, local_rank
from rushlight.distributed.errors import DistributedError
from rushlight.distributed.stores import Store
from rushlight.distributed.transport import Polled, Span

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


def start(place: Place, store: Store | None, number: int) -> NCCLTransport:
    """A communicator over all ranks, one card each."""
    cuda, nccl = library()
    card = local_rank() % cuda.runtime.getDeviceCount()
    if store is not None:
        store.set(f"card/{number}/{place.rank}", f"{socket.gethostname()} {card}")
        seen = [store.get(f"card/{number}/{rank}").decode() for rank in range(place.size)]
        shared = [rank for rank in range(place.size) if seen.count(seen[rank]) > 1]
        if shared:
            host, which = seen[shared[0]].split()
            ranks = [rank for rank in shared if seen[rank] == seen[shared[0]]]
            raise DistributedError(
                f"distributed: ranks {ranks} share card {which} of {host}; NCCL needs a card for "
                "each. Start fewer processes, or init_process_group('mpi'), which copies through "
                "the host",
                ranks[0],
                "init_process_group",
            )
    cuda.Device(card).use()
    return NCCLTransport(cuda, nccl, store, range(place.size), place.rank, number)


class _Event(Polled):
    """Work on a stream; done when the event after it is."""

    def __init__(self, cuda: Any, kept: Any) -> None:
        self.event = cuda.Event(disable_timing=True)
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
    moves = True
    shares = False

    def __init__(
        self,
        cuda: Any,
        nccl: Any,
        store: Store | None,
        ranks: Sequence[int],
        world_rank: int,
        number: int,
    ) -> None:
        self.cuda, self.nccl, self.store = cuda, nccl, store
        self.ranks, self.world_rank = list(ranks), world_rank
        self.rank, self.size = self.ranks.index(world_rank), len(self.ranks)
        self.held: list[_Event] | None = None  # begun in `batch`
        self.comm = nccl.NcclCommunicator(self.size, self._identifier(number), self.rank)

    def _identifier(self, number: int) -> bytes | tuple[int, ...]:
        """What the group's first rank made, on all: bytes, or numbers before CuPy 14."""
        key = f"nccl/{number}"
        if self.rank == 0:
            made: bytes | tuple[int, ...] = self.nccl.get_unique_id()
            if self.store is None or self.size == 1:
                return made
            self.store.set(key, " ".join(map(str, (type(made).__name__, *made))))
        assert self.store is not None
        kind, *words = self.store.get(key).decode().split()
        numbers = [int(word) for word in words]
        return bytes(numbers) if kind == "bytes" else tuple(numbers)

    @contextlib.contextmanager
    def batch(self) -> Iterator[None]:
        self.held = []
        self.nccl.groupStart()
        try:
            yield
        finally:
            self.nccl.groupEnd()
            held, self.held = self.held, None
            for one in held:  # before the end nothing is on the stream
                one.event.record()

    def _begun(self, kept: Any) -> _Event:
        made = _Event(self.cuda, kept)
        if self.held is None:
            made.event.record()
        else:
            self.held.append(made)
        return made

    @property
    def _stream(self) -> int:
        pointer: int = self.cuda.get_current_stream().ptr
        return pointer

    def exchange(self, sent: Sequence[Span], received: Sequence[Span], mark: int) -> _Event:
        stream = self._stream
        with self.batch():
            for n in range(self.size):
                if sent[n].nbytes:
                    self.comm.send(sent[n].address, sent[n].nbytes, _BYTE, n, stream)
                if received[n].nbytes:
                    self.comm.recv(received[n].address, received[n].nbytes, _BYTE, n, stream)
        return self._begun((sent, received))

    def spread(self, sent: Span, received: Sequence[Span], mark: int) -> _Event:
        out = [sent] * self.size
        if not received[self.rank].nbytes:
            out[self.rank] = Span(0, 0, None)
        return self.exchange(out, received, mark)

    def broadcast(self, span: Span, root: int, mark: int) -> _Event:
        self.comm.bcast(span.address, span.nbytes, _BYTE, root, self._stream)
        return self._begun(span)

    def send(self, span: Span, to: int, tag: int) -> _Event:
        self.comm.send(span.address, span.nbytes, _BYTE, to, self._stream)
        return self._begun(span)

    def receive(self, span: Span, source: int, tag: int) -> _Event:
        if source < 0:
            raise DistributedError("recv: NCCL receives from a rank that is named; give src")
        self.comm.recv(span.address, span.nbytes, _BYTE, source, self._stream)
        return self._begun(span)

    def subset(self, ranks: Sequence[int], number: int) -> NCCLTransport:
        chosen = [self.ranks[rank] for rank in ranks]
        return NCCLTransport(self.cuda, self.nccl, self.store, chosen, self.world_rank, number)

    def close(self) -> None:
        self.comm.destroy()
