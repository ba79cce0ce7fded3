"""Catalog rows: reductions, normalisation, losses, contractions, indexing, windows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tests.catalog.row import (
    ALL,
    COMPOSED,
    CONTRACTED,
    EXACT,
    FLOAT,
    NUMBER,
    SUMMED,
    DType,
    Make,
    Row,
    Sample,
    always,
    as_float,
    as_int64,
    at,
    bool_,
    int64,
    rough,
)

# ---- reductions ----


def reduction(function: Callable[..., Any]) -> Callable[..., Any]:
    """NumPy's reduction with PyTorch's arguments; () is all dimensions, as None."""

    def reference(x, dim=None, keepdim=False, **named):
        axis = tuple(dim) if isinstance(dim, (tuple, list)) else dim
        return function(x, axis=None if axis == () or not x.ndim else axis, keepdims=keepdim, **named)

    return reference


def plain_reductions(make: Make) -> Iterator[Sample]:
    yield at(make(3, 4))
    yield at(make(3, 4), 0)
    yield at(make(3, 4), dim=-1, keepdim=True)
    yield at(make(2, 3, 4), (0, 2))
    yield at(make(2, 3, 4), dim=(1, 2), keepdim=True)
    yield at(make())
    yield at(make(2, 1037), 1)
    yield at(make(1037, 2), 0)


def sums(make: Make) -> Iterator[Sample]:
    yield from plain_reductions(make)
    yield at(make(0, 3), 0)
    yield at(make(3, 0), 0)
    yield at(make(0))


def truths(make: Make) -> Iterator[Sample]:
    """Not all zero, not all one: the rows must differ."""
    for sample in sums(make):
        x = sample.args[0]
        if x.size > 4:
            x = np.where(make.random.random(x.shape) < 0.1, x, np.zeros_like(x))
        yield rough(x, *sample.args[1:], **sample.named)
        yield rough(np.asarray(x == 0).astype(x.dtype), *sample.args[1:], **sample.named)


def extremes(make: Make) -> Iterator[Sample]:
    yield at(make.distinct(3, 4))
    yield at(make.distinct(3, 4), 0)
    yield at(make.distinct(2, 3, 4), (0, 2), True)
    yield at(make.distinct(3, 4), dim=-1, keepdim=True)
    yield at(make.distinct())
    yield rough(make.lattice(2, 1037), 1)
    yield rough(make.lattice(1037, 2), 0)
    yield rough(make(0, 3), 1)
    if make.floats:
        yield rough(np.array([[1, np.nan, 2], [-np.inf, -np.inf, -np.inf], [np.inf, 0, 1]]), 1)


def positions(make: Make) -> Iterator[Sample]:
    for sample in extremes(make):
        dims = sample.args[1:] or (sample.named.get("dim"),)
        if dims and isinstance(dims[0], tuple):  # one dimension or all
            continue
        yield rough(*sample.args, **sample.named)


def first_position(pick: Callable[..., Any]) -> Callable[..., Any]:
    def reference(x, dim=None, keepdim=False):
        return pick(x, axis=dim if x.ndim else None, keepdims=keepdim)

    return reference


def products(make: Make) -> Iterator[Sample]:
    low, high = (0.5, 1.5) if make.floats else (-2, 2)
    yield at(make(3, 4, low=low, high=high))
    yield at(make(3, 4, low=low, high=high), 0)
    yield at(make(3, 4, low=low, high=high), dim=-1, keepdim=True)
    yield at(make(low=low, high=high))
    yield at(make(0, 3), 0)
    yield at(make(5, 4, low=0.5, high=1.5) * (make.index(5, 4, limit=4) > 0), 1)  # with zeros


def variances(make: Make) -> Iterator[Sample]:
    yield at(make(3, 4))
    yield at(make(3, 4), 0)
    yield at(make(2, 3, 4), (0, 2), keepdim=True)
    yield at(make(3, 4), 1, correction=0)
    yield at(make(2, 70), dim=1, unbiased=False)


def variance(x, dim=None, correction=1, unbiased=None, keepdim=False):
    ddof = correction if unbiased is None else int(unbiased)
    return np.var(x, axis=dim, ddof=ddof, keepdims=keepdim)


def exponent_sums(make: Make) -> Iterator[Sample]:
    yield at(make(3, 4), 0)
    yield at(make(3, 4), 1, True)
    yield at(make(2, 3, 4), (0, 2))
    yield at(make(2, 1037), -1)
    if make.floats:
        yield rough(np.array([[-np.inf, -np.inf], [0, -np.inf], [np.inf, 1]]), 1)


def logsumexp(x, dim, keepdim=False):
    x = np.asarray(x, np.float64)
    axis = tuple(dim) if isinstance(dim, (tuple, list)) else dim
    with np.errstate(all="ignore"):
        return np.logaddexp.reduce(x, axis, keepdims=keepdim) if isinstance(axis, int) else np.log(np.exp(x).sum(axis))


# ---- normalisation and losses ----


def softmax(x, dim):
    e = np.exp(x - x.max(dim if x.ndim else None, keepdims=True))
    return e / e.sum(dim if x.ndim else None, keepdims=True)


def log_softmax(x, dim):
    axis = dim if x.ndim else None
    shifted = x - x.max(axis, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis, keepdims=True))


def along(make: Make) -> Iterator[Sample]:
    yield at(make(3, 4), -1)
    yield at(make(3, 4), 0)
    yield at(make(2, 3, 4), dim=1)
    yield at(make(), 0)
    yield at(make(0, 3), 1)
    yield at(make(2, 1037), 1)


def scaled(y, shape, weight, bias):
    y = y if weight is None else y * np.reshape(weight, shape)
    return y if bias is None else y + np.reshape(bias, shape)


def layer_norm(x, shape, weight=None, bias=None, eps=1e-5):
    inner = (shape,) if isinstance(shape, int) else tuple(shape)
    axes = tuple(range(x.ndim - len(inner), x.ndim))
    y = (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + eps)
    return scaled(y, inner, weight, bias)


def layer_norms(make: Make) -> Iterator[Sample]:
    yield at(make(3, 8), 8, make(8), make(8))
    yield at(make(2, 3, 8), (8,))
    yield at(make(2, 3, 4), (3, 4), make(3, 4), make(3, 4), eps=1e-3)
    yield at(make(2, 70), (70,), make(70))
    yield at(make(0, 4), (4,), make(4), make(4))


def batch_norm(x, mean, var, weight=None, bias=None, training=False, momentum=0.1, eps=1e-5):
    """The result, then the running statistics as they are afterwards, where there are any."""
    axes = (0, *range(2, x.ndim))
    column = (1, -1) + (1,) * (x.ndim - 2)
    centre, spread = (x.mean(axes), x.var(axes)) if training else (mean, var)
    y = (x - centre.reshape(column)) / np.sqrt(spread.reshape(column) + eps)
    y = scaled(y, column, weight, bias)
    if mean is None:
        return y
    if not training:
        return y, mean, var
    count = x.size // x.shape[1]
    return y, (1 - momentum) * mean + momentum * centre, (1 - momentum) * var + momentum * spread * count / (count - 1)


def call_batch_norm(op, x, mean, var, *args, **named):
    y = op(x, mean, var, *args, **named)
    return y if mean is None else (y, mean, var)


def batch_norms(make: Make) -> Iterator[Sample]:
    yield at(make(6, 3), None, None, make(3), make(3), training=True)
    yield at(make(4, 2, 3, 3), None, None, training=True, eps=1e-3)
    yield rough(make(4, 3, 2), make(3), make(3, low=0.5), make(3), make(3), training=True, momentum=0.25)
    yield rough(make(4, 3), make(3), make(3, low=0.5))
    yield rough(make(2, 3, 2, 2), make(3), make(3, low=0.5), make(3), make(3))


def weighted(loss, scale, reduction):
    if reduction == "mean":
        return loss.sum() / scale.sum()
    return loss.sum() if reduction == "sum" else loss


def picked_loss(x, target, weight, ignore_index, reduction, smoothing=0.0):
    """x holds log probabilities, classes last."""
    kept = target != ignore_index
    safe = np.where(kept, target, 0)
    table = np.ones(x.shape[-1]) if weight is None else weight
    scale = table[safe] * kept
    loss = -np.take_along_axis(x, safe[..., None], -1)[..., 0] * scale
    spread = -(x * table).sum(-1) / x.shape[-1] * kept
    return weighted((1 - smoothing) * loss + smoothing * spread, scale, reduction)


def nll_loss(x, target, weight=None, ignore_index=-100, reduction="mean"):
    last = np.moveaxis(x, 1, -1) if x.ndim > 1 else x
    return picked_loss(last, target, weight, ignore_index, reduction)


def cross_entropy(x, target, weight=None, ignore_index=-100, reduction="mean", label_smoothing=0.0):
    last = np.moveaxis(x, 1, -1) if x.ndim > 1 else x
    likelihood = log_softmax(last, -1)
    if target.dtype.kind != "f":
        return picked_loss(likelihood, target, weight, ignore_index, reduction, label_smoothing)
    share = np.moveaxis(target, 1, -1) if x.ndim > 1 else target
    share = share * (1 - label_smoothing) + label_smoothing / x.shape[1]
    loss = -(likelihood * share * (1 if weight is None else weight)).sum(-1)
    return loss.mean() if reduction == "mean" else loss.sum() if reduction == "sum" else loss


def class_losses(make: Make) -> Iterator[Sample]:
    target = make.index(5, limit=4)
    yield at(make(5, 4), target)
    yield at(make(5, 4), target, reduction="sum")
    yield at(make(5, 4), target, reduction="none")
    yield at(make(5, 4), np.where(make.mask(5), target, -100) * (np.arange(5) > 0) + 0)
    yield at(make(5, 4), np.where(np.arange(5) == 2, 3, target), ignore_index=3)
    yield at(make(2, 4, 3), make.index(2, 3, limit=4), reduction="none")
    yield at(make(4), make.index(limit=4))
    yield at(make(5, 4), target, make(4, low=0.5))
    yield at(make(3, 70), make.index(3, limit=70).astype(np.int32))


def entropies(make: Make) -> Iterator[Sample]:
    yield from class_losses(make)
    yield at(make(5, 4), make.index(5, limit=4), label_smoothing=0.25)
    yield at(make(5, 4), make.index(5, limit=4), make(4, low=0.5), label_smoothing=0.25)
    yield at(make(5, 4), make(5, 4, low=0.1, high=1))
    yield at(make(5, 4), make(5, 4, low=0.1, high=1), reduction="sum")


def distances(make: Make) -> Iterator[Sample]:
    for how in ("mean", "sum", "none"):
        yield at(make(3, 4), make(3, 4), reduction=how)
    yield at(make(1037), make(1037))


def mse_loss(x, y, reduction="mean"):
    loss = (x - y) ** 2
    return loss.mean() if reduction == "mean" else loss.sum() if reduction == "sum" else loss


# ---- contractions ----


def matrices(make: Make) -> Iterator[Sample]:
    for a, b in (
        ((3, 4), (4, 5)),
        ((4,), (4,)),
        ((4,), (4, 3)),
        ((3, 4), (4,)),
        ((2, 3, 4), (4, 5)),
        ((2, 3, 4), (2, 4, 5)),
        ((2, 1, 3, 4), (5, 4, 2)),
        ((2, 3, 2, 3, 4), (3, 1, 4, 2)),
        ((0, 4), (4, 3)),
        ((3, 0), (0, 2)),
        ((37, 70), (70, 33)),
    ):
        yield at(make(*a), make(*b))


def rows_by_matrix(make: Make) -> Iterator[Sample]:
    yield at(make(3, 4), make(5, 4))
    yield at(make(3, 4), make(5, 4), make(5))
    yield at(make(4), make(5, 4), make(5))
    yield at(make(2, 3, 4), make(5, 4), make(5))
    yield at(make(0, 4), make(5, 4), make(5))
    yield at(make(33, 70), make(20, 70), make(20))


def linear(x, weight, bias=None):
    return x @ weight.T + (0 if bias is None else bias)


def attention(q, k, v, mask=None, is_causal=False, scale=None, enable_gqa=False):
    if enable_gqa:
        k, v = (np.repeat(x, q.shape[-3] // x.shape[-3], -3) for x in (k, v))
    scores = q @ np.swapaxes(k, -1, -2) * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    if is_causal:
        mask = np.tril(np.ones(scores.shape[-2:], bool))
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    return softmax(scores, -1) @ v


def attentions(make: Make) -> Iterator[Sample]:
    yield at(make(2, 3, 4), make(2, 5, 4), make(2, 5, 6))
    yield at(make(2, 2, 5, 4), make(2, 2, 5, 4), make(2, 2, 5, 4), is_causal=True)
    yield at(make(3, 4), make(5, 4), make(5, 4), make.mask(3, 5) | (np.arange(5) == 1))
    yield at(make(3, 4), make(5, 4), make(5, 4), make(3, 5), scale=0.5)
    yield at(make(1, 4, 3, 4), make(1, 2, 5, 4), make(1, 2, 5, 3), enable_gqa=True)


def windows(x, kernel, stride, padding, dilation, fill):
    (kh, kw), (sh, sw), (ph, pw), (dh, dw) = (
        p if isinstance(p, tuple) else (p, p) for p in (kernel, stride, padding, dilation)
    )
    border = [(0, 0)] * (x.ndim - 2) + [(ph, ph), (pw, pw)]
    padded = np.pad(x, border, constant_values=fill)
    spans = (dh * (kh - 1) + 1, dw * (kw - 1) + 1)
    seen = np.lib.stride_tricks.sliding_window_view(padded, spans, (-2, -1))
    return seen[..., ::sh, ::sw, ::dh, ::dw]


def conv2d(x, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    if x.ndim == 3:
        return conv2d(x[None], weight, bias, stride, padding, dilation, groups)[0]
    kernel = weight.shape[2:]
    if padding == "same":
        spread = dilation if isinstance(dilation, tuple) else (dilation, dilation)
        padding = tuple(d * (k - 1) // 2 for d, k in zip(spread, kernel, strict=True))
    seen = windows(x, kernel, stride, 0 if padding == "valid" else padding, dilation, 0)
    n, c, *rest = seen.shape
    table = weight.reshape(groups, -1, *weight.shape[1:])
    out = np.einsum("ngchwij,gocij->ngohw", seen.reshape(n, groups, c // groups, *rest), table)
    out = out.reshape(n, -1, *out.shape[-2:])
    return out if bias is None else out + bias[:, None, None]


def convolutions(make: Make) -> Iterator[Sample]:
    yield at(make(2, 3, 6, 5), make(4, 3, 3, 3), make(4))
    yield at(make(2, 3, 6, 5), make(4, 3, 3, 3), padding=1)
    yield at(make(1, 2, 7, 7), make(2, 2, 3, 2), None, (2, 1), (1, 0))
    yield at(make(1, 2, 7, 7), make(2, 2, 2, 2), stride=2, dilation=2)
    yield at(make(2, 4, 5, 5), make(6, 2, 3, 3), make(6), padding="same", groups=2)
    yield at(make(3, 5, 5), make(2, 3, 1, 1), make(2))


def max_pool(x, kernel, stride=None, padding=0, dilation=1):
    return windows(x, kernel, kernel if stride is None else stride, padding, dilation, -np.inf).max((-2, -1))


def avg_pool(x, kernel, stride=None, padding=0):
    return windows(x, kernel, kernel if stride is None else stride, padding, 1, 0).mean((-2, -1))


def pools(make: Make) -> Iterator[Sample]:
    yield at(make.distinct(1, 2, 4, 6), 2)
    yield at(make.distinct(1, 2, 5, 5), 3, 1, 1)
    yield at(make.distinct(2, 4, 6), (2, 3), (1, 2))


def max_pools(make: Make) -> Iterator[Sample]:
    yield from pools(make)
    yield at(make.distinct(1, 1, 7, 7), 2, 1, 0, 2)


# ---- indexing ----


def gathers(make: Make) -> Iterator[Sample]:
    yield at(make(3, 4), 0, make.index(2, 4, limit=3))
    yield at(make(3, 4), 1, make.index(3, 6, limit=4))
    yield at(make(2, 3, 4), -2, make.index(2, 5, 3, limit=3))
    yield at(make(7), 0, make.index(4, limit=7).astype(np.int32))
    yield at(make(3, 4), 1, make.index(3, 0, limit=4))


def gather(x, dim, index):
    cut = tuple(slice(None) if i == dim % x.ndim else slice(n) for i, n in enumerate(index.shape))
    return np.take_along_axis(x[cut], index, dim)


def scatters(make: Make) -> Iterator[Sample]:
    yield at(make(3, 4), 0, make.index(5, 4, limit=3), make(5, 4))
    yield at(make(3, 4), 1, make.index(3, 2, limit=4), make(3, 2))
    yield at(make(3, 4), 1, make.index(2, 2, limit=4), make(3, 5))
    yield at(make(2, 3, 4), 1, make.index(2, 5, 4, limit=3), make(2, 5, 4))
    yield at(make(5), 0, make.index(70, limit=5).astype(np.int32), make(70))


def scatter_add(x, dim, index, src):
    out = x.copy()
    places = list(np.indices(index.shape))
    places[dim] = index
    np.add.at(out, tuple(places), src[tuple(map(slice, index.shape))])
    return out


def tables(make: Make) -> Iterator[Sample]:
    yield at(make.index(5, limit=7), make(7, 3))
    yield at(make.index(2, 4, limit=7), make(7, 3))
    yield at(make.index(limit=7), make(7, 3))
    yield at(make.index(0, limit=7), make(7, 3))
    yield at(make.index(70, limit=7).astype(np.int32), make(7, 20))


def choices(make: Make) -> Iterator[Sample]:
    yield at(make(5, 3), 0, make.index(4, limit=5))
    yield at(make(3, 5, 2), 1, make.index(4, limit=5))
    yield at(make(5), -1, make.index(9, limit=5).astype(np.int32))
    yield at(make(5, 3), 0, make.index(0, limit=5))


def told(dtype: DType) -> DType:
    """PyTorch answers about uint8 in uint8."""
    return dtype if dtype.name == "uint8" else bool_


def hot(make: Make) -> Iterator[Sample]:
    yield at(make.index(5, limit=4), 4)
    yield at(make.index(2, 3, limit=4), num_classes=6)
    yield at(make.index(limit=4), 4)


ROWS = [
    Row("sum", reduction(np.sum), sums, ALL, SUMMED, as_int64),
    Row("mean", reduction(np.mean), plain_reductions, FLOAT, SUMMED),
    Row("prod", reduction(np.prod), products, ALL, COMPOSED, as_int64),
    Row("amax", reduction(np.max), extremes, NUMBER, EXACT),
    Row("amin", reduction(np.min), extremes, NUMBER, EXACT),
    Row("argmax", first_position(np.argmax), positions, NUMBER, EXACT, always(int64), differentiable=False),
    Row("argmin", first_position(np.argmin), positions, NUMBER, EXACT, always(int64), differentiable=False),
    Row("any", reduction(np.any), truths, ALL, EXACT, told, differentiable=False),
    Row("all", reduction(np.all), truths, ALL, EXACT, told, differentiable=False),
    Row("var", variance, variances, FLOAT, SUMMED),
    Row("logsumexp", logsumexp, exponent_sums, NUMBER, SUMMED, as_float),
    Row("softmax", softmax, along, FLOAT, COMPOSED),
    Row("log_softmax", log_softmax, along, FLOAT, COMPOSED),
    Row("layer_norm", layer_norm, layer_norms, FLOAT, COMPOSED),
    Row("batch_norm", batch_norm, batch_norms, FLOAT, COMPOSED, call=call_batch_norm),
    Row("cross_entropy", cross_entropy, entropies, FLOAT, COMPOSED),
    Row("nll_loss", nll_loss, class_losses, FLOAT, COMPOSED),
    Row("mse_loss", mse_loss, distances, FLOAT, SUMMED),
    Row("matmul", np.matmul, matrices, NUMBER, CONTRACTED),
    Row("linear", linear, rows_by_matrix, FLOAT, CONTRACTED),
    Row("scaled_dot_product_attention", attention, attentions, FLOAT, CONTRACTED),
    Row("conv2d", conv2d, convolutions, FLOAT, CONTRACTED),
    Row("max_pool2d", max_pool, max_pools, FLOAT, EXACT),
    Row("avg_pool2d", avg_pool, pools, FLOAT, COMPOSED),
    Row("gather", gather, gathers, ALL, EXACT),
    Row("scatter_add", scatter_add, scatters, NUMBER, SUMMED),
    Row("embedding", lambda i, w: w[i], tables, FLOAT, EXACT),
    Row("index_select", lambda x, dim, i: np.take(x, i, dim), choices, ALL, EXACT),
    Row(
        "one_hot",
        lambda i, num_classes: np.eye(num_classes)[i].astype(np.int64),
        hot,
        (int64,),
        EXACT,
        differentiable=False,
    ),
]
