"""Kernels that a device may make of other kernels: sorting and searching without an emitter for them."""

from __future__ import annotations

from collections.abc import Callable

from rushlight.devices.shared import searching, sorting
from rushlight.devices.shared.allocator import Pool
from rushlight.devices.shared.protocol import Device, Launch
from rushlight.kernel.shapes import Kernel, Search, Sort


def parts(kernel: Sort | Search) -> tuple[Kernel, ...]:
    """The kernels it is made of."""
    return sorting.parts(kernel) if isinstance(kernel, Sort) else searching.parts(kernel)


def build(kernel: Sort | Search, device: Device, pool: Callable[[], Pool]) -> Launch:
    """`pool` gives the device's pool, from which scratch is taken for the time of a launch."""
    if isinstance(kernel, Sort):
        return sorting.build(kernel, device, pool)
    return searching.build(kernel, device, pool)
