"""Softmax, norms and the losses that are made of them."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Sequence
from typing import Any

from rushlight.core.dtypes import FLOAT, DType
from rushlight.core.errors import ShapeError
from rushlight.core.shapes import Spec, numel, wrap_dim
from rushlight.ops import elementwise as e, inplace, views
from rushlight.ops.creation import full_spec
from rushlight.ops.family.declare import rowwise
from rushlight.ops.family.rowwise import COMPUTE, DeclaredRow, Rows, call_rows, make_row_grad
from rushlight.ops.registry import composite
from rushlight.scalar import build as s
from rushlight.scalar.ir import Expr
from rushlight.tape.op import Grad, Plan, check_devices, check_dtypes
from rushlight.tape.value import Value


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
    dim = wrap_dim(dim, len(x.spec.shape), op)
    if not x.spec.shape:
        return views.reshape(kernel(views.reshape(x, (1,)), dim=0), ())
    return kernel(x, dim=dim)


@composite("softmax")
def softmax(input: Value, dim: int | None = None, dtype: DType | None = None) -> Value:
    """exp(input) / sum(exp(input)) along a dimension."""
    return _along(_softmax, input, dim, dtype, "softmax")


@composite("log_softmax")
def log_softmax(input: Value, dim: int | None = None, dtype: DType | None = None) -> Value:
    """log(softmax(input)) along a dimension."""
    return _along(_log_softmax, input, dim, dtype, "log_softmax")


# ---- layer norm ----


def _centred(x: Expr, mean: Expr, rstd: Expr) -> Expr:
    return (x - mean) * rstd


def _norm_body(r: Rows, x: Expr, w: Expr, b: Expr, eps: float) -> tuple[Expr, Expr, Expr]:
    n = r.extent(x.dtype)
    mean = r.sum(x) / n
    variance = r.sum((x - mean) * (x - mean)) / n
    rstd = 1 / s.sqrt(variance + eps)
    return _centred(x, mean, rstd) * w + b, mean, rstd


def _norm_grad_body(r: Rows, g: Expr, x: Expr, w: Expr, mean: Expr, rstd: Expr) -> Expr:
    n = r.extent(x.dtype)
    gw = g * w
    along = r.sum(gw * _centred(x, mean, rstd)) / n
    level = r.sum(gw) / n
    return (gw - level - _centred(x, mean, rstd) * along) * rstd


_norm_grad = rowwise("norm_grad", _norm_grad_body, "The gradient of a row's normalisation.", rows=(3, 4))
_norm_grad_weights = rowwise(
    "norm_grad_weights",
    lambda r, g, x, mean, rstd: (r.sum(g * _centred(x, mean, rstd)), r.sum(g)),
    "The gradients of scale and shift, down the columns.",
    kinds=("row", "row"),
    results=(None, None),
)


class Norm(DeclaredRow):
    """Normalise rows to mean 0 and variance 1, then scale and shift: y, and each row's mean and 1 / deviation."""

    __slots__ = ()

    def make_grad(self, plan: Plan, needs: int) -> Grad:
        full = make_row_grad(self, plan, needs)
        dim = plan.static[0]
        by_column = all(spec.shape == plan.ins[0].shape[dim:] for spec in plan.ins[1:])
        if not by_column or dim != len(plan.ins[0].shape) - 1:
            return full

        def rule(grads: list[Any], values: list[Any], params: tuple[Any, ...]) -> list[Any]:
            if grads[0] is None or grads[1] is not None or grads[2] is not None:
                return full.rule(grads, values, params)
            g, (x, w, _, _, mean, rstd) = grads[0], values
            parts: list[Any] = [None, None, None]
            if needs & 1:
                parts[0] = _norm_grad(g, x, w, mean, rstd, dim=dim)
            if needs & 6:
                size = x.spec.shape[dim]
                flat = [views.reshape(v, (-1, size)) for v in (g, x)] + [
                    views.reshape(v, (-1, 1)) for v in (mean, rstd)
                ]
                parts[1:] = _norm_grad_weights(*flat, dim=0)
            return [p if needs >> i & 1 else None for i, p in enumerate(parts)]

        return Grad(needs, tuple(sorted({0, 1, *full.saves_in})), tuple(sorted({1, 2, *full.saves_out})), rule)


@functools.cache
def _norm(eps: float) -> Norm:
    def body(r: Rows, x: Expr, w: Expr, b: Expr) -> tuple[Expr, Expr, Expr]:
        return _norm_body(r, x, w, b, eps)

    doc = "Rows with mean 0 and variance 1, scaled and shifted."
    return Norm("norm", body, None, FLOAT, (), ("element", "row", "row"), (None, COMPUTE, COMPUTE), None, doc)


def _check_each(op: str, x: Value, shape: tuple[int, ...], *vectors: Value | None) -> None:
    for v in vectors:
        if v is None:
            continue
        check_devices(op, (x.spec, v.spec))
        if v.spec.shape != shape:
            raise ShapeError(f"{op}: weights and statistics of {x.spec!r} have shape {list(shape)}, got {v.spec!r}")


@composite("layer_norm", method=False)
def layer_norm(
    input: Value,
    normalized_shape: Sequence[int] | int,
    weight: Value | None = None,
    bias: Value | None = None,
    eps: float = 1e-5,
) -> Value:
    """Normalise the last dimensions to mean 0 and variance 1, then scale and shift."""
    inner = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
    shape = input.spec.shape
    if not inner or shape[len(shape) - len(inner) :] != inner:
        raise ShapeError(f"layer_norm: input {input.spec!r} does not end in normalized_shape {list(inner)}")
    check_dtypes("layer_norm", [input.spec], FLOAT)
    _check_each("layer_norm", input, inner, weight, bias)
    size = numel(inner)
    x = input if len(inner) == 1 else views.reshape(input, (*shape[: len(shape) - len(inner)], size))
    like = x.spec.dtype
    w = _ones(x, (size,)) if weight is None else e.cast(views.reshape(weight, (size,)), like)
    b = _zeros(x, (size,)) if bias is None else e.cast(views.reshape(bias, (size,)), like)
    y, _, _ = call_rows(_norm(float(eps)), (x, w, b), len(x.spec.shape) - 1, True)
    return y if len(inner) == 1 else views.reshape(y, shape)


def _ones(x: Value, shape: tuple[int, ...]) -> Value:
    return full_spec(Spec.of(x.spec.device, x.spec.dtype, shape), 1.0)


def _zeros(x: Value, shape: tuple[int, ...]) -> Value:
    return full_spec(Spec.of(x.spec.device, x.spec.dtype, shape), 0.0)


@composite("batch_norm", method=False)
def batch_norm(
    input: Value,
    running_mean: Value | None,
    running_var: Value | None,
    weight: Value | None = None,
    bias: Value | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Value:
    """Normalise each channel (dimension 1) over the batch, or by running statistics when not training.

    Running statistics are updated in place, outside the record: a replay never repeats that.
    """
    return batch_normalised("batch_norm", input, (running_mean, running_var), (weight, bias), training, momentum, eps)[
        0
    ]


def _of_nothing(input: Value, weight: Value | None, bias: Value | None) -> Value:
    """No elements: nothing to normalise and no statistics to learn from; but the weights have a gradient, of zeros."""
    column = (-1,) + (1,) * (len(input.spec.shape) - 2) if len(input.spec.shape) > 1 else (-1,)
    y = e.clone(input)
    if weight is not None and len(input.spec.shape) > 1:
        y = e.mul(y, views.reshape(weight, column))
    if bias is not None and len(input.spec.shape) > 1:
        y = e.add(y, views.reshape(bias, column))
    return y


def batch_normalised(
    op: str,
    input: Value,
    running: tuple[Value | None, Value | None],
    affine: tuple[Value | None, Value | None],
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Value, Value | None, Value | None]:
    """The result, and in training the mean and 1 / deviation of each channel."""
    shape = input.spec.shape
    (running_mean, running_var), (weight, bias) = running, affine
    if input.spec.numel == 0 and (training or len(shape) == 1):
        return _of_nothing(input, weight, bias), None, None
    if len(shape) < 2:
        raise ShapeError(f"{op}: input needs at least 2 dimensions (batch, channel, ...), got {input.spec!r}")
    check_dtypes(op, [input.spec], FLOAT)
    channels = shape[1]
    _check_each(op, input, (channels,), weight, bias, running_mean, running_var)
    column = (1, channels) + (1,) * (len(shape) - 2)
    if not training:
        if running_mean is None or running_var is None:
            raise ShapeError(f"{op}: running_mean and running_var are needed when not training")
        scale = e.rsqrt(e.add(running_var, eps))
        y = e.mul(e.sub(input, views.reshape(running_mean, column)), views.reshape(scale, column))
        if weight is not None:
            y = e.mul(y, views.reshape(weight, column))
        return y if bias is None else e.add(y, views.reshape(bias, column)), None, None
    rows = views.reshape(views.transpose(input, 0, 1), (channels, -1))
    count = rows.spec.shape[1]
    if count < 2:
        raise ShapeError(f"{op}: more than one value per channel is needed in training, got {input.spec!r}")
    w = _ones(rows, (channels, 1)) if weight is None else views.reshape(weight, (channels, 1))
    b = _zeros(rows, (channels, 1)) if bias is None else views.reshape(bias, (channels, 1))
    y, mean, rstd = call_rows(_norm(float(eps)), (rows, w, b), 1, True)
    if running_mean is not None and running_var is not None:
        inplace.update_statistics(running_mean, running_var, mean, rstd, momentum, eps, count)
    back = views.reshape(y, (channels, shape[0], *shape[2:]))
    # Row by row again: users take .view(...) of it, and whatever comes next reads it in order.
    return views.contiguous(views.transpose(back, 0, 1)), mean, rstd


def implied_dim(op: str, dim: int | None, rank: int) -> int:
    """The dimension that nn.functional's softmax takes where none is given: PyTorch's choice, and its warning."""
    if dim is not None:
        return dim
    warnings.warn(f"{op}: the choice of a dimension is left to the number of them; pass dim=...", stacklevel=3)
    return 0 if rank in (0, 1, 3) else 1
