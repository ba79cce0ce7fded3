"""DataParallel, for scripts that wrap their models in it, and PyTorch's functions beside it."""

from __future__ import annotations

from typing import Any

from rushlight import cuda
from rushlight.nn.module import Module
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
        parts = [part.to(where) for part in outputs]
        return cat([part if part.dim() else part.view(1) for part in parts], dim)
    if first is None:
        return None
    if isinstance(first, dict):
        return type(first)((k, gather([o[k] for o in outputs], target_device, dim)) for k in first)
    made = [gather(parts, target_device, dim) for parts in zip(*outputs, strict=True)]
    return type(first)(*made) if hasattr(first, "_fields") else type(first)(made)


def replicate(network: Any, devices: Any, detach: bool = False) -> list[Any]:
    """The module, once: nothing is split over devices."""
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


class DataParallel(Module):
    """A module that runs unsplit, on the first of its devices.

    The wrapped module is `.module`, and the names in its state begin with "module.", as in PyTorch.
    """

    def __init__(
        self, module: Module, device_ids: Any = None, output_device: Any = None, dim: int = 0
    ) -> None:
        super().__init__()
        self.module = module
        if device_ids is None:
            device_ids = range(cuda.device_count())
        self.device_ids = list(device_ids)
        first = self.device_ids[0] if self.device_ids else None
        self.output_device = first if output_device is None else output_device
        self.dim = dim

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        if not self.device_ids:
            return self.module(*inputs, **kwargs)
        given, named = self.scatter(inputs, kwargs, self.device_ids)
        if len(given) == 1:
            return self.module(*given[0], **named[0])
        replicas = self.replicate(self.module, self.device_ids[: len(given)])
        return self.gather(self.parallel_apply(replicas, given, named), self.output_device)

    # The parts of a call, each of which a class may override.

    def scatter(self, inputs: Any, kwargs: Any, device_ids: Any) -> Any:
        return scatter_kwargs(inputs, kwargs, device_ids, self.dim)

    def replicate(self, module: Module, device_ids: Any) -> list[Module]:
        return replicate(module, device_ids)

    def parallel_apply(self, replicas: Any, inputs: Any, kwargs: Any) -> list[Any]:
        return parallel_apply(replicas, inputs, kwargs, self.device_ids[: len(replicas)])

    def gather(self, outputs: Any, output_device: Any) -> Any:
        return gather(outputs, output_device, self.dim)
