"""PyTorch's `torch.fx.experimental.proxy_tensor`: traces below the dispatcher, of which is none."""

from __future__ import annotations

from typing import Any


def get_proxy_mode() -> Any:
    """None: no such trace runs."""
    return None
