"""NVIDIA GPUs, and AMD's, through CuPy: `pip install rushlight[cuda]`.

The import does not touch the driver; `open_device` does.
"""

from __future__ import annotations

from collections.abc import Sequence

from rushlight.core.dtypes import float16
from rushlight.devices.cuda import convolve, cudnn_attention, gemm
from rushlight.devices.cuda.device import CudaDevice
from rushlight.devices.cuda.driver import count_cards
from rushlight.devices.shared.protocol import Device, Kind
from rushlight.kernel.shapes import Attend, Contract, Convolve, Kernel

_CUDA, _ROCM = 2, 10  # DLPack's numbers
KIND = Kind(
    rank=2, autocast=float16, dlpack=(_CUDA, _ROCM), captures=True, shared=True, several=True
)


def open_device(number: int = 0) -> Device:
    """A GPU by its number. Raises DeviceUnavailable where CuPy or the GPU is missing."""
    return CudaDevice(number)


def count_devices() -> int:
    """The number of GPUs. Raises DeviceUnavailable."""
    return count_cards()


def scratch_of(kernel: Kernel, numbers: Sequence[int]) -> Sequence[int]:
    """The rooms that a launch takes from the pool, from the numbers after the addresses."""
    if isinstance(kernel, Attend):
        return cudnn_attention.scratch_rooms(kernel, numbers)
    if isinstance(kernel, Convolve):
        return convolve.scratch_rooms(kernel, numbers)
    return gemm.scratch_rooms(kernel, numbers) if isinstance(kernel, Contract) else ()
