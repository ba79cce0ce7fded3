"""PyTorch's `torch._dynamo.utils`: questions about its compiler."""

from __future__ import annotations

from typing import Any


def is_compile_supported(device_type: Any) -> bool:
    """False: calls stay eager."""
    return False
