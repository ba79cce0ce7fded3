"""Layers shared out over ranks: PyTorch's `torch.distributed.tensor.parallel`."""

from __future__ import annotations

from typing import Any

from rushlight.lazy import Names

_NAMES = Names(__name__)
_NAMES.defined(
    {
        "rushlight.distributed.tensor.parallel.plans": "loss_parallel parallelize_module",
        "rushlight.distributed.tensor.parallel.styles": (
            "ColwiseParallel ParallelStyle PrepareModuleInput PrepareModuleInputOutput "
            "PrepareModuleOutput RowwiseParallel SequenceParallel"
        ),
    }
)
__all__ = sorted(name for name in _NAMES.sources if name[0] != "_")


def __getattr__(name: str) -> Any:
    return _NAMES.find(name)


def __dir__() -> list[str]:
    return _NAMES.listed()
