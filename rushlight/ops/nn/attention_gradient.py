"""The derivative of attention, tile by tile. See Note [Attention tiles]."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight.core.dtypes import int32
from rushlight.core.shapes import Spec, contiguous_strides, numel
from rushlight.ops.family.build import built
from rushlight.ops.nn import attention_formulas as f
from rushlight.ops.nn.attention_tiles import (
    Launches,
    Shapes,
    Tile,
    byte_offset,
    dense,
    most_scores,
    pitch,
    random_position,
    scheme,
    scores_steps,
    scratch_bytes,
    steps_of,
    tiles,
    turned,
)
from rushlight.ops.view.laid import fill_kernel


class Backward:
    """One call's plan.

    `outs` are the gradients of query, key, value and mask, None where not needed. It is called with
    the addresses of the needed ones, then of the gradient, output, logsumexp, query, key, value and
    mask, then scale and dropout's numbers. Gradient and output are contiguous.
    """

    def __init__(
        self, pool: Any, shapes: Shapes, outs: Sequence[Spec | None], ins: Sequence[Spec]
    ) -> None:
        self.shapes, self.outs, self.ins = shapes, outs, ins
        self.g, _, self.level, self.q, self.k, self.v = ins[:6]
        self.mask = ins[6] if len(ins) > 6 else None
        self.dtype = dtype = self.q.dtype
        self.launches = Launches(pool, dtype)
        self.scheme = scheme(shapes, most_scores(pool))
        self.along, self.fill = (
            built(pool, f.along_kernel(dtype)),
            built(pool, fill_kernel(dtype)),
        )
        self.add_heads = built(pool, f.batch_kernel(dtype)) if outs[3] is not None else None
        self.formula = f.gradient_formula(
            dtype,
            None if self.mask is None else self.mask.dtype,
            shapes.causal,
            shapes.dropout,
            outs[3] is not None,
        )
        heads = numel(self.scheme.heads)
        rows = heads * self.scheme.rows
        scores = rows * pitch(shapes.keys)
        sums = (
            heads * shapes.keys * max(shapes.width, shapes.depth)
            if self.scheme.rows < shapes.rows
            else 0
        )
        whole = numel(shapes.batch) * shapes.rows
        more = rows * shapes.keys if outs[3] is not None else 0
        counts = (scores, scores, whole, sums, more, more)
        self.wanted = [
            *((count, dtype) for count in counts),
            (max(shapes.rows, shapes.keys), int32),
        ]
        self.scratch_taken = scratch_bytes(self.wanted)

    def __call__(self, *given: Any) -> None:
        asked = [spec is not None for spec in self.outs]
        count = sum(asked)
        targets = iter(given[:count])
        outs = [next(targets) if wanted else None for wanted in asked]
        addresses, params = given[count : count + len(self.ins)], given[count + len(self.ins) :]
        shapes = self.shapes
        with self.launches.scratch(*self.wanted) as blocks:
            n, depth = numel(shapes.batch) * shapes.rows, shapes.depth
            self.along(blocks[2], *addresses[:2], n, depth, 1, 1, 0, 1, depth, 1, 1, depth, 1, 1)
            if shapes.causal:
                self.launches.count_up(blocks[6], max(shapes.rows, shapes.keys))
            self._clear(outs)
            for group in tiles(shapes, self.scheme):
                for i, tile in enumerate(group):
                    self._scores(tile, blocks, addresses, params)
                    self._operands(tile, blocks, addresses, outs, fresh=i == 0)
                    if outs[3] is not None:
                        self._to_mask(tile, blocks, outs[3])

    def _clear(self, outs: Sequence[int | None]) -> None:
        """Write zeros where no tile writes, and where tiles add up."""
        shapes = self.shapes
        seen = shapes.rows > 0 and (
            shapes.dropout or not shapes.causal or shapes.rows >= shapes.keys
        )
        for i in (3,) if seen else (1, 2, 3):
            place, spec = outs[i], self.outs[i]
            if place is not None and spec is not None and spec.numel:
                self.fill(place, spec.numel)

    def _scores(
        self, tile: Tile, blocks: list[int], addresses: Sequence[int], params: Sequence[Any]
    ) -> None:
        """Probabilities into the first block, the scaled gradient of the scores into the second."""
        shapes, launches, at, heads = self.shapes, self.launches, tile.at, tile.at[:-1]
        scores, slopes, along, _, bare, _, numbers = blocks
        gradient, _, levels, query, key, value = addresses[:6]
        here = scores_steps(tile)
        launches.product(
            (*tile.heads, tile.rows, tile.keys, shapes.width),
            (scores, here),
            (query + byte_offset(self.q, at), steps_of(self.q)),
            (key + byte_offset(self.k, heads), turned(steps_of(self.k))),
        )
        launches.product(
            (*tile.heads, tile.rows, tile.keys, shapes.depth),
            (slopes, here),
            (gradient + byte_offset(self.g, at), steps_of(self.g)),
            (value + byte_offset(self.v, heads), turned(steps_of(self.v))),
        )
        row_steps = steps_of(self.level)
        level = byte_offset(self.level, at)
        places = [scores, slopes, *([bare] if self.outs[3] is not None else [])]
        operands = [scores, slopes, levels + level, along + level]
        strides = [
            here,
            here,
            *([dense(tile, tile.rows, tile.keys)] if self.outs[3] is not None else []),
        ]
        strides += [here, here, row_steps, row_steps]
        numbers_given = [params[0]]
        if self.mask is not None:
            operands.append(addresses[6] + byte_offset(self.mask, at))
            strides.append(steps_of(self.mask))
        if shapes.causal:
            operands += [numbers, numbers]
            strides += [(0, 0, 1, 0), (0, 0, 0, 1)]
            numbers_given.append(at[-1])
        if shapes.dropout:
            seed, position, *rest = params[1:]
            numbers_given += [seed, position + random_position(shapes, tile), *rest]
        launches.map(self.formula, tile.sizes, *strides)(*places, *operands, *numbers_given)

    def _operands(
        self,
        tile: Tile,
        blocks: list[int],
        addresses: Sequence[int],
        outs: Sequence[int | None],
        *,
        fresh: bool,
    ) -> None:
        """Add this tile's part of the gradients of query, key and value."""
        shapes, at, heads = self.shapes, tile.at, tile.at[:-1]
        scores, slopes = blocks[:2]
        gradient, _, _, query, key, _ = addresses[:6]
        here = scores_steps(tile)
        if outs[0] is not None:
            assert self.outs[0] is not None
            self.launches.product(
                (*tile.heads, tile.rows, shapes.width, tile.keys),
                (outs[0] + byte_offset(self.outs[0], at), steps_of(self.outs[0])),
                (slopes, here),
                (key + byte_offset(self.k, heads), steps_of(self.k)),
            )
        sources = (
            (1, slopes, query, self.q, shapes.width),
            (2, scores, gradient, self.g, shapes.depth),
        )
        for number, left, right, spec, width in sources:
            out, place = self.outs[number], outs[number]
            if out is None or place is None:
                continue
            target = (place + byte_offset(out, heads), steps_of(out))
            sums = target if fresh else (blocks[3], dense(tile, tile.keys, width))
            self.launches.product(
                (*tile.heads, tile.keys, width, tile.rows),
                sums,
                (left, turned(here)),
                (right + byte_offset(spec, at), steps_of(spec)),
            )
            if not fresh:
                sizes = (*tile.heads, tile.keys, width)
                add = self.launches.map(
                    f.add_formula(self.dtype), sizes, target[1], target[1], sums[1]
                )
                add(target[0], target[0], sums[0])

    def _to_mask(self, tile: Tile, blocks: list[int], place: int) -> None:
        """Add the gradient of the scores to the mask's, summed over the heads that share it."""
        mask = self.outs[3]
        assert mask is not None and self.add_heads is not None
        x, y = tile.heads
        shared = [n == 1 for n in mask.shape[-4:-2]]
        inner, source = tile.rows * tile.keys, blocks[4]
        outer, axis, inner = {
            (True, True): (1, x * y, inner),
            (True, False): (1, x, y * inner),
            (False, True): (x, y, inner),
            (False, False): (x, 1, y * inner),
        }[shared[0], shared[1]]
        if axis > 1:
            source = blocks[5]
            strides = (inner, 0, 1, axis * inner, inner, 1)
            self.add_heads(source, blocks[4], outer, axis, inner, *strides)
        sizes = (1 if shared[0] else x, 1 if shared[1] else y, tile.rows, tile.keys)
        steps = steps_of(mask)
        target = place + byte_offset(mask, tile.at)
        add = self.launches.map(
            f.add_formula(self.dtype), sizes, steps, steps, contiguous_strides(sizes)
        )
        add(target, target, source)
