"""Sort, Search and all gradients of attention, composed of other kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeGuard

from rushlight.devices.shared import attending, searching, sorting
from rushlight.devices.shared.allocator import Pool
from rushlight.devices.shared.protocol import Device, Launch
from rushlight.kernel.shapes import Attend, Kernel, Search, Sort


def is_composed(kernel: Kernel) -> TypeGuard[Sort | Search | Attend]:
    return isinstance(kernel, Sort | Search) or is_whole_gradient(kernel)


def is_whole_gradient(kernel: Kernel) -> TypeGuard[Attend]:
    return isinstance(kernel, Attend) and kernel.of == "operands"


def kernels_of(kernel: Sort | Search | Attend) -> tuple[Kernel, ...]:
    """The kernels it is composed of."""
    if isinstance(kernel, Attend):
        return attending.kernels_of(kernel)
    return sorting.kernels_of(kernel) if isinstance(kernel, Sort) else searching.kernels_of(kernel)


def build(kernel: Sort | Search | Attend, device: Device, pool: Callable[[], Pool]) -> Launch:
    """`pool` gives the device's pool, from which a launch takes its scratch."""
    if isinstance(kernel, Attend):
        return attending.build(kernel, device, pool)
    if isinstance(kernel, Sort):
        return sorting.build(kernel, device, pool)
    return searching.build(kernel, device, pool)
