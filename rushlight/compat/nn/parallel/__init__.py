"""PyTorch's `torch.nn.parallel`: one device of each kind, so nothing is split."""

from __future__ import annotations

from typing import Any

from rushlight.compat.nn.parallel import (
    distributed as distributed,
    scatter_gather as scatter_gather,
)
from rushlight.compat.nn.parallel.distributed import (
    DistributedDataParallel as DistributedDataParallel,
)
from rushlight.compat.nn.parallel.scatter_gather import gather as gather, scatter as scatter
from rushlight.nn.data_parallel import DataParallel as DataParallel

DistributedDataParallelCPU = DistributedDataParallel


def data_parallel(
    module: Any,
    inputs: Any,
    device_ids: Any = None,
    output_device: Any = None,
    dim: int = 0,
    module_kwargs: Any = None,
) -> Any:
    """The module of the inputs."""
    given = inputs if isinstance(inputs, tuple) else (inputs,)
    return module(*given, **(module_kwargs or {}))


def replicate(network: Any, devices: Any, detach: bool = False) -> list[Any]:
    """The module, once: there is one device of each kind."""
    return [network]


def parallel_apply(
    modules: Any, inputs: Any, kwargs_tup: Any = None, devices: Any = None
) -> list[Any]:
    """Each module of its inputs."""
    named = kwargs_tup or [{}] * len(modules)
    return [
        module(*(given if isinstance(given, tuple) else (given,)), **kwargs)
        for module, given, kwargs in zip(modules, inputs, named, strict=True)
    ]
