"""Attention by tiles: the plan of scaled_dot_product_attention, and its derivative.

# Note [Attention tiles]
1. A tile is some heads and a block of query rows. Its scores are computed in scratch memory and
   overwritten by the next tile's, so that memory grows with the length of the sequence and not with
   its square. Scratch comes from the pool.
2. Forward saves the row logsumexp beside the output; backward recomputes a tile's probabilities
   from it.
3. A tile is a few launches of the kernels every device has: contractions, and maps and one rowwise
   kernel between them. The lowering knows no device; a tile is large enough for a launch to be
   cheap beside its work.
4. Tiles depend on sizes alone and run in order. Sums over query blocks (the gradients of key and
   value) are added in that order: bits do not depend on threads.
5. The random number of an element is the one at its position in the whole matrix of scores, for any
   tiles. So dropout works on whole rows, and on several heads at once only where it has all of
   their rows.
6. A fully masked row gives zeros; its logsumexp is stored as 0, so its probabilities are 0 in
   backward too.
7. Halves are widened to float32 once per call and rounded once, at the end.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from rushlight.core.cache import cached
from rushlight.core.dtypes import DType, float32, int32
from rushlight.core.shapes import Shape, Spec, collapse, contiguous_strides, numel
from rushlight.devices.shared.allocator import Scratch, room_for
from rushlight.kernel.shapes import Contract
from rushlight.ops.family.build import built
from rushlight.ops.family.map import Formula, map_kernel
from rushlight.ops.nn import attention_formulas as f

TILE = 1 << 18  # scores of a tile in backward where launches are cheap
WIDE_TILE = 1 << 22  # where they are not: on asynchronous devices
LEAST_ROWS = 64
CAUSAL_ROWS = 128  # a causal tile omits the keys after its last row, so fewer rows are less work

Launch = Callable[..., None]


@dataclass(frozen=True, slots=True)
class Shapes:
    """Sizes of one call: batch dimensions, query rows, keys, widths of query and value."""

    batch: Shape  # at least two dimensions
    rows: int
    keys: int
    width: int
    depth: int
    causal: bool
    dropout: bool


@dataclass(frozen=True, slots=True)
class Tile:
    """The start and size of a tile; `keys` is the number of keys it uses, from the first on."""

    at: tuple[int, ...]  # position in the batch, then the first row
    heads: tuple[int, int]
    rows: int
    keys: int

    @property
    def sizes(self) -> Shape:
        return (*self.heads, self.rows, self.keys)


@dataclass(frozen=True, slots=True)
class Scheme:
    """The number of heads and rows of the largest tile."""

    heads: tuple[int, int]
    rows: int


def scheme(shapes: Shapes, most: int) -> Scheme:
    x, y = shapes.batch[-2:]
    rows = max(LEAST_ROWS, most // max(shapes.keys, 1))
    if shapes.causal and not shapes.dropout:
        rows = min(rows, CAUSAL_ROWS)
    rows = max(1, min(rows, shapes.rows))
    if shapes.dropout and rows < shapes.rows:
        return Scheme((1, 1), rows)
    heads = max(1, most // max(1, rows * shapes.keys))
    many = max(1, min(y, heads))
    return Scheme((max(1, min(x, heads // y)) if many == y else 1, many), rows)


def tiles(shapes: Shapes, largest: Scheme) -> Iterator[list[Tile]]:
    """The tiles, in lists that share their heads; the last rows first, which use the most keys."""
    *lead, x, y = shapes.batch
    gx, gy = largest.heads
    for place in itertools.product(*map(range, lead), range(0, x, gx), range(0, y, gy)):
        heads = (min(gx, x - place[-2]), min(gy, y - place[-1]))
        group = []
        for first in reversed(range(0, shapes.rows, largest.rows)):
            rows = min(largest.rows, shapes.rows - first)
            keys = shapes.keys
            if shapes.causal and not shapes.dropout:
                keys = min(keys, first + rows)
            group.append(Tile((*place, first), heads, rows, keys))
        yield group


def byte_offset(spec: Spec, at: tuple[int, ...]) -> int:
    """The offset of a position in the leading dimensions; a broadcast dimension adds nothing."""
    moves = zip(at, spec.strides, spec.shape, strict=False)
    return sum(i * step for i, step, n in moves if n > 1) * spec.dtype.itemsize


@cached
def steps_of(spec: Spec) -> Shape:
    """Strides of the last four dimensions, 0 where one is broadcast."""
    return tuple(
        0 if n == 1 else step for n, step in zip(spec.shape[-4:], spec.strides[-4:], strict=True)
    )


# ---- launches ----


class Launches:
    """The launches of one call, made at the first tile of a size and kept."""

    def __init__(self, pool: Any, dtype: DType) -> None:
        self.pool, self.dtype = pool, dtype
        self.contract = built(pool, Contract(dtype, dtype))
        self.map = cache(self._map)

    def _map(self, formula: Formula, sizes: Shape, *strides: Shape) -> Launch:
        """A map over `sizes`, called with addresses and then params; strides are outputs' first."""
        sizes, steps = collapse(sizes, strides)
        kernel, tail = map_kernel(formula, sizes, steps, len(formula.outputs))
        run, count = built(self.pool, kernel), len(formula.outputs) + len(formula.inputs)
        return lambda *numbers: run(*numbers[:count], *tail, *numbers[count:])

    def product(
        self,
        sizes: tuple[int, ...],
        out: tuple[int, Shape],
        a: tuple[int, Shape],
        b: tuple[int, Shape],
    ) -> None:
        """out = a b.

        Sizes are (x, y, m, n, k), an operand is its address and strides (x, y, rows, columns).
        """
        self.contract(out[0], a[0], b[0], *sizes, *out[1], *a[1], *b[1])

    def scratch(self, *sizes: tuple[int, DType]) -> Scratch:
        """Blocks for so many elements each."""
        return Scratch(self.pool, *_rooms(sizes))

    def count_up(self, place: int, count: int) -> None:
        """0, 1, 2, ... as int32."""
        self.map(f.count_formula(), (count,), (1,))(place)


def _rooms(sizes: Iterable[tuple[int, DType]]) -> list[int]:
    return [room_for(max(count, 1) * dtype.itemsize) for count, dtype in sizes]


def scratch_bytes(sizes: Iterable[tuple[int, DType]]) -> int:
    """What blocks for so many elements each take."""
    return sum(_rooms(sizes))


def turned(steps: Shape) -> Shape:
    return (*steps[:2], steps[3], steps[2])


def dense(tile: Tile, *inner: int) -> Shape:
    return contiguous_strides((*tile.heads, *inner))


def pitch(keys: int) -> int:
    """The stride of rows of scores: no power of two, so that columns use many cache sets."""
    return keys if keys < 64 else -(-keys // 16) * 16 + 16


def scores_steps(tile: Tile) -> Shape:
    """Strides of a tile's scores in scratch."""
    step = pitch(tile.keys)
    return (tile.heads[1] * tile.rows * step, tile.rows * step, step, 1)


def most_scores(pool: Any) -> int:
    return WIDE_TILE if pool.device.limits.asynchronous else TILE


def random_position(shapes: Shapes, tile: Tile) -> int:
    """The position of the tile's first score in the whole matrix of scores."""
    whole = (*shapes.batch, shapes.rows)
    return sum(i * n for i, n in zip(tile.at, contiguous_strides(whole), strict=True)) * shapes.keys


class Forward:
    """One call's plan.

    It is called with the addresses of output, logsumexp, query, key, value and mask, then scale and
    dropout's numbers.
    """

    def __init__(
        self, pool: Any, shapes: Shapes, outs: Sequence[Spec], ins: Sequence[Spec]
    ) -> None:
        self.shapes, self.count = shapes, 2 + len(ins)
        self.out, self.level = outs
        self.q, self.k, self.v = ins[:3]
        self.mask = ins[3] if len(ins) > 3 else None
        self.dtype = dtype = self.q.dtype
        self.launches = Launches(pool, dtype)
        # One matrix of scores where backward has two.
        self.scheme = scheme(shapes, 2 * most_scores(pool))
        self.softmax = built(pool, f.softmax_kernel(dtype))
        rows = numel(self.scheme.heads) * self.scheme.rows
        counted = (max(shapes.rows, shapes.keys), int32)
        self.wanted = [(rows * pitch(shapes.keys), dtype), (rows, dtype), (rows, dtype), counted]
        self.scratch_taken = scratch_bytes(self.wanted) if self.level.numel else 0

    def __call__(self, *given: Any) -> None:
        addresses, params = given[: self.count], given[self.count :]
        if not self.level.numel:
            return
        with self.launches.scratch(*self.wanted) as blocks:
            if self.shapes.causal:
                self.launches.count_up(blocks[3], max(self.shapes.rows, self.shapes.keys))
            for group in tiles(self.shapes, self.scheme):
                for tile in group:
                    self._weights(tile, blocks, addresses, params)
                    self._output(tile, blocks, addresses)

    def _weights(
        self, tile: Tile, blocks: list[int], addresses: Sequence[int], params: Sequence[Any]
    ) -> None:
        """Into the first block: exp(score - the row's maximum), after dropout."""
        scores, top, total, numbers = blocks
        here = scores_steps(tile)
        self.launches.product(
            (*tile.heads, tile.rows, tile.keys, self.shapes.width),
            (scores, here),
            (addresses[2] + byte_offset(self.q, tile.at), steps_of(self.q)),
            (addresses[3] + byte_offset(self.k, tile.at[:-1]), turned(steps_of(self.k))),
        )
        scale = self._hide(tile, scores, numbers, addresses[-1], params[0])
        count, keys = numel(tile.heads) * tile.rows, tile.keys
        step = pitch(keys)
        strides = (step, 1, 1, 1, 0, 1, 1, 0, 1, step, 1, 1)
        self.softmax(scores, top, total, scores, count, keys, 1, *strides, scale)
        if self.shapes.dropout:
            seed, position, *rest = params[1:]
            run = self.launches.map(f.dropout_formula(self.dtype), tile.sizes, here, here)
            run(scores, scores, seed, position + random_position(self.shapes, tile), *rest)

    def _hide(self, tile: Tile, scores: int, numbers: int, seen: int, scale: float) -> float:
        """Apply the mask; returns the remaining factor of the scores."""
        steps, mask = scores_steps(tile), self.mask
        if mask is not None:
            run = self.launches.map(
                f.mask_formula(self.dtype, mask.dtype), tile.sizes, steps, steps, steps_of(mask)
            )
            run(scores, scores, seen + byte_offset(mask, tile.at), scale)
            return 1.0
        first = tile.at[-1]
        if self.shapes.causal and tile.keys > first:
            sizes = (*tile.heads, tile.rows, tile.keys - first)
            run = self.launches.map(
                f.causal_formula(self.dtype), sizes, steps, steps, (0, 0, 1, 0), (0, 0, 0, 1)
            )
            corner = scores + first * self.dtype.itemsize
            run(corner, corner, numbers, numbers)
        return scale

    def _output(self, tile: Tile, blocks: list[int], addresses: Sequence[int]) -> None:
        scores, top, total, _ = blocks
        spot, steps = addresses[0] + byte_offset(self.out, tile.at), steps_of(self.out)
        each = (*dense(tile, tile.rows), 0)
        self.launches.product(
            (*tile.heads, tile.rows, self.shapes.depth, tile.keys),
            (spot, steps),
            (scores, scores_steps(tile)),
            (addresses[4] + byte_offset(self.v, tile.at[:-1]), steps_of(self.v)),
        )
        sizes = (*tile.heads, tile.rows, self.shapes.depth)
        self.launches.map(f.divide_formula(self.dtype), sizes, steps, steps, each)(
            spot, spot, total
        )
        column = (*tile.heads, tile.rows, 1)
        run = self.launches.map(
            f.logsumexp_formula(self.dtype), column, steps_of(self.level), each, each
        )
        run(addresses[1] + byte_offset(self.level, tile.at), top, total)


def widened(
    pool: Any, outs: Sequence[Spec], ins: Sequence[Spec], make: Callable[..., Launch]
) -> Launch:
    """`make(outs, ins)` for halves: operands are float32 in scratch, results are rounded."""

    def wide(spec: Spec) -> Spec:
        return Spec.of(pool, float32, spec.shape) if spec.dtype.itemsize == 2 else spec

    given, made = [wide(spec) for spec in ins], [wide(spec) for spec in outs]
    inner, launches = make(made, given), Launches(pool, float32)
    count = len(outs)
    pairs = list(zip((*outs, *ins), (*made, *given), strict=True))
    wanted = [(spec.numel, float32) for own, spec in pairs if own is not spec]

    def launch(*numbers: Any) -> None:
        with launches.scratch(*wanted) as blocks:
            free = iter(blocks)
            places = [
                a if own is spec else next(free)
                for a, (own, spec) in zip(numbers, pairs, strict=False)
            ]
            moves = list(zip(numbers, places, pairs, strict=False))
            for own, place, (narrow, spec) in moves[count:]:
                if narrow is not spec:
                    cast = f.cast_formula(narrow.dtype, float32)
                    launches.map(cast, spec.shape, spec.strides, narrow.strides)(place, own)
            inner(*places, *numbers[len(pairs) :])
            for own, place, (narrow, spec) in moves[:count]:
                if narrow is not spec:
                    cast = f.cast_formula(float32, narrow.dtype)
                    launches.map(cast, spec.shape, narrow.strides, spec.strides)(own, place)

    launch.scratch_taken = scratch_bytes(wanted) + inner.scratch_taken  # type: ignore[attr-defined]
    return launch
