"""The grid of a launch (blocks, threads), as LLVM IR inside the launcher (see stub.py).

The rules are integer formulas of the kernel's sizes. The numbers that fix a reduction's order
(`lanes`, `length` of Note [Rows on CUDA]) are computed here from the axis length alone, and passed
to the kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any, NamedTuple

from llvmlite import ir

from rushlight.emit.cuda import (
    attend,
    contract,
    convolve,
    index,
    map as cuda_map,
    row_axis,
    row_columns,
    scan,
)
from rushlight.emit.cuda.rows import chunk_of_rows, is_splittable
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

Value = Any  # an llvmlite value of type i64
I64 = ir.IntType(64)

MOST_BLOCKS = 1 << 20  # kernels stride over the rest
SCRATCH_SLOTS = 1 << 18  # of 8 bytes: partial results of split reductions
TICKETS = 1 << 14
MOST_SEGMENTS = 1024

ROW_THREADS = 256  # of a block with several rows
LONG_AXIS = 16384  # the least length of a segment
FEW_DEEP = 16  # columns shorter than this have a thread each
DEEP = 256
COLUMN_LANES = 8
COLUMN_SEGMENT = 256
MOST_SLICES = 32
CONVOLVE_BLOCKS = 1056  # eight for each multiprocessor of a large GPU
OWNER_BLOCKS = 256  # two for each multiprocessor of a large GPU


class Geometry(NamedTuple):
    """`work` is 0 when there is nothing to do.

    `extra` are arguments the kernel takes beyond the caller's.
    """

    work: Value
    blocks: Value
    slices: Value
    threads: Value
    extra: tuple[Value, ...] = ()
    shared: int = 0  # bytes of shared memory beyond what the text declares


Rule = Callable[[ir.IRBuilder, Sequence[Value]], Geometry]


def const(value: int) -> Value:
    return ir.Constant(I64, value)


def _product(b: ir.IRBuilder, values: Sequence[Value]) -> Value:
    return reduce(b.mul, values)


def _ceil(b: ir.IRBuilder, value: Value, by: Value) -> Value:
    return b.udiv(b.add(value, b.sub(by, const(1))), by)


def _least(b: ir.IRBuilder, x: Value, y: Value) -> Value:
    return b.select(b.icmp_unsigned("<", x, y), x, y)


def _most(b: ir.IRBuilder, x: Value, y: Value) -> Value:
    return b.select(b.icmp_unsigned(">", x, y), x, y)


def _up_to(b: ir.IRBuilder, value: Value, bound: int) -> Value:
    return b.icmp_unsigned("<=", value, const(bound))


def _elements(chunk: int, b: ir.IRBuilder, sizes: Sequence[Value]) -> Geometry:
    total = _product(b, sizes)
    threads = cuda_map.THREADS
    blocks = _least(b, _ceil(b, total, const(chunk * threads)), const(MOST_BLOCKS))
    return Geometry(total, blocks, const(1), const(threads))


def _segments(b: ir.IRBuilder, axis: Value, least: int) -> tuple[Value, Value]:
    """Length of a segment, a multiple of `least`, and how many there are: at most MOST_SEGMENTS."""
    per = _ceil(b, axis, const(MOST_SEGMENTS))
    length = _most(b, b.mul(_ceil(b, per, const(least)), const(least)), const(least))
    return length, _ceil(b, axis, length)


def _split(b: ir.IRBuilder, segments: Value, rows: Value, units: Value) -> Value:
    """1 if the segments are blocks of their own: there are several, and the partial results fit."""
    several = b.icmp_unsigned(">", segments, const(1))
    room = b.and_(_up_to(b, b.mul(segments, rows), SCRATCH_SLOTS), _up_to(b, units, TICKETS))
    return b.zext(b.and_(several, room), I64)


def _rows(
    kernel: Rowwise, scratch: tuple[int, int], b: ir.IRBuilder, sizes: Sequence[Value]
) -> Geometry:
    """The fewest lanes, a power of two, that hold a row as one tile: Note [Tiles of a row]."""
    outer, axis, inner = sizes
    rows = b.mul(outer, inner)
    each = row_axis.tile_of(kernel) * chunk_of_rows(kernel)
    lanes = const(row_axis.MOST_THREADS)
    for power in reversed(range(row_axis.MOST_THREADS.bit_length() - 1)):
        lanes = b.select(_up_to(b, axis, each << power), const(1 << power), lanes)
    threads = b.select(_up_to(b, lanes, 32), const(ROW_THREADS), lanes)
    blocks = _ceil(b, b.mul(rows, lanes), threads)
    if not is_splittable(kernel):
        return Geometry(rows, blocks, const(1), threads, (lanes, _most(b, axis, const(1))))
    length, segments = _segments(b, axis, LONG_AXIS)
    split = _split(b, segments, b.mul(rows, const(len(kernel.passes))), rows)
    blocks = b.select(b.trunc(split, ir.IntType(1)), b.mul(rows, segments), blocks)
    return Geometry(rows, blocks, const(1), threads, (lanes, length, split, *map(const, scratch)))


def _columns(
    kernel: Rowwise, scratch: tuple[int, int], b: ir.IRBuilder, sizes: Sequence[Value]
) -> Geometry:
    outer, axis, inner = sizes
    total = b.mul(outer, inner)
    is_few = b.icmp_unsigned("<", axis, const(FEW_DEEP))
    if not is_splittable(kernel):
        is_deep = b.icmp_unsigned(">=", axis, const(DEEP))
        threads = b.select(is_deep, const(row_columns.MOST_THREADS), const(row_columns.THREADS))
        lanes = b.select(is_few, const(1), b.select(is_deep, const(32), const(8)))
        tiles = _ceil(b, total, b.udiv(threads, lanes))
        blocks = _least(b, tiles, const(MOST_BLOCKS))
        return Geometry(total, blocks, const(1), threads, (lanes, _most(b, axis, const(1))))
    threads, width = const(row_columns.THREADS), const(row_columns.columns_of(kernel))
    lanes = b.select(is_few, const(1), const(COLUMN_LANES))
    tiles = _ceil(b, total, b.mul(b.udiv(threads, lanes), width))
    length, segments = _segments(b, axis, COLUMN_SEGMENT)
    # Where columns cannot be read in chunks each of the `width` parts of a tile draws tickets.
    slots = b.mul(total, const(len(kernel.passes)))
    split = _split(b, segments, slots, b.mul(tiles, width))
    blocks = _least(b, tiles, const(MOST_BLOCKS))
    blocks = b.select(b.trunc(split, ir.IntType(1)), b.mul(tiles, segments), blocks)
    return Geometry(total, blocks, const(1), threads, (lanes, length, split, *map(const, scratch)))


def _contract(b: ir.IRBuilder, sizes: Sequence[Value]) -> Geometry:
    x, y, m, n, _ = sizes
    tile = const(contract.TILE)
    tiles = _product(b, (x, y, _ceil(b, m, tile), _ceil(b, n, tile)))
    return Geometry(tiles, _least(b, tiles, const(MOST_BLOCKS)), const(1), const(contract.THREADS))


def _attend(kernel: Attend, b: ir.IRBuilder, sizes: Sequence[Value]) -> Geometry:
    """A block for each tile of a result."""
    x, y, z, rows, keys = sizes
    own, threads, shared = attend.tile_of(kernel)
    tiles = _ceil(b, keys if kernel.of == "keys" else rows, const(own))
    if kernel.of == "mask":
        tiles = b.mul(tiles, _ceil(b, keys, const(attend.other_tile(kernel))))
    blocks = _product(b, (x, y, z, tiles))
    return Geometry(blocks, blocks, const(1), const(threads), (), shared)


def _convolve(rank: int, b: ir.IRBuilder, sizes: Sequence[Value]) -> Geometry:
    """As many blocks as a large GPU runs at once: each takes the next of the tiles."""
    work = _product(b, sizes[: 4 + 3 * rank])
    return Geometry(work, const(CONVOLVE_BLOCKS), const(1), const(convolve.THREADS))


def _scan(b: ir.IRBuilder, sizes: Sequence[Value]) -> Geometry:
    outer, axis, inner = sizes
    rows, threads = b.mul(outer, inner), const(scan.THREADS)
    blocks = _least(b, _ceil(b, rows, threads), const(MOST_BLOCKS))
    return Geometry(b.mul(rows, axis), blocks, const(1), threads)


def _scatter(chunk: int, b: ir.IRBuilder, sizes: Sequence[Value]) -> Geometry:
    """Blocks for rules 3 and 4 of Note [Indices on CUDA]: the kernel chooses by its strides."""
    outer, count, inner, limit = sizes
    threads, few = const(index.THREADS), _ceil(b, count, const(2 * index.WARPS))
    across = b.mul(outer, _ceil(b, inner, const(32 * chunk)))
    # Each owner reads every index, so more owners than fill the GPU cost more than they hide.
    owners = _least(
        b, _most(b, b.udiv(const(OWNER_BLOCKS), _most(b, across, const(1))), const(1)), few
    )
    columns = b.mul(outer, inner)
    slices = _least(b, _least(b, few, const(MOST_SLICES)), _most(b, limit, const(1)))
    blocks = _most(b, b.mul(across, owners), b.mul(_ceil(b, columns, threads), slices))
    work = b.mul(columns, count)
    return Geometry(
        work, _least(b, blocks, const(MOST_BLOCKS)), const(1), threads, (owners, slices)
    )


def rule_of(kernel: Kernel, scratch: tuple[int, int]) -> tuple[tuple[object, ...], Rule]:
    """The kernel's rule, and a key that equal rules share.

    `scratch` has the addresses of the space for partial results and of the tickets.
    """
    if isinstance(kernel, Map):
        chunk = cuda_map.chunk_of(kernel.outputs + kernel.inputs)
        return ("map", chunk), partial(_elements, chunk)
    if isinstance(kernel, Rowwise):
        rule = _rows if kernel.vector == "axis" else _columns
        facts = (is_splittable(kernel), len(kernel.passes), chunk_of_rows(kernel))
        shape = (row_axis.tile_of(kernel), row_columns.columns_of(kernel))
        return (rule.__name__, *facts, *shape, scratch), partial(rule, kernel, scratch)
    if isinstance(kernel, Scan):
        return ("scan",), _scan
    if isinstance(kernel, Contract):
        return ("contract",), _contract
    if isinstance(kernel, Attend):
        return ("attend", kernel), partial(_attend, kernel)
    if isinstance(kernel, Convolve):
        return ("convolve", kernel.rank), partial(_convolve, kernel.rank)
    assert isinstance(kernel, Gather | Scatter)
    chunk = cuda_map.chunk_of([kernel.dtype])
    if isinstance(kernel, Gather):
        wide = chunk * index.AT_ONCE
        return ("gather", chunk), lambda b, sizes: _elements(wide, b, sizes[:3])
    return ("scatter", chunk), partial(_scatter, chunk)
