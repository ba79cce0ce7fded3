"""NVIDIA GPUs, and AMD's, through CuPy: `pip install rushlight[cuda]`.

The import does not touch the driver; `open_device` does.
"""

from __future__ import annotations

from rushlight.devices.cuda.device import CudaDevice
from rushlight.devices.shared.protocol import Device


def open_device() -> Device:
    """Raises DeviceUnavailable where CuPy or a GPU is missing."""
    return CudaDevice()
