"""PyTorch's `torch.mps`: Apple's GPUs, which are reached as "webgpu" here."""

from __future__ import annotations

from rushlight.compat.absent_device import (
    current_allocated_memory,
    device_count,
    driver_allocated_memory,
    empty_cache,
    is_available,
    is_current_stream_capturing,
    is_initialized,
    manual_seed,
    manual_seed_all,
    recommended_max_memory,
    synchronize,
)

__all__ = [
    "current_allocated_memory",
    "device_count",
    "driver_allocated_memory",
    "empty_cache",
    "is_available",
    "is_current_stream_capturing",
    "is_initialized",
    "manual_seed",
    "manual_seed_all",
    "recommended_max_memory",
    "synchronize",
]
