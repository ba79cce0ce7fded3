"""NVIDIA GPUs, and AMD's, through CuPy: `pip install rushlight[cuda]`.

The import does not touch the driver; `open_device` does.
"""

from __future__ import annotations

from rushlight.core.dtypes import float16
from rushlight.devices.cuda.device import CudaDevice
from rushlight.devices.shared.protocol import Device, Kind

_CUDA, _ROCM = 2, 10  # DLPack's numbers
KIND = Kind(rank=2, autocast=float16, dlpack=(_CUDA, _ROCM), captures=True, shared=True)


def open_device() -> Device:
    """Raises DeviceUnavailable where CuPy or a GPU is missing."""
    return CudaDevice()
