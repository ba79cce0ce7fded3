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
from rushlight.devices.webgpu import adapter
from rushlight.devices.webgpu.device import WebGPUDevice

KIND = Kind(rank=1, several=True)


def open_device(number: int = 0, without: Iterable[str] = ()) -> WebGPUDevice:
    """The device of an adapter, of which number 0 is that of high performance.

    `without` names features to leave off. Raises DeviceUnavailable.
    """
    return WebGPUDevice(adapter.open_adapter(frozenset(without), number))


def count_devices() -> int:
    """The number of adapters. Raises DeviceUnavailable."""
    return len(adapter.find_adapters())
