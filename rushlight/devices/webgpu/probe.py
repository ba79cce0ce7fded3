"""Properties that an adapter does not report, found by experiment."""

from __future__ import annotations

import struct

from rushlight.core.dtypes import float32
from rushlight.devices.webgpu.buffers import Buffers
from rushlight.devices.webgpu.launch import build_launch
from rushlight.emit.wgsl.types import FUSED
from rushlight.kernel.shapes import Map
from rushlight.scalar import build as s
from rushlight.scalar.ir import arg


def probe_fma(device: Buffers) -> bool:
    """Whether `fma` rounds once: (1 + 2^-12)^2 - (1 + 2^-11) is then 2^-24, otherwise 0."""
    near = 1 + 2.0**-12
    x = arg(0, float32)
    kernel = Map(
        (float32,), (float32, float32), (), (s.fma(x, x, arg(1, float32)),), 0, ("1", "1", "1")
    )
    known = device.features
    device.features = known | {FUSED}
    address = device.alloc(64)
    try:
        device.copy_in(address, memoryview(struct.pack("<3f", 0.0, near, -(1 + 2.0**-11))))
        build_launch(device, kernel)(address, address + 4, address + 8, 1)
        result = bytearray(4)
        device.copy_out(address, memoryview(result))
    finally:
        device.features = known
        device.free(address, 64)
    return bool(struct.unpack("<f", result)[0] == 2.0**-24)
