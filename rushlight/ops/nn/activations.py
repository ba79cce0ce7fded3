"""Activation functions, and distances and similarities of vectors.

Parameters are launch-time numbers of one kernel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from rushlight.core.dtypes import FIELD, FLOAT, DType, float32, promote, real_type
from rushlight.core.errors import DTypeError, RushlightError, ShapeError
from rushlight.core.shapes import broadcast_shapes, wrap_dim
from rushlight.ops.create.creation import arange
from rushlight.ops.family.declare import elementwise
from rushlight.ops.pointwise import arithmetic as e
from rushlight.ops.pointwise.numbers import clamp_min
from rushlight.ops.random.random import drawing, rand
from rushlight.ops.reduce import reductions
from rushlight.ops.reduce.softmax import implied_dim, softmax
from rushlight.ops.registry import composite
from rushlight.ops.view import inplace as writing, views
from rushlight.scalar import build as s, elementary
from rushlight.scalar.ir import Expr, const
from rushlight.tape.record.value import Value


def _zero(like: Expr) -> Expr:
    return const(0, like.dtype)


def _floats(op: str, input: Value) -> Value:
    """Refuse integers where PyTorch does not convert them to floats."""
    if input._spec.dtype.kind != "f":
        raise DTypeError(f"{op}: takes floats, got {input._spec!r}; cast with .to(dtype)")
    return input


def _applied(kernel: Any, input: Value, *others: Any, inplace: bool) -> Value:
    """The kernel's result, or the input with it written in."""
    made: Value = (
        writing.apply_inplace(kernel.op, input, *others) if inplace else kernel(input, *others)
    )
    return made


# ---- exponential units ----


def _elu(x: Expr, alpha: Expr, scale: Expr, rate: Expr) -> Expr:
    return s.where(x > 0, x * scale, elementary.expm1(x * rate) * alpha * scale)


def _elu_vjp(
    g: Expr, out: Expr, x: Expr, alpha: Expr, scale: Expr, rate: Expr
) -> tuple[Expr | None, ...]:
    # The unselected exponential of a positive number must not overflow either.
    # At 0 the second derivative is that of the line, as in PyTorch.
    below = s.where(x < 0, x, _zero(x))
    slope = s.where(x <= 0, s.exp(below * rate) * (alpha * scale * rate), scale)
    return g * slope, None, None, None


_exponential = elementwise(
    "elu",
    _elu,
    "scale x where positive, else scale alpha (exp(rate x) - 1).",
    FLOAT,
    vjp=_elu_vjp,
    listed=False,
    operand_names=("self", "alpha", "scale", "input_scale"),
)
_SELU_ALPHA, _SELU_SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946


@composite("elu", method=False, top=False, pure=True)
def elu(input: Value, alpha: float = 1.0, inplace: bool = False) -> Value:
    """x where positive, else alpha * (exp(x) - 1).

    Args:
        alpha: The limit below zero is -alpha.

    Example:
        >>> F.elu(torch.tensor([-1.0, 0.0, 2.0]))
        tensor([-0.6321,  0.0000,  2.0000])
    """
    return _applied(_exponential, _floats("elu", input), float(alpha), 1.0, 1.0, inplace=inplace)


@composite("selu", method=False, pure=True)
def selu(input: Value, inplace: bool = False) -> Value:
    """elu, scaled so that mean 0 and variance 1 are kept."""
    return _applied(
        _exponential, _floats("selu", input), _SELU_ALPHA, _SELU_SCALE, 1.0, inplace=inplace
    )


@composite("celu", method=False, pure=True)
def celu(input: Value, alpha: float = 1.0, inplace: bool = False) -> Value:
    """x where positive, else alpha * (exp(x / alpha) - 1).

    Args:
        alpha: The limit below zero is -alpha.
    """
    if alpha == 0:
        raise RushlightError("celu: alpha must not be 0")
    return _applied(
        _exponential, _floats("celu", input), float(alpha), 1.0, 1.0 / alpha, inplace=inplace
    )


# ---- piecewise linear ----

_clipped = elementwise(
    "hardtanh",
    lambda x, low, high: s.where(x <= low, low, s.where(x >= high, high, x)),
    "x between two bounds; no gradient at them, nor at NaN.",
    vjp=lambda g, out, x, low, high: (s.where((x > low) & (x < high), g, _zero(g)), None, None),
    listed=False,
    operand_names=("self", "min_val", "max_val"),
)


@composite("hardtanh", method=False, top=False, out="cast", pure=True)
def hardtanh(
    input: Value, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False
) -> Value:
    """x clamped to [min_val, max_val]."""
    if min_val > max_val:
        raise ValueError(f"hardtanh: min_val {min_val} is larger than max_val {max_val}")
    if input._spec.dtype.kind == "u" and (min_val < 0 or max_val < 0):
        raise RushlightError(
            f"hardtanh: negative limits do not fit {input._spec!r}, which has no sign; cast it "
            "first"
        )
    if input._spec.dtype.kind != "f":
        min_val, max_val = int(min_val), int(max_val)
    return _applied(_clipped, input, min_val, max_val, inplace=inplace)


@composite("relu6", method=False, top=False, pure=True)
def relu6(input: Value, inplace: bool = False) -> Value:
    """x between 0 and 6."""
    return hardtanh(input, 0, 6, inplace)


def _gate(x: Expr) -> Expr:
    return s.where(x <= -3, _zero(x), s.where(x >= 3, const(1, x.dtype), (x + 3) / 6))


_hardsigmoid = elementwise(
    "hardsigmoid",
    _gate,
    "0 below -3, 1 above 3, a line between.",
    FLOAT,
    vjp=lambda g, out, x: s.where((x > -3) & (x < 3), g * (1 / 6), _zero(g)),
    listed=False,
)
_hardswish = elementwise(
    "hardswish",
    lambda x: x * _gate(x),
    "x times hardsigmoid(x).",
    FLOAT,
    vjp=lambda g, out, x: s.where(x <= -3, _zero(g), s.where(x < 3, g * (x / 3 + 0.5), g)),
    listed=False,
)


@composite("hardsigmoid", method=False, top=False, out="cast")
def hardsigmoid(input: Value, inplace: bool = False) -> Value:
    """0 below -3, 1 above 3, x / 6 + 1 / 2 between."""
    return _applied(_hardsigmoid, _floats("hardsigmoid", input), inplace=inplace)


@composite("hardswish", method=False, top=False)
def hardswish(input: Value, inplace: bool = False) -> Value:
    """x * hardsigmoid(x)."""
    return _applied(_hardswish, _floats("hardswish", input), inplace=inplace)


_softshrink = elementwise(
    "softshrink",
    lambda x, lambd: s.where(
        x > lambd, x - lambd, s.where(x < -lambd, x + lambd, s.where(s.isnan(x), x, _zero(x)))
    ),
    "x, lambd nearer to 0.",
    FLOAT,
    vjp=lambda g, out, x, lambd: (s.where((x > lambd) | (x < -lambd), g, _zero(g)), None),
    listed=False,
)
_hardshrink = elementwise(
    "hardshrink",
    lambda x, lambd: s.where((x >= -lambd) & (x <= lambd), _zero(x), x),
    "x, or 0 where no larger than lambd.",
    FLOAT,
    vjp=lambda g, out, x, lambd: (s.where((x < -lambd) | (x > lambd), g, _zero(g)), None),
    listed=False,
    rounds=True,  # PyTorch compares with lambd rounded to a half dtype
)
_threshold = elementwise(
    "threshold",
    lambda x, least, value: s.where(x <= least, value, x),
    "x where above the threshold.",
    listed=False,
    operand_names=("self", "threshold", "value"),
)


@composite("softshrink", method=False, top=False, out="exact", pure=True)
def softshrink(input: Value, lambd: float = 0.5) -> Value:
    """x - lambd above lambd, x + lambd below -lambd, 0 between."""
    if lambd < 0:
        raise RushlightError(f"softshrink: lambd must not be negative, got {lambd}")
    return _softshrink(_floats("softshrink", input), float(lambd))


@composite("hardshrink", out="exact", pure=True)
def hardshrink(input: Value, lambd: float = 0.5) -> Value:
    """x where |x| is above lambd, else 0."""
    return _hardshrink(_floats("hardshrink", input), float(lambd))


tanhshrink = elementwise(
    "tanhshrink", lambda x: x - s.tanh(x), "x - tanh(x).", FIELD, method=False, top=False
)


@composite("threshold", method=False, out="cast", pure=True)
def threshold(input: Value, threshold: float, value: float, inplace: bool = False) -> Value:
    """x where above the threshold, else value."""
    kind = float if input._spec.dtype.kind == "f" else int
    return _applied(_threshold, input, kind(threshold), kind(value), inplace=inplace)


# ---- with slopes ----

_sloped = elementwise(
    "prelu",
    lambda x, slope: s.where(x > 0, x, x * slope),
    "x where positive, else slope * x.",
    FLOAT,
    listed=False,
    operand_names=("self", "weight"),
)


@composite("prelu", autocast="lower")
def prelu(input: Value, weight: Value) -> Value:
    """x where positive, else weight * x, with one weight or one for each channel (dimension 1)."""
    shape, count = input._spec.shape, weight._spec.numel
    if len(weight._spec.shape) > 1 or (count != 1 and (len(shape) < 2 or shape[1] != count)):
        raise ShapeError(
            f"prelu: weight {weight._spec!r} must be one number or one for each channel of "
            f"{input._spec!r}"
        )
    spread = (count,) + (1,) * (len(shape) - 2) if len(shape) > 1 else (count,) * len(shape)
    return _sloped(_floats("prelu", input), views.reshape(weight, spread))


@composite("rrelu", method=False)
@drawing
def rrelu(
    input: Value,
    lower: float = 1.0 / 8,
    upper: float = 1.0 / 3,
    training: bool = False,
    inplace: bool = False,
) -> Value:
    """x where positive, else a slope times x.

    The slope is random between lower and upper in training, else their mean.

    Args:
        lower: The least slope.
        upper: The largest slope.
    """
    if lower > upper:
        raise RushlightError(f"rrelu: lower {lower} is larger than upper {upper}")
    slope: Any = (lower + upper) / 2
    if training:
        slope = e.add(
            e.mul(
                rand(
                    input._spec.shape,
                    dtype=input._spec.dtype,
                    device=input._spec.device.device.name,
                ),
                upper - lower,
            ),
            lower,
        )
    return _applied(_sloped, _floats("rrelu", input), slope, inplace=inplace)


# ---- smooth ----


def _mish(x: Expr) -> Expr:
    # tanh(log(1 + e)) = e (e + 2) / (e (e + 2) + 2) for e = exp(x), which rounds to 1 well below x
    # = 25.
    grown = s.exp(s.where(x > 25, const(25, x.dtype), x))
    above = grown * (grown + 2)
    return x * (above / (above + 2))


_mish_kernel = elementwise("mish", _mish, "x * tanh(softplus(x)).", FLOAT, listed=False)


@composite("mish", method=False, top=False)
def mish(input: Value, inplace: bool = False) -> Value:
    """x * tanh(log(1 + exp(x)))."""
    return _applied(_mish_kernel, _floats("mish", input), inplace=inplace)


def _share(x: Expr) -> Expr:
    """1 / (1 + exp(-x)), with finite derivatives of every order."""
    below = x < 0
    small = s.exp(s.where(below, x, -x))
    return s.where(below, small, const(1, x.dtype)) / (small + 1)


def _log_sigmoid(x: Expr) -> Expr:
    below = s.where(x < 0, x, -x)
    return s.minimum(x, 0) - elementary.log1p(s.exp(below))


logsigmoid = elementwise(
    "logsigmoid",
    _log_sigmoid,
    "log(sigmoid(x)).",
    FLOAT,
    vjp=lambda g, out, x: g * _share(-x),
    layout="packed",
    method=False,
    top=False,
    out="exact",
)


def _softplus(x: Expr, beta: Expr, end: Expr) -> Expr:
    inner = x * beta
    straight = inner > end
    grown = s.exp(s.where(straight, _zero(x), inner))
    return s.where(straight, x, elementary.log1p(grown) / beta)


def _softplus_vjp(g: Expr, out: Expr, x: Expr, beta: Expr, end: Expr) -> tuple[Expr | None, ...]:
    inner = x * beta
    return s.where(inner > end, g, g * _share(inner)), None, None


_softplus_kernel = elementwise(
    "softplus",
    _softplus,
    "log(1 + exp(beta x)) / beta.",
    FLOAT,
    vjp=_softplus_vjp,
    listed=False,
    operand_names=("self", "beta", "threshold"),
)


@composite("softplus", method=False, top=False, out="exact", pure=True, autocast={"gpu": "float32"})
def softplus(input: Value, beta: float = 1, threshold: float = 20) -> Value:
    """log(1 + exp(beta * x)) / beta; x itself where beta * x is above the threshold.

    Args:
        beta: The factor of `input` before the exponential; the result is divided by it.
        threshold: Where beta * input is larger, the result is `input`.
    """
    return _softplus_kernel(_floats("softplus", input), float(beta), float(threshold))


def _gated_vjp(g: Expr, out: Expr, x: Expr, y: Expr) -> tuple[Expr, Expr]:
    gate = _sigmoid(y)
    return g * gate, g * x * gate * (1 - gate)


_sigmoid = e.sigmoid.op.body  # type: ignore[attr-defined]
_gated = elementwise(
    "glu",
    lambda x, y: x * _sigmoid(y),
    "x times the sigmoid of y.",
    accepts=FIELD,
    vjp=_gated_vjp,
    listed=False,
)


@composite("glu", method=False, top=False, pure=True)
def glu(input: Value, dim: int = -1) -> Value:
    """The first half along a dimension times the sigmoid of the second."""
    shape = input._spec.shape
    dim = wrap_dim(dim, len(shape), "glu")
    if not shape or shape[dim] % 2:
        raise ShapeError(
            f"glu: dimension {dim} of {input._spec!r} must have an even size to be halved"
        )
    half = shape[dim] // 2
    gated: Value = _gated(
        views.slice_dim(input, dim, 0, half), views.slice_dim(input, dim, half, half)
    )
    return gated


@composite("softmin", method=False, top=False, pure=True)
def softmin(
    input: Value, dim: int | None = None, _stacklevel: int = 3, dtype: DType | None = None
) -> Value:
    """softmax of -x."""
    return softmax(e.neg(input), implied_dim("softmin", dim, len(input._spec.shape)), dtype)


# ---- norms of vectors ----

_root = elementwise(
    "norm_root",
    lambda x: s.sqrt(x),
    "Square root of a sum of squares; its gradient at 0 is 0, as that of a norm.",
    FLOAT,
    vjp=lambda g, out, x: s.where(
        out.eq(0), _zero(g), g / (s.where(out.eq(0), const(1, g.dtype), out) * 2)
    ),
    listed=False,
)


def length(x: Value, p: float, dim: int | Sequence[int] | None, keepdim: bool = False) -> Value:
    """The p-norm along a dimension."""
    kept = real_type(x._spec.dtype)
    if kept.itemsize == 2:  # powers of halves overflow early
        return e.cast(length(e.cast(x, float32), p, dim, keepdim), kept)
    if p == 2:
        return _root(reductions.sum(reductions.size_squared(x), dim, keepdim))
    if p == math.inf:
        return reductions.amax(e.abs(x), dim, keepdim)
    if p == -math.inf:
        return reductions.amin(e.abs(x), dim, keepdim)
    if p == 1:
        return reductions.sum(e.abs(x), dim, keepdim)
    if p == 0:
        return reductions.sum(e.cast(e.ne(x, 0), real_type(x._spec.dtype)), dim, keepdim)
    return e.pow(reductions.sum(e.pow(e.abs(x), float(p)), dim, keepdim), 1.0 / p)


@composite("normalize", method=False, top=False, pure=True)
def normalize(
    input: Value,
    p: float = 2.0,
    dim: int | Sequence[int] | None = 1,
    eps: float = 1e-12,
    out: Value | None = None,
) -> Value:
    """x divided by its p-norm along a dimension, or by eps where that is larger."""
    result = e.div(input, clamp_min(length(input, p, dim, True), eps))
    return result if out is None else writing.copy_(out, result)


@composite("cosine_similarity", method=False, pure=True, autocast={"gpu": "float32"})
def cosine_similarity(x1: Value, x2: Value, dim: int = 1, eps: float = 1e-8) -> Value:
    """The cosine of the angle between vectors along a dimension; each norm is at least eps."""
    kind = promote(x1._spec.dtype, x2._spec.dtype)
    if kind.kind not in "fc":
        raise DTypeError(
            f"cosine_similarity: one operand must hold floats, got {x1._spec!r} and {x2._spec!r}"
        )
    x1, x2 = e.cast(x1, kind), e.cast(x2, kind)
    shape = broadcast_shapes(
        [x1._spec.shape, x2._spec.shape], "cosine_similarity", [x1._spec, x2._spec]
    )
    x1, x2 = views.expand(x1, shape), views.expand(x2, shape)
    lengths = [clamp_min(length(x, 2, dim, True), eps) for x in (x1, x2)]
    return reductions.sum(e.mul(e.div(x1, lengths[0]), e.div(x2, lengths[1])), dim)


@composite("pairwise_distance", method=False, pure=True)
def pairwise_distance(
    x1: Value, x2: Value, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> Value:
    """The p-norm of x1 - x2 + eps along the last dimension."""
    return length(e.add(e.sub(x1, x2), eps), p, -1, keepdim)


@composite("gumbel_softmax", method=False, top=False)
@drawing
def gumbel_softmax(
    logits: Value, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1
) -> Value:
    """Samples of categories: softmax of logits with Gumbel noise over tau.

    With `hard`, the samples are one-hot, with the gradient of the soft ones.

    Args:
        tau: The temperature.

    Example:
        >>> F.gumbel_softmax(torch.zeros(2, 3), hard=True).sum(dim=-1)
        tensor([1., 1.])
    """
    drawn = rand(
        logits._spec.shape, dtype=logits._spec.dtype, device=logits._spec.device.device.name
    )
    least = {8: 2.0**-53, 4: 2.0**-24}.get(logits._spec.dtype.itemsize, 2.0**-11)
    noise = e.neg(e.log(e.neg(e.log(clamp_min(e.add(drawn, least / 2), least)))))
    soft = softmax(e.div(e.add(logits, noise), float(tau)), dim)
    if not hard:
        return soft
    best = reductions.argmax(soft, dim, True)
    count = soft._spec.shape[dim] if soft._spec.shape else 1
    line = arange(count, device=logits._spec.device.device.name)
    behind = (1,) * (
        len(soft._spec.shape) - 1 - wrap_dim(dim, len(soft._spec.shape), "gumbel_softmax")
    )
    chosen = e.cast(e.eq(best, views.reshape(line, (-1, *behind))), soft._spec.dtype)
    # The value of the hard sample, the gradient of the soft one.
    return _passed(soft, chosen)


_passed = elementwise(
    "straight_through",
    lambda x, y: y,
    "y, with the gradient going to x.",
    FLOAT,
    vjp=lambda g, out, x, y: (g, None),
    listed=False,
)
