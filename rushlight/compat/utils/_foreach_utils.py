"""PyTorch's `torch.utils._foreach_utils`: lists of tensors in groups of one device and dtype."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight.tensor import Tensor

Lists = list[list[Tensor | None]]


def _group_tensors_by_device_and_dtype(
    tensorlistlist: Sequence[Sequence[Tensor | None]], with_indices: bool = False
) -> dict[tuple[Any, Any], tuple[Lists, list[int]]]:
    """The columns of lists of one length, by the device and dtype of their first tensor."""
    lengths = {len(row) for row in tensorlistlist}
    if len(lengths) > 1:
        raise RuntimeError(f"_group_tensors_by_device_and_dtype: lists of lengths {lengths}")
    found: dict[tuple[Any, Any], tuple[Lists, list[int]]] = {}
    for at, column in enumerate(zip(*tensorlistlist, strict=True)):
        first = column[0]
        if first is None:
            raise RuntimeError("_group_tensors_by_device_and_dtype: the first list has a None")
        empty: tuple[Lists, list[int]] = ([[] for _ in column], [])
        lists, places = found.setdefault((first.device, first.dtype), empty)
        for held, value in zip(lists, column, strict=True):
            held.append(value)
        if with_indices:
            places.append(at)
    return found


def _get_foreach_kernels_supported_devices() -> list[str]:
    """Devices on which PyTorch has kernels of lists; here every list is a loop of launches."""
    return ["cuda"]


def _get_fused_kernels_supported_devices() -> list[str]:
    """Devices on which a step of an optimiser is one launch."""
    return ["cpu", "cuda"]


def _device_has_foreach_support(device: Any) -> bool:
    return device.type in (*_get_foreach_kernels_supported_devices(), "cpu")


def _has_foreach_support(tensors: Sequence[Tensor | None], device: Any) -> bool:
    return _device_has_foreach_support(device) and all(
        t is None or isinstance(t, Tensor) for t in tensors
    )
