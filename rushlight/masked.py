"""Reductions and normalisations over the elements that a mask selects, with PyTorch's signatures.

A mask is broadcast to the input. Masked-out elements are replaced by the neutral value (0 for a
sum, 1 for a product, -inf for a maximum); a row without selected elements gives that value, or NaN
where there is none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from rushlight.core.dtypes import DType, bool_, float32, int64, real_type
from rushlight.core.errors import RushlightError
from rushlight.core.shapes import wrap_dim
from rushlight.lazy import shown
from rushlight.nn import functional
from rushlight.ops.create import creation, dtype_limits
from rushlight.ops.pointwise import arithmetic as e
from rushlight.ops.reduce.statistics import vector_norm
from rushlight.ops.surface.public import checked_kinds
from rushlight.ops.view.views import expand
from rushlight.tensor import Tensor

__all__ = [
    "amax",
    "amin",
    "argmax",
    "argmin",
    "cumprod",
    "cumsum",
    "log_softmax",
    "logaddexp",
    "logsumexp",
    "mean",
    "median",
    "norm",
    "normalize",
    "prod",
    "softmax",
    "softmin",
    "std",
    "sum",
    "var",
]


def __dir__() -> list[str]:
    return shown(__name__)


class BothGiven(RushlightError, AssertionError):
    """Two arguments with the same meaning; PyTorch raises AssertionError."""


Dims = int | Sequence[int] | None
Mask = Tensor | None


def _dims(op: str, dim: Dims, rank: int) -> tuple[int, ...]:
    if dim is None or (not isinstance(dim, int) and not len(dim)):
        return tuple(range(rank))
    given = (dim,) if isinstance(dim, int) else tuple(dim)
    dims = tuple(wrap_dim(d, rank, f"masked.{op}") for d in given)
    if len(set(dims)) < len(dims):
        raise RuntimeError(f"masked.{op}: a dimension appears twice in {list(given)}")
    return tuple(sorted(dims))


def _bool_mask(op: str, input: Tensor, mask: Tensor) -> Tensor:
    """The mask in the input's shape, as bool."""
    if mask.ndim > input.ndim:
        raise IndexError(
            f"masked.{op}: the mask {mask._spec!r} has more dimensions than the input "
            f"{input._spec!r}"
        )
    mask = mask.to_dense() if mask.is_sparse else mask
    chosen: Any = e.cast(mask, bool_)
    return chosen if mask.shape == input.shape else expand(chosen, input.shape)


def _filled(op: str, input: Tensor, mask: Mask, value: float) -> Tensor:
    """The input with a value where the mask is false."""
    if mask is None:
        return input
    other = creation.full((), value, dtype=input.dtype, device=input.device)
    return e.select(_bool_mask(op, input, mask), input, other)


def _extreme_value(dtype: DType, lowest: bool) -> float:
    if dtype.kind in "fc":
        return -math.inf if lowest else math.inf
    limits = dtype_limits.iinfo(dtype)
    return limits.min if lowest else limits.max


def _summed_type(input: Tensor, dtype: DType | None) -> DType:
    return dtype or (input.dtype if input.dtype.kind in "fc" else int64)


@checked_kinds
def sum(
    input: Tensor,
    dim: Dims = None,
    *,
    keepdim: bool = False,
    dtype: DType | None = None,
    mask: Mask = None,
) -> Tensor:
    """The sum of the selected elements; 0 of none."""
    dims = _dims("sum", dim, input.ndim)
    return _filled("sum", input, mask, 0).sum(dims, bool(keepdim), dtype=_summed_type(input, dtype))


@checked_kinds
def prod(
    input: Tensor,
    dim: Dims = None,
    *,
    keepdim: bool = False,
    dtype: DType | None = None,
    mask: Mask = None,
) -> Tensor:
    """The product of the selected elements; 1 of none."""
    result = _filled("prod", input, mask, 1).to(_summed_type(input, dtype))
    # An empty list reduces nothing here; in `sum` and others it reduces everything.
    if isinstance(dim, list) and not dim:
        return result
    for d in reversed(_dims("prod", dim, input.ndim)):
        result = result.prod(d, bool(keepdim))
    return result


@checked_kinds
def cumsum(input: Tensor, dim: int, *, dtype: DType | None = None, mask: Mask = None) -> Tensor:
    """Running sums; a masked-out element adds nothing."""
    return _filled("cumsum", input, mask, 0).cumsum(dim, dtype=dtype or input.dtype)


@checked_kinds
def cumprod(input: Tensor, dim: int, *, dtype: DType | None = None, mask: Mask = None) -> Tensor:
    """Running products; a masked-out element is skipped."""
    return _filled("cumprod", input, mask, 1).cumprod(dim, dtype=dtype or input.dtype)


@checked_kinds
def amax(
    input: Tensor,
    dim: Dims = None,
    *,
    keepdim: bool = False,
    dtype: DType | None = None,
    mask: Mask = None,
) -> Tensor:
    """The largest of the selected elements; of none the dtype's smallest number."""
    seen = _filled("amax", input, mask, _extreme_value(input.dtype, True))
    return seen.amax(_dims("amax", dim, input.ndim), bool(keepdim)).to(dtype or input.dtype)


@checked_kinds
def amin(
    input: Tensor,
    dim: Dims = None,
    *,
    keepdim: bool = False,
    dtype: DType | None = None,
    mask: Mask = None,
) -> Tensor:
    """The smallest of the selected elements; of none the dtype's largest number."""
    seen = _filled("amin", input, mask, _extreme_value(input.dtype, False))
    return seen.amin(_dims("amin", dim, input.ndim), bool(keepdim)).to(dtype or input.dtype)


@checked_kinds
def argmax(
    input: Tensor,
    dim: int | None = None,
    *,
    keepdim: bool = False,
    dtype: DType | None = None,
    mask: Mask = None,
) -> Tensor:
    """The index of the largest selected element, by default in the input's dtype, as in PyTorch."""
    seen = _filled("argmax", input, mask, _extreme_value(input.dtype, True))
    return seen.argmax(dim, bool(keepdim)).to(dtype or input.dtype)


@checked_kinds
def argmin(
    input: Tensor,
    dim: int | None = None,
    *,
    keepdim: bool = False,
    dtype: DType | None = None,
    mask: Mask = None,
) -> Tensor:
    """The index of the smallest selected element, in the input's dtype, as in PyTorch."""
    seen = _filled("argmin", input, mask, _extreme_value(input.dtype, False))
    return seen.argmin(dim, bool(keepdim)).to(dtype or input.dtype)


def _counted(op: str, input: Tensor, dim: Dims, keepdim: bool, mask: Mask) -> Tensor:
    """The number of selected elements, in int64."""
    ones = creation.ones(input.shape, dtype=int64, device=input.device)
    return sum(
        ones, dim, keepdim=keepdim, mask=None if mask is None else _bool_mask(op, input, mask)
    )


@checked_kinds
def mean(
    input: Tensor,
    dim: Dims = None,
    *,
    keepdim: bool = False,
    dtype: DType | None = None,
    mask: Mask = None,
) -> Tensor:
    """The mean of the selected elements; NaN of none."""
    wanted = dtype or input.dtype
    if wanted.kind not in "fc":
        raise ValueError(
            f"masked.mean: gives floating point, got {input._spec!r}; pass dtype=rushlight.float32"
        )
    total = sum(input, dim, keepdim=keepdim, dtype=wanted, mask=mask)
    return total / _counted("mean", input, dim, bool(keepdim), mask)


@checked_kinds
def median(
    input: Tensor,
    dim: int = -1,
    *,
    keepdim: bool = False,
    dtype: DType | None = None,
    mask: Mask = None,
) -> Tensor:
    """The median of the selected elements, the lower of two; NaN of none."""
    if input.dtype.kind == "f":
        return _filled("median", input, mask, math.nan).nanmedian(dim, keepdim).values
    found = _filled("median", input.to(float32), mask, math.nan).nanmedian(dim, keepdim).values
    if found.isnan().any().item():
        raise ValueError(
            f"masked.median: a row of {input._spec!r} has no chosen element; integers have no NaN"
        )
    return found.to(dtype or input.dtype)


@checked_kinds
def logsumexp(
    input: Tensor,
    dim: Dims = None,
    *,
    keepdim: bool = False,
    dtype: DType | None = None,
    mask: Mask = None,
) -> Tensor:
    """log(sum(exp(x))) of the selected elements; -inf of none."""
    seen = _filled("logsumexp", input, mask, _extreme_value(input.dtype, True))
    return seen.logsumexp(_dims("logsumexp", dim, input.ndim), keepdim).to(dtype or input.dtype)


@checked_kinds
def logaddexp(
    input: Tensor,
    other: Tensor,
    *,
    dtype: DType | None = None,
    input_mask: Mask = None,
    other_mask: Mask = None,
) -> Tensor:
    """log(exp(input) + exp(other)), of the elements that each mask selects."""
    x = _filled("logaddexp", input, input_mask, _extreme_value(input.dtype, True))
    y = _filled("logaddexp", other, other_mask, _extreme_value(other.dtype, True))
    return x.logaddexp(y).to(dtype or input.dtype)


@checked_kinds
def norm(
    input: Tensor,
    ord: float | None = 2.0,
    dim: Dims = None,
    *,
    keepdim: bool = False,
    dtype: DType | None = None,
    mask: Mask = None,
) -> Tensor:
    """The ord-norm of the selected elements."""
    power = 2.0 if ord is None else float(ord)
    seen: Any = _filled("norm", input, mask, math.inf if power == -math.inf else 0)
    dims = _dims("norm", dim, input.ndim)
    length: Any = vector_norm(seen, power, dims, bool(keepdim), dtype=dtype or input.dtype)
    return length


@checked_kinds
def var(
    input: Tensor,
    dim: Dims = None,
    unbiased: bool | None = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
    dtype: DType | None = None,
    mask: Mask = None,
) -> Tensor:
    """The variance of the selected elements, over their number less the correction."""
    if unbiased is not None and correction is not None:
        raise BothGiven("masked.var: pass unbiased or correction, not both")
    less = float(correction) if correction is not None else 1.0 if unbiased in (None, True) else 0.0
    wanted = dtype or (input.dtype if input.dtype.kind in "fc" else float32)
    compute = wanted if wanted.kind in "fc" else float32
    count = _counted("var", input, dim, True, mask)
    away = input - sum(input, dim, keepdim=True, dtype=wanted, mask=mask) / count
    total = sum(away * away.conj(), dim, keepdim=bool(keepdim), dtype=compute, mask=mask)
    number = count.reshape(total.shape)
    if less:
        number = (number.to(real_type(compute)) - less).clamp(min=0)
    return (total / number).to(wanted)


@checked_kinds
def std(
    input: Tensor,
    dim: Dims = None,
    unbiased: bool | None = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
    dtype: DType | None = None,
    mask: Mask = None,
) -> Tensor:
    """The square root of the variance of the selected elements."""
    return var(
        input, dim, unbiased, correction=correction, keepdim=keepdim, dtype=dtype, mask=mask
    ).sqrt()


@checked_kinds
def softmax(input: Tensor, dim: int, *, dtype: DType | None = None, mask: Mask = None) -> Tensor:
    """exp(x) / sum(exp(x)) over the selected elements; 0 elsewhere."""
    return functional.softmax(
        _filled("softmax", input, mask, -math.inf), dim, dtype=dtype or input.dtype
    )


@checked_kinds
def log_softmax(
    input: Tensor, dim: int, *, dtype: DType | None = None, mask: Mask = None
) -> Tensor:
    """log(softmax(x)) over the selected elements; -inf elsewhere."""
    return functional.log_softmax(
        _filled("log_softmax", input, mask, -math.inf), dim, dtype=dtype or input.dtype
    )


@checked_kinds
def softmin(input: Tensor, dim: int, *, dtype: DType | None = None, mask: Mask = None) -> Tensor:
    """softmax(-x) over the selected elements; 0 elsewhere."""
    return functional.softmax(
        -_filled("softmin", input, mask, math.inf), dim, dtype=dtype or input.dtype
    )


@checked_kinds
def normalize(
    input: Tensor,
    ord: float,
    dim: int,
    *,
    eps: float = 1e-12,
    dtype: DType | None = None,
    mask: Mask = None,
) -> Tensor:
    """The selected elements over the larger of their ord-norm and eps; 0 elsewhere."""
    length = norm(input, ord, dim, keepdim=True, dtype=dtype or input.dtype, mask=mask)
    return _filled("normalize", input, mask, 0) / e.maximum(length, eps)
