"""PyTorch's `torch._utils`: tensors of a list as one, and devices by number."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from rushlight import cuda
from rushlight.naming import device as Device
from rushlight.ops.view.views import cat
from rushlight.tensor import Tensor


def _flatten_dense_tensors(tensors: Sequence[Tensor]) -> Tensor:
    """The elements of all tensors, one tensor after another."""
    return cat([tensor.reshape(-1) for tensor in tensors])


def _unflatten_dense_tensors(flat: Tensor, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Views of `flat` in the shapes of the tensors."""
    parts = flat.split([tensor.numel() for tensor in tensors])
    return tuple(part.view(tensor.shape) for part, tensor in zip(parts, tensors, strict=True))


def _take_tensors(tensors: Iterable[Tensor], size_limit: int) -> Iterator[list[Tensor]]:
    """Lists of tensors of one dtype and device with about `size_limit` bytes each."""
    waiting: dict[Any, list[Tensor]] = {}
    sizes: dict[Any, int] = {}
    for tensor in tensors:
        size = tensor.numel() * tensor.element_size()
        kind = tensor.dtype, tensor.device
        if waiting.get(kind) and sizes[kind] + size > size_limit:
            yield waiting[kind]
            waiting[kind], sizes[kind] = [], 0  # its place in the order is kept
        waiting.setdefault(kind, []).append(tensor)
        sizes[kind] = sizes.get(kind, 0) + size
    yield from waiting.values()


def _reorder_tensors_as(
    tensors: Iterable[Tensor], ordered_tensors: Iterable[Tensor]
) -> tuple[Tensor, ...]:
    """The tensors, whose dtypes' order is that of `ordered_tensors`."""
    waiting: dict[Any, list[Tensor]] = {}
    for tensor in tensors:
        waiting.setdefault(tensor.dtype, []).append(tensor)
    rows = {kind: iter(row) for kind, row in waiting.items()}
    return tuple(next(rows[tensor.dtype]) for tensor in ordered_tensors)


def _element_size(dtype: Any) -> int:
    """Bytes of an element."""
    return int(dtype.itemsize)


def _get_device_index(device: Any, optional: bool = False, allow_cpu: bool = False) -> int:
    """The number of a device; with `optional` the current one's, where none is given.

    With `allow_cpu` the CPU is -1.
    """
    if isinstance(device, int):
        return device
    named = None if device is None else Device(device)
    if named is not None and named.type == "cpu":
        if allow_cpu:
            return -1
        raise ValueError("_get_device_index: the CPU has no number; pass allow_cpu=True for -1")
    if named is not None and named.index is not None:
        return int(named.index)
    if not optional:
        raise ValueError(f"_get_device_index: a device with a number is needed, got {device!r}")
    return int(cuda.current_device())


def _get_all_device_indices() -> list[int]:
    """The numbers of the accelerators."""
    return list(range(cuda.device_count()))


def _get_available_device_type() -> str | None:
    """ "cuda" where there is an accelerator."""
    return "cuda" if cuda.is_available() else None


def _import_dotted_name(name: str) -> Any:
    """What a name like "torch.nn.Linear" stands for."""
    first, *rest = name.split(".")
    return functools.reduce(getattr, rest, importlib.import_module(first))
