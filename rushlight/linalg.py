"""Linear algebra under PyTorch's names.

Owns: signatures that differ from the ops of the same name.
Takes: tensors. Gives: tensors.
Never: reaches below ops/.
"""

from __future__ import annotations

from typing import Any

from rushlight.core.errors import LinAlgError as LinAlgError, RushlightError, ShapeError
from rushlight.lazy import Names as _Names
from rushlight.ops.arguments import checked as _checked
from rushlight.ops.create import like
from rushlight.ops.declared import LINALG as _OPS
from rushlight.ops.linalg import products as _products
from rushlight.ops.reduce import statistics as _statistics
from rushlight.ops.registry import REGISTRY as _REGISTRY, stores as _stores
from rushlight.ops.surface.public import (
    checked_kinds as _checked_kinds,
    located as _located,
    op_of_namespace as _op,
    storing as _storing,
)
from rushlight.tape.program.memo import memo as _memo
from rushlight.tensor import Tensor

_NAMES = _Names(__name__)
_NAMES.made(_OPS, lambda name: _op(__name__, name, _OPS[name]))
_OWN = ("LinAlgError", "cross", "diagonal", "multi_dot", "vander", "vecdot", "vector_norm")
__all__ = sorted([*_OPS, *_OWN])


def __getattr__(name: str) -> Any:
    return _NAMES.find(name)


def __dir__() -> list[str]:
    return _NAMES.listed()


vector_norm = _located(
    __name__,
    "vector_norm",
    _storing(_memo(_checked("linalg.vector_norm", _statistics.vector_norm))),
)
multi_dot = _located(__name__, "multi_dot", _storing(_products.multi_dot))
_vecdot = _memo(_checked("linalg.vecdot", _products.vecdot))


@_storing
@_checked_kinds
@_stores("exact")
def vecdot(x: Tensor, y: Tensor, *, dim: int = -1) -> Tensor:
    """Sum of products along a dimension, the others broadcast."""
    return _vecdot(x, y, dim)


@_storing
@_checked_kinds
@_stores("exact")
def cross(input: Tensor, other: Tensor, *, dim: int = -1) -> Tensor:
    """Cross product of 3-vectors along a dimension."""
    if input.ndim and other.ndim and not input.shape[dim] == other.shape[dim] == 3:
        raise ShapeError(
            f"linalg.cross: both must have size 3 along {dim}, got {input._spec!r} and "
            f"{other._spec!r}"
        )
    return _REGISTRY["cross"].function(input, other, dim)


@_checked_kinds
def diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """The diagonal of two dimensions, along a new last dimension; a view."""
    return A.diagonal(offset, dim1, dim2)


@_checked_kinds
def vander(x: Tensor, N: int | None = None) -> Tensor:
    """The powers 0 to N - 1 of each element along a new last dimension."""
    x = x if x.shape else x.reshape(1)
    count = x.shape[-1] if N is None else N
    if count <= 1:
        raise RushlightError(f"vander: N must be greater than 1, got {count}")
    return like.powers(x, count, True)  # type: ignore[return-value]
