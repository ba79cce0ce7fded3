"""Kernels built to launches, once per device."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from rushlight.core import config
from rushlight.core.dtypes import DType, real_type
from rushlight.core.errors import DTypeError
from rushlight.devices.shared.allocator import Pool
from rushlight.devices.shared.protocol import Launch
from rushlight.kernel.shapes import Kernel
from rushlight.kernel.show import show
from rushlight.kernel.verify import verify
from rushlight.ops.family import pairs

_BUILT: dict[tuple[Pool, Kernel], Launch] = {}


_NOTED: ContextVar[list[Kernel] | None] = ContextVar("rushlight_noted_builds", default=None)


@contextmanager
def noted_builds() -> Iterator[list[Kernel]]:
    """The kernels requested inside, built before or not."""
    found: list[Kernel] = []
    before = _NOTED.set(found)
    try:
        yield found
    finally:
        _NOTED.reset(before)


def built(pool: Pool, kernel: Kernel) -> Launch:
    noted = _NOTED.get()
    if noted is not None:
        noted.append(kernel)
    launch = _BUILT.get((pool, kernel))
    if launch is None and pairs.is_complex(kernel):
        launch = _BUILT[pool, kernel] = pairs.build(pool, kernel, built)
    if launch is None:
        verify(kernel)
        level = config.debug_level()
        if level:
            print(f"build on {pool.device.name}:\n{show(kernel)}", file=sys.stderr)
        if level > 1:
            print(pool.device.emit(kernel), file=sys.stderr)
        launch = _BUILT[pool, kernel] = pool.device.build(kernel)
    return launch


def check_device_dtype(name: str, pool: Pool, dtype: DType) -> None:
    limits = pool.device.limits
    if real_type(dtype) not in limits.dtypes:
        listed = ", ".join(d.name for d in limits.dtypes)
        raise DTypeError(
            f"{name}: {pool.device.name} has no {dtype.name}; it has {listed}: cast with .to(dtype)"
        )


def step_of(stride: int) -> str:
    return str(stride) if stride in (0, 1) else "n"
