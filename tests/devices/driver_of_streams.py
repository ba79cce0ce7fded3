"""A driver with streams and events, made of host memory: work is done when somebody waits for it.

Each stream is a list of pending acts. `run_some` may run any act that nothing holds back, so that a
missing wait is seen as a wrong order.
"""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from rushlight.devices.cuda.memory import DriverMemory
from rushlight.devices.cuda.streams import Arrivals, Queues
from rushlight.devices.reference import ReferenceDevice
from rushlight.devices.shared.layout import Layout

_DONE, _NOT_READY = 0, 600


class Runtime:
    """The functions of `cupy.cuda.runtime` that memory, queues and marks use."""

    CUDARuntimeError = RuntimeError
    memcpyHostToDevice, memcpyDeviceToHost = 1, 2

    def __init__(self, seed: int = 0) -> None:
        self.random = random.Random(seed)
        self.streams: dict[int, list[tuple[str, Any]]] = {0: []}
        self.events: dict[int, tuple[int, int]] = {}  # event: its number of recordings, those done
        self.destroyed: set[int] = set()
        self.numbers = iter(range(1, 1 << 30))
        self.memory: dict[int, Any] = {}
        self.log: list[str] = []
        self.clock = 0.0
        self.times: dict[int, float] = {}

    # ---- memory ----

    def malloc(self, nbytes: int) -> int:
        block = ctypes.create_string_buffer(nbytes + 64)
        address = -(-ctypes.addressof(block) // 64) * 64
        self.memory[address] = block
        return address

    def free(self, address: int) -> None:
        self.run_all()  # waits for the work
        del self.memory[address]

    def hostAlloc(self, nbytes: int, flags: int) -> int:
        self.log.append(f"hostAlloc {nbytes}")
        return self.malloc(nbytes)

    def freeHost(self, address: int) -> None:
        del self.memory[address]

    def memGetInfo(self) -> tuple[int, int]:
        return 1 << 40, 1 << 40

    # ---- streams ----

    def streamCreateWithFlags(self, flags: int) -> int:
        made = next(self.numbers)
        self.streams[made] = []
        return made

    def streamDestroy(self, stream: int) -> None:
        self._run(stream)
        del self.streams[stream]

    def memcpyAsync(self, target: int, source: int, nbytes: int, kind: int, stream: int) -> None:
        self.log.append(f"copy {kind} on {stream}")
        self.launch(lambda: ctypes.memmove(target, source, nbytes), stream)

    def launch(self, work: Callable[[], object], stream: int = 0) -> None:
        self.streams[stream].append(("work", work))

    def eventCreateWithFlags(self, flags: int) -> int:
        made = next(self.numbers)
        self.events[made] = (0, 0)
        return made

    def eventDestroy(self, event: int) -> None:
        """Pending waits for it still hold."""
        self._check(event)
        self.destroyed.add(int(event))

    def _check(self, *events: int) -> None:
        assert not self.destroyed.intersection(events), "an event is used that was destroyed"

    def eventRecord(self, event: int, stream: int) -> None:
        self._check(event)
        recorded, done = self.events[event]
        self.events[event] = (recorded + 1, done)
        self.streams[stream].append(("record", (event, recorded + 1)))

    def streamWaitEvent(self, stream: int, event: int, flags: int) -> None:
        self._check(event)
        self.streams[stream].append(("wait", (event, self.events[event][0])))

    def eventQuery(self, event: int) -> int:
        self._check(event)
        recorded, done = self.events[event]
        return _DONE if done >= recorded else _NOT_READY

    def streamQuery(self, stream: int) -> int:
        return _NOT_READY if self.streams[stream] else _DONE

    def eventElapsedTime(self, first: int, last: int) -> float:
        self._check(first, last)
        return self.times[last] - self.times[first]

    def eventSynchronize(self, event: int) -> None:
        while self.eventQuery(event) != _DONE:
            self.run_one()

    def streamSynchronize(self, stream: int) -> None:
        self._run(stream)

    def deviceSynchronize(self) -> None:
        self.run_all()

    # ---- the card's side ----

    def _is_ready(self, stream: int) -> bool:
        acts = self.streams[stream]
        if not acts:
            return False
        kind, about = acts[0]
        return kind != "wait" or self.events[about[0]][1] >= about[1]

    def run_one(self) -> bool:
        """Do one act that nothing holds back, of any stream; whether there was one."""
        ready = [stream for stream in self.streams if self._is_ready(stream)]
        if not ready:
            return False
        kind, about = self.streams[self.random.choice(ready)].pop(0)
        if kind == "work":
            about()
            self.clock += 1.0
        elif kind == "record":
            event, number = about
            self.events[event] = (self.events[event][0], max(number, self.events[event][1]))
            self.times[event] = self.clock
        return True

    def run_some(self, most: int = 8) -> None:
        for _ in range(self.random.randrange(most)):
            self.run_one()

    def run_all(self) -> None:
        while self.run_one():
            pass
        assert not any(self.streams.values()), "work that waits for ever"

    def _run(self, stream: int) -> None:
        while self.streams[stream]:
            assert self.run_one()


class CardOfStreams(ReferenceDevice):
    """The reference device as a card: its launches are work of stream 0, its memory the driver's.

    As on a card, launches and copies wait for the word of Note [Streams] 3.
    """

    name = "cuda"

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self.runtime = Runtime(seed)
        self.memory = DriverMemory(self.runtime)
        self.layout = Layout(self.memory)
        self.arrivals = Arrivals()
        self.limits = replace(
            type(self).limits,
            host_memory=False,
            asynchronous=True,
            steps=self.layout.begin_step,
            queues=Queues(self.runtime, self.arrivals),
        )

    def _await_arrival(self) -> None:
        event = self.arrivals.word.value
        if event:
            self.arrivals.word.value = 0
            self.runtime.streamWaitEvent(0, event, 0)

    def build(self, kernel: Any, tell: Any = None) -> Any:
        launch = super().build(kernel, tell)

        def queued(*numbers: Any) -> None:
            self._await_arrival()
            self.runtime.launch(lambda: launch(*numbers))
            self.runtime.run_some()

        return queued

    def alloc(self, nbytes: int) -> int:
        return self.layout.take(nbytes)

    def free(self, address: int, nbytes: int) -> None:
        self.layout.give(address, nbytes)

    def status_word(self, label: str) -> int:
        return self._status.setdefault(label, self.alloc(64))  # zeros

    def copy_in(self, address: int, source: memoryview) -> None:
        self.runtime.run_all()
        ctypes.memmove(address, bytes(source), source.nbytes)

    def copy_out(self, address: int, target: memoryview) -> None:
        self.runtime.run_all()
        target.cast("B")[:] = ctypes.string_at(address, target.nbytes)

    def synchronize(self) -> None:
        self.runtime.run_all()
        super().synchronize()
