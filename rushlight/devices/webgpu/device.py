"""The device: kernels to text and to launches, on the driver's buffers."""

from __future__ import annotations

from rushlight.devices.shared import composed, library
from rushlight.devices.shared.protocol import Launch, Tell
from rushlight.devices.shared.registry import pool_of
from rushlight.devices.webgpu.adapter import Opened
from rushlight.devices.webgpu.buffers import Buffers
from rushlight.devices.webgpu.launch import build_launch
from rushlight.devices.webgpu.probe import probe_fma, probe_lanes
from rushlight.devices.webgpu.tuning import Measured
from rushlight.emit.wgsl.kernels import emit
from rushlight.emit.wgsl.types import FUSED, LANES, SUBGROUPS
from rushlight.kernel.shapes import Kernel, Library
from rushlight.kernel.show import show


class WebGPUDevice(Buffers):
    """See devices/shared/protocol.py."""

    def __init__(self, opened: Opened) -> None:
        self.name = opened.name
        super().__init__(opened, lambda: pool_of(self.name))
        if probe_fma(self):
            self.features |= {FUSED}
        if SUBGROUPS in self.features and probe_lanes(self):
            self.features |= {LANES}
        self.occupied = Measured(self)

    def emit(self, kernel: Kernel) -> str:
        if isinstance(kernel, Library):
            return show(kernel)
        if composed.is_composed(kernel):
            return "\n".join(self.emit(part) for part in composed.kernels_of(kernel))
        return emit(kernel, self.features)

    def build(self, kernel: Kernel, tell: Tell | None = None) -> Launch:
        if isinstance(kernel, Library):
            return library.build(self, kernel)
        if composed.is_composed(kernel):
            return composed.build(kernel, self, self.pool)
        return build_launch(self, kernel)
