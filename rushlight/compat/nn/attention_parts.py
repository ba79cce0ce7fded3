"""Functions beneath PyTorch's `multi_head_attention_forward` that copies of it import."""

from __future__ import annotations

from typing import Any

from rushlight.core.errors import DTypeError
from rushlight.nn import functional as F
from rushlight.ops.create import creation


def _get_softmax_dim(name: str, ndim: int, stacklevel: int) -> int:
    """The dimension of a softmax that is given none."""
    return 0 if ndim in (0, 1, 3) else 1


def _none_or_dtype(input: Any) -> Any:
    """The dtype of a tensor; None of None."""
    return None if input is None else input.dtype


def _canonical_mask(
    mask: Any,
    mask_name: str,
    other_type: Any,
    other_name: str,
    target_type: Any,
    check_other: bool = True,
) -> Any:
    """A mask as numbers to add: minus infinity where a bool mask is true."""
    if mask is None or mask.is_floating_point():
        return mask
    if mask.dtype.kind != "b":
        raise DTypeError(f"{mask_name} must be of bools or floats, got {mask.dtype}")
    zeros: Any = creation.zeros_like(mask, dtype=target_type)
    return zeros.masked_fill_(mask, float("-inf"))


def _in_projection_packed(q: Any, k: Any, v: Any, w: Any, b: Any = None) -> list[Any]:
    """Queries, keys and values by the three parts of one matrix."""
    weights = w.chunk(3)
    biases = [None] * 3 if b is None else b.chunk(3)
    return [F.linear(x, *pair) for x, *pair in zip((q, k, v), weights, biases, strict=True)]


def _in_projection(
    q: Any,
    k: Any,
    v: Any,
    w_q: Any,
    w_k: Any,
    w_v: Any,
    b_q: Any = None,
    b_k: Any = None,
    b_v: Any = None,
) -> tuple[Any, Any, Any]:
    """Queries, keys and values by a matrix each."""
    return F.linear(q, w_q, b_q), F.linear(k, w_k, b_k), F.linear(v, w_v, b_v)
