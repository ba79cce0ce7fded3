"""PyTorch's `torch.xpu`: Intel's GPUs, which are reached as "webgpu" here."""

from __future__ import annotations

from rushlight.compat.absent_device import (
    current_device,
    device_count,
    empty_cache,
    get_device_name,
    get_device_properties,
    is_available,
    is_current_stream_capturing,
    is_initialized,
    manual_seed,
    manual_seed_all,
    max_memory_allocated,
    max_memory_reserved,
    memory_allocated,
    memory_reserved,
    set_device,
    synchronize,
)

__all__ = [
    "current_device",
    "device_count",
    "empty_cache",
    "get_device_name",
    "get_device_properties",
    "is_available",
    "is_current_stream_capturing",
    "is_initialized",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_reserved",
    "memory_allocated",
    "memory_reserved",
    "set_device",
    "synchronize",
]
