"""The scalar formulas of attention on a tile's scores. See Note [Attention tiles]."""

from __future__ import annotations

from functools import cache

from rushlight.core.dtypes import DType, bool_, compute_type, float32, int32, int64
from rushlight.kernel.shapes import Reduce, Rowwise
from rushlight.ops.family.map import Formula
from rushlight.scalar import build as s
from rushlight.scalar.ir import Expr, arg, index, param, row
from rushlight.scalar.philox import uniform

DROPOUT = (int64, int64, float32, float32)  # seed, position, probability, scale of kept elements


def _masked(scores: Expr, mask: Expr | None) -> Expr:
    """Scaled scores under a mask: a bool mask hides, any other is added."""
    if mask is None:
        return scores
    if mask.dtype is bool_:
        return s.where(mask, scores, float("-inf"))
    return scores + s.cast(mask, scores.dtype)


@cache
def mask_formula(dtype: DType, mask: DType) -> Formula:
    x = arg(0, dtype) * param(0, dtype)
    return Formula((dtype, mask), (dtype,), (dtype,), (_masked(x, arg(1, compute_type(mask))),))


@cache
def causal_formula(dtype: DType) -> Formula:
    """Hide the keys after the row: inputs are scores, the row's index and the key's."""
    body = s.where(arg(2, int32) <= arg(1, int32), arg(0, dtype), float("-inf"))
    return Formula((dtype, int32, int32), (), (dtype,), (body,))


@cache
def softmax_kernel(dtype: DType) -> Rowwise:
    """Scores to exp(scale * score - top), in place; also top and the row's sum."""
    x = arg(0, dtype) * param(0, dtype)
    highest = row(0, dtype)
    top = s.where(highest.eq(float("-inf")), 0.0, highest)
    power = s.exp(x - top)
    passes = (Reduce("max", x), Reduce("sum", power))
    stores = (power, top, row(1, dtype))
    kinds = ("element", "row", "row")
    return Rowwise(
        (dtype,) * 3, kinds, (dtype,), (dtype,), passes, stores, "axis", ("1", "0", "0", "1")
    )


@cache
def logsumexp_formula(dtype: DType) -> Formula:
    top, total = arg(0, dtype), arg(1, dtype)
    body = s.where(total.eq(0.0), 0.0, top + s.log(total))
    return Formula((dtype, dtype), (), (dtype,), (body,))


@cache
def divide_formula(dtype: DType) -> Formula:
    x, total = arg(0, dtype), arg(1, dtype)
    return Formula((dtype, dtype), (), (dtype,), (s.where(total.eq(0.0), 0.0, x / total),))


def _dropout(dtype: DType, first: int) -> tuple[Expr, Expr]:
    """Whether dropout keeps the element, and its factor then; its parameters begin at `first`."""
    seed, position = param(first, int64), param(first + 1, int64)
    chance = uniform(seed, position + index(), float32)
    return param(first + 2, float32) <= chance, s.cast(param(first + 3, float32), dtype)


@cache
def dropout_formula(dtype: DType) -> Formula:
    kept, more = _dropout(dtype, 0)
    return Formula((dtype,), DROPOUT, (dtype,), (s.where(kept, arg(0, dtype) * more, 0.0),))


@cache
def gradient_formula(
    dtype: DType, mask: DType | None, causal: bool, dropout: bool, to_mask: bool
) -> Formula:
    """Probabilities and the gradient of the scores, from scores and probabilities' gradient.

    Inputs: scores, gradient, logsumexp, sum of gradient times output; then the mask; then row and
    key indices. Params: scale; then the index of the tile's first row; then dropout's.
    """
    inputs: tuple[DType, ...] = (dtype,) * 4
    params: tuple[DType, ...] = (dtype,)
    scores, g, level, along = (arg(i, dtype) for i in range(4))
    scale = param(0, dtype)
    x = scores * scale
    if mask is not None:
        x = _masked(x, arg(4, compute_type(mask)))
        inputs += (mask,)
    p = s.exp(x - level)
    if causal:
        first = len(inputs)
        p = s.where(arg(first + 1, int32) <= arg(first, int32) + param(1, int32), p, 0.0)
        inputs += (int32, int32)
        params += (int32,)
    used = p
    if dropout:
        kept, more = _dropout(dtype, len(params))
        used, g = s.where(kept, p * more, 0.0), s.where(kept, g * more, 0.0)
        params += DROPOUT
    slope = p * (g - along)
    bodies = (used, slope * scale, slope) if to_mask else (used, slope * scale)
    return Formula(inputs, params, (dtype,) * len(bodies), bodies)


@cache
def along_kernel(dtype: DType) -> Rowwise:
    """The sum of a row's products."""
    passes = (Reduce("sum", arg(0, dtype) * arg(1, dtype)),)
    return Rowwise(
        (dtype,), ("row",), (dtype, dtype), (), passes, (row(0, dtype),), "axis", ("0", "1", "1")
    )


@cache
def add_formula(dtype: DType) -> Formula:
    return Formula((dtype, dtype), (), (dtype,), (arg(0, dtype) + arg(1, dtype),))


@cache
def count_formula() -> Formula:
    return Formula((), (), (int32,), (s.cast(index(), int32),))


@cache
def cast_formula(source: DType, target: DType) -> Formula:
    return Formula(
        (source,), (), (target,), (s.cast(arg(0, compute_type(source)), compute_type(target)),)
    )


@cache
def batch_kernel(dtype: DType) -> Rowwise:
    """The sum over heads that share a mask."""
    passes = (Reduce("sum", arg(0, dtype)),)
    return Rowwise((dtype,), ("row",), (dtype,), (), passes, (row(0, dtype),), "inner", ("1", "1"))
