"""Layer norm and batch norm: rows less their mean, over their deviation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rushlight.core.cache import cached
from rushlight.core.dtypes import FLOAT, compute_type
from rushlight.core.errors import ShapeError
from rushlight.core.shapes import Spec, numel, suggests_last
from rushlight.ops.create.creation import full_spec
from rushlight.ops.family.declare import elementwise, rowwise
from rushlight.ops.family.rowwise import COMPUTE, DeclaredRow, Rows, call_rows, make_row_grad
from rushlight.ops.family.saved_names import name_operands
from rushlight.ops.nn import running_statistics
from rushlight.ops.nn.channel_norm import normalised_channels
from rushlight.ops.pointwise import arithmetic as e
from rushlight.ops.registry import composite
from rushlight.ops.view import views
from rushlight.ops.view.formats import in_format
from rushlight.scalar import build as s
from rushlight.scalar.ir import Expr
from rushlight.tape.program.memo import memo
from rushlight.tape.record.op import Grad, Plan, check_devices, check_dtypes
from rushlight.tape.record.value import Value


def _centred(x: Expr, mean: Expr, rstd: Expr) -> Expr:
    return (x - mean) * rstd


def _norm_body(r: Rows, x: Expr, eps: float, *affine: Expr) -> tuple[Expr, Expr, Expr]:
    n = r.extent(x.dtype)
    mean = r.sum(x) / n
    variance = r.sum((x - mean) * (x - mean)) / n
    rstd = 1 / s.sqrt(variance + eps)
    y = _centred(x, mean, rstd)
    return y * affine[0] + affine[1] if affine else y, mean, rstd


def _norm_grad_body(
    r: Rows, g: Expr, x: Expr, mean: Expr, rstd: Expr, *scale: Expr
) -> tuple[Expr, Expr, Expr]:
    """The gradient, and the row sums of scaled g times the normalised values and of scaled g."""
    n = r.extent(x.dtype)
    gw = g * scale[0] if scale else g
    along = r.sum(gw * _centred(x, mean, rstd))
    level = r.sum(gw)
    return (gw - level / n - _centred(x, mean, rstd) * (along / n)) * rstd, along, level


_norm_grad = rowwise(
    "norm_grad",
    lambda r, g, x, mean, rstd, w: _norm_grad_body(r, g, x, mean, rstd, w)[0],
    "The gradient of a row's normalisation.",
    rows=(2, 3),
)
_norm_grad_plain = rowwise(
    "norm_grad",
    lambda r, g, x, mean, rstd: _norm_grad_body(r, g, x, mean, rstd)[0],
    "The gradient of a row's normalisation that is not scaled.",
    rows=(2, 3),
)


def _norm_grad_row_body(
    r: Rows, g: Expr, x: Expr, mean: Expr, rstd: Expr, w: Expr
) -> tuple[Expr, Expr, Expr]:
    dx, along, level = _norm_grad_body(r, g, x, mean, rstd)
    return dx * w, along, level


_norm_grad_row = rowwise(
    "norm_grad",
    _norm_grad_row_body,
    "The gradients of a row's normalisation, of its scale and of its shift, which are one number "
    "per row.",
    rows=(2, 3, 4),
    kinds=("element", "row", "row"),
    results=(None, COMPUTE, COMPUTE),
)
_norm_grad_weights = {
    result: rowwise(
        "norm_grad_weights",
        lambda r, g, x, mean, rstd: (r.sum(g * _centred(x, mean, rstd)), r.sum(g)),
        "The gradients of scale and shift, down the columns.",
        kinds=("row", "row"),
        results=(result, result),
    )
    for result in (None, COMPUTE)
}


name_operands("norm", "input", "weight", "bias")


class Norm(DeclaredRow):
    """Normalise rows to mean 0 and variance 1, scale and shift: y, mean and 1 / deviation."""

    __slots__ = ()

    def make_grad(self, plan: Plan, needs: int) -> Grad:
        full = make_row_grad(self, plan, needs)
        way = _way(plan)
        if way is None:
            return full
        dim, plain = plan.static[0], len(plan.ins) == 1

        def rule(grads: list[Any], values: list[Any], params: tuple[Any, ...]) -> list[Any]:
            if grads[0] is None or grads[1] is not None or grads[2] is not None:
                return full.rule(grads, values, params)
            return [
                p if needs >> i & 1 else None
                for i, p in enumerate(way(dim, needs, grads[0], *values))
            ]

        saves_in = {0, *full.saves_in} if plain else {0, 1, *full.saves_in}
        return Grad(needs, tuple(sorted(saves_in)), tuple(sorted({1, 2, *full.saves_out})), rule)


def _way(plan: Plan) -> Callable[..., Sequence[Any]] | None:
    """The derivative from the saved row statistics.

    Scale and shift are by column, by row, or absent.
    """
    dim, shape = plan.static[0], plan.ins[0].shape
    if len(plan.ins) == 1:
        return _plain_gradients
    if dim == len(shape) - 1 and all(spec.shape == shape[dim:] for spec in plan.ins[1:]):
        return _column_gradients
    row = (*shape[:dim], 1, *shape[dim + 1 :])
    return (
        _row_gradients
        if shape[dim] > 1 and all(spec.shape == row for spec in plan.ins[1:])
        else None
    )


def _plain_gradients(
    dim: int, needs: int, g: Any, x: Any, _: Any, mean: Any, rstd: Any
) -> Sequence[Any]:
    return (_norm_grad_plain(g, x, mean, rstd, dim=dim),)


def _row_gradients(
    dim: int, needs: int, g: Any, x: Any, w: Any, b: Any, y: Any, mean: Any, rstd: Any
) -> Sequence[Any]:
    found: Sequence[Any] = _norm_grad_row(g, x, mean, rstd, w, dim=dim, keepdim=True)
    return found


def _column_gradients(
    dim: int, needs: int, g: Any, x: Any, w: Any, b: Any, y: Any, mean: Any, rstd: Any
) -> Sequence[Any]:
    parts: list[Any] = [None, None, None]
    if needs & 1:
        parts[0] = _norm_grad(g, x, mean, rstd, w, dim=dim)
    if needs & 6:
        size = x._spec.shape[dim]
        flat = [views.reshape(v, (-1, size)) for v in (g, x)] + [
            views.reshape(v, (-1, 1)) for v in (mean, rstd)
        ]
        narrow = w._spec.dtype is g._spec.dtype
        parts[1:] = _norm_grad_weights[None if narrow else COMPUTE](*flat, dim=0)
    return parts


@cached
def _norm(eps: float, plain: bool = False) -> Norm:
    """Rows with mean 0 and variance 1 of (x, scale, shift), or of x alone."""

    def scaled(r: Rows, x: Expr, w: Expr, b: Expr) -> tuple[Expr, Expr, Expr]:
        return _norm_body(r, x, eps, w, b)

    def alone(r: Rows, x: Expr) -> tuple[Expr, Expr, Expr]:
        return _norm_body(r, x, eps)

    doc = "Rows with mean 0 and variance 1, scaled and shifted."
    kinds, results = ("element", "row", "row"), (None, COMPUTE, COMPUTE)
    return Norm("norm", alone if plain else scaled, None, FLOAT, (), kinds, results, None, doc)


def normalised_rows(
    x: Value, weight: Value | None, bias: Value | None, shape: tuple[int, ...], dim: int, eps: float
) -> tuple[Value, Value, Value]:
    """x with mean 0 and variance 1 along a dimension, scaled and shifted.

    The means, and 1 / deviation. Scale and shift are viewed in `shape`.
    """
    if weight is None and bias is None:
        found: tuple[Value, Value, Value] = call_rows(_norm(float(eps), True), (x,), dim, True)
        return found
    w = _full(x, shape, 1.0) if weight is None else _wide(views.reshape(weight, shape), x)
    b = _full(x, shape, 0.0) if bias is None else _wide(views.reshape(bias, shape), x)
    found = call_rows(_norm(float(eps)), (x, w, b), dim, True)
    return found


def _full(x: Value, shape: tuple[int, ...], number: float) -> Value:
    return full_spec(Spec.of(x._spec.device, x._spec.dtype, shape), number)


def _wide(v: Value, x: Value) -> Value:
    """Weights of x as kernels take them: of any type that is computed in the same one."""
    dtype = x._spec.dtype
    same = v._spec.dtype in FLOAT and compute_type(v._spec.dtype) is compute_type(dtype)
    return v if same else e.cast(v, dtype)


def _check_each(op: str, x: Value, shape: tuple[int, ...], *vectors: Value | None) -> None:
    for v in vectors:
        if v is None:
            continue
        check_devices(op, (x._spec, v._spec))
        if v._spec.shape != shape:
            raise ShapeError(
                f"{op}: weights and statistics of {x._spec!r} have shape {list(shape)}, got "
                f"{v._spec!r}"
            )


@composite("layer_norm", method=False, top=False, pure=True, autocast={"gpu": "float32"})
def layer_norm(
    input: Value,
    normalized_shape: Sequence[int] | int,
    weight: Value | None = None,
    bias: Value | None = None,
    eps: float = 1e-5,
) -> Value:
    """Normalise the last dimensions to mean 0 and variance 1, then scale and shift.

    Example:
        >>> F.layer_norm(torch.tensor([[1.0, 3.0]]), (2,))
        tensor([[-1.0000,  1.0000]])
    """
    inner = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
    shape = input._spec.shape
    if not inner or shape[len(shape) - len(inner) :] != inner:
        raise ShapeError(
            f"layer_norm: input {input._spec!r} does not end in normalized_shape {list(inner)}"
        )
    check_dtypes("layer_norm", [input._spec], FLOAT)
    _check_each("layer_norm", input, inner, weight, bias)
    size = numel(inner)
    x = (
        input
        if len(inner) == 1
        else views.reshape(input, (*shape[: len(shape) - len(inner)], size))
    )
    y, _, _ = normalised_rows(x, weight, bias, (size,), len(x._spec.shape) - 1, eps)
    return y if len(inner) == 1 else views.reshape(y, shape)


@composite("batch_norm", method=False, top=False)
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
    """Normalise each channel (dimension 1) over the batch, or by running statistics.

    Running statistics are updated in place, outside the record: a replay never repeats that.
    """
    return batch_normalised(
        "batch_norm", input, (running_mean, running_var), (weight, bias), training, momentum, eps
    )[0]


def _of_nothing(input: Value, weight: Value | None, bias: Value | None) -> Value:
    """An empty batch: nothing to normalise and no statistics; the weights' gradient is zeros."""
    column = (-1,) + (1,) * (len(input._spec.shape) - 2) if len(input._spec.shape) > 1 else (-1,)
    y = e.clone(input)
    if weight is not None and len(input._spec.shape) > 1:
        y = e.mul(y, views.reshape(weight, column))
    if bias is not None and len(input._spec.shape) > 1:
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
    shape = input._spec.shape
    (running_mean, running_var), (weight, bias) = running, affine
    if input._spec.numel == 0 and (training or len(shape) == 1):
        return _of_nothing(input, weight, bias), None, None
    if len(shape) < 2:
        raise ShapeError(
            f"{op}: input needs at least 2 dimensions (batch, channel, ...), got {input._spec!r}"
        )
    check_dtypes(op, [input._spec], FLOAT)
    channels = shape[1]
    _check_each(op, input, (channels,), weight, bias, running_mean, running_var)
    if not training:
        if running_mean is None or running_var is None:
            raise ShapeError(f"{op}: running_mean and running_var are needed when not training")
        return (
            batch_norm_by_running(input, running_mean, running_var, weight, bias, float(eps)),
            None,
            None,
        )
    count = input._spec.numel // channels
    if count < 2:
        raise ShapeError(
            f"{op}: more than one value per channel is needed in training, got {input._spec!r}"
        )
    y, mean, rstd = batch_norm_by_batch(input, weight, bias, float(eps))
    if running_mean is not None and running_var is not None:
        running_statistics.update_statistics(
            running_mean, running_var, mean, rstd, momentum, eps, count
        )
    return y, mean, rstd


# Rows of fewer elements than these cost more than a copy in which channels are rows.
_FEW_PIXELS = 16


@memo
def batch_norm_by_batch(
    input: Value, weight: Value | None, bias: Value | None, eps: float
) -> tuple[Value, Value, Value]:
    """Each channel with mean 0 and variance 1, scaled and shifted; the means, and 1 / deviation."""
    shape = input._spec.shape
    channels = shape[1]
    # One number per channel and example: rows down the columns.
    if input._spec.numel == shape[0] * channels:
        flat = input if len(shape) == 2 else views.reshape(input, (shape[0], channels))
        y, *parts = normalised_rows(flat, weight, bias, (1, channels), 0, eps)
        mean, rstd = (views.reshape(v, (channels,)) for v in parts)
        return y if len(shape) == 2 else views.reshape(y, shape), mean, rstd
    if suggests_last(input._spec):  # rows down the columns, too, and no copy
        order = (0, *range(2, len(shape)), 1)
        image = views.permute(input, order)
        flat = views.reshape(image, (-1, channels))
        y, *parts = normalised_rows(flat, weight, bias, (1, channels), 0, eps)
        mean, rstd = (views.reshape(v, (channels,)) for v in parts)
        y = views.permute(
            views.reshape(y, image._spec.shape), (0, len(shape) - 1, *range(1, len(shape) - 1))
        )
        return y, mean, rstd
    if input._spec.numel < _FEW_PIXELS * shape[0] * channels:
        return _by_rows(input, weight, bias, eps)
    if weight is not None or bias is not None:
        weight = _full(input, (channels,), 1.0) if weight is None else _wide(weight, input)
        bias = _full(input, (channels,), 0.0) if bias is None else _wide(bias, input)
    return normalised_channels(input, weight, bias, eps, _by_rows)


def _by_rows(
    input: Value, weight: Value | None, bias: Value | None, eps: float
) -> tuple[Value, Value, Value]:
    """`normalised_channels` by rowwise ops over a copy, in which each channel is a row."""
    shape = input._spec.shape
    channels = shape[1]
    rows = views.reshape(views.transpose(input, 0, 1), (channels, -1))
    y, *parts = normalised_rows(rows, weight, bias, (channels, 1), 1, eps)
    mean, rstd = (views.reshape(v, (channels,)) for v in parts)
    back = views.reshape(y, (channels, shape[0], *shape[2:]))
    # Contiguous again: users call .view(...) on it, and the next op reads it in order.
    return views.contiguous(views.transpose(back, 0, 1)), mean, rstd


_by_statistics_map = elementwise(
    "batch_norm_by_statistics",
    lambda x, mean, var, eps: (x - mean) * (1 / s.sqrt(var + eps)),
    "x with a given mean and variance taken out.",
    FLOAT,
    listed=False,
)
_scaled = elementwise(
    "scaled",
    lambda x, w, b: x * w + b,
    "x * w + b.",
    FLOAT,
    listed=False,
)


@memo
def batch_norm_by_running(
    input: Value, mean: Value, var: Value, weight: Value | None, bias: Value | None, eps: float
) -> Value:
    """Each channel with given mean and variance normalised, scaled and shifted."""
    shape = input._spec.shape
    column = (shape[1],) + (1,) * (len(shape) - 2)
    y = _by_statistics_map(input, views.reshape(mean, column), views.reshape(var, column), eps)
    if weight is not None and bias is not None:
        y = _scaled(y, views.reshape(weight, column), views.reshape(bias, column))
    elif weight is not None:
        y = e.mul(y, views.reshape(weight, column))
    elif bias is not None:
        y = e.add(y, views.reshape(bias, column))
    # Of a half and statistics in float32 the result is a half.
    return in_format(e.cast(y, input._spec.dtype), suggests_last(input._spec))
