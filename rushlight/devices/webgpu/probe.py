"""Properties that an adapter does not report, found by experiment."""

from __future__ import annotations

import struct

from rushlight.core.dtypes import float32
from rushlight.devices.webgpu.buffers import NUMBER_BITS, Buffers
from rushlight.devices.webgpu.launch import build_launch
from rushlight.emit.wgsl.module import GROUP
from rushlight.emit.wgsl.types import FUSED, SUBGROUP
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


_LANES = f"""struct Launch {{
    base: u32,
}}
@group(0) @binding(0) var<uniform> launch: Launch;
@group(0) @binding(1) var<storage, read_write> buffer0: array<u32>;
@compute @workgroup_size({GROUP})
fn main(
    @builtin(local_invocation_index) lane: u32,
    @builtin(subgroup_size) size: u32,
    @builtin(subgroup_invocation_id) number: u32,
) {{
    let other = subgroupShuffleXor(lane, {SUBGROUP // 2}u);
    let shuffled = other == (lane ^ {SUBGROUP // 2}u);
    let kept = size == {SUBGROUP}u && number == lane % {SUBGROUP}u && shuffled;
    buffer0[lane] = select(0u, 1u, kept);
}}
"""


def probe_lanes(device: Buffers) -> bool:
    """Whether subgroups are runs of SUBGROUP neighbouring invocations, and shuffles work."""
    pipeline, layout = device.compile(_LANES, (True,), 16)
    address = device.alloc(4 * GROUP)
    result = bytearray(4 * GROUP)
    try:
        group = device.bind_group(layout, 16, (device.buffer(address >> NUMBER_BITS),))
        device.stream.record(pipeline, group, bytes(16), (1, 1), GROUP)
        device.copy_out(address, memoryview(result))
    finally:
        device.free(address, 4 * GROUP)
    return all(struct.unpack(f"<{GROUP}I", result))
