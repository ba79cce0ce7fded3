"""Samples collated into a batch: tensors stacked, numbers in a tensor, containers recursively."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rushlight.core.dtypes import float64
from rushlight.ops.view import views
from rushlight.tensor import Tensor, as_tensor, tensor
from rushlight.utils.data.dataset import Rows

np_str_obj_array_pattern = re.compile(r"[SaUO]")  # dtypes of NumPy that no tensor has


def _is_array(value: Any) -> bool:
    """Whether it is a NumPy array or number, without importing NumPy."""
    return type(value).__module__ == "numpy" and hasattr(value, "dtype")


def _made_like(sample: Any, pairs: dict[Any, Any]) -> Any:
    try:
        return type(sample)(pairs)
    except TypeError:
        return pairs


def _listed_like(sample: Any, parts: list[Any]) -> Any:
    if isinstance(sample, tuple) and hasattr(sample, "_fields"):
        return type(sample)(*parts)
    try:
        return parts if isinstance(sample, tuple) else type(sample)(parts)
    except TypeError:
        return parts


def default_convert(data: Any) -> Any:
    """NumPy arrays as tensors, inside containers too; anything else unchanged.

    Args:
        data: A sample.
    """
    if isinstance(data, (Tensor, str, bytes)):
        return data
    if _is_array(data):
        return data if np_str_obj_array_pattern.search(data.dtype.str) else as_tensor(data)
    if isinstance(data, Mapping):
        return _made_like(data, {key: default_convert(value) for key, value in data.items()})
    if isinstance(data, tuple) and not hasattr(data, "_fields"):
        return [default_convert(value) for value in data]
    if isinstance(data, Sequence):
        return _listed_like(data, [default_convert(value) for value in data])
    return data


def collate_tensor_fn(batch: Sequence[Tensor], *, collate_fn_map: Any = None) -> Tensor:
    """Tensors of one shape, stacked."""
    return views.stack(list(batch))


# What `default_collate` calls, by the type of a sample. A program may add types.
default_collate_fn_map: dict[Any, Callable[..., Any]] = {Tensor: collate_tensor_fn}


def collate(
    batch: Sequence[Any], *, collate_fn_map: Mapping[Any, Callable[..., Any]] | None = None
) -> Any:
    """Collate samples into one batch; `collate_fn_map` has functions for further types."""
    functions = collate_fn_map or {}
    if isinstance(batch, Rows) and functions.get(Tensor, collate_tensor_fn) is collate_tensor_fn:
        return batch.stacked()
    first = batch[0]
    function = functions.get(type(first))
    if function is None:
        kinds = (kind for kind in functions if isinstance(first, kind))
        function = functions.get(next(kinds, None))
    if function is not None:
        return function(batch, collate_fn_map=collate_fn_map)
    if isinstance(first, Tensor):
        return collate_tensor_fn(batch)
    if _is_array(first):
        if np_str_obj_array_pattern.search(first.dtype.str):
            raise TypeError(f"default_collate: arrays of {first.dtype} cannot become a tensor")
        return views.stack([as_tensor(value) for value in batch])
    if isinstance(first, float):
        return tensor(list(batch), dtype=float64)
    if isinstance(first, (bool, int)):
        return tensor(list(batch))
    if isinstance(first, (str, bytes)):
        return list(batch)
    if isinstance(first, Mapping):
        parts = {
            key: collate([sample[key] for sample in batch], collate_fn_map=collate_fn_map)
            for key in first
        }
        return _made_like(first, parts)
    if isinstance(first, Sequence):
        if any(len(sample) != len(first) for sample in batch):
            raise RuntimeError(
                "default_collate: the samples of a batch must have equally many parts"
            )
        columns = [
            collate(column, collate_fn_map=collate_fn_map) for column in zip(*batch, strict=True)
        ]
        return _listed_like(first, columns)
    raise TypeError(
        "default_collate: a batch is made of tensors, NumPy arrays, numbers, strings, dicts and "
        f"lists, got {type(first).__name__}; pass collate_fn"
    )


def default_collate(batch: Sequence[Any]) -> Any:
    """The default collate function of loaders.

    Args:
        batch (sequence): The samples.
    """
    return collate(batch, collate_fn_map=default_collate_fn_map)
