"""The WebGPU device: every GPU that has a Vulkan, Metal or Direct3D 12 driver, through wgpu-py.

Owns: the adapter, buffers behind virtual addresses, pipelines and bind groups, the stream of queued
dispatches.
Takes: kernels and numbers. Gives: callables that queue their work. Never: touches the driver before
`open_device()`.

# Note [Subnormals on WebGPU]
WGSL lets a driver flush a float32 subnormal (below 2^-126) to 0, as an operand or as a result.
NVIDIA's Vulkan driver does, Mesa's software adapter does not. Halves are converted by their bits,
so float16 subnormals are always kept.
"""

from __future__ import annotations

from collections.abc import Iterable

from rushlight.devices.shared.protocol import Kind
from rushlight.devices.webgpu.adapter import open_adapter
from rushlight.devices.webgpu.device import WebGPUDevice

KIND = Kind(rank=1)


def open_device(without: Iterable[str] = ()) -> WebGPUDevice:
    """The high-performance adapter's device; `without` names features to leave off.

    Raises DeviceUnavailable.
    """
    return WebGPUDevice(open_adapter(frozenset(without)))
