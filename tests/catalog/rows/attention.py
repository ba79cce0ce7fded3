"""Rows for attention with several heads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.catalog.row import CONTRACTED, FLOAT, Array, Make, Row, Sample, at


def multi_head(
    q: Array,
    k: Array,
    v: Array,
    heads: int,
    weight: Array,
    bias: Array,
    out_weight: Array,
    mask: Any = None,
) -> Array:
    """(length, batch, width), one head and one batch after the other."""
    width = q.shape[-1]
    parts = [
        x @ w.T + b
        for x, w, b in zip((q, k, v), np.split(weight, 3), np.split(bias, 3), strict=True)
    ]
    joined = np.zeros_like(q)
    for n in range(q.shape[1]):
        for h in range(heads):
            at_head = slice(h * width // heads, (h + 1) * width // heads)
            a, b, c = (x[:, n, at_head] for x in parts)
            scores = a @ b.T / np.sqrt(width / heads) + (0 if mask is None else mask)
            power = np.exp(scores - scores.max(-1, keepdims=True))
            joined[:, n, at_head] = power / power.sum(-1, keepdims=True) @ c
    return joined @ out_weight.T


def call_heads(
    op: Any,
    q: Any,
    k: Any,
    v: Any,
    heads: int,
    weight: Any,
    bias: Any,
    out_weight: Any,
    mask: Any = None,
) -> Any:
    width = q.shape[-1]
    out, _ = op(
        q, k, v, width, heads, weight, bias, None, None, False, 0.0, out_weight, None,
        attn_mask=mask, need_weights=mask is None,
    )  # fmt: skip
    return out


def several_heads(make: Make) -> Iterator[Sample]:
    for rows, keys, batch, width, heads in ((3, 4, 2, 4, 2), (1, 2, 1, 6, 3)):
        shared = (
            heads,
            make(3 * width, width, low=-1, high=1),
            make(3 * width),
            make(width, width, low=-1, high=1),
        )
        yield at(
            make(rows, batch, width), make(keys, batch, width), make(keys, batch, width), *shared
        )
        yield at(
            make(rows, batch, width),
            make(keys, batch, width),
            make(keys, batch, width),
            *shared,
            make(rows, keys),
        )


ROWS = [
    Row(
        "multi_head_attention_forward",
        multi_head,
        several_heads,
        FLOAT,
        CONTRACTED,
        call=call_heads,
    ),
]
