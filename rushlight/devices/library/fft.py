"""Discrete Fourier transforms by pocketfft, through NumPy, in the precision of their operands.

`dims` are the dimensions transformed; of half transforms the last of them is the one of which half is kept.
`norm` says which direction is divided by the number of points: "backward", "forward", or each by its root, "ortho".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

Array = Any  # an ndarray
Arrays = Sequence[Array]
Dims = tuple[int, ...]
Norm = Literal["backward", "ortho", "forward"]


def full(outs: Arrays, ins: Arrays, dims: Dims, norm: Norm, forward: bool) -> None:
    """Of real or complex numbers, in either direction."""
    if outs[0].size:
        transform = np.fft.fftn if forward else np.fft.ifftn
        transform(ins[0], axes=dims, norm=norm, out=outs[0])


def half(outs: Arrays, ins: Arrays, dims: Dims, norm: Norm) -> None:
    """Of real numbers, without the frequencies that mirror others."""
    if outs[0].size:
        np.fft.rfftn(ins[0], axes=dims, norm=norm, out=outs[0])


def from_half(outs: Arrays, ins: Arrays, dims: Dims, norm: Norm, size: int) -> None:
    """Back from `half` to `size` real numbers."""
    if outs[0].size:
        sizes = [outs[0].shape[d] for d in dims]
        np.fft.irfftn(ins[0], s=sizes, axes=dims, norm=norm, out=outs[0])


FUNCTIONS = {"full": full, "half": half, "from_half": from_half}
