"""Catalog rows: losses."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from tests.catalog.row import CONTRACTED, FLOAT, Array, Make, Row, Sample, at, rough


def reduced(loss, reduction="mean", weight=None):
    if weight is not None:
        loss = loss * weight
        if reduction == "mean":
            return np.sum(loss) / np.sum(np.broadcast_to(weight, loss.shape))
    return {"none": lambda x: x, "mean": np.mean, "sum": np.sum}[reduction](loss)


def log_sigmoid(x):
    return np.minimum(x, 0) - np.log1p(np.exp(-np.abs(x)))


def length(x, p=2.0):
    return np.sum(np.abs(x) ** p, -1) ** (1 / p)


# ---- references ----


def l1(x, y, reduction="mean", weight=None):
    return reduced(np.abs(x - y), reduction, weight)


def smooth_l1(x, y, reduction="mean", beta=1.0):
    away = np.abs(x - y)
    return reduced(np.where(away < beta, away**2 / (2 * beta), away - beta / 2), reduction)


def huber(x, y, reduction="mean", delta=1.0, weight=1.0):
    away = np.abs(x - y)
    return reduced(
        weight * np.where(away < delta, away**2 / 2, delta * (away - delta / 2)), reduction
    )


def entropy(x, y, weight=1.0, reduction="mean"):
    return reduced(-weight * (y * np.log(x) + (1 - y) * np.log1p(-x)), reduction)


def entropy_of_logits(x, y, weight=1.0, reduction="mean", pos_weight=1.0):
    return reduced(
        -weight * (pos_weight * y * log_sigmoid(x) + (1 - y) * log_sigmoid(-x)), reduction
    )


def divergence(x, y, reduction="mean", log_target=False):
    loss = np.exp(y) * (y - x) if log_target else y * (np.log(y) - x)
    return np.sum(loss) / x.shape[0] if reduction == "batchmean" else reduced(loss, reduction)


def poisson(x, y, log_input=True, full=False, eps=1e-8, reduction="mean"):
    loss = np.exp(x) - y * x if log_input else x - y * np.log(x + eps)
    if full:
        loss = loss + np.where(y > 1, y * np.log(y) - y + 0.5 * np.log(2 * math.pi * y), 0)
    return reduced(loss, reduction)


def gaussian(x, y, var, full=False, eps=1e-6, reduction="mean"):
    var = var[..., None] if np.ndim(var) == x.ndim - 1 and np.ndim(var) else var
    loss = 0.5 * (np.log(var) + (x - y) ** 2 / var) + (0.5 * math.log(2 * math.pi) if full else 0)
    return reduced(loss, reduction)


def hinge(x, y, margin=1.0, reduction="mean"):
    return reduced(np.where(y == 1, x, np.maximum(0, margin - x)), reduction)


def ranking(x, y, target, margin=0.0, reduction="mean"):
    return reduced(np.maximum(0, -target * (x - y) + margin), reduction)


def soft_margin(x, y, reduction="mean"):
    return reduced(-log_sigmoid(x * y), reduction)


def cosine(x, y, target, margin=0.0, reduction="mean"):
    found = np.sum(x * y, -1) / np.sqrt((np.sum(x * x, -1) + 1e-12) * (np.sum(y * y, -1) + 1e-12))
    return reduced(np.where(target == 1, 1 - found, np.maximum(0, found - margin)), reduction)


def triplet(x, near, far, margin=1.0, p=2.0, eps=1e-6, swap=False, reduction="mean"):
    away = length(x - far + eps, p)
    if swap:
        away = np.minimum(away, length(near - far + eps, p))
    return reduced(np.maximum(0, length(x - near + eps, p) - away + margin), reduction)


def multi_margin(x, target, p=1, margin=1.0, weight=None, reduction="mean"):
    rows, classes = np.atleast_2d(x), np.atleast_1d(target)
    at_target = np.take_along_axis(rows, classes[:, None], 1)
    short = np.maximum(0, margin - at_target + rows) ** p
    if weight is not None:
        short = short * weight[classes][:, None]
    np.put_along_axis(short, classes[:, None], 0, 1)
    return reduced(short.mean(1).reshape(np.shape(target)), reduction)


def multilabel_margin(x, target, reduction="mean"):
    rows, places = np.atleast_2d(x), np.atleast_2d(target)
    losses = np.zeros(len(rows))
    for number, (scores, row_places) in enumerate(zip(rows, places, strict=True)):
        listed = list(
            row_places[: np.argmax(row_places < 0)] if (row_places < 0).any() else row_places
        )
        others = [i for i in range(len(scores)) if i not in listed]
        losses[number] = sum(
            max(0, 1 - (scores[t] - scores[i])) for t in listed for i in others
        ) / len(scores)
    return reduced(losses.reshape(np.shape(x)[:-1]), reduction)


def multilabel_soft_margin(x, y, weight=1.0, reduction="mean"):
    return reduced(
        -np.mean(weight * (y * log_sigmoid(x) + (1 - y) * log_sigmoid(-x)), -1), reduction
    )


# ---- samples ----


def pairs(
    first: Callable[..., Array], second: Callable[..., Array], *variants: dict
) -> Callable[[Make], Iterator[Sample]]:
    """Two operands of one shape, drawn by the given functions, with each set of parameters."""

    def samples(make: Make) -> Iterator[Sample]:
        for named in ({}, {"reduction": "sum"}, {"reduction": "none"}, *variants):
            drawn = {k: v(make) if callable(v) else v for k, v in named.items()}
            yield at(first(make, 3, 4), second(make, 3, 4), **drawn)
        yield at(first(make, 37), second(make, 37))
        yield at(first(make), second(make), reduction="sum")

    return samples


def plain(make: Make, *shape: int) -> Array:
    return make(*shape)


def grid(make: Make, *shape: int) -> Array:
    return make.lattice(*shape)


def grid_between(make: Make, *shape: int) -> Array:
    return make.lattice(*shape, shift=0.5)


def share(make: Make, *shape: int) -> Array:
    return make(*shape, low=0.125, high=0.875)


def signs(make: Make, *shape: int) -> Array:
    return np.asarray(make.random.choice([-1, 1], shape))


def counts(make: Make, *shape: int) -> Array:
    return np.asarray(make.random.integers(2, 6, shape), np.float64)


def weights(make: Make) -> Array:
    return make(4, low=0.25, high=2)


def variances(make: Make) -> Iterator[Sample]:
    yield at(make(3, 4), make(3, 4), make(3, 4, low=0.5, high=2))
    yield at(make(3, 4), make(3, 4), make(3, 1, low=0.5, high=2), True)
    yield at(make(3, 4), make(3, 4), make(3, low=0.5, high=2), reduction="sum")
    yield at(make(3, 4), make(3, 4), 0.75, reduction="none")


def rankings(make: Make) -> Iterator[Sample]:
    for named in ({}, {"margin": 0.25, "reduction": "sum"}, {"reduction": "none"}):
        yield at(make.lattice(5), make.lattice(5, shift=0.5), signs(make, 5), **named)


def vectors(make: Make) -> Iterator[Sample]:
    for named in ({}, {"margin": 0.0, "reduction": "sum"}, {"reduction": "none"}):
        positive = make(3, 4, low=0.5, high=2)  # all cosines are clear of 0
        yield at(positive, make(3, 4, low=0.5, high=2), signs(make, 3), **named)


def triplets(make: Make) -> Iterator[Sample]:
    # A margin far above the distances, so that no maximum or minimum is near its kink.
    for named in (
        {"margin": 32.0},
        {"margin": 32.0, "p": 3.0, "reduction": "sum"},
        {"margin": 32.0, "swap": True},
    ):
        far = make(3, 4, low=3, high=4)
        yield at(make(3, 4, low=-0.5, high=0), make(3, 4, low=1, high=1.5), far, **named)


def plain_triplets(make: Make) -> Iterator[Sample]:
    for sample in triplets(make):
        if "p" not in sample.named:
            yield sample


def classes(make: Make) -> Iterator[Sample]:
    # Differences are eighths, margins are not.
    yield rough(make.distinct(3, 4), make.index(3, limit=4))
    for named in (
        {"margin": 1.0625, "p": 2, "reduction": "sum"},
        {"margin": 0.8125, "reduction": "none"},
    ):
        yield at(make.distinct(3, 4) + 0.0625, make.index(3, limit=4), **named)
    yield at(
        make.distinct(3, 4) + 0.0625, make.index(3, limit=4), weight=weights(make), margin=0.3125
    )
    yield at(make.distinct(4) + 0.0625, make.index(limit=4), margin=0.3125)


def label_lists(make: Make) -> Iterator[Sample]:
    lists = np.array([[2, 0, -1, 1], [-1, 0, 1, 2], [3, 3, 1, -1]])
    for named in ({}, {"reduction": "sum"}, {"reduction": "none"}):
        # Steps of 5/32, of which no sum is 1.
        yield at(make.distinct(3, 4) * 1.25, lists, **named)
    yield at(make.distinct(4) * 1.25, lists[0])


def labels(make: Make) -> Iterator[Sample]:
    for named in ({}, {"reduction": "sum"}, {"reduction": "none"}, {"weight": weights(make)}):
        yield at(make(3, 4), share(make, 3, 4), **named)


def row(
    name: str, reference: Callable[..., object], samples: Callable[[Make], Iterator[Sample]]
) -> Row:
    return Row(name, reference, samples, FLOAT, CONTRACTED)


ROWS = [
    row("l1_loss", l1, pairs(grid, grid_between, {"weight": weights})),
    row("smooth_l1_loss", smooth_l1, pairs(grid, grid_between, {"beta": 0.75}, {"beta": 2.0})),
    row(
        "huber_loss",
        huber,
        pairs(grid, grid_between, {"delta": 0.75}, {"delta": 2.0}, {"weight": weights}),
    ),
    row("binary_cross_entropy", entropy, pairs(share, share, {"weight": weights})),
    row(
        "binary_cross_entropy_with_logits",
        entropy_of_logits,
        pairs(plain, share, {"weight": weights}, {"pos_weight": weights}),
    ),
    row(
        "kl_div", divergence, pairs(plain, share, {"log_target": True}, {"reduction": "batchmean"})
    ),
    row(
        "poisson_nll_loss",
        poisson,
        pairs(
            share,
            counts,
            {"full": True},
            {"log_input": False},
            {"log_input": False, "full": True, "eps": 0.125},
        ),
    ),
    row("gaussian_nll_loss", gaussian, variances),
    row("hinge_embedding_loss", hinge, pairs(grid_between, signs, {"margin": 2.0})),
    row("margin_ranking_loss", ranking, rankings),
    row("soft_margin_loss", soft_margin, pairs(plain, signs)),
    row("cosine_embedding_loss", cosine, vectors),
    row("triplet_margin_loss", triplet, triplets),
    row("triplet_margin_with_distance_loss", triplet, plain_triplets),
    row("multi_margin_loss", multi_margin, classes),
    row("multilabel_margin_loss", multilabel_margin, label_lists),
    row("multilabel_soft_margin_loss", multilabel_soft_margin, labels),
]
