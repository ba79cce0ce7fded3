"""Kernels built to launches, once per device."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import fields
from typing import Any

from rushlight.core import config
from rushlight.core.dtypes import FLOAT8, DType, real_type, uint8
from rushlight.core.errors import DTypeError
from rushlight.devices.shared.allocator import Pool
from rushlight.devices.shared.protocol import Launch
from rushlight.kernel.shapes import Kernel
from rushlight.kernel.show import show
from rushlight.kernel.verify import verify
from rushlight.ops.family import codes, pairs

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
    if launch is None and (on_codes := lowered(kernel)) is not kernel:
        launch = _BUILT[pool, kernel] = built(pool, on_codes)
    if launch is None:
        verify(kernel)
        level = config.debug_level()
        if level:
            print(f"build on {pool.device.name}:\n{show(kernel)}", file=sys.stderr)
        if level > 1:
            print(pool.device.emit(kernel), file=sys.stderr)
        launch = _BUILT[pool, kernel] = pool.device.build(kernel)
    return launch


def lowered(kernel: Any) -> Any:
    """The kernel on codes where it has a float8 type: Note [Float8 kernels]. Another one itself."""
    for field in fields(kernel):
        value = getattr(kernel, field.name)
        for item in value if isinstance(value, tuple) else (value,):
            if item in FLOAT8:
                return codes.lowered(kernel)
    return kernel


def check_device_dtype(name: str, pool: Pool, dtype: DType) -> None:
    limits = pool.device.limits
    if dtype in limits.dtypes:
        return
    if (uint8 if dtype in FLOAT8 else real_type(dtype)) not in limits.dtypes:
        listed = ", ".join(d.name for d in limits.dtypes)
        raise DTypeError(
            f"{name}: {pool.device.name} has no {dtype.name}; it has {listed}: cast with .to(dtype)"
        )


def step_of(stride: int) -> str:
    return str(stride) if stride in (0, 1) else "n"
