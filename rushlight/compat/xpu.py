"""PyTorch's `torch.xpu`: Intel's GPUs, which are reached as "webgpu" here."""

from __future__ import annotations

from rushlight.compat.absent_device import (
    device_count,
    empty_cache,
    is_available,
    is_current_stream_capturing,
    is_initialized,
    manual_seed,
    manual_seed_all,
)

__all__ = [
    "device_count",
    "empty_cache",
    "is_available",
    "is_current_stream_capturing",
    "is_initialized",
    "manual_seed",
    "manual_seed_all",
]
