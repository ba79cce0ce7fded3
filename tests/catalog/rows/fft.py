"""Catalog rows: Fourier transforms.

The references are sums of exponentials, written out. Complex operands are pairs, as in
`complex.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

import rushlight
from tests.catalog.row import ALL, EXACT, Array, Make, Row, Sample, Tolerance, at
from tests.catalog.rows.complex import PARTS, number, on_pairs, parts_of
from tests.catalog.rows.creation import LENGTHS, made

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
    sizes = [
        n if w in (None, -1) else w
        for n, w in zip(sizes, wanted or [None] * len(dims), strict=True)
    ]
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
        return parts_of(
            transform(kind, x if real else number(x), None if n is None else [n], [dim], norm)
        )

    def several(x: Array, s: Any = None, dim: Any = None, norm: str | None = None) -> Any:
        x = x if real else number(x)
        if dim is None:
            dim = (
                (-2, -1)
                if suffix == "2"
                else range(x.ndim - len(s), x.ndim)
                if s
                else range(x.ndim)
            )
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


# ---- frames ----


def frames(x: Array, size: int, hop: int) -> Array:
    count = (x.shape[-1] - size) // hop + 1
    return np.stack([x[..., i * hop : i * hop + size] for i in range(count)], -2)


def spread(window: Array | None, size: int, width: int | None) -> Array:
    """The window in the middle of a frame."""
    width = width or size
    before = (size - width) // 2
    return np.pad(np.ones(width) if window is None else window, (before, size - width - before))


def stft(
    x: Array,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Array | None = None,
    center: bool = True,
    pad_mode: str = "reflect",
    normalized: bool = False,
    onesided: bool = True,
    return_complex: bool = True,
    align_to_window: bool = False,
) -> Any:
    side = n_fft // 2 if center else 0
    mode: Any = {"replicate": "edge", "circular": "wrap"}.get(pad_mode, pad_mode)
    x = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(side, side)], mode)
    if align_to_window:
        gap = n_fft - (win_length or n_fft)
        x = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(gap // 2, gap - gap // 2)])
    seen = frames(x, n_fft, hop_length or n_fft // 4) * spread(window, n_fft, win_length)
    out = turned(seen, seen.ndim - 1, -1) / (n_fft**0.5 if normalized else 1)
    return parts_of(np.swapaxes(out[..., : n_fft // 2 + 1] if onesided else out, -1, -2))


def signals(make: Make) -> Iterator[Sample]:
    fine = {"return_complex": True}
    yield at(make(2, 20), 8, None, None, make(8), **fine)
    yield at(make(21), 7, 3, 5, make(5), normalized=True, **fine)
    yield at(make(12), 6, 2, 6, make(6), pad_mode="constant", onesided=False, **fine)
    yield at(make(1, 12), 4, 5, None, make(4), pad_mode="replicate", **fine)
    yield at(make(12), 4, 1, None, make(4), pad_mode="circular", **fine)
    yield at(make(14), 6, 2, 3, make(3), center=False, **fine)
    yield at(make(14), 6, 2, 3, make(3), center=False, align_to_window=True, **fine)
    # PyTorch reflects no empty batch.
    yield at(make(0, 14), 6, 2, None, make(6), center=False, **fine)


def istft(
    x: Array,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Array | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool = True,
    length: int | None = None,
    return_complex: bool = False,
) -> Any:
    hop = hop_length or n_fft // 4
    x = np.swapaxes(number(x), -1, -2)
    axis = x.ndim - 1
    if not return_complex:
        x = mirrored(x[..., : n_fft // 2 + 1], axis, n_fft)
    pieces = turned(x, axis, 1) / (n_fft**0.5 if normalized else n_fft)
    pieces = pieces if return_complex else pieces.real
    weights = spread(window, n_fft, win_length)
    count = x.shape[-2]
    total = n_fft + hop * (count - 1)
    out, below = np.zeros((*x.shape[:-2], total), pieces.dtype), np.zeros(total)
    for i in range(count):
        out[..., i * hop : i * hop + n_fft] += pieces[..., i, :] * weights
        below[i * hop : i * hop + n_fft] += weights**2
    start = n_fft // 2 if center else 0
    stop = total - start if length is None else start + length
    return parts_of(out[..., start:stop] / below[start:stop])


def spectra(make: Make) -> Iterator[Sample]:
    def window(size: int) -> Array:
        return make(size, low=0.5, high=1.5)

    yield at(make(2, 5, 6, 2), 8, None, None, window(8))
    yield at(make(4, 5, 2), 7, 3, 5, window(5), normalized=True)
    yield at(make(4, 5, 2), 6, 2, None, window(6), center=False)
    yield at(make(6, 5, 2), 6, 5, None, window(6), onesided=False, length=13)
    yield at(make(1, 4, 3, 2), 4, 2, None, window(4), onesided=False, return_complex=True)


def of_spectrum(op: Callable[..., Any], x: Any, *args: Any, **named: Any) -> Any:
    return out_as_pairs(op, rushlight.view_as_complex(x), *args, **named)


def kaiser(length: int, periodic: bool = True, beta: float = 12.0) -> Array:
    return np.kaiser(length + periodic, beta)[:length] if length > 1 else np.ones(length)


POINTS = (at(5), at(6), at(7, 0.25), at(1), at(8, d=-2.0))

ROWS = [
    *(row(kind, suffix, kind in ("rfft", "ihfft")) for kind in KINDS for suffix in SAMPLES),
    *(
        row(kind, suffix, True, "real")
        for kind in ("fft", "ifft", "irfft", "hfft")
        for suffix in ("", "n")
    ),
    Row("fft_fftshift", lambda x, dim=None: np.fft.fftshift(x, dim), shifted, ALL, EXACT),
    Row("fft_ifftshift", lambda x, dim=None: np.fft.ifftshift(x, dim), shifted, ALL, EXACT),
    made("fft_fftfreq", np.fft.fftfreq, *POINTS),
    made("fft_rfftfreq", np.fft.rfftfreq, *POINTS),
    Row("stft", stft, signals, PARTS, TURNED, call=out_as_pairs),
    Row("istft", istft, spectra, PARTS, TURNED, call=of_spectrum, layouts=False),
    made("kaiser_window", kaiser, *LENGTHS, at(9, False, 100.0), at(6, True, 0.0), at(40, True, 3)),
]
