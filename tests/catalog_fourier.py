"""Catalog rows: Fourier transforms.

The references are sums of exponentials, written out. Complex operands are pairs, as in `catalog_complex`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

import rushlight
from tests.catalog_complex import PARTS, number, on_pairs, parts_of
from tests.catalog_making import made
from tests.catalog_row import ALL, EXACT, Array, Make, Row, Sample, Tolerance, at

TURNED = Tolerance("sums of up to 60 terms of size 2, along up to three dimensions", 128, 0)
KINDS = ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")


# ---- references ----


def sized(x: Array, axis: int, size: int) -> Array:
    """Cut or filled with zeros."""
    x = np.take(x, range(min(size, x.shape[axis])), axis)
    sides = [(0, 0)] * x.ndim
    sides[axis] = (0, size - x.shape[axis])
    return np.pad(x, sides)


def turned(x: Array, axis: int, sign: int) -> Array:
    """The sum of x times exp(sign 2 pi i j k / n)."""
    n = x.shape[axis]
    k = np.arange(n)
    table = np.exp(sign * 2j * np.pi * (np.outer(k, k) % n) / n)
    return np.moveaxis(np.tensordot(x, table, ([axis], [0])), -1, axis)


def mirrored(x: Array, axis: int, size: int) -> Array:
    """All frequencies from the first half of them."""
    k = np.arange(size)
    low = np.take(x, np.minimum(k, size - k), axis)
    high = k.reshape([-1] + [1] * (x.ndim - axis - 1)) > size // 2
    return np.where(high, low.conj(), low)


def transform(kind: str, x: Array, wanted: Any, dims: Sequence[int], norm: str | None) -> Array:
    sign = -1 if kind in ("fft", "rfft", "hfft") else 1
    dims = [d % x.ndim for d in dims]
    back = kind in ("irfft", "hfft")
    sizes = [x.shape[d] for d in dims]
    if back:
        sizes[-1] = 2 * (sizes[-1] - 1)
    sizes = [n if w in (None, -1) else w for n, w in zip(sizes, wanted or [None] * len(dims), strict=True)]
    for d, n in zip(dims, sizes, strict=True):
        x = sized(x, d, n // 2 + 1 if back and d == dims[-1] else n)
    for d in dims[:-1]:
        x = turned(x, d, sign)
    x = turned(mirrored(x, dims[-1], sizes[-1]) if back else x, dims[-1], sign)
    if kind in ("rfft", "ihfft"):
        x = sized(x, dims[-1], sizes[-1] // 2 + 1)
    count = math.prod(sizes)
    divided = {None: sign == 1, "backward": sign == 1, "forward": sign == -1, "ortho": 0.5}[norm]
    return (x.real if back else x) / count ** float(divided)


def reference(kind: str, suffix: str, real: bool) -> Callable[..., Any]:
    def one(x: Array, n: int | None = None, dim: int = -1, norm: str | None = None) -> Any:
        return parts_of(transform(kind, x if real else number(x), None if n is None else [n], [dim], norm))

    def several(x: Array, s: Any = None, dim: Any = None, norm: str | None = None) -> Any:
        x = x if real else number(x)
        if dim is None:
            dim = (-2, -1) if suffix == "2" else range(x.ndim - len(s), x.ndim) if s else range(x.ndim)
        return parts_of(transform(kind, x, s, list(dim), norm))

    return several if suffix else one


# ---- samples ----


def one_dimension(draw: Callable[..., Array]) -> Iterator[Sample]:
    yield at(draw(3, 5))
    yield at(draw(4), norm="forward")
    yield at(draw(2, 4), n=7, norm="backward")
    yield at(draw(2, 5, 3), 3, 1, "ortho")
    yield at(draw(0, 4))
    yield at(draw(60), None)
    yield at(draw(2), n=1)


def two_dimensions(draw: Callable[..., Array]) -> Iterator[Sample]:
    yield at(draw(2, 3, 4))
    yield at(draw(3, 4), (4, 3), norm="ortho")
    yield at(draw(2, 3, 4), s=(3, -1), dim=(0, -1), norm="forward")
    yield at(draw(3, 0, 4), dim=(0, 2))


def any_dimensions(draw: Callable[..., Array]) -> Iterator[Sample]:
    yield at(draw(2, 3))
    yield at(draw(3, 2, 4), (3, 6))
    yield at(draw(3, 2, 4), dim=(1, -1, 0), norm="ortho")
    yield at(draw(3, 2, 5), s=(2, 2), dim=(2, 0), norm="forward")


SAMPLES = {"": one_dimension, "2": two_dimensions, "n": any_dimensions}


def out_as_pairs(op: Callable[..., Any], *args: Any, **named: Any) -> Any:
    out = op(*args, **named)
    return rushlight.view_as_real(out) if out.is_complex() else out


def row(kind: str, suffix: str, real: bool, variant: str = "") -> Row:
    def samples(make: Make) -> Iterator[Sample]:
        return SAMPLES[suffix](lambda *shape: make(*shape) if real else make(*shape, 2))

    return Row(
        f"fft_{kind}{suffix}",
        reference(kind, suffix, real),
        samples,
        PARTS,
        TURNED,
        call=out_as_pairs if real else on_pairs,
        layouts=real,
        variant=variant,
    )


def shifted(make: Make) -> Iterator[Sample]:
    yield at(make(5))
    yield at(make(3, 4))
    yield at(make(3, 4), 1)
    yield at(make(2, 3, 4), dim=(0, -1))
    yield at(make(0, 3))


POINTS = (at(5), at(6), at(7, 0.25), at(1), at(8, d=-2.0))

ROWS = [
    *(row(kind, suffix, kind in ("rfft", "ihfft")) for kind in KINDS for suffix in SAMPLES),
    *(row(kind, suffix, True, "real") for kind in ("fft", "ifft", "irfft", "hfft") for suffix in ("", "n")),
    Row("fft_fftshift", lambda x, dim=None: np.fft.fftshift(x, dim), shifted, ALL, EXACT),
    Row("fft_ifftshift", lambda x, dim=None: np.fft.ifftshift(x, dim), shifted, ALL, EXACT),
    made("fft_fftfreq", np.fft.fftfreq, *POINTS),
    made("fft_rfftfreq", np.fft.rfftfreq, *POINTS),
]
