"""Methods of dense tensors that make sparse ones, or that only sparse ones have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rushlight.core.errors import LayoutError
from rushlight.sparse.coo import SparseTensor, words
from rushlight.sparse.csr import CsrTensor, by_rows
from rushlight.sparse.functions import sparse_mask
from rushlight.sparse.rearranged import to_dense, to_sparse

__all__ = ["sparse_mask", "to_dense", "to_sparse"]


def to_sparse_coo(self: Any) -> SparseTensor:
    """The tensor as a sparse one by coordinates."""
    return self.to_sparse()


def to_sparse_csr(self: Any, dense_dim: int | None = None) -> CsrTensor:
    """The matrix as a sparse one by rows."""
    return by_rows(self.to_sparse())


def sparse_dim(self: Any) -> int:
    """The number of dimensions with coordinates: 0 for a dense tensor."""
    return 0


def dense_dim(self: Any) -> int:
    """The number of dense dimensions: all of a dense tensor's."""
    return len(self._spec.shape)


def _of_sparse_only(name: str, doc: str = "") -> Callable[..., Any]:
    def method(self: Any) -> Any:
        raise LayoutError(
            f"{name}: a sparse tensor is needed, got {self._spec!r}; call .to_sparse() first"
        )

    method.__name__, method.__doc__ = name, doc
    return method


def _of_rows_only(name: str, doc: str) -> Callable[..., Any]:
    def method(self: Any) -> Any:
        raise LayoutError(
            f"{name}: a sparse tensor by rows is needed, got {words(self)}; call .to_sparse_csr() "
            "first"
        )

    method.__name__, method.__doc__ = name, doc
    return method


coalesce = _of_sparse_only(
    "coalesce", "A sparse tensor whose coordinates are sorted, each one once; equal ones add up."
)
is_coalesced = _of_sparse_only("is_coalesced", "Whether a sparse tensor is coalesced.")
indices = _of_sparse_only("indices", "The coordinates of a coalesced sparse tensor, by column.")
values = _of_sparse_only("values", "The stored elements of a sparse tensor.")
_indices = _of_sparse_only("_indices")
_values = _of_sparse_only("_values")
_nnz = _of_sparse_only("_nnz")
crow_indices = _of_rows_only(
    "crow_indices", "Where each row of a sparse matrix begins, and where the last one ends."
)
col_indices = _of_rows_only("col_indices", "The column of each element of a sparse matrix by rows.")
