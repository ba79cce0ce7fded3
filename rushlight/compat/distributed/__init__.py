"""PyTorch's `torch.distributed`: the names of `rushlight.distributed`.

Its modules without a counterpart there are here: `rpc`, and the classes of `tensor`.
"""

from __future__ import annotations

from typing import Any

from rushlight import distributed

__all__ = list(distributed.__all__)


def __getattr__(name: str) -> Any:
    return getattr(distributed, name)
