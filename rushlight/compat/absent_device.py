"""The functions of a kind of GPU that PyTorch has by name and that is reached as "webgpu" here."""

from __future__ import annotations

from typing import Any

from rushlight.core.errors import DeviceUnavailable


def is_available() -> bool:
    """False: such a GPU is a WebGPU device."""
    return False


def device_count() -> int:
    """0."""
    return 0


def is_initialized() -> bool:
    """False."""
    return False


def is_current_stream_capturing() -> bool:
    """False."""
    return False


def empty_cache() -> None:
    """Accepted: there is no such device."""


def manual_seed_all(seed: int) -> None:
    """Accepted: there is no such device.

    Args:
        seed (int): Has no effect.
    """


manual_seed = manual_seed_all


def _nothing(*args: Any) -> int:
    """0: there is no such device, so it holds nothing."""
    return 0


memory_allocated = max_memory_allocated = memory_reserved = max_memory_reserved = _nothing
current_allocated_memory = driver_allocated_memory = recommended_max_memory = _nothing


def synchronize(device: Any = None) -> None:
    """Refused: there is no such device to wait for."""
    raise DeviceUnavailable(
        "mps, xpu", "these GPUs are reached through WebGPU", 'Use device="webgpu".'
    )


set_device = get_device_name = get_device_properties = current_device = synchronize
