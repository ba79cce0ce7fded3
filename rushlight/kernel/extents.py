"""The bytes a launch may touch: the reach of every operand, from its sizes and strides."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from rushlight.core.dtypes import DType, int64
from rushlight.core.shapes import contiguous_strides, reach
from rushlight.kernel.attend import inner_sizes, operands_of
from rushlight.kernel.interpret import sort_arguments
from rushlight.kernel.machine import Call
from rushlight.kernel.shapes import (
    PANEL,
    Attend,
    Cell,
    Contract,
    Convolve,
    Gather,
    Kernel,
    Library,
    Map,
    Rowwise,
    Scan,
    Scatter,
    Search,
    Sort,
)

# An operand: its dtype, and the sizes and strides by which it is walked.
Walk = tuple[DType, Sequence[int], Sequence[int]]


def extents(kernel: Kernel, numbers: Sequence[Any], tells: bool) -> Iterator[tuple[int, int, int]]:
    """(operand, first byte, end) for each operand of a launch that touches memory.

    Outputs come first. `tells`: a kernel with anomaly checks on a synchronous device, whose launch
    has no address for the flags. The device's own words (index status, anomaly flags) are left out.
    """
    if tells and isinstance(kernel, Map | Rowwise):
        kernel = replace(kernel, anomaly=None)
    call = sort_arguments(kernel, numbers)
    for i, (dtype, sizes, strides) in enumerate(_walks(kernel, call)):
        low, high = reach(sizes, strides, dtype.itemsize)
        if low != high:
            yield i, call.addresses[i] + low, call.addresses[i] + high


def _walks(kernel: Kernel, call: Call) -> list[Walk]:
    if isinstance(kernel, Map):
        return _map(kernel, call)
    if isinstance(kernel, Rowwise):
        return _rowwise(kernel, call)
    sizes, strides = call.sizes, call.strides
    if isinstance(kernel, Scan):
        types = (kernel.output, *kernel.inputs)
        return [(dtype, sizes, steps) for dtype, steps in zip(types, strides, strict=True)]
    if isinstance(kernel, Contract):
        x, y, m, n, k = sizes
        walked = ((x, y, m, n), (x, y, m, k), (x, y, k, n), (x, y, m, n))[: len(strides)]
        if not x * y * m * n:  # nothing is stored, so nothing is read
            return []
        return [(kernel.dtype, each, steps) for each, steps in zip(walked, strides, strict=True)]
    if isinstance(kernel, Attend):
        return _attend(kernel, call)
    if isinstance(kernel, Cell):
        return _cell(kernel, call)
    if isinstance(kernel, Gather | Scatter):
        return _indexed(kernel, call)
    if isinstance(kernel, Sort):
        outer, axis, inner, keep = sizes
        kept, whole = (outer, keep, inner), (outer, axis, inner)
        types = (kernel.dtype, int64, kernel.dtype)
        return list(zip(types, (kept, kept, whole), strides, strict=True))
    if isinstance(kernel, Search):
        rows, count, length = sizes
        lines = ((rows, count), (rows, length), (rows, count))
        types = (int64, kernel.dtype, kernel.dtype)
        return list(zip(types, lines, strides, strict=True)) if rows * count else []
    if isinstance(kernel, Library):
        return _library(kernel, call)
    return _convolve(kernel, call)


def _map(kernel: Map, call: Call) -> list[Walk]:
    types = (*kernel.outputs, *kernel.inputs)
    if kernel.rank:
        return [
            (dtype, call.sizes, steps) for dtype, steps in zip(types, call.strides, strict=True)
        ]
    return [
        (dtype, call.sizes, (int(step),)) for dtype, step in zip(types, kernel.steps, strict=True)
    ]


def _rowwise(kernel: Rowwise, call: Call) -> list[Walk]:
    """A "row" output has one element per row, also where the axis is empty."""
    outer, axis, inner = call.sizes
    walks: list[Walk] = []
    types = (*kernel.outputs, *kernel.inputs)
    for i, (dtype, steps) in enumerate(zip(types, call.strides, strict=True)):
        is_row = i < len(kernel.outputs) and kernel.kinds[i] == "row"
        walks.append((dtype, (outer, 1 if is_row else axis, inner), steps))
    return walks


def _indexed(kernel: Gather | Scatter, call: Call) -> list[Walk]:
    outer, count, inner, limit = call.sizes
    if not outer * count * inner:
        return []
    listed, whole = (outer, count, inner), (outer, limit, inner)
    walked = (listed, whole, listed) if isinstance(kernel, Gather) else (whole, listed, listed)
    types = (kernel.dtype, kernel.dtype, kernel.index_dtype)
    return list(zip(types, walked, call.strides, strict=True))


def _attend(kernel: Attend, call: Call) -> list[Walk]:
    *batch, rows, keys = call.sizes
    named = zip(operands_of(kernel).items(), call.strides, strict=True)
    return [
        (dtype, (*batch, *inner_sizes(kernel, name, rows, keys)), steps)
        for (name, dtype), steps in named
    ]


def _cell(kernel: Cell, call: Call) -> list[Walk]:
    rows, width, terms = call.sizes
    lines = [(rows, width)] * len(call.strides)
    state = len(kernel.body)
    lines[state] = (rows, terms)
    walks: list[Walk] = [
        (kernel.dtype, sizes, (*steps, 1)) for sizes, steps in zip(lines, call.strides, strict=True)
    ]
    columns = -(-width // PANEL) * PANEL
    walks[state + 1] = (kernel.dtype, (kernel.products * columns * terms,), (1,))
    return walks


def _library(kernel: Library, call: Call) -> list[Walk]:
    walks: list[Walk] = []
    at = 0
    for dtype, rank in zip((*kernel.outputs, *kernel.inputs), kernel.ranks, strict=True):
        shape = call.sizes[at : at + rank]
        walks.append((dtype, shape, contiguous_strides(shape)))
        at += rank
    return walks


def _convolve(kernel: Convolve, call: Call) -> list[Walk]:
    rank, parts = kernel.rank, call.sizes[-1]
    n, g, m, c = call.sizes[:4]
    pixels, window, image = (prod(call.sizes[4 + rank * i : 4 + rank * (i + 1)]) for i in range(3))
    x, y, w = n * g * c * image, n * g * m * pixels, g * m * c * window
    counts: tuple[int, ...]
    if kernel.of == "turned":
        counts = (g * m * c * pixels, w)
    elif kernel.of == "back":
        counts = (x, y, w)
    elif kernel.of in ("image", "depthwise"):
        counts = (y, x, w)
    else:
        counts = (w if kernel.of == "weights" else parts * w, y, x)
    return [(kernel.dtype, (count,), (1,)) for count in counts]
