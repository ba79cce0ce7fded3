"""Convolution in one, two and three dimensions: windows (views), and contractions of them.

Where a device has convolution kernels these are used (`direct_convolution`): for all numbers of
dimensions, or for two; then one dimension is a row and three are planes.

The transposed convolution is the contraction followed by the transpose of windows.
"""

from __future__ import annotations

from rushlight.core.errors import DTypeError, ShapeError
from rushlight.core.shapes import (
    Spec,
    contiguous_strides,
    numel,
    strides_last,
    suggests_last,
)
from rushlight.ops.linalg.matmul import matmul
from rushlight.ops.nn import direct_convolution
from rushlight.ops.pointwise import arithmetic as e
from rushlight.ops.registry import composite
from rushlight.ops.view import views
from rushlight.ops.view.formats import in_format
from rushlight.ops.view.laid import laid_sum
from rushlight.ops.view.windows import (
    Given,
    Sides,
    Sizes,
    bordered,
    check_fits,
    each,
    fold,
    windows,
)
from rushlight.tape.record.op import check_devices
from rushlight.tape.record.value import Value

# With fewer pixels of an image, or up to so many of the batch, the transpose is a product and its
# fold: a convolution kernel would leave most lanes idle, or turn the weights for one vector.
FEW_OF_IMAGE, FEW_OF_BATCH = 9, 16
_SPATIAL = {1: "length", 2: "height, width", 3: "depth, height, width"}


def _check_operands(
    op: str,
    rank: int,
    x: Value,
    weight: Value,
    bias: Value | None,
    groups: int,
    into: int,
    outs: int,
) -> None:
    """`into` and `outs`: the input and output channels of the weight."""
    check_devices(op, [v._spec for v in (x, weight, bias) if v is not None])
    shape, wanted = x._spec.shape, weight._spec.shape
    if len(shape) != rank + 2 or shape[1] != into or outs % groups:
        raise ShapeError(
            f"{op}: input {x._spec!r} (batch, channels, {_SPATIAL[rank]}) and weight "
            f"{weight._spec!r} do not fit with groups={groups}"
        )
    for name, given in (("weight", weight), ("bias", bias)):
        if given is not None and given._spec.dtype is not x._spec.dtype:
            raise DTypeError(
                f"{op}: input {x._spec!r} and {name} {given._spec!r} must have one type; cast with "
                ".to(dtype)"
            )
    if bias is not None and bias._spec.shape != (outs,):
        raise ShapeError(
            f"{op}: bias {bias._spec!r} must have one number for each of the {outs} output channels"
        )
    if min(wanted[2:]) < 1:
        raise ShapeError(f"{op}: the window of weight {weight._spec!r} has no elements")


def _borders(op: str, padding: Given | str, kernel: Sizes, stride: Sizes, dilation: Sizes) -> Sides:
    rank = len(kernel)
    if padding == "valid":
        return ((0, 0),) * rank
    if padding == "same":
        if any(s != 1 for s in stride):
            raise ShapeError(f"{op}: padding='same' goes with stride 1, got {list(stride)}")
        # An odd total puts one more element after than before.
        totals = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
        return tuple((t // 2, t - t // 2) for t in totals)
    if isinstance(padding, str):
        raise ShapeError(
            f"{op}: padding is a number, {rank} numbers, 'same' or 'valid', got {padding!r}"
        )
    return tuple((p, p) for p in each(padding, rank, op, "padding", 0))


def _check_weight(op: str, rank: int, weight: Value, groups: int) -> None:
    if len(weight._spec.shape) != rank + 2:
        raise ShapeError(f"{op}: the weight must have {rank + 2} dimensions, got {weight._spec!r}")
    if groups < 1:
        raise ShapeError(f"{op}: groups must be positive, got {groups}")


def _finished(out: Value, x: Value, w: Value, bias: Value | None) -> Value:
    """With bias, in the memory format of the operands: Note [Layouts of results] 3."""
    shape = out._spec.shape
    last = suggests_last(x._spec) or suggests_last(w._spec)
    if bias is None:
        return in_format(out, last)
    column = views.reshape(e.cast(bias, out._spec.dtype), (shape[1],) + (1,) * (len(shape) - 2))
    strides = strides_last(shape) if last else contiguous_strides(shape)
    return laid_sum(out, column, strides)


def _convolve(
    op: str,
    rank: int,
    input: Value,
    weight: Value,
    bias: Value | None,
    stride: Given,
    padding: Given | str,
    dilation: Given,
    groups: int,
) -> Value:
    if len(input._spec.shape) == rank + 1:
        batch = views.unsqueeze(input, 0)
        return views.squeeze(
            _convolve(op, rank, batch, weight, bias, stride, padding, dilation, groups), 0
        )
    _check_weight(op, rank, weight, groups)
    outs, given, *window = weight._spec.shape
    kernel = tuple(window)
    steps, spread = each(stride, rank, op, "stride", 1), each(dilation, rank, op, "dilation", 1)
    _check_operands(op, rank, input, weight, bias, groups, given * groups, outs)
    sides = _borders(op, padding, kernel, steps, spread)
    x, w = input, weight
    grown = tuple(n + a + b for n, (a, b) in zip(x._spec.shape[2:], sides, strict=True))
    check_fits(op, (input, weight), grown, kernel, spread)
    if direct_convolution.suits_whole(x._spec, w._spec):
        static = direct_convolution.geometry(x._spec, w._spec, steps, sides, spread, groups)
        return _finished(direct_convolution.image(x, w, static), x, w, bias)
    # One contraction, and no copy.
    plain = numel(kernel) == numel(steps) == 1 and grown == x._spec.shape[2:]
    if rank < 3 and not plain and direct_convolution.suits(x._spec, w._spec, steps, spread, groups):
        return _finished(_direct(x, w, steps, sides, spread, groups), x, w, bias)
    if rank == 3 and not plain and _suits_planes(x, w, steps, spread, groups):
        return _finished(_by_planes(x, w, steps, sides, spread, groups), x, w, bias)
    padded = bordered(x, sides, 0.0)
    seen = windows(padded, kernel, steps, spread)  # n, c, rows, columns, kh, kw
    n, counts = x._spec.shape[0], seen._spec.shape[2 : 2 + rank]
    # n, groups, c, kh, kw, rows, columns: a column of the matrix is one window
    order = (0, 1, *range(2 + rank, 2 + 2 * rank), *range(2, 2 + rank))
    block = views.reshape(
        views.permute(seen, order), (n, groups, given * numel(kernel), numel(counts))
    )
    table = views.reshape(w, (1, groups, outs // groups, given * numel(kernel)))
    return _finished(views.reshape(matmul(table, block), (n, outs, *counts)), x, w, bias)


def _direct(x: Value, w: Value, stride: Sizes, sides: Sides, dilation: Sizes, groups: int) -> Value:
    """By a convolution kernel; one dimension is two, the first of size 1."""
    if len(stride) == 2:
        static = direct_convolution.geometry(x._spec, w._spec, stride, sides, dilation, groups)
        return direct_convolution.image(x, w, static)
    flat = _direct(
        views.unsqueeze(x, 2),
        views.unsqueeze(w, 2),
        (1, *stride),
        ((0, 0), *sides),
        (1, *dilation),
        groups,
    )
    return views.squeeze(flat, 2)


def _suits_planes(x: Value, w: Value, stride: Sizes, dilation: Sizes, groups: int) -> bool:
    outs, shared, deep, *window = w._spec.shape
    joined = Spec.of(w._spec.device, w._spec.dtype, (outs, shared * deep, *window))
    return direct_convolution.suits(x._spec, joined, stride[1:], dilation[1:], groups)


def _by_planes(
    x: Value, w: Value, stride: Sizes, sides: Sides, dilation: Sizes, groups: int
) -> Value:
    """Each plane of the result is an image's convolution: a window's planes are channels."""
    n, channels, _, *plane = x._spec.shape
    outs, shared, deep, *window = w._spec.shape
    padded = bordered(x, (sides[0], (0, 0), (0, 0)), 0.0)
    # n, c, planes, h, w, deep, 1, 1
    seen = windows(padded, (deep, 1, 1), (stride[0], 1, 1), (dilation[0], 1, 1))
    planes = seen._spec.shape[2]
    images = views.reshape(
        views.permute(seen, (0, 2, 1, 5, 3, 4, 6, 7)), (n * planes, channels * deep, *plane)
    )
    joined = views.reshape(w, (outs, shared * deep, *window))
    flat = _direct(images, joined, stride[1:], sides[1:], dilation[1:], groups)
    apart = views.reshape(flat, (n, planes, outs, *flat._spec.shape[2:]))
    return views.transpose(apart, 1, 2)


@composite("conv1d", method=False, pure=True, autocast="lower")
def conv1d(
    input: Value,
    weight: Value,
    bias: Value | None = None,
    stride: Given = 1,
    padding: Given | str = 0,
    dilation: Given = 1,
    groups: int = 1,
) -> Value:
    """Cross-correlation of (batch, channels, length) with (out, channels / groups, k)."""
    return _convolve("conv1d", 1, input, weight, bias, stride, padding, dilation, groups)


@composite("conv2d", method=False, pure=True, autocast="lower")
def conv2d(
    input: Value,
    weight: Value,
    bias: Value | None = None,
    stride: Given = 1,
    padding: Given | str = 0,
    dilation: Given = 1,
    groups: int = 1,
) -> Value:
    """Cross-correlation of (batch, channels, h, w) with (out, channels / groups, kh, kw).

    Example:
        >>> F.conv2d(torch.ones(1, 3, 8, 8), torch.ones(4, 3, 3, 3), padding=1).shape
        rushlight.Size([1, 4, 8, 8])
    """
    return _convolve("conv2d", 2, input, weight, bias, stride, padding, dilation, groups)


@composite("conv3d", method=False, pure=True, autocast="lower")
def conv3d(
    input: Value,
    weight: Value,
    bias: Value | None = None,
    stride: Given = 1,
    padding: Given | str = 0,
    dilation: Given = 1,
    groups: int = 1,
) -> Value:
    """Cross-correlation of volumes (batch, channels, ...) with (out, channels / groups, ...).

    The dimensions are depth, height and width.
    """
    return _convolve("conv3d", 3, input, weight, bias, stride, padding, dilation, groups)


def _direct_back(
    x: Value, w: Value, stride: Sizes, before: Sizes, dilation: Sizes, groups: int, whole: Sizes
) -> Value:
    """The transpose by convolution kernels, to an image of size `whole`."""
    if len(stride) == 2:
        return direct_convolution.turned(x, w, stride, before, dilation, groups, whole)
    flat = _direct_back(
        views.unsqueeze(x, 2),
        views.unsqueeze(w, 2),
        (1, *stride),
        (0, *before),
        (1, *dilation),
        groups,
        (1, *whole),
    )
    return views.squeeze(flat, 2)


def _cropped(out: Value, padding: Sizes, extra: Sizes) -> Value:
    """Without `padding` at both ends, with `extra` more at the far end, zeros if not written."""
    rank = len(padding)
    out = bordered(
        out, tuple((0, max(0, more - p)) for p, more in zip(padding, extra, strict=True)), 0.0
    )
    lead = len(out._spec.shape) - rank
    for i, (p, more) in enumerate(zip(padding, extra, strict=True)):
        size = out._spec.shape[lead + i] - p - max(0, p - more)
        if size < 1:
            raise ShapeError(
                f"conv_transpose{rank}d: padding {list(padding)} leaves nothing of {out._spec!r}"
            )
        out = views.slice_dim(out, lead + i, p, size)
    return out


def _convolve_back(
    rank: int,
    input: Value,
    weight: Value,
    bias: Value | None,
    stride: Given,
    padding: Given,
    output_padding: Given,
    groups: int,
    dilation: Given,
) -> Value:
    op = f"conv_transpose{rank}d"
    if len(input._spec.shape) == rank + 1:
        batch = views.unsqueeze(input, 0)
        whole = _convolve_back(
            rank, batch, weight, bias, stride, padding, output_padding, groups, dilation
        )
        return views.squeeze(whole, 0)
    _check_weight(op, rank, weight, groups)
    given, shared, *window = weight._spec.shape
    kernel, outs = tuple(window), shared * groups
    steps, spread = each(stride, rank, op, "stride", 1), each(dilation, rank, op, "dilation", 1)
    border, extra = (
        each(padding, rank, op, "padding", 0),
        each(output_padding, rank, op, "output_padding", 0),
    )
    _check_operands(op, rank, input, weight, bias, groups, given, outs)
    if given % groups:
        raise ShapeError(
            f"{op}: {given} channels of {input._spec!r} do not divide into {groups} groups"
        )
    if any(more >= max(s, d) for more, s, d in zip(extra, steps, spread, strict=True)):
        raise ShapeError(
            f"{op}: output_padding {list(extra)} must be smaller than stride or dilation"
        )
    x, w = input, weight
    n, *sizes = x._spec.shape[:1] + x._spec.shape[2:]
    reach = [
        (m - 1) * s + d * (k - 1) + 1
        for m, s, d, k in zip(sizes, steps, spread, kernel, strict=True)
    ]
    image = tuple(r - 2 * p + more for r, p, more in zip(reach, border, extra, strict=True))
    if min(image) > 0 and direct_convolution.suits_whole(x._spec, w._spec):
        made = direct_convolution.turned(x, w, steps, border, spread, groups, image)
        return _finished(made, x, w, bias)
    if (
        rank < 3
        and min(image) > 0
        and numel(sizes) >= FEW_OF_IMAGE
        and n * numel(sizes) > FEW_OF_BATCH
        and direct_convolution.suits(x._spec, w._spec, steps, spread, groups)
    ):
        return _finished(_direct_back(x, w, steps, border, spread, groups, image), x, w, bias)
    # One product for each group: a row is a pixel of an image, a column an element of a window.
    inner = given // groups
    pixels = views.permute(views.reshape(x, (n, groups, inner, numel(sizes))), (1, 0, 3, 2))
    rows = views.reshape(pixels, (groups, n * numel(sizes), inner))
    table = views.reshape(w, (groups, inner, shared * numel(kernel)))
    block = views.reshape(matmul(rows, table), (groups, n, *sizes, shared, *kernel))
    order = (1, 0, 2 + rank, *range(2, 2 + rank), *range(3 + rank, 3 + 2 * rank))
    parts = views.reshape(views.permute(block, order), (n, outs, *sizes, *kernel))
    if numel(sizes) == 1 and all(d == 1 for d in spread):
        out = views.reshape(parts, (n, outs, *kernel))  # the window is the image
    else:
        out = fold(parts, (n, outs, *reach), kernel, steps, spread)
    return _finished(_cropped(out, border, extra), x, w, bias)


@composite("conv_transpose1d", method=False, pure=True, autocast="lower")
def conv_transpose1d(
    input: Value,
    weight: Value,
    bias: Value | None = None,
    stride: Given = 1,
    padding: Given = 0,
    output_padding: Given = 0,
    groups: int = 1,
    dilation: Given = 1,
) -> Value:
    """The transpose of conv1d, with a weight of (channels, out / groups, k)."""
    return _convolve_back(1, input, weight, bias, stride, padding, output_padding, groups, dilation)


@composite("conv_transpose2d", method=False, pure=True, autocast="lower")
def conv_transpose2d(
    input: Value,
    weight: Value,
    bias: Value | None = None,
    stride: Given = 1,
    padding: Given = 0,
    output_padding: Given = 0,
    groups: int = 1,
    dilation: Given = 1,
) -> Value:
    """The transpose of conv2d, with a weight of (channels, out / groups, kh, kw).

    Example:
        >>> F.conv_transpose2d(torch.ones(1, 4, 3, 3), torch.ones(4, 2, 2, 2), stride=2).shape
        rushlight.Size([1, 2, 6, 6])
    """
    return _convolve_back(2, input, weight, bias, stride, padding, output_padding, groups, dilation)


@composite("conv_transpose3d", method=False, pure=True, autocast="lower")
def conv_transpose3d(
    input: Value,
    weight: Value,
    bias: Value | None = None,
    stride: Given = 1,
    padding: Given = 0,
    output_padding: Given = 0,
    groups: int = 1,
    dilation: Given = 1,
) -> Value:
    """The transpose of conv3d, with a weight of (channels, out / groups, kd, kh, kw)."""
    return _convolve_back(3, input, weight, bias, stride, padding, output_padding, groups, dilation)
