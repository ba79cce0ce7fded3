"""Catalog rows: norms and dropouts over channels, rearranged and resampled images, windows as
columns.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator

import numpy as np

from tests.catalog.row import ALL, COMPOSED, EXACT, FLOAT, Array, Make, Row, Sample, at, rough
from tests.catalog.rows.convolution import Place, adaptive, each, places, pool

# ---- norms ----


def normal(x, axes, eps):
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + eps)


def scaled(y, weight, bias):
    column = (-1, *(1,) * (y.ndim - 2))
    y = y if weight is None else y * weight.reshape(column)
    return y if bias is None else y + bias.reshape(column)


def group_norm(x, groups, weight=None, bias=None, eps=1e-5):
    rows = normal(x.reshape(x.shape[0], groups, -1), -1, eps)
    return scaled(rows.reshape(x.shape), weight, bias)


def instance_norm(
    x, mean=None, var=None, weight=None, bias=None, use_input_stats=True, momentum=0.1, eps=1e-5
):
    if use_input_stats:
        return scaled(normal(x, tuple(range(2, x.ndim)), eps), weight, bias)
    column = (-1, *(1,) * (x.ndim - 2))
    return scaled((x - mean.reshape(column)) / np.sqrt(var.reshape(column) + eps), weight, bias)


def rms_norm(x, shape, weight=None, eps=None):
    axes = tuple(range(x.ndim - len(shape), x.ndim))
    y = x / np.sqrt((x * x).mean(axes, keepdims=True) + (0.0 if eps is None else eps))
    return y if weight is None else y * weight


def local_response_norm(x, size, alpha=1e-4, beta=0.75, k=1.0):
    border = [(0, 0), (size // 2, (size - 1) // 2)] + [(0, 0)] * (x.ndim - 2)
    seen = np.lib.stride_tricks.sliding_window_view(np.pad(x * x, border), size, 1)
    return x / (k + alpha * seen.mean(-1)) ** beta


def group_norms(make: Make) -> Iterator[Sample]:
    yield at(make(2, 6, 5), 3)
    yield at(make(2, 6, 2, 3), 2, make(6), make(6))
    yield at(make(3, 4), 1, make(4), eps=0.5)
    yield at(make(2, 4, 3), 4, None, make(4))


def instance_norms(make: Make) -> Iterator[Sample]:
    yield at(make(2, 3, 5))
    yield at(make(2, 3, 4, 2), None, None, make(3), make(3), eps=0.1)
    yield rough(make(2, 3, 5), make(3), make(3, low=0.5), make(3), use_input_stats=False)


def rms_norms(make: Make) -> Iterator[Sample]:
    yield at(make.nonzero(3, 5), (5,), eps=1e-2)
    yield at(make.nonzero(2, 3, 4), (3, 4), make(3, 4), 0.1)
    yield at(make.nonzero(4, 7), (7,), make(7))


def statistics(rows, eps):
    return rows.mean(-1), 1 / np.sqrt(rows.var(-1) + eps)


def native_group_norm(x, weight, bias, n, c, size, groups, eps):
    return group_norm(x, groups, weight, bias, eps), *statistics(x.reshape(n, groups, -1), eps)


def native_layer_norm(x, shape, weight, bias, eps):
    axes = tuple(range(x.ndim - len(shape), x.ndim))
    y = normal(x, axes, eps)
    y = y if weight is None else y * weight
    kept = (*x.shape[: x.ndim - len(shape)], *(1,) * len(shape))
    found = statistics(x.reshape(*x.shape[: x.ndim - len(shape)], -1), eps)
    return y if bias is None else y + bias, *(v.reshape(kept) for v in found)


def native_groups(make: Make) -> Iterator[Sample]:
    yield at(make(2, 6, 5), None, None, 2, 6, 5, 3, 1e-3)
    yield at(make(2, 6, 2, 3), make(6), make(6), 2, 6, 6, 2, 1e-2)


def native_layers(make: Make) -> Iterator[Sample]:
    yield at(make(4, 5), (5,), None, None, 1e-3)
    yield at(make(2, 3, 4), (3, 4), make(3, 4), make(3, 4), 1e-2)


def responses(make: Make) -> Iterator[Sample]:
    yield at(make(2, 5, 4), 3, 0.5)
    yield at(make(1, 4, 3, 2), 2, 0.1, 0.5, 2.0)
    yield at(make(1, 3, 2), 4, 1.0)


# ---- rearranging ----


def pixel_shuffle(x, r):
    *lead, c, h, w = x.shape
    parts = x.reshape(-1, c // (r * r), r, r, h, w).transpose(0, 1, 4, 2, 5, 3)
    return parts.reshape(*lead, c // (r * r), h * r, w * r)


def pixel_unshuffle(x, r):
    *lead, c, h, w = x.shape
    parts = x.reshape(-1, c, h // r, r, w // r, r).transpose(0, 1, 3, 5, 2, 4)
    return parts.reshape(*lead, c * r * r, h // r, w // r)


def channel_shuffle(x, groups):
    return np.concatenate([x[:, i :: x.shape[1] // groups] for i in range(x.shape[1] // groups)], 1)


def im2col(x, kernel, dilation=1, padding=0, stride=1):
    if x.ndim == 3:
        return im2col(x[None], kernel, dilation, padding, stride)[0]
    counts, seen, border = pool(2, x, kernel, stride, padding, dilation, False)
    x = np.pad(x, [(0, 0), (0, 0)] + [(p, p) for p in border])
    columns = [
        np.stack([x[:, :, a + border[0], b + border[1]] for (a, b), _ in seen(window)], 2)
        for window in places(*counts)
    ]
    return np.stack(columns, 3).reshape(x.shape[0], -1, math.prod(counts))


def fold(columns, size, kernel, dilation=1, padding=0, stride=1):
    """The transpose of im2col, column by column."""
    if columns.ndim == 2:
        return fold(columns[None], size, kernel, dilation, padding, stride)[0]
    wanted, window = each(size, 2), each(kernel, 2)
    grown = np.zeros((columns.shape[0], columns.shape[1] // math.prod(window), *wanted))
    counts, seen, _ = pool(2, grown, kernel, stride, padding, dilation, False)
    parts = columns.reshape(*grown.shape[:2], math.prod(window), *counts)
    for spot in places(*counts):
        for i, ((a, b), inside) in enumerate(seen(spot)):
            if inside:
                grown[:, :, a, b] += parts[(slice(None), slice(None), i, *spot)]
    return grown


def columns(make: Make) -> Iterator[Sample]:
    yield at(make(2, 3, 5, 4), 2)
    yield at(make(1, 2, 5, 6), (2, 3), 2, 1, (1, 2))
    yield at(make(2, 4, 4), 3, padding=1)


def folds(make: Make) -> Iterator[Sample]:
    yield at(make(2, 12, 12), (4, 5), 2)
    yield at(make(1, 12, 10), (5, 6), (2, 3), 2, 1, (1, 2))
    yield at(make(8, 4), 4, 2, stride=2)


def images(factor: int, *shapes: Place) -> Callable[[Make], Iterator[Sample]]:
    return lambda make: iter([at(make(*shape), factor) for shape in shapes])


# ---- resampling ----


def weights_at(mode: str, n: int, m: int, scale: float, align: bool) -> Array:
    """A row of weights over the given elements for each wanted one."""
    table = np.zeros((m, n))
    for i in range(m):
        if mode.startswith("nearest"):
            place = (i + 0.5) * scale if mode == "nearest-exact" else i * scale
            table[i, min(math.floor(place), n - 1)] = 1
            continue
        place = i * (n - 1) / max(m - 1, 1) if align else (i + 0.5) * scale - 0.5
        if mode == "bicubic":
            low = math.floor(place)
            for j in range(low - 1, low + 3):
                d = abs(place - j)
                a = -0.75
                near, far = (a + 2) * d**3 - (a + 3) * d**2 + 1, a * (d**3 - 5 * d**2 + 8 * d - 4)
                table[i, min(max(j, 0), n - 1)] += near if d <= 1 else far
            continue
        place = max(place, 0)
        low = math.floor(place)
        table[i, min(low, n - 1)] += 1 - (place - low)
        table[i, min(low + 1, n - 1)] += place - low
    return table


def interpolate(
    x, size=None, scale_factor=None, mode="nearest", align_corners=None, recompute_scale_factor=None
):
    rank = x.ndim - 2
    scales = None if scale_factor is None else np.broadcast_to(scale_factor, (rank,))
    sizes = (
        each(size, rank)
        if scales is None
        else [int(n * f) for n, f in zip(x.shape[2:], scales, strict=True)]
    )
    if mode == "area":
        return adaptive(rank, lambda seen: seen.mean(-1))(x, sizes)
    for i, m in enumerate(sizes):
        n = x.shape[2 + i]
        scale = n / m if scales is None or recompute_scale_factor else 1 / scales[i]
        table = weights_at(mode, n, m, scale, bool(align_corners))
        x = np.moveaxis(np.tensordot(x, table, (2 + i, 1)), -1, 2 + i)
    return x


def resized(make: Make) -> Iterator[Sample]:
    for mode in ("nearest", "nearest-exact", "area"):
        yield at(make(1, 2, 5), 3, mode=mode)
        yield at(make(1, 2, 4, 3), (7, 2), mode=mode)
        yield at(make(1, 1, 2, 3, 4), 3, mode=mode)
    yield at(make(1, 2, 4, 3), None, 2)
    yield at(make(1, 2, 4), None, 1.5, "linear")
    for mode, shape in (
        ("linear", (5,)),
        ("bilinear", (5, 4)),
        ("bicubic", (5, 4)),
        ("trilinear", (3, 4, 2)),
    ):
        yield at(make(1, 2, *shape), (4, 6, 3)[: len(shape)], mode=mode)
        yield at(make(1, 2, *shape), (4, 6, 1)[: len(shape)], mode=mode, align_corners=True)
        yield at(make(1, 2, *shape), scale_factor=1.5, mode=mode, recompute_scale_factor=True)


def nearest(make: Make) -> Iterator[Sample]:
    yield at(make(1, 2, 5), 3)
    yield at(make(1, 2, 4, 3), None, 2)


def bilinear(make: Make) -> Iterator[Sample]:
    yield at(make(1, 2, 5, 4), (3, 6))
    yield at(make(1, 2, 4, 3), None, 2)


def mirrored(place: Array, n: int, align: bool) -> Array:
    low, span = (0.0, n - 1.0) if align else (-0.5, float(n))
    away = np.mod(np.abs(place - low), 2 * span)
    return np.minimum(away, 2 * span - away) + low


def grid_sample(x, grid, mode="bilinear", padding_mode="zeros", align_corners=None):
    """Point by point; `weights_at` has the weights of the same modes."""
    sizes = x.shape[2:]
    out = np.zeros((*x.shape[:2], *grid.shape[1:-1]))

    def kept(place, n):
        if padding_mode == "reflection":
            place = mirrored(place, n, bool(align_corners))
        return place if padding_mode == "zeros" else min(max(place, 0), n - 1)

    def taps(point, n):
        place = (point + 1) / 2 * (n - 1) if align_corners else ((point + 1) * n - 1) / 2
        if mode == "bicubic":
            low = math.floor(place)
            # A point between 3 and 4.
            table = weights_at("bicubic", 9, 1, 2 * (place - low + 3) + 1, False)[0]
            return [(kept(low + j - 3, n), table[j]) for j in range(2, 6)]
        place = kept(place, n)
        if mode == "nearest":
            return [(np.rint(place), 1.0)]
        low = math.floor(place)
        return [(low, 1 - place + low), (low + 1, place - low)]

    for spot in places(x.shape[0], *grid.shape[1:-1]):
        point = grid[spot][::-1]
        for chosen in itertools.product(*(taps(p, n) for p, n in zip(point, sizes, strict=True))):
            at_ = tuple(int(i) for i, _ in chosen)
            if all(0 <= i < n for i, n in zip(at_, sizes, strict=True)):
                seen = x[(spot[0], slice(None), *at_)] * math.prod(w for _, w in chosen)
                out[(spot[0], slice(None), *spot[1:])] += seen
    return out


def points(make: Make, *shape: int) -> Array:
    """Coordinates away from element boundaries and edges: between eighths of steps, inside and
    outside.
    """
    return (make.random.integers(-5, 5, shape) * 2 + 1.25) / 8


GRIDS = [
    (mode, padding, align)
    for mode in ("bilinear", "nearest", "bicubic")
    for padding in ("zeros", "border", "reflection")
    for align in (False, True)
]


def grids(make: Make) -> Iterator[Sample]:
    for mode, padding, align in GRIDS:
        yield at(make(1, 2, 4, 5), points(make, 1, 3, 2, 2), mode, padding, align)
        if mode != "bicubic":
            yield at(make(1, 1, 3, 4, 2), points(make, 1, 2, 1, 2, 3), mode, padding, align)


def by_number(x, grid, mode, padding, align):
    modes, paddings = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")
    return grid_sample(x, grid, modes[mode], paddings[padding], align)


def numbered(*sizes: int) -> Callable[[Make], Iterator[Sample]]:
    def samples(make: Make) -> Iterator[Sample]:
        yield at(make(2, 2, *sizes), points(make, 2, *sizes, len(sizes)), 0, 1, False)
        yield at(make(2, 2, *sizes), points(make, 2, *sizes, len(sizes)), 1, 0, True)

    return samples


def dropped(name: str) -> Row:
    """Tested in test_convolution_and_pooling.py: the mask is random."""
    return Row(name, None, lambda make: iter(()), FLOAT, differentiable=False, random=True)


ROWS = [
    Row("group_norm", group_norm, group_norms, FLOAT, COMPOSED),
    Row("instance_norm", instance_norm, instance_norms, FLOAT, COMPOSED),
    Row("rms_norm", rms_norm, rms_norms, FLOAT, COMPOSED),
    Row("local_response_norm", local_response_norm, responses, FLOAT, COMPOSED),
    Row("pixel_shuffle", pixel_shuffle, images(2, (2, 8, 3, 2), (4, 1, 3)), ALL, EXACT),
    Row("pixel_unshuffle", pixel_unshuffle, images(2, (2, 2, 4, 6), (1, 2, 2)), ALL, EXACT),
    Row("channel_shuffle", channel_shuffle, images(3, (2, 6, 3, 2), (1, 3, 4)), ALL, EXACT),
    Row("im2col", im2col, columns, FLOAT, EXACT),
    Row("fold", fold, folds, FLOAT, COMPOSED),
    *map(
        dropped,
        (
            "dropout1d",
            "dropout2d",
            "dropout3d",
            "feature_dropout",
            "alpha_dropout",
            "feature_alpha_dropout",
        ),
    ),
    Row("interpolate", interpolate, resized, FLOAT, COMPOSED),
    Row("upsample", interpolate, nearest, FLOAT, COMPOSED),
    Row("upsample_nearest", interpolate, nearest, FLOAT, COMPOSED),
    Row(
        "upsample_bilinear",
        lambda x, size=None, scale_factor=None: interpolate(
            x, size, scale_factor, "bilinear", True
        ),
        bilinear,
        FLOAT,
        COMPOSED,
    ),
    Row("grid_sample", grid_sample, grids, FLOAT, COMPOSED),
    Row("grid_sampler_2d", by_number, numbered(3, 4), FLOAT, COMPOSED),
    Row("grid_sampler_3d", by_number, numbered(2, 3, 2), FLOAT, COMPOSED),
    Row("native_group_norm", native_group_norm, native_groups, FLOAT, COMPOSED),
    Row(
        "native_layer_norm",
        lambda *args: native_layer_norm(*args)[0],
        native_layers,
        FLOAT,
        COMPOSED,
        call=lambda op, *args: op(*args)[0],
    ),
    # No gradient passes the statistics, though they depend on the input: as in PyTorch.
    Row(
        "native_layer_norm",
        lambda *args: native_layer_norm(*args)[1:],
        native_layers,
        FLOAT,
        COMPOSED,
        differentiable=False,
        call=lambda op, *args: op(*args)[1:],
        variant="statistics",
    ),
]
