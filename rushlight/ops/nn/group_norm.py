"""Norms over groups of channels, instances, mean squares and neighbouring channels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rushlight.core.cache import cached
from rushlight.core.dtypes import (
    FIELD,
    FLOAT,
    DType,
    compute_type,
    float32,
    float64,
    promote,
    real_type,
)
from rushlight.core.errors import ShapeError
from rushlight.core.shapes import Spec, numel
from rushlight.ops.create.creation import full_spec
from rushlight.ops.family.declare import rowwise
from rushlight.ops.family.rowwise import COMPUTE, DeclaredRow, Rows, call_rows, make_row_grad
from rushlight.ops.nn.norms import batch_norm, batch_normalised, layer_norm, normalised_rows
from rushlight.ops.nn.pooling import avg_pool1d
from rushlight.ops.pointwise import arithmetic as e
from rushlight.ops.reduce import reductions
from rushlight.ops.registry import composite
from rushlight.ops.view import inplace, views
from rushlight.ops.view.formats import follows_image
from rushlight.ops.view.windows import bordered
from rushlight.scalar import build as s
from rushlight.scalar.ir import Expr
from rushlight.tape.record import call
from rushlight.tape.record.op import Grad, Plan, check_dtypes
from rushlight.tape.record.state import Changed
from rushlight.tape.record.value import Value

# The machine epsilon of the arithmetic: rms_norm adds it under the root when no eps is given.
_EPSILON: dict[DType, float] = {float32: 2.0**-23, float64: 2.0**-52}


def _per_channel(op: str, y: Value, weight: Value | None, bias: Value | None) -> Value:
    """Scaled and shifted by a number for each channel, which is dimension 1."""
    channels = y._spec.shape[1]
    column = (channels,) + (1,) * (len(y._spec.shape) - 2)
    for v in (weight, bias):
        if v is not None and v._spec.shape != (channels,):
            raise ShapeError(
                f"{op}: weight and bias must have a number for each of {channels} channels, got "
                f"{v._spec!r}"
            )
    if weight is not None:
        y = e.mul(y, e.cast(views.reshape(weight, column), y._spec.dtype))
    return y if bias is None else e.add(y, e.cast(views.reshape(bias, column), y._spec.dtype))


@composite("group_norm", method=False, top=False, pure=True, autocast={"gpu": "float32"})
@follows_image
def group_norm(
    input: Value,
    num_groups: int,
    weight: Value | None = None,
    bias: Value | None = None,
    eps: float = 1e-5,
) -> Value:
    """Normalise groups of channels (dimension 1) of each instance to mean 0 and variance 1.

    Then scale and shift.
    """
    shape = input._spec.shape
    if len(shape) < 2:
        raise ShapeError(
            "group_norm: input needs at least 2 dimensions (batch, channel, ...), got "
            f"{input._spec!r}"
        )
    check_dtypes("group_norm", [input._spec], FLOAT)
    if num_groups < 1 or shape[1] % num_groups:
        raise ShapeError(
            f"group_norm: {shape[1]} channels of {input._spec!r} do not divide into {num_groups} "
            "groups"
        )
    size = numel(shape[1:]) // num_groups
    if size == 1 and shape[0] == 1:
        raise ValueError(
            f"group_norm: more than 1 value per group is needed, got {input._spec!r} in "
            f"{num_groups} groups"
        )
    if not input._spec.numel:
        return _per_channel("group_norm", e.clone(input), weight, bias)
    rows = views.reshape(input, (shape[0] * num_groups, size))
    return _per_channel(
        "group_norm", views.reshape(layer_norm(rows, (size,), eps=eps), shape), weight, bias
    )


def _repeated(v: Value, times: int) -> Value:
    """A vector, repeated."""
    size = v._spec.shape[0]
    return views.reshape(views.expand(views.unsqueeze(v, 0), (times, size)), (times * size,))


@composite("instance_norm", method=False, top=False, pure=True)
def instance_norm(
    input: Value,
    running_mean: Value | None = None,
    running_var: Value | None = None,
    weight: Value | None = None,
    bias: Value | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Value:
    """Normalise each channel of each instance, by its own or running statistics.

    Then scale and shift.
    """
    shape = input._spec.shape
    if len(shape) < 3:
        raise ShapeError(
            f"instance_norm: input must be (batch, channel, length, ...), got {input._spec!r}"
        )
    if use_input_stats and numel(shape[2:]) == 1:
        raise ShapeError(
            "instance_norm: more than one value per instance and channel is needed, got "
            f"{input._spec!r}"
        )
    n, channels = shape[:2]
    flat = views.reshape(views.contiguous(input), (1, n * channels, *shape[2:]))
    mean, var = (None if v is None else _repeated(v, n) for v in (running_mean, running_var))
    if use_input_stats:  # they are written to, and the result does not depend on them
        with Changed(grad=False):
            mean, var = (None if v is None else e.clone(v) for v in (mean, var))
    y = batch_norm(flat, mean, var, None, None, use_input_stats, momentum, eps)
    result = _per_channel("instance_norm", views.reshape(y, shape), weight, bias)
    if use_input_stats and n:  # last: after an error they are unchanged
        with Changed(grad=False):
            both = [
                (r, v)
                for r, v in ((running_mean, mean), (running_var, var))
                if r is not None and v is not None
            ]
            moved = [reductions.mean(views.reshape(v, (n, channels)), 0) for _, v in both]
            for (running, _), new in zip(both, moved, strict=True):
                inplace.copy_(running, new)
    return result


@cached
def _rms(eps: float) -> Callable[..., Value]:
    def body(r: Rows, x: Expr) -> Expr:
        return x * (1 / s.sqrt(r.sum(x * x) / r.extent(x.dtype) + eps))

    return rowwise("rms_norm", body, "Rows divided by the root of their mean square.")


def _rms_grad_body(r: Rows, g: Expr, x: Expr, rstd: Expr, w: Expr) -> Expr:
    gw, y = g * w, x * rstd
    return (gw - y * (r.sum(gw * y) / r.extent(x.dtype))) * rstd


_rms_grad = rowwise(
    "rms_norm_grad",
    _rms_grad_body,
    "The gradient of rows that are divided by the root of their mean square and scaled.",
    rows=(2,),
)
_rms_grad_weights = rowwise(
    "rms_norm_grad_weights",
    lambda r, g, x, rstd: r.sum(g * (x * rstd)),
    "The gradient of their scale, down the columns.",
    kinds=("row",),
)


class ScaledRms(DeclaredRow):
    """Rows divided by the root of their mean square and scaled by column: y, and 1 / root."""

    __slots__ = ()

    def make_grad(self, plan: Plan, needs: int) -> Grad:
        full, dim = make_row_grad(self, plan, needs), plan.static[0]
        shape = plan.ins[0].shape
        if dim != len(shape) - 1 or plan.ins[1].shape != shape[dim:]:
            return full  # a batch of scales, under vmap

        def rule(grads: list[Any], values: list[Any], params: tuple[Any, ...]) -> list[Any]:
            (g, of_rstd), (x, w, _, rstd) = grads, values
            if g is None or of_rstd is not None:
                return full.rule(grads, values, params)
            parts: list[Any] = [None, None]
            if needs & 1:
                parts[0] = _rms_grad(g, x, rstd, w, dim=dim)
            if needs & 2:
                size = x._spec.shape[dim]
                flat = [views.reshape(v, (-1, size)) for v in (g, x)]
                parts[1] = _rms_grad_weights(*flat, views.reshape(rstd, (-1, 1)), dim=0)
            return parts

        saves_in, saves_out = {0, 1, *full.saves_in}, {1, *full.saves_out}
        return Grad(needs, tuple(sorted(saves_in)), tuple(sorted(saves_out)), rule)


@cached
def _scaled_rms(eps: float) -> ScaledRms:
    def body(r: Rows, x: Expr, w: Expr) -> tuple[Expr, Expr]:
        rstd = 1 / s.sqrt(r.sum(x * x) / r.extent(x.dtype) + eps)
        return x * rstd * w, rstd

    doc = "Rows divided by the root of their mean square and scaled."
    kinds, results = ("element", "row"), (None, COMPUTE)
    return ScaledRms("rms_norm", body, None, FLOAT, (), kinds, results, None, doc)


@composite("rms_norm", method=False, pure=True, autocast={"gpu": "float32"})
def rms_norm(
    input: Value,
    normalized_shape: Sequence[int] | int,
    weight: Value | None = None,
    eps: float | None = None,
) -> Value:
    """Divide the last dimensions by their root mean square, then scale."""
    inner = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
    shape = input._spec.shape
    if not inner or shape[len(shape) - len(inner) :] != inner:
        raise ShapeError(
            f"rms_norm: input {input._spec!r} does not end in normalized_shape {list(inner)}"
        )
    if weight is not None and weight._spec.shape != inner:
        raise ShapeError(f"rms_norm: weight {weight._spec!r} must have the shape {list(inner)}")
    check_dtypes("rms_norm", [input._spec], FIELD)
    added = _EPSILON[compute_type(real_type(input._spec.dtype))] if eps is None else float(eps)
    if input._spec.dtype.kind == "c":
        dims = tuple(range(len(shape) - len(inner), len(shape)))
        y = e.mul(input, e.rsqrt(e.add(reductions.mean(e.square(input), dims, True), added)))
        return y if weight is None else e.mul(y, weight)
    rows = views.reshape(input, (*shape[: len(shape) - len(inner)], numel(inner)))
    if not input._spec.numel:
        return e.cast(e.clone(input) if weight is None else e.mul(input, weight), input._spec.dtype)
    if weight is None:
        return views.reshape(_rms(added)(rows, dim=-1), shape)
    kind = promote(input._spec.dtype, weight._spec.dtype)
    scale = e.cast(views.reshape(weight, (numel(inner),)), kind)
    last = len(rows._spec.shape) - 1
    y, _ = call_rows(_scaled_rms(added), (e.cast(rows, kind), scale), last, True)
    return e.cast(views.reshape(y, shape), input._spec.dtype)


@composite("local_response_norm", method=False, top=False, pure=True)
def local_response_norm(
    input: Value, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> Value:
    """x / (k + alpha * mean of squares over `size` neighbouring channels) ** beta.

    Args:
        size: The number of neighbouring channels.
        alpha: The factor of the sum of squares.
        beta: The exponent.
        k: What is added to the sum of squares.
    """
    shape = input._spec.shape
    if len(shape) < 3:
        raise ShapeError(
            f"local_response_norm: input needs at least 3 dimensions, got {input._spec!r}"
        )
    if not input._spec.numel:
        return e.clone(input)
    # Channels last, as rows of a length; a window of even size reaches one further back than
    # forward.
    squares = views.reshape(e.mul(input, input), (shape[0], shape[1], numel(shape[2:])))
    rows = bordered(views.transpose(squares, 1, 2), ((size // 2, (size - 1) // 2),), 0.0)
    level = views.reshape(views.transpose(avg_pool1d(rows, size, 1), 1, 2), shape)
    return e.div(input, e.pow(e.add(e.mul(level, alpha), k), beta))


# ---- PyTorch's inner functions: the result with its statistics ----


def _rows_with_statistics(rows: Value, eps: float) -> tuple[Value, Value, Value]:
    """Rows with mean 0 and variance 1, each row's mean and 1 / deviation."""
    y, mean, rstd = normalised_rows(rows, None, None, (), len(rows._spec.shape) - 1, eps)
    # Those of halves are float32.
    return (
        y,
        e.cast(mean, y._spec.dtype),
        e.cast(rstd, y._spec.dtype),
    )


@composite("native_layer_norm", method=False, autocast={"gpu": "float32"})
def native_layer_norm(
    input: Value,
    normalized_shape: Sequence[int],
    weight: Value | None,
    bias: Value | None,
    eps: float,
) -> tuple[Value, Value, Value]:
    """layer_norm, the means and the reciprocal deviations."""
    y = layer_norm(input, normalized_shape, weight, bias, eps)
    shape = input._spec.shape
    lead = shape[: len(shape) - len(normalized_shape)]
    # As in PyTorch no gradient passes the statistics here (in native_group_norm it does).
    rows = views.reshape(call.detached(input), (*lead, numel(normalized_shape)))
    _, mean, rstd = _rows_with_statistics(rows, eps)
    kept = (*lead, *(1,) * len(normalized_shape))
    return y, views.reshape(mean, kept), views.reshape(rstd, kept)


@composite("native_group_norm", method=False)
def native_group_norm(
    input: Value,
    weight: Value | None,
    bias: Value | None,
    N: int,
    C: int,
    HxW: int,
    group: int,
    eps: float,
) -> tuple[Value, Value, Value]:
    """group_norm, the means and the reciprocal deviations of each instance's groups.

    Args:
        N: The number of examples.
    """
    y = group_norm(input, group, weight, bias, eps)
    rows = views.reshape(input, (N, group, C // group * HxW))
    _, mean, rstd = _rows_with_statistics(rows, eps)
    return y, views.reshape(mean, (N, group)), views.reshape(rstd, (N, group))


@composite("native_batch_norm", method=False, out="exact")
def native_batch_norm(
    input: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value | None,
    running_var: Value | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Value, Value, Value]:
    """batch_norm, and in training the mean and 1 / deviation of each channel.

    Else two empty tensors.
    """
    op, running, affine = "native_batch_norm", (running_mean, running_var), (weight, bias)
    # First: after an error statistics are unchanged.
    none = full_spec(Spec.of(input._spec.device, input._spec.dtype, (0,)), 0.0)
    y, *parts = batch_normalised(op, input, running, affine, training, momentum, eps)
    size = 0 if parts[0] is None else input._spec.shape[1]
    # No gradient passes the statistics, as in PyTorch.
    mean, rstd = (none if v is None else views.reshape(call.detached(v), (size,)) for v in parts)
    return y, mean, rstd
