"""PyTorch's copies among cards, with gradients: `torch.cuda.comm` and what DataParallel calls."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rushlight.ops.view.views import cat
from rushlight.tensor import Tensor

__all__ = [
    "broadcast",
    "broadcast_coalesced",
    "gather",
    "reduce_add",
    "reduce_add_coalesced",
    "scatter",
]


def _place(device: Any) -> Any:
    """A device by number, -1 being the host, by name or as an object."""
    if isinstance(device, int):
        return "cpu" if device < 0 else f"cuda:{device}"
    return device


def broadcast(tensor: Tensor, devices: Any = None, *, out: Any = None) -> tuple[Tensor, ...]:
    """Copies on several devices; the tensor itself where it is.

    Args:
        tensor (Tensor): What is copied.
        devices (iterable): The devices.
        out (sequence): Tensors that take the copies, in place of `devices`.
    """
    if (devices is None) == (out is None):
        raise RuntimeError("broadcast: either 'devices' or 'out' is needed, and not both")
    if out is not None:
        for one in out:
            one.copy_(tensor)
        return tuple(out)
    return tuple(tensor.to(_place(device)) for device in devices)


def broadcast_coalesced(
    tensors: Sequence[Tensor], devices: Iterable[Any], buffer_size: int = 10485760
) -> list[tuple[Tensor, ...]]:
    """Copies of several tensors: for each device, those of all.

    Args:
        tensors (sequence): What is copied.
        devices (iterable): The devices.
        buffer_size (int): Has no effect.
    """
    return [tuple(tensor.to(_place(device)) for tensor in tensors) for device in devices]


def reduce_add(inputs: Sequence[Tensor], destination: Any = None) -> Tensor:
    """The sum of tensors of one shape, in their order, on one device.

    Args:
        inputs (sequence): The tensors.
        destination (device): Where the sum is; where the first tensor is without it.
    """
    where = inputs[0].device if destination is None else _place(destination)
    if len({tuple(one.shape) for one in inputs}) > 1:
        raise ValueError(f"reduce_add: shapes differ: {[tuple(one.shape) for one in inputs]}")
    total: Any = inputs[0].to(where)
    for one in inputs[1:]:
        total = total + one.to(where)
    return total


def reduce_add_coalesced(
    inputs: Sequence[Sequence[Tensor]], destination: Any = None, buffer_size: int = 10485760
) -> tuple[Tensor, ...]:
    """`reduce_add` of several lists: one from each device for each sum.

    Args:
        inputs (sequence): A list for each device.
        destination (device): Where the sums are.
        buffer_size (int): Has no effect.
    """
    return tuple(reduce_add(row, destination) for row in zip(*inputs, strict=True))


def scatter(
    tensor: Tensor,
    devices: Any = None,
    chunk_sizes: Sequence[int] | None = None,
    dim: int = 0,
    streams: Any = None,
    *,
    out: Any = None,
) -> tuple[Tensor, ...]:
    """Parts of a tensor on several devices.

    Args:
        tensor (Tensor): What is cut.
        devices (iterable): The devices.
        chunk_sizes (sequence): The parts' sizes; as equal as can be without them.
        dim (int): The dimension that is cut.
        streams: Has no effect.
        out (sequence): Tensors that take the parts, in place of `devices` and `chunk_sizes`.
    """
    if out is not None:
        parts = tensor.split([one.shape[dim] for one in out], dim)
        for one, part in zip(out, parts, strict=True):
            one.copy_(part)
        return tuple(out)
    places = [_place(device) for device in devices]
    sizes = None if chunk_sizes is None else list(chunk_sizes)
    parts = tensor.chunk(len(places), dim) if sizes is None else tensor.split(sizes, dim)
    return tuple(part.to(place) for part, place in zip(parts, places, strict=False))


def gather(
    tensors: Sequence[Tensor], dim: int = 0, destination: Any = None, *, out: Any = None
) -> Tensor:
    """Tensors put together on one device.

    Args:
        tensors (sequence): The tensors.
        dim (int): The dimension along which they follow one another.
        destination (device): Where the result is; the current card without it.
        out (Tensor): Takes the result.
    """
    if out is not None:
        made: Any = out.copy_(cat([one.to(out.device) for one in tensors], dim))
        return made
    place = "cuda" if destination is None else _place(destination)
    whole: Any = cat([one.to(place) for one in tensors], dim)
    return whole


class Broadcast:
    """Copies with gradients, which are summed."""

    @staticmethod
    def apply(target_gpus: Sequence[Any], *inputs: Tensor) -> tuple[Tensor, ...]:
        """All inputs on the first device, then on the next."""
        return tuple(one for row in broadcast_coalesced(inputs, target_gpus) for one in row)


class ReduceAddCoalesced:
    """Sums over devices."""

    @staticmethod
    def apply(destination: Any, num_inputs: int, *grads: Tensor) -> tuple[Tensor, ...]:
        """The sums of each `num_inputs`-th tensor."""
        rows = [grads[n : n + num_inputs] for n in range(0, len(grads), num_inputs)]
        return reduce_add_coalesced(rows, destination)


class Gather:
    """Tensors put together, with gradients; numbers become a vector."""

    @staticmethod
    def apply(target_device: Any, dim: int, *inputs: Tensor) -> Tensor:
        """The inputs along one dimension."""
        flat = [one if one.dim() else one.view(1) for one in inputs]
        return gather(flat, dim, target_device)


class Scatter:
    """Parts on several devices, with gradients."""

    @staticmethod
    def apply(
        target_gpus: Sequence[Any], chunk_sizes: Any, dim: int, input: Tensor
    ) -> tuple[Tensor, ...]:
        """The parts of the input."""
        return scatter(input, target_gpus, chunk_sizes, dim)
