"""Helpers for authors of distributions: broadcasting, log-odds, triangles as vectors."""

from __future__ import annotations

from typing import Any

from rushlight.distributions.public import (
    broadcast_all,
    clamp_probs,
    lazy_property,
    logits_to_probs,
    ops,
    probs_to_logits,
)

__all__ = [
    "broadcast_all",
    "clamp_probs",
    "lazy_property",
    "logits_to_probs",
    "probs_to_logits",
    "tril_matrix_to_vec",
    "vec_to_tril_matrix",
]


def _standard_normal(shape: Any, dtype: Any, device: Any) -> Any:
    """Numbers of the standard normal distribution."""
    return ops.randn(shape, dtype=dtype, device=device)


def _sum_rightmost(value: Any, dim: int) -> Any:
    """The sum over the last `dim` dimensions."""
    return value if dim == 0 else value.reshape((*value.shape[:-dim], -1)).sum(-1)


euler_constant = 0.57721566490153286060  # the Euler-Mascheroni constant


def tril_matrix_to_vec(mat: Any, diag: int = 0) -> Any:
    """The elements of matrices on and below a diagonal, row by row, as vectors."""
    n = mat.shape[-1]
    if not -n < diag < n:
        raise ValueError(f"tril_matrix_to_vec: diag {diag} lies outside of matrices of size {n}")
    rows, columns = ops.tril_indices(n, n, diag, device=mat.device).unbind(0)
    return mat[..., rows, columns]


def _elements(n: int, diag: int) -> int:
    """The number of elements of an n x n matrix on and below a diagonal."""
    return sum(min(max(row + 1 + diag, 0), n) for row in range(n))


def vec_to_tril_matrix(vec: Any, diag: int = 0) -> Any:
    """The inverse of `tril_matrix_to_vec`: matrices with zeros above the diagonal."""
    length, size = vec.shape[-1], 1
    while _elements(size, diag) < length:
        size += 1
    if _elements(size, diag) != length:
        raise ValueError(
            f"vec_to_tril_matrix: {length} elements are no triangle up to diagonal {diag}"
        )
    matrix = ops.zeros((*vec.shape[:-1], size, size), dtype=vec.dtype, device=vec.device)
    rows, columns = ops.tril_indices(size, size, diag, device=vec.device).unbind(0)
    matrix[..., rows, columns] = vec
    return matrix
