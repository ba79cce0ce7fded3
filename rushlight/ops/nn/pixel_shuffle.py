"""Channels to pixels and back, channels between groups, windows to columns and back."""

from __future__ import annotations

from collections.abc import Sequence

from rushlight.core.errors import ShapeError
from rushlight.core.shapes import numel
from rushlight.ops.pointwise import arithmetic as e
from rushlight.ops.registry import composite
from rushlight.ops.view import views
from rushlight.ops.view.formats import follows_image
from rushlight.ops.view.windows import (
    Given,
    bordered,
    check_fits,
    each,
    fold as fold_windows,
    windows,
)
from rushlight.tape.record.value import Value


def _at_least(op: str, x: Value, rank: int) -> None:
    if len(x._spec.shape) < rank:
        raise ShapeError(f"{op}: input needs at least {rank} dimensions, got {x._spec!r}")


@composite("pixel_shuffle", method=False, pure=True)
@follows_image
def pixel_shuffle(input: Value, upscale_factor: int) -> Value:
    """(..., c * r * r, h, w) as (..., c, h * r, w * r).

    Example:
        >>> F.pixel_shuffle(torch.ones(1, 4, 2, 2), 2).shape
        rushlight.Size([1, 1, 4, 4])
    """
    _at_least("pixel_shuffle", input, 3)
    *lead, channels, h, w = input._spec.shape
    r = upscale_factor
    if r < 1 or channels % (r * r):
        raise ShapeError(
            f"pixel_shuffle: {channels} channels of {input._spec!r} do not divide by {r} * {r}"
        )
    n = len(lead)
    parts = views.reshape(input, (*lead, channels // (r * r), r, r, h, w))
    order = (*range(n + 1), n + 3, n + 1, n + 4, n + 2)
    return views.reshape(
        e.clone(views.permute(parts, order)), (*lead, channels // (r * r), h * r, w * r)
    )


@composite("pixel_unshuffle", method=False, pure=True)
@follows_image
def pixel_unshuffle(input: Value, downscale_factor: int) -> Value:
    """(..., c, h * r, w * r) as (..., c * r * r, h, w)."""
    _at_least("pixel_unshuffle", input, 3)
    *lead, channels, h, w = input._spec.shape
    r = downscale_factor
    if r < 1 or h % r or w % r:
        raise ShapeError(
            f"pixel_unshuffle: height and width of {input._spec!r} do not divide by {r}"
        )
    n = len(lead)
    parts = views.reshape(input, (*lead, channels, h // r, r, w // r, r))
    order = (*range(n + 1), n + 2, n + 4, n + 1, n + 3)
    return views.reshape(
        e.clone(views.permute(parts, order)), (*lead, channels * r * r, h // r, w // r)
    )


@composite("channel_shuffle", method=False, pure=True)
@follows_image
def channel_shuffle(input: Value, groups: int) -> Value:
    """Channels (dimension 1) in g groups, interleaved: the first of each group first."""
    _at_least("channel_shuffle", input, 3)
    shape = input._spec.shape
    if groups < 1 or shape[1] % groups:
        raise ShapeError(
            f"channel_shuffle: {shape[1]} channels of {input._spec!r} do not divide into {groups} "
            "groups"
        )
    parts = views.reshape(input, (shape[0], groups, shape[1] // groups, *shape[2:]))
    return views.reshape(e.clone(views.transpose(parts, 1, 2)), shape)


@composite("im2col", method=False, top=False, pure=True)
def im2col(
    input: Value, kernel_size: Given, dilation: Given = 1, padding: Given = 0, stride: Given = 1
) -> Value:
    """The windows of an image as columns: (batch, channel * kh * kw, windows).

    Example:
        >>> F.unfold(torch.arange(9.0).reshape(1, 1, 3, 3), kernel_size=2).shape
        rushlight.Size([1, 4, 4])
    """
    if len(input._spec.shape) == 3:
        return views.squeeze(
            im2col(views.unsqueeze(input, 0), kernel_size, dilation, padding, stride), 0
        )
    if len(input._spec.shape) != 4 or 0 in input._spec.shape[1:]:
        raise ShapeError(
            "unfold: input must be (batch, channel, height, width), empty along the batch at "
            f"most, got {input._spec!r}"
        )
    kernel, spread = (
        each(kernel_size, 2, "unfold", "kernel_size", 1),
        each(dilation, 2, "unfold", "dilation", 1),
    )
    border, steps = each(padding, 2, "unfold", "padding", 0), each(stride, 2, "unfold", "stride", 1)
    grown = tuple(n + 2 * p for n, p in zip(input._spec.shape[2:], border, strict=True))
    check_fits("unfold", (input,), grown, kernel, spread)
    padded = bordered(input, tuple((p, p) for p in border), 0)
    seen = windows(padded, kernel, steps, spread)
    n, channels, rows, columns = seen._spec.shape[:4]
    blocks = views.permute(seen, (0, 1, 4, 5, 2, 3))
    return views.reshape(e.clone(blocks), (n, channels * numel(kernel), rows * columns))


@composite("fold", method=False, top=False, pure=True)
def fold(
    input: Value,
    output_size: Given,
    kernel_size: Given,
    dilation: Given = 1,
    padding: Given = 0,
    stride: Given = 1,
) -> Value:
    """Columns added at their positions in an image: the transpose of unfold.

    Example:
        >>> columns = torch.ones(1, 4, 4)
        >>> F.fold(columns, output_size=(3, 3), kernel_size=2)
        tensor([[[[1., 2., 1.],
                  [2., 4., 2.],
                  [1., 2., 1.]]]])
    """
    if len(input._spec.shape) == 2:
        one = views.unsqueeze(input, 0)
        return views.squeeze(fold(one, output_size, kernel_size, dilation, padding, stride), 0)
    size, kernel = (
        each(output_size, 2, "fold", "output_size", 1),
        each(kernel_size, 2, "fold", "kernel_size", 1),
    )
    spread, steps = each(dilation, 2, "fold", "dilation", 1), each(stride, 2, "fold", "stride", 1)
    border = each(padding, 2, "fold", "padding", 0)
    grown = tuple(n + 2 * p for n, p in zip(size, border, strict=True))
    counts: Sequence[int] = [
        (n - d * (k - 1) - 1) // s + 1
        for n, k, d, s in zip(grown, kernel, spread, steps, strict=True)
    ]
    shape = input._spec.shape
    if len(shape) != 3 or shape[1] % numel(kernel) or shape[2] != numel(counts) or min(counts) < 1:
        raise ShapeError(
            f"fold: input {input._spec!r} must be (batch, channel * {numel(kernel)}, "
            f"{list(counts)} windows) for output_size {list(size)}"
        )
    channels = shape[1] // numel(kernel)
    blocks = views.reshape(input, (shape[0], channels, *kernel, *counts))
    whole = fold_windows(
        views.permute(blocks, (0, 1, 4, 5, 2, 3)),
        (shape[0], channels, *grown),
        kernel,
        steps,
        spread,
    )
    for i, (n, p) in enumerate(zip(size, border, strict=True)):
        whole = views.slice_dim(whole, 2 + i, p, n)
    return views.contiguous(whole)
