"""Convolutions with NumPy: sums over the window's taps, each a matrix product."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np

Array = Any
Index = Any  # of the last axes of an array
Sizes = tuple[int, ...]


def convolve(of: str, a: Array, b: Array, geometry: Sequence[Sizes]) -> Array:
    """`Convolve` of "image", "back" or "weights", in the arrays' type; see `kernel/shapes.py`."""
    pixels, window, image = geometry[:3]
    if of == "image":
        out = np.zeros((*a.shape[:2], b.shape[1], *pixels), a.dtype)
        for tap, here, there in _taps(geometry):
            out[here] += np.einsum("gmc,ngc...->ngm...", b[tap], a[there])
    elif of == "back":
        out = np.zeros((*a.shape[:2], b.shape[2], *image), a.dtype)
        for tap, here, there in _taps(geometry):
            out[there] += np.einsum("gmc,ngm...->ngc...", b[tap], a[here])
    else:
        out = np.zeros((*a.shape[1:3], b.shape[2], *window), a.dtype)
        for tap, here, there in _taps(geometry):
            flat = [v.reshape(*v.shape[:3], -1) for v in (a[here], b[there])]
            out[tap] = np.einsum("ngmi,ngci->gmc", *flat)
    return out


def _taps(geometry: Sequence[Sizes]) -> Iterator[tuple[Index, Index, Index]]:
    """Each position in the window, the pixels whose tap is inside of x, and where it is there."""
    for tap in product(*map(range, geometry[1])):
        here, there = [], []
        for p, count, size, s, d, t in zip(tap, geometry[0], *geometry[2:], strict=True):
            first = max(0, -((p * d - t) // s))
            end = max(first, min(count, (size - 1 + t - p * d) // s + 1))
            start = first * s + p * d - t
            here.append(slice(first, end))
            there.append(slice(start, start + (end - first) * s, s) if end > first else slice(0, 0))
        yield (..., *tap), (..., *here), (..., *there)
