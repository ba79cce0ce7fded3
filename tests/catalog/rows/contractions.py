"""Catalog rows: matrix products, attention, two-dimensional convolution and pooling."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from tests.catalog.row import (
    COMPOSED,
    CONTRACTED,
    EXACT,
    FLOAT,
    NUMBER,
    Make,
    Row,
    Sample,
    at,
)
from tests.catalog.rows.normalise import softmax


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
    return windows(x, kernel, kernel if stride is None else stride, padding, dilation, -np.inf).max(
        (-2, -1)
    )


def avg_pool(x, kernel, stride=None, padding=0):
    return windows(x, kernel, kernel if stride is None else stride, padding, 1, 0).mean((-2, -1))


def pools(make: Make) -> Iterator[Sample]:
    yield at(make.distinct(1, 2, 4, 6), 2)
    yield at(make.distinct(1, 2, 5, 5), 3, 1, 1)
    yield at(make.distinct(2, 4, 6), (2, 3), (1, 2))


def max_pools(make: Make) -> Iterator[Sample]:
    yield from pools(make)
    yield at(make.distinct(1, 1, 7, 7), 2, 1, 0, 2)


ROWS = [
    Row("matmul", np.matmul, matrices, NUMBER, CONTRACTED),
    Row("linear", linear, rows_by_matrix, FLOAT, CONTRACTED),
    Row("scaled_dot_product_attention", attention, attentions, FLOAT, CONTRACTED),
    Row("conv2d", conv2d, convolutions, FLOAT, CONTRACTED),
    Row("max_pool2d", max_pool, max_pools, FLOAT, EXACT),
    Row("avg_pool2d", avg_pool, pools, FLOAT, COMPOSED),
]
