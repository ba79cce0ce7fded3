"""Catalog rows: activation functions, and distances and similarities of vectors."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from tests.catalog.row import (
    COMPOSED,
    ELEMENTARY,
    FLOAT,
    NUMBER,
    ROUNDED,
    SIGNED,
    Array,
    Make,
    Row,
    Sample,
    at,
    rough,
    unary,
)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def log_sigmoid(x):
    return np.minimum(x, 0) - np.log1p(np.exp(-np.abs(x)))


def elu(x, alpha=1.0, scale=1.0, rate=1.0):
    return scale * np.where(x > 0, x, alpha * np.expm1(x * rate))


def selu(x):
    return elu(x, 1.6732632423543772, 1.0507009873554805)


def celu(x, alpha=1.0):
    return elu(x, alpha, 1.0, 1.0 / alpha)


def clip(x, min_val=-1.0, max_val=1.0):
    return np.where(
        np.isnan(x), x, np.clip(x, np.asarray(min_val, x.dtype), np.asarray(max_val, x.dtype))
    )


def gate(x):
    return np.clip(x / 6 + 0.5, 0, 1)


def softshrink(x, lambd=0.5):
    return np.where(np.isnan(x), x, np.sign(x) * np.maximum(np.abs(x) - lambd, 0))


def hardshrink(x, lambd=0.5):
    return np.where(np.abs(x) <= lambd, 0, x)


def threshold(x, least, value):
    return np.where(x <= least, np.asarray(value, x.dtype), x)


def prelu(x, weight):
    spread = (
        weight.reshape((-1,) + (1,) * (x.ndim - 2))
        if x.ndim > 1
        else weight.reshape((-1,) * x.ndim)
    )
    return np.where(x > 0, x, x * spread)


def rrelu(x, lower=1 / 8, upper=1 / 3):
    return np.where(x > 0, x, x * (lower + upper) / 2)


def glu(x, dim=-1):
    first, second = np.split(x, 2, dim)
    return first * sigmoid(second)


def softmin(x, dim):
    parts = np.exp(-x - np.max(-x, dim, keepdims=True, initial=-np.inf))
    return parts / parts.sum(dim, keepdims=True)


def length(x, p, dim, keepdims=False):
    return (
        np.linalg.norm(x, p, dim, keepdims)
        if x.size
        else np.zeros(np.sum(x, dim, keepdims=keepdims).shape)
    )


def normalize(x, p=2.0, dim=1, eps=1e-12):
    return x / np.maximum(length(x, p, dim, True), eps)


def cosine_similarity(x, y, dim=1, eps=1e-8):
    x, y = np.broadcast_arrays(x, y)
    return np.sum(normalize(x, 2, dim, eps) * normalize(y, 2, dim, eps), dim)


def pairwise_distance(x, y, p=2.0, eps=1e-6, keepdim=False):
    return length(x - y + eps, p, -1, keepdim)


# ---- samples ----


def from_points(*points: float) -> Callable[[Array], Array]:
    """The distance to the nearest of some kinks."""
    return lambda x: np.min([np.abs(x - p) for p in points], axis=0)


def shaped(
    *variants: dict,
    kink: Callable[[Array], Array] | None = None,
    special: bool = True,
    size: float = 4,
):
    """Each set of parameters in turn on a few shapes, all clear of the same kinks."""

    def samples(make: Make) -> Iterator[Sample]:
        for named in variants or ({},):
            yield at(make(3, 4, low=-size, high=size, kink=kink), **named)
        first = (variants or ({},))[0]
        yield at(make(low=-size, high=size, kink=kink), **first)
        yield at(make(0, 3), **first)
        yield at(make(1037, low=-size, high=size, kink=kink), **first)
        if special:
            yield rough(make.special(), **first)

    return samples


def thresholds(make: Make) -> Iterator[Sample]:
    yield at(make(3, 4, kink=from_points(1)), 1, 7)
    yield at(make(kink=from_points(1)), 1, 7)
    yield at(make(0, 3), 1, 7)
    yield rough(make.special(), 1, 7)


def slopes(make: Make) -> Iterator[Sample]:
    yield at(make(3, 4, kink=np.abs), make(1))
    yield at(make(3, 4, kink=np.abs), make(4))
    yield at(make(2, 3, 5, kink=np.abs), make(3))
    yield at(make(7, kink=np.abs), make(1))
    yield at(make(kink=np.abs), make(1))
    yield at(make(0, 3), make(3))


def halves(make: Make) -> Iterator[Sample]:
    yield at(make(3, 4))
    yield at(make(4, 3, 2), 0)
    yield at(make(0, 4))


def along(make: Make) -> Iterator[Sample]:
    yield at(make(3, 4), 1)
    yield at(make(3, 4, 2), -2)
    yield at(make(2, 1037), 1)


def vectors(make: Make) -> Iterator[Sample]:
    yield at(make.nonzero(3, 4))
    yield at(make.nonzero(3, 4), 1.0, -1)
    yield at(make.nonzero(3, 4, 2), p=3.0, dim=0)
    yield at(make.distinct(3, 4) + 0.03125, p=math.inf)
    yield at(make(3, 0))
    yield rough(np.zeros((2, 3)), eps=0.5)


def vector_pairs(make: Make) -> Iterator[Sample]:
    yield at(make.nonzero(3, 4), make.nonzero(3, 4))
    yield at(make.nonzero(3, 4, 2), make.nonzero(4, 1), -1)
    yield at(make.nonzero(3, 4), make.nonzero(3, 4), dim=0, eps=1e-3)


def distances(make: Make) -> Iterator[Sample]:
    yield at(make.lattice(3, 4), make.lattice(3, 4, shift=0.5))
    yield at(make.lattice(3, 4), make.lattice(4, shift=0.5), 1.0, keepdim=True)
    yield at(make.lattice(3, 4), make.lattice(3, 4, shift=0.5), p=3.0)
    yield at(make.lattice(0, 4), make.lattice(0, 4))


ROWS = [
    Row("elu", elu, shaped({}, {"alpha": 2.5}, kink=np.abs), FLOAT, COMPOSED),
    Row("selu", selu, shaped(kink=np.abs), FLOAT, COMPOSED),
    Row("celu", celu, shaped({}, {"alpha": 2.5}, kink=np.abs), FLOAT, COMPOSED),
    Row(
        "hardtanh",
        clip,
        shaped({}, {"min_val": -2, "max_val": 3}, kink=from_points(-2, -1, 1, 3)),
        NUMBER,
        ROUNDED,
        small=SIGNED,
    ),
    Row("relu6", lambda x: clip(x, 0, 6), shaped(kink=from_points(0, 6), size=8), NUMBER, ROUNDED),
    Row("hardsigmoid", gate, shaped(kink=from_points(-3, 3)), FLOAT, COMPOSED),
    Row(
        "hardswish",
        lambda x: x * gate(x),
        shaped(kink=from_points(-3, 3), special=False),
        FLOAT,
        COMPOSED,
    ),
    Row(
        "softshrink",
        softshrink,
        shaped({}, {"lambd": 1.5}, kink=from_points(-1.5, -0.5, 0.5, 1.5)),
        FLOAT,
        ROUNDED,
    ),
    Row(
        "hardshrink",
        hardshrink,
        shaped({}, {"lambd": 1.5}, kink=from_points(-1.5, -0.5, 0.5, 1.5)),
        FLOAT,
        ROUNDED,
    ),
    unary("tanhshrink", lambda x: x - np.tanh(x), ELEMENTARY, FLOAT, low=-4, high=4, special=False),
    Row("threshold", threshold, thresholds, NUMBER, ROUNDED),
    Row("prelu", prelu, slopes, FLOAT, ROUNDED),
    Row("rrelu", rrelu, shaped({}, {"lower": 0.25, "upper": 0.5}, kink=np.abs), FLOAT, COMPOSED),
    Row(
        "mish",
        lambda x: x * np.tanh(np.logaddexp(x, 0)),
        shaped(special=False, size=6),
        FLOAT,
        COMPOSED,
    ),
    Row("logsigmoid", log_sigmoid, shaped(size=6), FLOAT, ELEMENTARY),
    Row("glu", glu, halves, FLOAT, COMPOSED),
    Row("softmin", softmin, along, FLOAT, COMPOSED),
    Row("normalize", normalize, vectors, FLOAT, COMPOSED),
    Row("cosine_similarity", cosine_similarity, vector_pairs, FLOAT, COMPOSED),
    Row("pairwise_distance", pairwise_distance, distances, FLOAT, COMPOSED),
]
