"""What the driver's pool keeps between synchronisations: `devices/cuda/memory.py`."""

from __future__ import annotations

import pytest

from rushlight import OutOfMemoryError
from rushlight.devices.cuda.memory import DriverMemory

_THRESHOLD = 4


class Runtime:
    """A driver that reuses a freed block for the same size alone, and reserves another else."""

    CUDARuntimeError = RuntimeError

    def __init__(self) -> None:
        self.free: dict[int, list[int]] = {}
        self.sizes: dict[int, int] = {}
        self.threshold = self.reserved = self.next = self.calls = 0
        self.most = 1 << 40  # bytes of the card
        self.trimmed: list[int] = []

    def getDevice(self) -> int:
        return 0

    def deviceGetDefaultMemPool(self, device: int) -> int:
        return 1

    def memPoolGetAttribute(self, pool: int, name: int) -> int:
        return self.reserved

    def deviceSynchronize(self) -> None:
        self.synchronize()

    def memPoolTrimTo(self, pool: int, nbytes: int) -> None:
        assert pool == 1
        self.trimmed.append(nbytes)
        threshold, self.threshold = self.threshold, nbytes
        self.synchronize()
        self.threshold = threshold

    def memGetInfo(self) -> tuple[int, int]:
        return self.most - self.reserved, self.most

    def memPoolSetAttribute(self, pool: int, name: int, value: int) -> None:
        assert name == _THRESHOLD
        self.threshold = value

    def mallocAsync(self, nbytes: int, stream: int) -> int:
        found = self.free.get(nbytes)
        if found:
            return found.pop()
        if self.reserved + nbytes > self.most:
            error = RuntimeError("out of memory")
            error.status = 2  # type: ignore[attr-defined]
            raise error
        self.calls += 1
        self.reserved += nbytes
        self.next += 1
        self.sizes[self.next] = nbytes
        return self.next

    def freeAsync(self, address: int, stream: int) -> None:
        self.free.setdefault(self.sizes[address], []).append(address)

    def synchronize(self) -> None:
        for nbytes, blocks in self.free.items():
            while blocks and self.reserved > self.threshold:
                blocks.pop()
                self.reserved -= nbytes


def exchange(memory: DriverMemory, *sizes: int) -> None:
    """Have one block after the other."""
    for nbytes in sizes:
        memory.give(memory.take(nbytes), nbytes)


def test_a_full_card_is_asked_again_when_freed_blocks_are_back():
    """Blocks of other sizes fill the card, although they are free."""
    runtime = Runtime()
    memory = DriverMemory(runtime)
    runtime.most = 1000 + memory.reserved()  # it has asked for a block, to know the driver
    kept = memory.take(100)
    exchange(memory, 200, 300, 400)
    assert memory.reserved() == runtime.most
    large = memory.take(900)
    assert runtime.trimmed == [0] and memory.given == memory.reserved() == 1000
    with pytest.raises(OutOfMemoryError, match="no room for 100 bytes: 64 of 1064 are free"):
        memory.take(100)
    memory.give(large, 900)
    memory.give(kept, 100)


def test_much_more_than_a_limit_goes_back():
    """The blocks that the pool has cached go too: the next ones lie close together."""
    runtime = Runtime()
    memory = DriverMemory(runtime)
    kept = memory.take(100)
    cached = [(memory.take(n), n) for n in (50, 60)]

    def trim() -> None:
        while cached:
            memory.give(*cached.pop())

    exchange(memory, 101, 102, 103)  # beside them the driver reserves 306 for nothing
    memory.settle(300, trim)
    assert len(cached) == 2 and memory.reserved() == 580  # less than twice the limit
    memory.settle(250, trim)
    runtime.synchronize()
    assert not cached and memory.reserved() == memory.given == 100
    memory.settle(None, trim)
    memory.give(kept, 100)


def test_a_step_that_repeats_gives_nothing_back_to_the_system():
    runtime = Runtime()
    memory = DriverMemory(runtime)
    kept = memory.take(1000)
    for _ in range(3):
        exchange(memory, 100, 120, 140)
        memory.settle()
        runtime.synchronize()
    calls, reserved = runtime.calls, memory.reserved()
    for _ in range(3):
        exchange(memory, 100, 120, 140)
        memory.settle()
        runtime.synchronize()
    assert runtime.calls == calls and memory.reserved() == reserved
    memory.give(kept, 1000)


def test_what_a_program_no_longer_uses_goes_back():
    runtime = Runtime()
    memory = DriverMemory(runtime)
    blocks = [memory.take(n) for n in (300, 301, 302, 100)]
    memory.settle()
    for address, nbytes in zip(blocks[:3], (300, 301, 302), strict=True):
        memory.give(address, nbytes)
    memory.settle()
    runtime.synchronize()
    assert memory.reserved() == memory.given == 100
    exchange(memory, 8)
    memory.settle()
    runtime.synchronize()
    assert memory.reserved() == 108
