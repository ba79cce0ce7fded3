"""Catalog rows: embedding bags, CTC loss, fractional pooling, pairs, grids."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np

import rushlight
from tests.catalog.row import (
    COMPOSED,
    CONTRACTED,
    EXACT,
    FLOAT,
    SUMMED,
    Make,
    Row,
    Sample,
    at,
    rough,
)

# ---- bags ----


def bags(
    weight,
    index,
    offsets=None,
    mode="mean",
    per_sample_weights=None,
    include_last_offset=False,
    padding_idx=None,
):
    if index.ndim == 2:
        offsets = np.arange(index.shape[0]) * index.shape[1]
        include_last_offset = False
    flat = index.ravel()
    share = np.ones(flat.size) if per_sample_weights is None else per_sample_weights.ravel()
    ends = [*offsets[1:], flat.size] if not include_last_offset else offsets[1:]
    starts = offsets[:-1] if include_last_offset else offsets
    out = np.zeros((len(starts), weight.shape[1]))
    for i, (first, last) in enumerate(zip(starts, ends, strict=True)):
        at_rows = [
            k
            for k in range(first, last)
            if padding_idx is None or flat[k] != padding_idx % len(weight)
        ]
        rows = np.array([weight[flat[k]] * share[k] for k in at_rows])
        if at_rows:
            out[i] = {"sum": np.sum, "mean": np.mean, "max": np.max}[mode](rows, 0)
    return out


def bag_samples(make: Make) -> Iterator[Sample]:
    starts = np.array([0, 3, 3, 5])
    yield at(make.distinct(7, 3), make.index(8, limit=7), starts, mode="max")
    yield at(make(7, 3), make.index(8, limit=7), starts, mode="sum", per_sample_weights=make(8))
    yield at(make(5, 4), make.index(2, 3, limit=5), padding_idx=-2)
    yield at(
        make(5, 4),
        make.index(2, 3, limit=5),
        mode="sum",
        padding_idx=1,
        per_sample_weights=make(2, 3),
    )
    yield at(make(6, 2), make.index(5, limit=6), np.array([0, 2, 5]), include_last_offset=True)
    yield at(
        make.distinct(5, 4), np.array([1, 1, 1, 4]), np.array([0, 3]), mode="max", padding_idx=1
    )


# ---- CTC ----


def log_softmax(x):
    return x - np.log(np.sum(np.exp(x), -1, keepdims=True))


def label_loss(log_probs, labels, blank):
    """By enumeration: all sequences of classes that give the labels without repeats and blanks."""
    rows, classes = log_probs.shape
    total = -math.inf
    for way in itertools.product(range(classes), repeat=rows):
        if [c for c, _ in itertools.groupby(way) if c != blank] == list(labels):
            total = np.logaddexp(total, sum(log_probs[t, c] for t, c in enumerate(way)))
    return -total


def ctc(x, targets, input_lengths, target_lengths, blank=0, reduction="mean"):
    log_probs = log_softmax(x)
    single = x.ndim == 2
    log_probs = log_probs[:, None] if single else log_probs
    ends = np.cumsum(target_lengths)
    lines = [
        targets[e - n : e] if targets.ndim == 1 else targets[i][:n]
        for i, (n, e) in enumerate(zip(target_lengths, ends, strict=True))
    ]
    losses = np.array(
        [label_loss(log_probs[:n, i], lines[i], blank) for i, n in enumerate(input_lengths)]
    )
    if reduction == "mean":
        return np.mean(losses / np.maximum(target_lengths, 1))
    return np.sum(losses) if reduction == "sum" else losses[0] if single else losses


def ctc_samples(make: Make) -> Iterator[Sample]:
    yield at(
        make(4, 3, 3), np.array([[1, 2], [1, 1], [2, 0]]), (4, 3, 2), (2, 2, 1), reduction="none"
    )
    yield at(make(4, 2, 3), np.array([0, 1, 0]), np.array([4, 3]), np.array([1, 2]), blank=2)
    yield at(make(3, 2, 3), np.array([[1, 2], [-1, -1]]), (3, 3), (2, 0), reduction="sum")
    yield at(make(3, 4), np.array([3]), (3,), (1,), reduction="none")


def call_ctc(op, x, *rest, **named):
    """The loss is a function of log probabilities.

    Its gradient holds where they come from log_softmax.
    """
    return op(rushlight.log_softmax(x, -1), *rest, **named)


# ---- fractional pooling ----


def fractional(x, kernel, size, drawn):
    rank = len(size)
    sizes = x.shape[-rank:]
    out = np.zeros((*x.shape[:2], *size))
    for n, c in itertools.product(*map(range, x.shape[:2])):
        lines = []
        for i in range(rank):
            sample = drawn[n][c][1 - i if rank == 2 else i]
            pace = (sizes[i] - kernel[i]) / (size[i] - 1) if size[i] > 1 else 0
            line = [int((k + sample) * pace) - int(sample * pace) for k in range(size[i] - 1)]
            lines.append([*line, sizes[i] - kernel[i]])
        for place in itertools.product(*map(range, size)):
            window = tuple(slice(lines[i][p], lines[i][p] + kernel[i]) for i, p in enumerate(place))
            out[(n, c, *place)] = x[(n, c, *window)].max()
    return out


def images(make: Make) -> Iterator[Sample]:
    drawn = [[[0.25, 0.625]], [[0.0, 0.875]]]
    yield at(make.distinct(2, 1, 6, 8), (2, 3), (3, 4), drawn)
    yield at(make.distinct(2, 1, 5, 4), (2, 2), (1, 3), drawn)


def volumes(make: Make) -> Iterator[Sample]:
    yield at(make.distinct(1, 1, 5, 4, 5), (2, 1, 2), (3, 2, 2), [[[0.25, 0.625, 0.875]]])


def call_fractional(op, x, kernel, size, drawn):
    samples = rushlight.tensor(drawn, dtype=x.dtype, device=x.device)
    return op(x, kernel, output_size=size, _random_samples=samples)


# ---- pairs, grids, and the rest ----


def pair_distances(x, p=2.0):
    pairs = [(i, j) for i in range(len(x)) for j in range(i + 1, len(x))]
    away = np.abs(np.array([x[i] - x[j] for i, j in pairs]).reshape(len(pairs), x.shape[1]))
    return away.max(1) if p == math.inf else np.sum(away**p, 1) ** (1 / p)


def row_samples(make: Make) -> Iterator[Sample]:
    yield at(make.distinct(5, 3))
    yield at(make.distinct(4, 2), 3.0)
    yield at(make.distinct(3, 3), 1.0)
    yield rough(make.distinct(3, 4), math.inf)
    yield at(make(1, 3))


def grid(theta, size, align_corners=False):
    lines = [
        np.linspace(-1, 1, n) * (1 if align_corners else (n - 1) / n) if n > 1 else np.zeros(1)
        for n in size[2:]
    ]
    points = np.stack([*reversed(np.meshgrid(*lines, indexing="ij")), np.ones(size[2:])], -1)
    return np.einsum("...k,nrk->n...r", points, theta)


def matrices(make: Make) -> Iterator[Sample]:
    yield at(make(2, 2, 3), (2, 3, 4, 5))
    yield at(make(1, 2, 3), (1, 1, 3, 1), align_corners=True)
    yield at(make(1, 3, 4), (1, 2, 2, 3, 4))


def linear_entropy(x, table, target, linear_bias=None, reduction="mean"):
    logits = np.tensordot(x, table, (-1, -1)) + (0 if linear_bias is None else linear_bias)
    axis = x.ndim - 1
    likelihood = logits - np.log(np.sum(np.exp(logits), axis, keepdims=True))
    loss = -np.take_along_axis(likelihood, np.expand_dims(target, axis), axis).squeeze(axis)
    return {"mean": np.mean, "sum": np.sum, "none": lambda v: v}[reduction](loss)


def linear_entropies(make: Make) -> Iterator[Sample]:
    yield at(make(5, 4), make(3, 4), make.index(5, limit=3))
    yield at(
        make(5, 4),
        make(3, 2, 4),
        make.index(5, 2, limit=3),
        linear_bias=make(3, 2),
        reduction="sum",
    )
    yield at(make(4), make(3, 4), np.array(2), reduction="none")


def batch_norm(x, weight, bias, mean, var, training, momentum, eps):
    axes = (0, *range(2, x.ndim))
    column = (-1, *(1,) * (x.ndim - 2))
    if training:
        mean, var = x.mean(axes), x.var(axes)
    scale = 1 / np.sqrt(np.asarray(var) + eps)
    y = (x - np.reshape(mean, column)) * scale.reshape(column)
    return y if weight is None else y * weight.reshape(column) + bias.reshape(column)


def batches(make: Make) -> Iterator[Sample]:
    yield at(make(4, 3, 2), make(3), make(3), None, None, True, 0.1, 1e-3)
    yield at(make(5, 2), None, None, None, None, True, 0.1, 0.5)
    yield at(make(2, 2, 3), make(2), make(2), [0.5, -1.0], [1.0, 2.0], False, 0.1, 1e-3)


def call_batch(op, x, weight, bias, mean, var, *rest):
    """The result alone: the statistics have no gradient."""
    if mean is not None:
        mean, var = (rushlight.tensor(v, dtype=x.dtype, device=x.device) for v in (mean, var))
    return op(x, weight, bias, mean, var, *rest)[0]


ROWS = [
    Row(
        "embedding_bag",
        bags,
        bag_samples,
        FLOAT,
        SUMMED,
        call=lambda op, w, i, *rest, **named: op(i, w, *rest, **named),
    ),
    Row("ctc_loss", ctc, ctc_samples, FLOAT, SUMMED, call=call_ctc),
    Row("fractional_max_pool2d", fractional, images, FLOAT, EXACT, call=call_fractional),
    Row("fractional_max_pool3d", fractional, volumes, FLOAT, EXACT, call=call_fractional),
    Row("pdist", pair_distances, row_samples, FLOAT, COMPOSED),
    Row("affine_grid", grid, matrices, FLOAT, CONTRACTED),
    Row("linear_cross_entropy", linear_entropy, linear_entropies, FLOAT, CONTRACTED),
    Row("native_batch_norm", batch_norm, batches, FLOAT, CONTRACTED, call=call_batch),
    Row(
        "gumbel_softmax",
        None,
        lambda make: iter([at(make(3, 4)), at(make(2, 5), hard=True, dim=0)]),
        FLOAT,
        random=True,
        differentiable=False,
    ),
]
