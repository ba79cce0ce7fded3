"""Catalog rows: convolution, pooling, padding."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tests.catalog.row import (
    ALL,
    COMPOSED,
    CONTRACTED,
    EXACT,
    FLOAT,
    Array,
    Make,
    Row,
    Sample,
    always,
    at,
    int64,
)

Place = tuple[int, ...]


def each(value: Any, rank: int) -> Place:
    return (value,) * rank if isinstance(value, int) else tuple(value)


def places(*sizes: int) -> Iterator[Place]:
    return itertools.product(*map(range, sizes))


# ---- convolution, by its definition: element by element ----


def conv(rank: int) -> Callable[..., Array]:
    def convolve(x, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
        if x.ndim == rank + 1:
            return convolve(x[None], weight, bias, stride, padding, dilation, groups)[0]
        kernel, steps, spread = weight.shape[2:], each(stride, rank), each(dilation, rank)
        if padding == "same":
            totals = [d * (k - 1) for d, k in zip(spread, kernel, strict=True)]
            border = [(t // 2, t - t // 2) for t in totals]
        else:
            border = [(p, p) for p in each(0 if padding == "valid" else padding, rank)]
        x = np.pad(x, [(0, 0), (0, 0), *border])
        counts = [
            (n - d * (k - 1) - 1) // s + 1
            for n, k, s, d in zip(x.shape[2:], kernel, steps, spread, strict=True)
        ]
        out = np.zeros((x.shape[0], weight.shape[0], *counts))
        share, taken = weight.shape[0] // groups, weight.shape[1]
        for o, at_out, at_in in itertools.product(
            range(weight.shape[0]), places(*counts), places(*kernel)
        ):
            spot = tuple(
                a * s + b * d for a, s, b, d in zip(at_out, steps, at_in, spread, strict=True)
            )
            first = o // share * taken
            seen = x[(slice(None), slice(first, first + taken), *spot)]
            out[(slice(None), o, *at_out)] += seen @ weight[(o, slice(None), *at_in)]
        return out if bias is None else out + bias.reshape(-1, *(1,) * rank)

    return convolve


def conv_transpose(rank: int) -> Callable[..., Array]:
    def convolve(x, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1):
        if x.ndim == rank + 1:
            return convolve(
                x[None], weight, bias, stride, padding, output_padding, groups, dilation
            )[0]
        kernel, steps, spread = weight.shape[2:], each(stride, rank), each(dilation, rank)
        border, extra = each(padding, rank), each(output_padding, rank)
        sizes = x.shape[2:]
        reach = [
            (n - 1) * s + d * (k - 1) + 1 + more
            for n, s, d, k, more in zip(sizes, steps, spread, kernel, extra, strict=True)
        ]
        shared, taken = weight.shape[1], weight.shape[0] // groups
        out = np.zeros((x.shape[0], shared * groups, *reach))
        for c, at_in, at_window in itertools.product(
            range(weight.shape[0]), places(*sizes), places(*kernel)
        ):
            spot = tuple(
                a * s + b * d for a, s, b, d in zip(at_in, steps, at_window, spread, strict=True)
            )
            first = c // taken * shared
            given = x[(slice(None), c, *at_in)][:, None] * weight[(c, slice(None), *at_window)]
            out[(slice(None), slice(first, first + shared), *spot)] += given
        cut = tuple(slice(p, n - p) for p, n in zip(border, reach, strict=True))
        out = out[(slice(None), slice(None), *cut)]
        return out if bias is None else out + bias.reshape(-1, *(1,) * rank)

    return convolve


def convolutions(rank: int) -> Callable[[Make], Iterator[Sample]]:
    size, small = (6, 5, 4)[:rank], (3, 2, 2)[:rank]

    def samples(make: Make) -> Iterator[Sample]:
        yield at(make(2, 3, *size), make(4, 3, *small), make(4))
        yield at(make(1, 2, *size), make(2, 2, *small), None, 2, 1)
        yield at(make(1, 4, *size), make(6, 2, *small), make(6), padding="same", groups=2)
        yield at(
            make(2, *size), make(2, 2, *(2,) * rank), stride=2, dilation=2, padding=(1,) * rank
        )
        yield at(make(0, 3, *size), make(4, 3, *small))

    return samples


def transposed(rank: int) -> Callable[[Make], Iterator[Sample]]:
    size, small = (4, 3, 2)[:rank], (3, 2, 2)[:rank]

    def samples(make: Make) -> Iterator[Sample]:
        yield at(make(2, 3, *size), make(3, 4, *small), make(4))
        yield at(make(1, 2, *size), make(2, 2, *small), None, 2, 1, 1)
        yield at(make(4, *size), make(4, 3, *small), make(6), groups=2, padding=(1,) * rank)
        yield at(
            make(1, 2, *size), make(2, 1, *small), stride=1, dilation=3, output_padding=2, padding=1
        )

    return samples


# ---- pooling ----


def pool(
    rank: int, x: Array, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil: bool
) -> tuple[tuple[int, ...], Callable[[Place], Iterator[tuple[Place, bool]]], Place]:
    """The shape of the result, and for each window its positions and whether they lie in the
    input.
    """
    size, border, spread = each(kernel, rank), each(padding, rank), each(dilation, rank)
    step = size if stride is None else each(stride, rank)
    sizes = x.shape[-rank:]
    counts = []
    for n, k, s, p, d in zip(sizes, size, step, border, spread, strict=True):
        steps = (n + 2 * p - d * (k - 1) - 1) / s
        count = (math.ceil(steps) if ceil else math.floor(steps)) + 1
        counts.append(count - 1 if ceil and (count - 1) * s >= n + p else count)

    def seen(window: Place) -> Iterator[tuple[Place, bool]]:
        for inside in places(*size):
            spot = tuple(
                w * s - p + i * d
                for w, s, p, i, d in zip(window, step, border, inside, spread, strict=True)
            )
            yield spot, all(0 <= a < n for a, n in zip(spot, sizes, strict=True))

    return tuple(counts), seen, border


def max_pool(rank: int) -> Callable[..., Any]:
    def largest(
        x, kernel, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False
    ):
        counts, seen, _ = pool(rank, x, kernel, stride, padding, dilation, ceil_mode)
        sizes = x.shape[-rank:]
        flat = x.reshape(*x.shape[:-rank], -1)
        found = np.zeros((*x.shape[:-rank], *counts), np.int64)
        for window in places(*counts):
            spots = np.array(
                [np.ravel_multi_index(spot, sizes) for spot, inside in seen(window) if inside]
            )
            found[(..., *window)] = spots[np.argmax(flat[..., spots], -1)]
        out = np.take_along_axis(flat, found.reshape(*x.shape[:-rank], -1), -1).reshape(found.shape)
        return (out, found) if return_indices else out

    return largest


def avg_pool(rank: int) -> Callable[..., Any]:
    def mean(
        x,
        kernel,
        stride=None,
        padding=0,
        ceil_mode=False,
        count_include_pad=True,
        divisor_override=None,
    ):
        counts, seen, border = pool(rank, x, kernel, stride, padding, 1, ceil_mode)
        sizes = x.shape[-rank:]
        out = np.zeros((*x.shape[:-rank], *counts))
        for window in places(*counts):
            spots = list(seen(window))
            inside = [spot for spot, within in spots if within]
            padded = [
                s
                for s, _ in spots
                if all(a < n + p for a, n, p in zip(s, sizes, border, strict=True))
            ]
            divisor = divisor_override or len(padded if count_include_pad else inside)
            out[(..., *window)] = sum(x[(..., *spot)] for spot in inside) / divisor
        return out

    return mean


def lp_pool(rank: int) -> Callable[..., Any]:
    def norm(x, p, kernel, stride=None, ceil_mode=False):
        mean = avg_pool(rank)(x**p, kernel, stride, 0, ceil_mode)
        return (mean * math.prod(each(kernel, rank))) ** (1 / p)

    return norm


def pools(rank: int, *more: Callable[[Make, Place], Sample]) -> Callable[[Make], Iterator[Sample]]:
    size = (7, 5, 4)[:rank]

    def samples(make: Make) -> Iterator[Sample]:
        yield at(make.distinct(1, 2, *size), 2)
        yield at(make.distinct(2, *size), 3, 2, 1)
        yield at(make.distinct(1, 1, *size), (2, 3, 2)[:rank], (2, 2, 3)[:rank], ceil_mode=True)
        for extra in more:
            yield extra(make, size)

    return samples


MAX_POOLS = (lambda make, size: at(make.distinct(1, 1, *size), 2, 1, 1, 2),)
AVG_POOLS = (
    lambda make, size: at(make.distinct(1, 1, *size), 3, 2, 1, True, False),
    lambda make, size: at(make.distinct(1, 1, *size), 3, 2, 1, True, True),
)
DIVIDED = (lambda make, size: at(make.distinct(1, 1, *size), 2, divisor_override=3),)


def lp_pools(rank: int) -> Callable[[Make], Iterator[Sample]]:
    size = (7, 5, 4)[:rank]

    def samples(make: Make) -> Iterator[Sample]:
        yield at(make(1, 2, *size, low=0.5), 2, 2)
        yield at(make(2, *size, low=0.5), 3.0, 2, 1)
        yield at(make(1, *size, low=0.5), 2, 3, 2, True)

    return samples


def places_only(reference: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **named: reference(*args, **named, return_indices=True)[1]


def indices(
    name: str, reference: Callable[..., Any], samples: Callable[[Make], Iterator[Sample]]
) -> Row:
    """A second row for the positions that `return_indices` gives."""
    return Row(
        name,
        places_only(reference),
        samples,
        FLOAT,
        EXACT,
        always(int64),
        differentiable=False,
        call=lambda op, *args, **named: op(*args, **named, return_indices=True)[1],
        variant="indices",
    )


def adaptive(rank: int, reduce: Callable[[Array], Any]) -> Callable[..., Any]:
    def pool(x, wanted, return_indices=False):
        given = x.shape[-rank:]
        listed = [wanted] * rank if wanted is None or isinstance(wanted, int) else wanted
        sizes = [n if m is None else m for m, n in zip(listed, given, strict=True)]
        out = np.zeros((*x.shape[:-rank], *sizes))
        found = np.zeros(out.shape, np.int64)
        spots = np.arange(math.prod(given)).reshape(given)
        for window in places(*sizes):
            cut = tuple(
                slice(i * n // m, -(-(i + 1) * n // m))
                for i, n, m in zip(window, given, sizes, strict=True)
            )
            seen = x[(..., *cut)].reshape(*x.shape[:-rank], -1)
            out[(..., *window)] = reduce(seen)
            found[(..., *window)] = spots[cut].reshape(-1)[seen.argmax(-1)]
        return (out, found) if return_indices else out

    return pool


def adaptives(rank: int) -> Callable[[Make], Iterator[Sample]]:
    size = (7, 4, 5)[:rank]

    def samples(make: Make) -> Iterator[Sample]:
        yield at(make.distinct(1, 2, *size), 3)
        yield at(make.distinct(2, *size), (5, None, 2)[:rank])
        yield at(make.distinct(2, *(4, 6, 2)[:rank]), (2, 3, 1)[:rank])

    return samples


def max_unpool(rank: int) -> Callable[..., Any]:
    def unpool(x, indices, kernel, stride=None, padding=0, output_size=None):
        size, border = each(kernel, rank), each(padding, rank)
        step = size if stride is None else each(stride, rank)
        default = [
            (n - 1) * s - 2 * p + k
            for n, s, p, k in zip(x.shape[-rank:], step, border, size, strict=True)
        ]
        wanted = default if output_size is None else output_size[-rank:]
        flat = np.zeros((*x.shape[:-rank], math.prod(wanted)))
        lead = (*x.shape[:-rank], -1)
        np.put_along_axis(flat, indices.reshape(lead), x.reshape(lead), -1)
        return flat.reshape(*x.shape[:-rank], *wanted)

    return unpool


def unpools(rank: int) -> Callable[[Make], Iterator[Sample]]:
    size = (3, 2, 2)[:rank]

    def samples(make: Make) -> Iterator[Sample]:
        count = math.prod(size)
        order = np.stack([make.random.permutation(count * 2**rank)[:count] for _ in range(2)])
        yield at(make(1, 2, *size), order.reshape(1, 2, *size), 2)
        yield at(make(2, *size), order.reshape(2, *size), 3, 2, 1, tuple(2 * n for n in size))

    return samples


def padded(x, pad, mode="constant", value=None):
    """NumPy's own modes, after the cut of negative sides."""
    sides = [(0, 0)] * (x.ndim - len(pad) // 2) + list(zip(pad[-2::-2], pad[::-2], strict=True))
    x = x[
        tuple(slice(max(0, -a), n - max(0, -b)) for n, (a, b) in zip(x.shape, sides, strict=True))
    ]
    grown = [(max(0, a), max(0, b)) for a, b in sides]
    if mode == "constant":
        return np.pad(x, grown, constant_values=0 if value is None else value)
    return np.pad(
        x, grown, mode={"reflect": "reflect", "replicate": "edge", "circular": "wrap"}[mode]
    )


def constants(make: Make) -> Iterator[Sample]:
    yield at(make(3, 4), (1, 2))
    yield at(make(3, 4), (1, 0, -1, 2), value=3)
    yield at(make(3, 4), (-1, -1), value=1)
    yield at(make(3, 4), (0, 0))
    yield at(make(0, 2), (1, 1, 2, 0), value=1)
    yield at(make(4), (2, 0))


def pads(make: Make) -> Iterator[Sample]:
    yield from constants(make)
    for mode in ("reflect", "replicate", "circular"):
        yield at(make(2, 5), (2, 3), mode)
        yield at(make(1, 2, 4, 5), (1, 2, 3, 0), mode=mode)
        yield at(make(1, 2, 3, 3, 4), (1, 1, 2, 0, 1, 2), mode)
        yield at(make(2, 6), (-1, 2), mode)


ROWS = [
    Row("conv1d", conv(1), convolutions(1), FLOAT, CONTRACTED),
    Row("conv3d", conv(3), convolutions(3), FLOAT, CONTRACTED),
    *(
        Row(f"conv_transpose{n}d", conv_transpose(n), transposed(n), FLOAT, CONTRACTED)
        for n in (1, 2, 3)
    ),
    *(Row(f"max_pool{n}d", max_pool(n), pools(n, *MAX_POOLS), FLOAT, EXACT) for n in (1, 3)),
    Row("max_pool2d", max_pool(2), pools(2, *MAX_POOLS), FLOAT, EXACT, variant="edges"),
    *(indices(f"max_pool{n}d", max_pool(n), pools(n, *MAX_POOLS)) for n in (1, 2, 3)),
    Row("avg_pool1d", avg_pool(1), pools(1, *AVG_POOLS), FLOAT, COMPOSED),
    Row(
        "avg_pool2d", avg_pool(2), pools(2, *AVG_POOLS, *DIVIDED), FLOAT, COMPOSED, variant="edges"
    ),
    Row("avg_pool3d", avg_pool(3), pools(3, *AVG_POOLS, *DIVIDED), FLOAT, COMPOSED),
    *(Row(f"lp_pool{n}d", lp_pool(n), lp_pools(n), FLOAT, COMPOSED) for n in (1, 2, 3)),
    *(
        Row(
            f"adaptive_avg_pool{n}d",
            adaptive(n, lambda x: x.mean(-1)),
            adaptives(n),
            FLOAT,
            COMPOSED,
        )
        for n in (1, 2, 3)
    ),
    *(
        Row(f"adaptive_max_pool{n}d", adaptive(n, lambda x: x.max(-1)), adaptives(n), FLOAT, EXACT)
        for n in (1, 2, 3)
    ),
    *(
        indices(f"adaptive_max_pool{n}d", adaptive(n, lambda x: x.max(-1)), adaptives(n))
        for n in (1, 2, 3)
    ),
    Row(
        "constant_pad_nd",
        lambda x, pad, value=0: padded(x, pad, value=value),
        constants,
        ALL,
        EXACT,
    ),
    Row("pad", padded, pads, ALL, EXACT),
    *(Row(f"max_unpool{n}d", max_unpool(n), unpools(n), FLOAT, EXACT) for n in (1, 2, 3)),
]
