"""What the driver's pool keeps between synchronisations: `devices/cuda/memory.py`."""

from __future__ import annotations

from rushlight.devices.cuda.memory import DriverMemory

_THRESHOLD = 4


class Runtime:
    """A driver that reuses a freed block for the same size alone, and reserves another else."""

    CUDARuntimeError = RuntimeError

    def __init__(self) -> None:
        self.free: dict[int, list[int]] = {}
        self.sizes: dict[int, int] = {}
        self.threshold = self.reserved = self.next = self.calls = 0

    def getDevice(self) -> int:
        return 0

    def deviceGetDefaultMemPool(self, device: int) -> int:
        return 1

    def memPoolGetAttribute(self, pool: int, name: int) -> int:
        return self.reserved

    def memPoolSetAttribute(self, pool: int, name: int, value: int) -> None:
        assert name == _THRESHOLD
        self.threshold = value

    def mallocAsync(self, nbytes: int, stream: int) -> int:
        found = self.free.get(nbytes)
        if found:
            return found.pop()
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
