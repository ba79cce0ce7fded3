"""Sort and Search composed of other kernels, for devices without their own."""

from __future__ import annotations

from collections.abc import Callable

from rushlight.devices.shared import searching, sorting
from rushlight.devices.shared.allocator import Pool
from rushlight.devices.shared.protocol import Device, Launch
from rushlight.kernel.shapes import Kernel, Search, Sort


def kernels_of(kernel: Sort | Search) -> tuple[Kernel, ...]:
    """The kernels it is composed of."""
    return sorting.kernels_of(kernel) if isinstance(kernel, Sort) else searching.kernels_of(kernel)


def build(kernel: Sort | Search, device: Device, pool: Callable[[], Pool]) -> Launch:
    """`pool` gives the device's pool, from which a launch takes its scratch."""
    if isinstance(kernel, Sort):
        return sorting.build(kernel, device, pool)
    return searching.build(kernel, device, pool)
