"""`make_tensor`: a tensor of random elements between bounds, in a given layout."""

from __future__ import annotations

import math
from typing import Any

from rushlight.core import dtypes
from rushlight.core.dtypes import DType
from rushlight.ops.create import creation
from rushlight.ops.create.dtype_limits import finfo, iinfo
from rushlight.ops.registry import REGISTRY

Bounds = tuple[Any, Any]


def make_tensor(
    *shape: Any,
    dtype: DType,
    device: Any,
    low: float | None = None,
    high: float | None = None,
    requires_grad: bool = False,
    noncontiguous: bool = False,
    exclude_zero: bool = False,
    memory_format: Any = None,
) -> Any:
    """Random elements in [low, high).

    The default is [-9, 9), for integers [-9, 10), for unsigned ones [0, 10), for bool both values.
    With `noncontiguous` every second element of memory is left out; with `exclude_zero` zeros
    become the smallest positive number.

    Args:
        shape (ints): The sizes.
        dtype (dtype): The type of the elements.
        device (device): The device.
        low (number): The lower end.
        high (number): The upper end, which is excluded.
        requires_grad (bool): Whether gradients of the tensor are wanted.
        noncontiguous (bool): Leave gaps between elements.
        exclude_zero (bool): Replace zeros.
        memory_format (memory_format): The layout.
    """
    if noncontiguous and memory_format is not None:
        raise ValueError(
            "make_tensor: `noncontiguous` and `memory_format` exclude each other, got both "
            f"(memory_format={memory_format!r})"
        )
    if requires_grad and dtype.kind not in "fc":
        raise ValueError(
            "make_tensor: `requires_grad=True` needs a floating-point or complex dtype, got "
            f"{dtype!r}"
        )
    size = creation.shape_of(shape)
    spread = noncontiguous and math.prod(size) > 1
    bounds = _bounds(dtype, low, high)
    made: Any = _drawn((*size[:-1], size[-1] * 2) if spread else size, dtype, device, bounds)
    if spread:
        made = made[..., ::2]
    elif memory_format is not None:
        made = made.contiguous(memory_format=memory_format)
    if exclude_zero:
        made[made == 0] = finfo(dtype).tiny if dtype.kind in "fc" else 1
    return made.requires_grad_(requires_grad)


def _bounds(dtype: DType, low: Any, high: Any) -> Bounds:
    """The bounds: the given ones or the dtype's defaults, within the dtype's range."""
    if any(given is not None and math.isnan(given) for given in (low, high)):
        raise ValueError(
            f"make_tensor: `low` and `high` cannot be NaN, but got low={low} and high={high}"
        )
    usual = {"b": (0, 2), "u": (0, 10), "i": (-9, 10)}.get(dtype.kind, (-9, 9))
    least, most = usual[0] if low is None else low, usual[1] if high is None else high
    equal_is_fine = dtype.kind in "fc"
    if least > most or (least == most and not equal_is_fine):
        raise ValueError(f"make_tensor: `low` must be less than `high`, but got {least} >= {most}")
    bottom, top = _range(dtype)
    if not (bottom <= least < top or bottom < most <= top or (least <= bottom and most >= top)):
        raise ValueError(
            f"make_tensor: {dtype!r} holds numbers in [{bottom}, {top}), and `low` and `high` ask "
            f"for [{least}, {most})"
        )
    least, most = max(least, bottom), min(most, top)
    if dtype.kind in "fc":
        return least, most
    least, most = math.ceil(least), math.ceil(most)
    if least >= most:
        raise ValueError(f"make_tensor: no integer is in [{low}, {high})")
    return least, most


def _range(dtype: DType) -> Bounds:
    if dtype.kind in "fc":
        limits = finfo(dtype)
        return limits.min, limits.max
    if dtype.kind == "b":
        return 0, 2
    whole = iinfo(dtype)
    return whole.min, whole.max + 1


def _drawn(size: tuple[int, ...], dtype: DType, device: Any, bounds: Bounds) -> Any:
    low, high = bounds
    if dtype.kind not in "fc":
        wide = REGISTRY["randint"].function(low, high, size, dtype=dtypes.int64, device=device)
        return wide.to(dtype)
    real = dtypes.real_type(dtype)
    if low == high:
        return creation.full(size, low, dtype=dtype, device=device)
    halved = 2 if high - low > finfo(real).max else 1  # else the width would overflow
    parts = [
        creation.empty(size, dtype=real, device=device).uniform_(low / halved, high / halved)
        * halved
        for _ in range(2 if dtype.kind == "c" else 1)
    ]
    return parts[0] if len(parts) == 1 else REGISTRY["complex"].function(*parts)
