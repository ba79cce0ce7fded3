"""Memory on `cuda`, with a driver that counts: no GPU is needed."""

from __future__ import annotations

from typing import Any

import pytest

from rushlight.devices.cuda.device import CudaDevice
from rushlight.devices.cuda.memory import DriverMemory
from rushlight.devices.shared.allocator import Pool
from rushlight.devices.shared.layout import Layout
from rushlight.devices.shared.protocol import Limits


class Runtime:
    """A driver with a number of free bytes, which allocates in the stream's order or waits."""

    CUDARuntimeError = RuntimeError

    def __init__(self, in_order: bool) -> None:
        self.free_bytes = 1 << 30
        self.sizes: dict[int, int] = {}
        self.calls: list[str] = []
        self.thresholds: list[int] = []
        if in_order:
            self.mallocAsync = lambda nbytes, stream: self._give("mallocAsync", nbytes)
            self.freeAsync = lambda address, stream: self._take("freeAsync", address)

    def deviceGetDefaultMemPool(self, device: int) -> int:
        return 1

    def getDevice(self) -> int:
        return 0

    def memPoolGetAttribute(self, pool: int, attribute: int) -> int:
        return sum(self.sizes.values())

    def memPoolSetAttribute(self, pool: int, attribute: int, value: int) -> None:
        self.thresholds.append(value)

    def memGetInfo(self) -> tuple[int, int]:
        return self.free_bytes, 1 << 30

    def malloc(self, nbytes: int) -> int:
        return self._give("malloc", nbytes)

    def free(self, address: int) -> None:
        self._take("free", address)

    def _give(self, name: str, nbytes: int) -> int:
        self.calls.append(name)
        address = 256 * (len(self.calls) + 1)
        self.sizes[address] = nbytes
        self.free_bytes -= nbytes
        return address

    def _take(self, name: str, address: int) -> None:
        self.calls.append(name)
        self.free_bytes += self.sizes.pop(address)


def opened(in_order: bool) -> Any:
    device: Any = object.__new__(CudaDevice)
    device.runtime = Runtime(in_order)
    device.limits = Limits((), False, True, 1 << 40, "a driver that counts", own=4096)
    device.memory = DriverMemory(device.runtime)
    device.layout = Layout(device.memory)
    pool = Pool(device)
    device._pool = lambda: pool
    return device


@pytest.mark.parametrize("in_order", [True, False])
def test_blocks_are_freed_in_the_order_of_the_stream_where_the_driver_can(in_order):
    device = opened(in_order)
    assert device.memory.ordered is in_order
    device.runtime.calls.clear()
    pool = device._pool()
    pool.give(pool.take(1 << 20), 1 << 20)
    pool.trim()
    assert device.runtime.calls == (
        ["mallocAsync", "freeAsync"] if in_order else ["malloc", "free"]
    )
    assert not device.runtime.sizes


def test_an_exchange_of_blocks_leaves_the_drivers_threshold():
    memory = DriverMemory(Runtime(in_order=True))
    large = memory.take(8 << 20)
    memory.take(2 << 20)
    memory.runtime.thresholds.clear()
    memory.give(large, 8 << 20)
    small = [memory.take(2 << 20) for _ in range(4)]
    memory.settle()
    assert memory.runtime.thresholds == []
    for address in small:
        memory.give(address, 2 << 20)
    memory.settle()
    assert memory.runtime.thresholds == [2 << 20]
