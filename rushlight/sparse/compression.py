"""Indices of sparse tensors between coordinates and compressed rows."""

from __future__ import annotations

from typing import Any

from rushlight.core.dtypes import int32, int64
from rushlight.ops.create import creation
from rushlight.ops.index.repeat_interleave import repeat_interleave
from rushlight.ops.registry import REGISTRY
from rushlight.ops.view.views import stack


def rows_to_bounds(input: Any, size: int, *, out_int32: bool = False) -> Any:
    """For each of `size` rows the number of indices before it; at the end, the number of all.

    `input` are row indices in order.
    """
    rows = creation.arange(size + 1, dtype=input.dtype, device=input.device)
    return (
        REGISTRY["searchsorted"]
        .function(input.contiguous(), rows)
        .to(int32 if out_int32 else int64)
    )


def bounds_to_coordinates(
    crow_indices: Any, col_indices: Any, *, out_int32: bool = False, transpose: bool = False
) -> Any:
    """The coordinates of compressed rows, a row of the result for each dimension.

    Batches of matrices have one more, the first. `transpose` exchanges rows and columns.
    """
    kind = int32 if out_int32 else int64
    counts = crow_indices[..., 1:] - crow_indices[..., :-1]
    size = counts.shape[-1]
    places = repeat_interleave(
        creation.arange(counts.numel(), device=counts.device), counts.flatten()
    )
    found = [(places % size).to(kind), col_indices.flatten().to(kind)]
    if transpose:
        found.reverse()
    if crow_indices.ndim > 1:
        found.insert(0, (places // size).to(kind))
    return stack(found)
