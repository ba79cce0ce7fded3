"""PyTorch's `torch.distributed.algorithms`."""

from __future__ import annotations

from typing import Any

from rushlight.lazy import Names

_NAMES = Names(__name__)
_NAMES.modules("ddp_comm_hooks join model_averaging")
__all__ = sorted(_NAMES.sources)


def __getattr__(name: str) -> Any:
    return _NAMES.find(name)


def __dir__() -> list[str]:
    return _NAMES.listed()
