"""Losses that compare predictions with targets element by element or vector by vector."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from rushlight.core.dtypes import FIELD, FLOAT, INDEX
from rushlight.core.errors import DTypeError, RushlightError, ShapeError
from rushlight.core.shapes import Shape, broadcast_shapes
from rushlight.ops.create.creation import arange
from rushlight.ops.family import read_back
from rushlight.ops.family.declare import elementwise
from rushlight.ops.family.saved_names import LOSS
from rushlight.ops.index.gather import gather
from rushlight.ops.index.scatter import filled
from rushlight.ops.nn.activations import logsigmoid, pairwise_distance
from rushlight.ops.nn.binary_cross_entropy import bernoulli_loss
from rushlight.ops.pointwise import arithmetic as e
from rushlight.ops.pointwise.numbers import clamp_min
from rushlight.ops.pointwise.scaled import chosen, one_hot, reduced
from rushlight.ops.reduce import reductions
from rushlight.ops.registry import composite
from rushlight.ops.view import views
from rushlight.scalar import build as s
from rushlight.scalar.ir import Expr, const
from rushlight.tape.record import call
from rushlight.tape.record.source_line import warn
from rushlight.tape.record.value import Value

Flag = bool | None


def _zero(like: Expr) -> Expr:
    return const(0, like.dtype)


def _finish(
    loss: Value,
    op: str,
    size_average: Flag,
    reduce: Flag,
    reduction: str,
    weight: Value | None = None,
) -> Value:
    """The loss reduced; `size_average` and `reduce` are PyTorch's older arguments."""
    reduction = chosen(size_average, reduce, reduction)
    if weight is None:
        return reduced(loss, reduction, op)
    loss = e.mul(loss, weight)
    if reduction == "mean":
        return e.div(reductions.sum(loss), reductions.sum(views.expand(weight, loss._spec.shape)))
    return reduced(loss, reduction, op)


def _same_shapes(op: str, input: Value, target: Value) -> None:
    if input._spec.shape != target._spec.shape:
        raise ShapeError(
            f"{op}: target {target._spec!r} must have the shape of input {input._spec!r}"
        )


# ---- distances of numbers ----


def _check_sizes(op: str, input: Value, target: Value) -> None:
    """Warn of shapes that broadcast: of (N, 1) and (N,) the loss is over N * N pairs."""
    if input._spec.shape == target._spec.shape:
        return
    broadcast_shapes([input._spec.shape, target._spec.shape], op, [input._spec, target._spec])
    warn(
        f"Using a target size ({target._spec.shape}) that is different to the input size "
        f"({input._spec.shape}): {op} broadcasts them, which is seldom meant; give both one shape"
    )


_absolute = elementwise(
    "l1_loss", lambda x, y: s.absolute(x - y), "|x - y|.", FIELD, listed=False, operand_names=LOSS
)


def _bent(x: Expr, y: Expr, delta: Expr) -> tuple[Expr, Expr, Expr]:
    """(difference, its absolute value, whether it is below delta)."""
    away = x - y
    size = s.absolute(away)
    return away, size, size < delta


def _smooth(x: Expr, y: Expr, beta: Expr) -> Expr:
    away, size, inside = _bent(x, y, beta)
    return s.where(inside, away * away * 0.5 / beta, size - beta * 0.5)


def _huber(x: Expr, y: Expr, delta: Expr) -> Expr:
    away, size, inside = _bent(x, y, delta)
    return s.where(inside, away * away * 0.5, delta * (size - delta * 0.5))


_smooth_l1 = elementwise(
    "smooth_l1_loss",
    _smooth,
    "Squares near 0, sizes beyond.",
    FLOAT,
    listed=False,
    operand_names=("self", "target", "beta"),
)
_huber_each = elementwise(
    "huber_loss",
    _huber,
    "Squares near 0, delta times sizes beyond.",
    FLOAT,
    listed=False,
    operand_names=("self", "target", "delta"),
)


@composite("l1_loss", method=False, top=False, pure=True, autocast="float32")
def l1_loss(
    input: Value,
    target: Value,
    size_average: Flag = None,
    reduce: Flag = None,
    reduction: str = "mean",
    weight: Value | None = None,
) -> Value:
    """|input - target|."""
    _check_sizes("l1_loss", input, target)
    return _finish(_absolute(input, target), "l1_loss", size_average, reduce, reduction, weight)


@composite("mse_loss", method=False, top=False, pure=True, autocast="float32")
def mse_loss(
    input: Value,
    target: Value,
    size_average: Flag = None,
    reduce: Flag = None,
    reduction: str = "mean",
    weight: Value | None = None,
) -> Value:
    """Squared differences, averaged, summed or not reduced.

    Example:
        >>> F.mse_loss(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 4.0]))
        tensor(2.)
    """
    _check_sizes("mse_loss", input, target)
    return _finish(
        e.square(e.sub(input, target)), "mse_loss", size_average, reduce, reduction, weight
    )


@composite("smooth_l1_loss", method=False, top=False, pure=True, autocast="float32")
def smooth_l1_loss(
    input: Value,
    target: Value,
    size_average: Flag = None,
    reduce: Flag = None,
    reduction: str = "mean",
    beta: float = 1.0,
) -> Value:
    """d * d / (2 * beta) where |d| is below beta, else |d| - beta / 2, d the difference.

    Args:
        beta: The distance from which the loss is linear.

    Example:
        >>> F.smooth_l1_loss(torch.tensor([0.0, 0.0]), torch.tensor([0.5, 3.0]), reduction='none')
        tensor([0.1250, 2.5000])
    """
    if beta < 0:
        raise RushlightError(f"smooth_l1_loss: beta must not be negative, got {beta}")
    _check_sizes("smooth_l1_loss", input, target)
    loss = _absolute(input, target) if beta == 0 else _smooth_l1(input, target, float(beta))
    return _finish(loss, "smooth_l1_loss", size_average, reduce, reduction)


@composite("huber_loss", method=False, top=False, pure=True, autocast="float32")
def huber_loss(
    input: Value,
    target: Value,
    reduction: str = "mean",
    delta: float = 1.0,
    weight: Value | None = None,
) -> Value:
    """d * d / 2 where |d| is below delta, else delta * (|d| - delta / 2), d the difference."""
    if delta <= 0:
        raise RushlightError(f"huber_loss: delta must be positive, got {delta}")
    _check_sizes("huber_loss", input, target)
    # Unlike in mse_loss, the mean is not over the weights.
    return _finish(
        _weighted(_huber_each(input, target, float(delta)), weight),
        "huber_loss",
        None,
        None,
        reduction,
    )


# ---- likelihoods ----


@composite(
    "binary_cross_entropy",
    method=False,
    top=False,
    pure=True,
    autocast={"cpu": "float32", "gpu": "refused"},
)
def binary_cross_entropy(
    input: Value,
    target: Value,
    weight: Value | None = None,
    size_average: Flag = None,
    reduce: Flag = None,
    reduction: str = "mean",
) -> Value:
    """-(target * log(input) + (1 - target) * log(1 - input)), logarithms at least -100."""
    _same_shapes("binary_cross_entropy", input, target)
    return _finish(
        _weighted(bernoulli_loss(input, target), weight),
        "binary_cross_entropy",
        size_average,
        reduce,
        reduction,
    )


def _weighted(loss: Value, weight: Value | None) -> Value:
    return loss if weight is None else e.mul(loss, weight)


@composite(
    "binary_cross_entropy_with_logits", method=False, top=False, pure=True, autocast="float32"
)
def binary_cross_entropy_with_logits(
    input: Value,
    target: Value,
    weight: Value | None = None,
    size_average: Flag = None,
    reduce: Flag = None,
    reduction: str = "mean",
    pos_weight: Value | None = None,
) -> Value:
    """binary_cross_entropy of sigmoid(input), computed from the logits.

    pos_weight scales the positive targets.

    Example:
        >>> F.binary_cross_entropy_with_logits(torch.zeros(2), torch.tensor([0.0, 1.0]))
        tensor(0.6931)
    """
    op = "binary_cross_entropy_with_logits"
    _same_shapes(op, input, target)
    likelihood = logsigmoid(input)
    if pos_weight is not None:
        likelihood = e.mul(likelihood, e.add(e.mul(e.sub(pos_weight, 1), target), 1))
    loss = e.sub(e.mul(e.sub(1, target), input), likelihood)
    return _finish(_weighted(loss, weight), op, size_average, reduce, reduction)


def _divergence_vjp(g: Expr, out: Expr, x: Expr, y: Expr) -> tuple[Expr, Expr]:
    # The loss of a negative or NaN target is NaN, and so is its gradient.
    safe = s.where(y.eq(0), const(1, y.dtype), y)
    return -g * y, s.where(y.eq(0), _zero(g), g * (s.log(safe) + 1 - x))


_divergence = elementwise(
    "kl_div",
    lambda x, y: s.where(y.eq(0), _zero(y), y * s.log(y)) - y * x,
    "y (log y - x), and -y x where y is 0.",
    FLOAT,
    vjp=_divergence_vjp,
    listed=False,
    operand_names=LOSS,
)
_log_divergence = elementwise(
    "kl_div", lambda x, y: s.exp(y) * (y - x), "exp(y) (y - x).", FLOAT, listed=False
)


def warn_of_mean() -> None:
    """Warn of `kl_div` with its default reduction."""
    warn(
        "reduction: 'mean' divides the total loss by the number of elements; 'batchmean' divides "
        "it by that of samples, which is kl_div's definition"
    )


@composite("kl_div", method=False, top=False, pure=True, autocast="float32")
def kl_div(
    input: Value,
    target: Value,
    size_average: Flag = None,
    reduce: Flag = None,
    reduction: str = "mean",
    log_target: bool = False,
) -> Value:
    """target * (log(target) - input).

    The input is in logarithms; with `log_target` so is the target.

    Example:
        >>> p = torch.tensor([0.5, 0.5])
        >>> F.kl_div(torch.log(torch.tensor([0.25, 0.75])), p, reduction='sum')
        tensor(0.1438)
    """
    loss = (_log_divergence if log_target else _divergence)(input, target)
    if reduction == "batchmean" and size_average is None and reduce is None:
        total = reductions.sum(loss)
        return e.div(total, float(input._spec.shape[0])) if input._spec.shape else total
    return _finish(loss, "kl_div", size_average, reduce, reduction)


@composite("poisson_nll_loss", method=False, top=False, pure=True, autocast="float32")
def poisson_nll_loss(
    input: Value,
    target: Value,
    log_input: bool = True,
    full: bool = False,
    size_average: Flag = None,
    eps: float = 1e-8,
    reduce: Flag = None,
    reduction: str = "mean",
) -> Value:
    """The negative log likelihood of counts under a Poisson distribution.

    `full` adds Stirling's term.
    """
    if log_input:
        loss = e.sub(e.exp(input), e.mul(target, input))
    else:
        loss = e.sub(input, e.mul(target, e.log(e.add(input, eps))))
    if full:
        loss = e.add(loss, _stirling(target))
    return _finish(loss, "poisson_nll_loss", size_average, reduce, reduction)


_stirling = elementwise(
    "stirling",
    lambda y: s.where(y > 1, y * s.log(y) - y + s.log(y * (2 * math.pi)) * 0.5, _zero(y)),
    "Stirling's approximation of log(y!), and 0 up to 1.",
    FLOAT,
    listed=False,
)


def _one_repeated(given: Shape, shape: Shape) -> bool:
    """Whether `given` is `shape` with one dimension of size 1 instead."""
    pairs = zip(given, shape, strict=False)
    return len(given) == len(shape) and [n for n, m in pairs if n != m] == [1]


@composite("gaussian_nll_loss", method=False, top=False)
def gaussian_nll_loss(
    input: Value,
    target: Value,
    var: Any,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Value:
    """The negative log likelihood under normal distributions of given variances.

    Variances are at least eps.
    """
    if not isinstance(var, Value):
        if var < 0:
            raise ValueError(f"gaussian_nll_loss: var must not be negative, got {var}")
        var = e.add(e.mul(input, 0), float(var))
    shape = input._spec.shape
    if var._spec.shape != shape:
        if shape[:-1] == var._spec.shape:
            var = views.unsqueeze(var, -1)
        elif not _one_repeated(var._spec.shape, shape):
            raise ValueError(
                f"gaussian_nll_loss: var {var._spec!r} does not fit input {input._spec!r}"
            )
    if (
        not var._spec.hidden
        and var._spec.numel
        and read_back.read(reductions.any_(e.lt(call.detached(var), 0)))[0]
    ):
        raise ValueError(f"gaussian_nll_loss: var {var._spec!r} has a negative entry")
    # The gradient reaches the variance also where it is clamped to eps, as in PyTorch.
    held = _held(var, float(eps))
    loss = e.mul(e.add(e.log(held), e.div(e.square(e.sub(input, target)), held)), 0.5)
    if full:
        loss = e.add(loss, 0.5 * math.log(2 * math.pi))
    return _finish(loss, "gaussian_nll_loss", None, None, reduction)


_held = elementwise(
    "hold",
    lambda x, low: s.where(x < low, low, x),
    "x no smaller than a bound, which passes the gradient.",
    FLOAT,
    vjp=lambda g, out, x, low: (g, None),
    listed=False,
)

# ---- margins ----


@composite("hinge_embedding_loss", method=False, top=False, pure=True, autocast="float32")
def hinge_embedding_loss(
    input: Value,
    target: Value,
    margin: float = 1.0,
    size_average: Flag = None,
    reduce: Flag = None,
    reduction: str = "mean",
) -> Value:
    """x where the target is 1, max(0, margin - x) where it is -1."""
    zero = filled(input, input._spec.dtype, (), 0)
    apart = e.select(e.ne(target, 1), clamp_min(e.sub(margin, input), 0), zero)
    alike = e.select(e.ne(target, -1), input, zero)
    return _finish(e.add(apart, alike), "hinge_embedding_loss", size_average, reduce, reduction)


@composite("margin_ranking_loss", method=False, top=False, pure=True, autocast="float32")
def margin_ranking_loss(
    input1: Value,
    input2: Value,
    target: Value,
    margin: float = 0,
    size_average: Flag = None,
    reduce: Flag = None,
    reduction: str = "mean",
) -> Value:
    """max(0, -target * (input1 - input2) + margin)."""
    ranks = [len(v._spec.shape) for v in (input1, input2, target)]
    if len(set(ranks)) > 1:
        raise ShapeError(
            "margin_ranking_loss: operands must have one number of dimensions, got "
            f"{input1._spec!r}, {input2._spec!r} and {target._spec!r}"
        )
    away = e.add(e.mul(e.neg(target), e.sub(input1, input2)), float(margin))
    return _finish(clamp_min(away, 0), "margin_ranking_loss", size_average, reduce, reduction)


@composite("soft_margin_loss", method=False, top=False, pure=True, autocast="float32")
def soft_margin_loss(
    input: Value,
    target: Value,
    size_average: Flag = None,
    reduce: Flag = None,
    reduction: str = "mean",
) -> Value:
    """log(1 + exp(-target * input))."""
    loss = e.neg(logsigmoid(e.mul(target, input)))
    return _finish(loss, "soft_margin_loss", size_average, reduce, reduction)


_cosine_root = 1e-12  # added to squared norms, as in PyTorch


@composite("cosine_embedding_loss", method=False, top=False, pure=True, autocast="float32")
def cosine_embedding_loss(
    input1: Value,
    input2: Value,
    target: Value,
    margin: float = 0,
    size_average: Flag = None,
    reduce: Flag = None,
    reduction: str = "mean",
) -> Value:
    """1 - cos where the target is 1, max(0, cos - margin) where it is -1."""
    rank = len(target._spec.shape)
    if rank > 1 or any(len(v._spec.shape) != rank + 1 for v in (input1, input2)):
        raise ShapeError(
            "cosine_embedding_loss: vectors of shape (batch, size) and a target (batch), or (size) "
            f"and one number, are needed; got {input1._spec!r}, {input2._spec!r} and "
            f"{target._spec!r}"
        )
    both = e.add(reductions.sum(e.mul(input1, input1), -1), _cosine_root)
    other = e.add(reductions.sum(e.mul(input2, input2), -1), _cosine_root)
    cosine = e.div(reductions.sum(e.mul(input1, input2), -1), e.sqrt(e.mul(both, other)))
    zero = e.mul(cosine, 0)
    alike = e.select(e.eq(target, 1), e.sub(1, cosine), zero)
    apart = e.select(e.eq(target, -1), clamp_min(e.sub(cosine, margin), 0), zero)
    return _finish(e.add(alike, apart), "cosine_embedding_loss", size_average, reduce, reduction)


def _triplet(
    near: Value, far: Value, other: Callable[[], Value], margin: float, swap: bool
) -> Value:
    if swap:
        far = e.minimum(far, other())
    return clamp_min(e.add(e.sub(near, far), margin), 0)


@composite("triplet_margin_loss", method=False, top=False, pure=True, autocast="float32")
def triplet_margin_loss(
    anchor: Value,
    positive: Value,
    negative: Value,
    margin: float = 1.0,
    p: float = 2,
    eps: float = 1e-6,
    swap: bool = False,
    size_average: Flag = None,
    reduce: Flag = None,
    reduction: str = "mean",
) -> Value:
    """max(0, d(anchor, positive) - d(anchor, negative) + margin), d the p-norm distance."""
    if margin <= 0:
        raise ValueError(f"triplet_margin_loss: margin must be positive, got {margin}")
    near, far = (
        pairwise_distance(anchor, positive, p, eps),
        pairwise_distance(anchor, negative, p, eps),
    )
    loss = _triplet(near, far, lambda: pairwise_distance(positive, negative, p, eps), margin, swap)
    return _finish(loss, "triplet_margin_loss", size_average, reduce, reduction)


@composite("triplet_margin_with_distance_loss", method=False, top=False)
def triplet_margin_with_distance_loss(
    anchor: Value,
    positive: Value,
    negative: Value,
    *,
    distance_function: Callable[[Value, Value], Value] | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Value:
    """max(0, d(anchor, positive) - d(anchor, negative) + margin), d a function of two tensors."""
    if margin <= 0:
        raise ValueError(
            f"triplet_margin_with_distance_loss: margin must be positive, got {margin}"
        )
    distance = distance_function or pairwise_distance
    near, far = distance(anchor, positive), distance(anchor, negative)
    loss = _triplet(near, far, lambda: distance(positive, negative), margin, swap)
    return _finish(loss, "triplet_margin_with_distance_loss", None, None, reduction)


# ---- several classes ----


def _rows(op: str, input: Value, target: Value) -> tuple[Value, Value]:
    """(rows, classes) and (rows,)."""
    shape = input._spec.shape
    if len(shape) > 2 or target._spec.dtype not in INDEX:
        raise DTypeError(
            f"{op}: input {input._spec!r} (batch, classes) needs class indices, got "
            f"{target._spec!r}"
        )
    if len(shape) < 2:
        input = views.reshape(input, (1, input._spec.numel))
    target = views.reshape(target, (-1,))
    if target._spec.numel != input._spec.shape[0]:
        raise ShapeError(
            f"{op}: input {input._spec!r} needs a target for each row, got {target._spec!r}"
        )
    return input, target


@composite("multi_margin_loss", method=False, top=False, autocast="float32")
def multi_margin_loss(
    input: Value,
    target: Value,
    p: int = 1,
    margin: float = 1.0,
    weight: Value | None = None,
    size_average: Flag = None,
    reduce: Flag = None,
    reduction: str = "mean",
) -> Value:
    """The mean over other classes i of max(0, margin - x[target] + x[i]) ** p."""
    if p not in (1, 2):
        raise ValueError(f"multi_margin_loss: p is 1 or 2, got {p}")
    x, classes = _rows("multi_margin_loss", input, target)
    place = views.unsqueeze(classes, 1)
    short = clamp_min(e.add(e.sub(x, gather(x, 1, place)), margin), 0)
    short = e.square(short) if p == 2 else short
    if weight is not None:
        short = e.mul(short, views.unsqueeze(gather(weight, 0, classes), 1))
    others = e.logical_not(one_hot(classes, x._spec.shape[1]))
    loss = reductions.mean(e.mul(short, e.cast(others, x._spec.dtype)), 1)
    loss = views.reshape(loss, target._spec.shape)
    return _finish(loss, "multi_margin_loss", size_average, reduce, reduction)


@composite("multilabel_soft_margin_loss", method=False, top=False, pure=True)
def multilabel_soft_margin_loss(
    input: Value,
    target: Value,
    weight: Value | None = None,
    size_average: Flag = None,
    reduce: Flag = None,
    reduction: str = "mean",
) -> Value:
    """The mean over classes of binary cross entropy with logits."""
    loss = e.add(
        e.mul(target, logsigmoid(input)), e.mul(e.sub(1, target), logsigmoid(e.neg(input)))
    )
    loss = _weighted(e.neg(loss), weight)
    loss = reductions.mean(loss, -1)
    return _finish(loss, "multilabel_soft_margin_loss", size_average, reduce, reduction)


@composite("multilabel_margin_loss", method=False, top=False, autocast="float32")
def multilabel_margin_loss(
    input: Value,
    target: Value,
    size_average: Flag = None,
    reduce: Flag = None,
    reduction: str = "mean",
) -> Value:
    """The sum over target classes t and others i of max(0, 1 - (x[t] - x[i])), over the classes.

    -1 ends the targets.
    """
    _same_shapes("multilabel_margin_loss", input, target)
    if target._spec.dtype not in INDEX:
        raise DTypeError(
            f"multilabel_margin_loss: the target must hold class indices, got {target._spec!r}"
        )
    rows = input._spec.shape[:-1]
    count = input._spec.shape[-1] if input._spec.shape else 1
    x, classes = views.reshape(input, (-1, count)), views.reshape(target, (-1, count))
    positions = arange(count, device=input._spec.device.device.name)
    # The number of ends up to each position: (row, position, earlier position).
    earlier = e.le(positions, views.unsqueeze(positions, 1))
    ends = e.logical_and(views.unsqueeze(e.lt(classes, 0), 1), earlier)
    listed = e.logical_not(reductions.any_(ends, -1))
    safe = e.select(listed, classes, 0)
    chosen = e.logical_and(views.unsqueeze(listed, -1), e.eq(views.unsqueeze(safe, -1), positions))
    others = e.logical_not(reductions.any_(chosen, 1))
    short = clamp_min(
        e.add(e.sub(views.unsqueeze(x, 1), views.unsqueeze(gather(x, 1, safe), -1)), 1), 0
    )
    counted = e.logical_and(views.unsqueeze(listed, -1), views.unsqueeze(others, 1))
    total = reductions.sum(e.mul(short, e.cast(counted, x._spec.dtype)), (1, 2))
    loss = views.reshape(e.div(total, float(count)), rows)
    return _finish(loss, "multilabel_margin_loss", size_average, reduce, reduction)
