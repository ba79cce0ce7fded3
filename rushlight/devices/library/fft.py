"""Discrete Fourier transforms by pocketfft, in the precision of their operands: through SciPy where it is there, else NumPy.

SciPy's copy does several rows at a time and on several threads, three times as fast on one; a row's bits depend on neither,
but are not those of NumPy's copy.
`dims` are the dimensions transformed; of half transforms the last of them is the one of which half is kept.
`norm` says which direction is divided by the number of points: "backward", "forward", or each by its root, "ortho".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from rushlight.devices.cpu import threads

try:
    import scipy.fft as quick
except ImportError:
    quick = None

Array = Any  # an ndarray
Arrays = Sequence[Array]
Dims = tuple[int, ...]
Norm = Literal["backward", "ortho", "forward"]


def _transform(name: str, out: Array, x: Array, dims: Dims, norm: Norm, **more: Any) -> None:
    if not out.size:
        return
    if quick is None:
        _by_numpy(name, out, x, dims, norm, **more)
        return
    if x.dtype == out.dtype:  # in place, so that nothing more is allocated
        np.copyto(out, x)
        x, more = out, {**more, "overwrite_x": True}
    found = getattr(quick, name)(x, axes=dims, norm=norm, workers=threads.count(), **more)
    if not np.may_share_memory(found, out):
        np.copyto(out, found)


def _by_numpy(name: str, out: Array, x: Array, dims: Dims, norm: Norm, **more: Any) -> None:
    scaled = "backward" if name in ("ifftn", "irfftn") else "forward"
    if norm in (scaled, "ortho") or x.dtype.itemsize == 16 or x.dtype == np.float64:
        getattr(np.fft, name)(x, axes=dims, norm=norm, out=out, **more)
        return
    if name == "fftn" and x.dtype != out.dtype:
        np.copyto(out, x)
        x = out
    # A factor of 1 is a whole number, which makes NumPy cast to double precision and back: three times the time.
    getattr(np.fft, name)(x, axes=dims, norm=scaled, out=out, **more)
    sizes = (out if name == "irfftn" else x).shape
    np.multiply(out, out.real.dtype.type(math.prod(sizes[d] for d in dims)), out=out)


def full(outs: Arrays, ins: Arrays, dims: Dims, norm: Norm, forward: bool) -> None:
    """Of real or complex numbers, in either direction."""
    _transform("fftn" if forward else "ifftn", outs[0], ins[0], dims, norm)


def half(outs: Arrays, ins: Arrays, dims: Dims, norm: Norm) -> None:
    """Of real numbers, without the frequencies that mirror others."""
    _transform("rfftn", outs[0], ins[0], dims, norm)


def from_half(outs: Arrays, ins: Arrays, dims: Dims, norm: Norm, size: int) -> None:
    """Back from `half` to `size` real numbers."""
    _transform("irfftn", outs[0], ins[0], dims, norm, s=[outs[0].shape[d] for d in dims])


FUNCTIONS = {"full": full, "half": half, "from_half": from_half}
