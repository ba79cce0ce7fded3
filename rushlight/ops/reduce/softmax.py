"""Softmax and its logarithm."""

from __future__ import annotations

from typing import Any

from rushlight.core.dtypes import DType
from rushlight.core.shapes import wrap_dim
from rushlight.ops.family.declare import rowwise
from rushlight.ops.family.rowwise import Rows
from rushlight.ops.pointwise import arithmetic as e
from rushlight.ops.registry import composite
from rushlight.ops.view import views
from rushlight.scalar import build as s
from rushlight.scalar.ir import Expr
from rushlight.tape.record.source_line import warn
from rushlight.tape.record.value import Value


def _softmax_body(r: Rows, x: Expr) -> Expr:
    top = r.max(x, constant=True)
    total = r.sum(s.exp(x - top))
    return s.exp(x - top) / total


_softmax = rowwise(
    "softmax",
    _softmax_body,
    "exp(x) / sum(exp(x)) along an axis.",
    vjp=lambda r, g, out, x: out * (g - r.sum(g * out)),
)


def _log_softmax_body(r: Rows, x: Expr) -> Expr:
    top = r.max(x, constant=True)
    return x - top - s.log(r.sum(s.exp(x - top)))


_log_softmax = rowwise(
    "log_softmax",
    _log_softmax_body,
    "log(softmax(x)) along an axis.",
    vjp=lambda r, g, out, x: g - s.exp(out) * r.sum(g),
)


def _along(kernel: Any, x: Value, dim: int | None, dtype: DType | None, op: str) -> Value:
    if dtype is not None:
        x = e.cast(x, dtype)
    if dim is None:
        raise TypeError(f"{op}: pass dim, the dimension along which the result sums to one")
    dim = wrap_dim(dim, len(x._spec.shape), op)
    if not x._spec.shape:
        return views.reshape(kernel(views.reshape(x, (1,)), dim=0), ())
    return kernel(x, dim=dim)


@composite("softmax", out="exact", pure=True, autocast={"gpu": "dtype"})
def softmax(input: Value, dim: int | None = None, dtype: DType | None = None) -> Value:
    """exp(input) / sum(exp(input)) along a dimension.

    Example:
        >>> torch.softmax(torch.zeros(2), dim=0)
        tensor([0.5000, 0.5000])
    """
    return _along(_softmax, input, dim, dtype, "softmax")


@composite("log_softmax", out="exact", pure=True, autocast={"gpu": "dtype"})
def log_softmax(input: Value, dim: int | None = None, dtype: DType | None = None) -> Value:
    """log(softmax(input)) along a dimension."""
    return _along(_log_softmax, input, dim, dtype, "log_softmax")


def implied_dim(op: str, dim: int | None, rank: int) -> int:
    """nn.functional's default dimension of softmax: PyTorch's choice, and its warning."""
    if dim is not None:
        return dim
    warn(f"{op}: the choice of a dimension is left to the number of them; pass dim=...")
    return 0 if rank in (0, 1, 3) else 1
