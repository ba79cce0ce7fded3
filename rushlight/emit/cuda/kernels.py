"""Kernel -> CUDA C. See Note [CUDA C] in scalar.py for what the text may contain.

The entry point's arguments are those of Note [Kernel arguments], in that order: addresses as
pointers, sizes and strides as long long, params in their own type. Rowwise and scatter kernels take
a few more, which the launcher adds (see Note [Rows on CUDA] and Note [Indices on CUDA]).
"""

from __future__ import annotations

from rushlight.emit.cuda.anomaly import note
from rushlight.emit.cuda.attend import attend
from rushlight.emit.cuda.contract import contract
from rushlight.emit.cuda.convolve import convolve
from rushlight.emit.cuda.index import gather, scatter
from rushlight.emit.cuda.map import PACK, flat, strided
from rushlight.emit.cuda.row_axis import rowwise_axis
from rushlight.emit.cuda.row_columns import rowwise_columns
from rushlight.emit.cuda.scalar import PRELUDE
from rushlight.emit.cuda.scan import scan
from rushlight.kernel.shapes import (
    Attend,
    Contract,
    Convolve,
    Gather,
    Kernel,
    Map,
    Rowwise,
    Scan,
    Scatter,
)


def entry_name(kernel: Kernel) -> str:
    """The name of the __global__ function."""
    if isinstance(kernel, Map):
        return "map_strided" if kernel.rank else "map_flat"
    if isinstance(kernel, Rowwise):
        return "rowwise_axis" if kernel.vector == "axis" else "rowwise_columns"
    if isinstance(kernel, Scan):
        return "scan"
    if isinstance(kernel, Contract):
        return "contract"
    if isinstance(kernel, Attend):
        return "attend"
    if isinstance(kernel, Convolve):
        return "convolve"
    return "gather" if isinstance(kernel, Gather) else "scatter"


def emit(kernel: Kernel) -> str:
    """The whole source of one kernel."""
    if isinstance(kernel, Map):
        return f"{PRELUDE}{PACK}{note(kernel)}\n{strided(kernel) if kernel.rank else flat(kernel)}"
    if isinstance(kernel, Rowwise):
        rows = rowwise_axis if kernel.vector == "axis" else rowwise_columns
        return f"{PRELUDE}{PACK}{note(kernel)}\n{rows(kernel)}"
    if isinstance(kernel, Scan):
        return f"{PRELUDE}\n{scan(kernel)}"
    if isinstance(kernel, Contract):
        return f"{PRELUDE}\n{contract(kernel)}"
    if isinstance(kernel, Attend):
        return f"{PRELUDE}\n{attend(kernel)}"
    if isinstance(kernel, Convolve):
        return f"{PRELUDE}\n{convolve(kernel)}"
    assert isinstance(kernel, Gather | Scatter)
    return f"{PRELUDE}{PACK}\n{gather(kernel) if isinstance(kernel, Gather) else scatter(kernel)}"
