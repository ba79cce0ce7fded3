"""Discrete Fourier transforms by NumPy's pocketfft, in the precision of their operands.

`dims` are the dimensions transformed; of half transforms the last of them is the one of which half
is kept. `norm` says which direction is divided by the number of points: "backward", "forward", or
each by its root, "ortho".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from rushlight.core.dtypes import DType

Array = Any  # an ndarray
Arrays = Sequence[Array]
Operands = Sequence[tuple[DType, tuple[int, ...]]]
Dims = tuple[int, ...]
Norm = Literal["backward", "ortho", "forward"]


def _transform(name: str, out: Array, x: Array, dims: Dims, norm: Norm, **more: Any) -> None:
    if not out.size:
        return
    points = math.prod((out if name == "irfftn" else x).shape[d] for d in dims)
    divided = "backward" if name in ("ifftn", "irfftn") else "forward"
    single = x.dtype.itemsize < 16 and x.dtype != np.float64
    if not single or norm in (divided, "ortho") or points & (points - 1):
        getattr(np.fft, name)(x, axes=dims, norm=norm, out=out, **more)
        return
    if name == "fftn" and x.dtype != out.dtype:
        np.copyto(out, x)
        x = out
    # With an integer factor of 1 NumPy casts to double precision and back: three times the time. A
    # power of two divides and multiplies exactly.
    getattr(np.fft, name)(x, axes=dims, norm=divided, out=out, **more)
    np.multiply(out, out.real.dtype.type(points), out=out)


def full(outs: Arrays, ins: Arrays, dims: Dims, norm: Norm, forward: bool) -> None:
    """Of real or complex numbers, in either direction."""
    _transform("fftn" if forward else "ifftn", outs[0], ins[0], dims, norm)


def half(outs: Arrays, ins: Arrays, dims: Dims, norm: Norm) -> None:
    """Of real numbers, without the redundant frequencies."""
    _transform("rfftn", outs[0], ins[0], dims, norm)


def from_half(outs: Arrays, ins: Arrays, dims: Dims, norm: Norm, size: int) -> None:
    """Back from `half` to `size` real numbers."""
    _transform("irfftn", outs[0], ins[0], dims, norm, s=[outs[0].shape[d] for d in dims])


FUNCTIONS = {"full": full, "half": half, "from_half": from_half}


def scratch_bytes(function: str, outs: Operands, ins: Operands, options: Sequence[Any]) -> int:
    """A bound of what a call takes beside its operands, as measured.

    One line is copied, beside a table of its length. Where the length is no power of two, single
    precision is computed in double; where it has a large factor, by a longer transform.
    """
    (out, results), (kind, elements) = outs[0], ins[0]
    shape = results if function == "from_half" else elements
    lengths = [shape[d] for d in options[0]]
    line, points = max(lengths, default=0), math.prod(lengths)
    is_double = out.itemsize > (8 if out.kind == "c" else 4)
    whole, source = (_doubled(operand) for operand in (outs[0], ins[0]))
    if points & (points - 1):
        each = 32 if all(map(_has_small_factors, lengths)) else 160
        return 2 * (whole + (0 if is_double else source)) + each * line
    if is_double:
        return whole * (function == "full" and kind.kind == "f") + 32 * line
    return 16 * line


def _has_small_factors(length: int) -> bool:
    for factor in (2, 3, 5, 7, 11):
        while length and length % factor == 0:
            length //= factor
    return length <= 1


def _doubled(operand: tuple[DType, tuple[int, ...]]) -> int:
    """The bytes of an operand in double precision."""
    dtype, shape = operand
    return (16 if dtype.kind == "c" else 8) * math.prod(shape)
