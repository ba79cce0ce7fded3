"""PyTorch's `torch.nn.parallel.scatter_gather`: parts of inputs on each device, and back."""

from __future__ import annotations

from typing import Any

from rushlight.ops.view.views import cat
from rushlight.tensor import Tensor
from rushlight.utils._pytree import tree_map_only


def scatter(inputs: Any, target_gpus: Any, dim: int = 0) -> Any:
    """The inputs in one part, on the first of the devices."""
    where = target_gpus[0]
    where = f"cuda:{where}" if isinstance(where, int) else where
    return [tree_map_only(Tensor, lambda x: x.to(where), inputs)]


def scatter_kwargs(inputs: Any, kwargs: Any, target_gpus: Any, dim: int = 0) -> Any:
    """The inputs and the named inputs, in one part each."""
    return tuple(scatter(inputs, target_gpus, dim)), tuple(scatter(kwargs, target_gpus, dim))


def gather(outputs: Any, target_device: Any, dim: int = 0) -> Any:
    """The parts put together on a device."""
    first = outputs[0]
    if isinstance(first, Tensor):
        where = f"cuda:{target_device}" if isinstance(target_device, int) else target_device
        return cat([part.to(where) for part in outputs], dim)
    if isinstance(first, dict):
        return type(first)((k, gather([o[k] for o in outputs], target_device, dim)) for k in first)
    return type(first)(gather(parts, target_device, dim) for parts in zip(*outputs, strict=True))
