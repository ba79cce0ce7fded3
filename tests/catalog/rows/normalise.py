"""Catalog rows: softmax, norms, losses over classes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.catalog.row import (
    COMPOSED,
    FLOAT,
    SUMMED,
    Make,
    Row,
    Sample,
    at,
    rough,
)


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
    return (
        y,
        (1 - momentum) * mean + momentum * centre,
        (1 - momentum) * var + momentum * spread * count / (count - 1),
    )


def call_batch_norm(op, x, mean, var, *args, **named):
    y = op(x, mean, var, *args, **named)
    return y if mean is None else (y, mean, var)


def batch_norms(make: Make) -> Iterator[Sample]:
    yield at(make(6, 3), None, None, make(3), make(3), training=True)
    yield at(make(4, 2, 3, 3), None, None, training=True, eps=1e-3)
    yield rough(
        make(4, 3, 2), make(3), make(3, low=0.5), make(3), make(3), training=True, momentum=0.25
    )
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


ROWS = [
    Row("softmax", softmax, along, FLOAT, COMPOSED),
    Row("log_softmax", log_softmax, along, FLOAT, COMPOSED),
    Row("layer_norm", layer_norm, layer_norms, FLOAT, COMPOSED),
    Row("batch_norm", batch_norm, batch_norms, FLOAT, COMPOSED, call=call_batch_norm),
    Row("cross_entropy", cross_entropy, entropies, FLOAT, COMPOSED),
    Row("nll_loss", nll_loss, class_losses, FLOAT, COMPOSED),
    Row("mse_loss", mse_loss, distances, FLOAT, SUMMED),
]
