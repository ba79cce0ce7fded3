"""The NCCL transport against a stand-in of CuPy's library: threads are ranks, on the host."""

from __future__ import annotations

import ctypes
import queue
import sys
import threading
from collections import defaultdict
from typing import Any

import pytest

import rushlight
from rushlight.distributed import DistributedError, ReduceOp, messages, nccl
from rushlight.distributed.collectives import reduced, span
from rushlight.distributed.counting import Traffic, traffic
from rushlight.distributed.environment import Place
from rushlight.distributed.nccl import NCCLTransport
from rushlight.distributed.process_groups import Line, ProcessGroup, World
from rushlight.distributed.waiting import Call
from rushlight.tape.record.state import no_grad


class Messages:
    """What is under way between ranks."""

    def __init__(self) -> None:
        self.boxes: dict[Any, queue.Queue[bytes]] = defaultdict(queue.Queue)


class FakeNccl:
    """`cupy.cuda.nccl` of one rank: calls between groupStart and groupEnd run together."""

    def __init__(self, messages: Messages, identifier: type = tuple) -> None:
        self.messages = messages
        self.identifier = identifier(range(128))  # numbers before CuPy 14, bytes since
        self.pending: list[Any] | None = None

    def get_unique_id(self) -> bytes | tuple[int, ...]:
        return self.identifier

    def groupStart(self) -> None:
        self.pending = []

    def groupEnd(self) -> None:
        pending, self.pending = self.pending or [], None
        for kind in ("send", "recv"):
            for call in pending:
                if call[0] == kind:
                    call[1]()

    def NcclCommunicator(self, size: int, name: bytes | tuple[int, ...], rank: int) -> FakeComm:
        assert name == self.identifier
        return FakeComm(self, size, rank)


class FakeComm:
    """One rank's communicator."""

    def __init__(self, library: FakeNccl, size: int, rank: int) -> None:
        self.library, self.size, self.rank = library, size, rank

    def _do(self, kind: str, act: Any) -> None:
        if self.library.pending is None:
            act()
        else:
            self.library.pending.append((kind, act))

    def send(self, address: int, count: int, dtype: int, to: int, stream: int) -> None:
        assert dtype == 1 and stream == 7
        box = self.library.messages.boxes[self.rank, to]
        self._do("send", lambda: box.put(ctypes.string_at(address, count)))

    def recv(self, address: int, count: int, dtype: int, source: int, stream: int) -> None:
        box = self.library.messages.boxes[source, self.rank]

        def take() -> None:
            came = box.get(timeout=20)
            assert len(came) == count
            ctypes.memmove(address, came, count)

        self._do("recv", take)

    def bcast(self, address: int, count: int, dtype: int, root: int, stream: int) -> None:
        if self.rank == root:
            for n in range(self.size):
                if n != root:
                    self.send(address, count, dtype, n, stream)
        else:
            self.recv(address, count, dtype, root, stream)

    def destroy(self) -> None:
        self.library = None  # type: ignore[assignment]


class FakeCuda:
    """`cupy.cuda`: one stream, on which everything is done at once; one card."""

    class Event:
        done = True

        def __init__(self, disable_timing: bool) -> None:
            assert disable_timing

        def record(self) -> None: ...

    class runtime:
        @staticmethod
        def getDeviceCount() -> int:
            return 1

    class Device:
        def __init__(self, number: int) -> None: ...

        def use(self) -> None: ...

    @staticmethod
    def get_current_stream() -> Any:
        return type("Stream", (), {"ptr": 7})


class FakeStore:
    """A store in this process."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.changed = threading.Condition()

    def set(self, key: str, value: str) -> None:
        with self.changed:
            self.values[key] = value.encode()
            self.changed.notify_all()

    def get(self, key: str) -> bytes:
        with self.changed:
            assert self.changed.wait_for(lambda: key in self.values, 20)
            return self.values[key]


def _line(transport: NCCLTransport) -> Line:
    """A call of one rank."""
    ranks = range(transport.size)
    world = World(Place(transport.rank, transport.size), None, transport)
    group = ProcessGroup(world, "world0", ranks, transport, 60.0)
    return Line(group, Call("all_reduce", "world0", ranks, 1), Traffic())


def _ranks(count: int, act: Any, identifier: type = tuple) -> list[Any]:
    """What `act(transport)` gives on each of `count` ranks."""
    messages, store, found = Messages(), FakeStore(), [None] * count

    def run(rank: int) -> None:
        library: Any = FakeNccl(messages, identifier)
        made = NCCLTransport(FakeCuda, library, store, range(count), rank, 0)  # type: ignore[arg-type]
        with no_grad():
            found[rank] = act(made)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return found


@pytest.mark.parametrize("identifier", [tuple, bytes])
@pytest.mark.parametrize("count, size", [(1, 10), (2, 10), (3, 50_000), (4, 50_001)])
def test_sums_over_nccl(count: int, size: int, identifier: type) -> None:
    def act(transport: NCCLTransport) -> Any:
        x = rushlight.arange(float(size)) + transport.rank
        return reduced(_line(transport), x, ReduceOp.SUM)

    wanted = rushlight.arange(float(size)) * count + sum(range(count))
    for got in _ranks(count, act, identifier):
        assert rushlight.equal(got, wanted)


def test_messages_broadcasts_and_groups_over_nccl() -> None:
    def act(transport: NCCLTransport) -> Any:
        x = rushlight.full((5,), float(transport.rank))
        transport.broadcast(span(x), 1, 0)
        pair = transport.subset([2, 0], 9) if transport.rank != 1 else None
        y = rushlight.full((3,), 10.0 + transport.rank)
        if pair is not None:
            assert (pair.rank, pair.size) == ((1, 2) if transport.rank == 0 else (0, 2))
            if pair.rank == 0:
                pair.send(span(y), 1, 0)
            else:
                pair.receive(span(y), 0, 0)
            with pytest.raises(DistributedError, match="a rank that is named"):
                pair.receive(span(y), -1, 0)
            pair.close()
        return x[0].item(), y[0].item()

    assert _ranks(3, act) == [(1.0, 12.0), (1.0, 11.0), (1.0, 12.0)]


def test_messages_in_both_directions_over_nccl(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are one group of NCCL's: one after another, each rank would wait for the other."""
    monkeypatch.setattr(messages, "staged", lambda tensor, transport: tensor)

    def act(transport: NCCLTransport) -> Any:
        group = _line(transport).group
        other = 1 - transport.rank
        x, y = rushlight.full((3,), float(transport.rank)), rushlight.zeros(3)
        ops = [
            messages.P2POp(messages.irecv, y, other, group),
            messages.P2POp(messages.isend, x, other, group),
        ]
        for work in messages.batch_isend_irecv(ops):
            work.wait()
        return y[0].item()

    assert _ranks(2, act) == [1.0, 0.0]
    assert traffic(reset=True)["send"].sent == 2 * 12


def test_a_card_for_two_ranks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nccl, "library", lambda: (FakeCuda, FakeNccl(Messages())))
    store: Any = FakeStore()
    host = nccl.socket.gethostname()
    store.set("card/0/1", f"{host} 0")
    with pytest.raises(DistributedError, match=r"ranks \[0, 1\] share card 0"):
        nccl.start(Place(0, 2), store, 0)
    assert nccl.start(Place(0, 1), None, 0).size == 1


def test_a_missing_library_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(DistributedError, match="Install cupy"):
        nccl.library()
