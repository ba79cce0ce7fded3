"""torchvision's native ops, by public ops: `nms`, pools of regions, deformable convolution.

torchvision looks for them at `torch.ops.torchvision` after it has loaded its C++ library;
`library.load_library` provides them in its place. They run on every device. Regions
and images are read a number at a time (`_ROWS`), so that the elements gathered for them take
bounded memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rushlight.compat.library import CustomOpDef
from rushlight.core.dtypes import int32
from rushlight.core.errors import RushlightError, ShapeError
from rushlight.interop import from_numpy
from rushlight.ops.create import creation
from rushlight.ops.registry import REGISTRY
from rushlight.tape.record.state import no_grad
from rushlight.tensor import Tensor

_ROWS = 1 << 18  # rows of channels that are gathered at a time
_PAIRS = 1 << 24  # pairs of boxes that are compared at a time


class VisionOp(CustomOpDef):
    """An op that has its derivative; what torchvision registers for its own is accepted."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        super().__init__(f"torchvision::{name}", function)
        self.run = function

    def __call__(self, *args: Any, **named: Any) -> Any:
        return self.run(*args, **named)

    def register_fake(self, fn: Callable[..., Any], /) -> Callable[..., Any]:
        return fn

    def register_autograd(self, backward: Any, /, *, setup_context: Any = None) -> None:
        return None

    def register_kernel(self, device_types: Any, fn: Any = None, /) -> Any:
        return fn


def _join(name: str, parts: list[Any], dim: int = 0) -> Any:
    return REGISTRY[name].function(parts, dim)


# ---- boxes ----


def nms(dets: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    """The boxes that no kept box of a higher score overlaps by more than the threshold.

    Which are kept is decided on the host, from a matrix of overlaps that the device computes.

    Args:
        dets (Tensor): Boxes as (x1, y1, x2, y2).
        scores (Tensor): A score for each.
        iou_threshold (float): The largest ratio of intersection and union of two kept boxes.
    """
    import numpy as np

    count = dets.shape[0]
    if dets.dim() != 2 or dets.shape[1] != 4 or scores.shape != (count,):
        raise ShapeError(
            f"nms: boxes are [n, 4] and scores [n], got {tuple(dets.shape)}, {tuple(scores.shape)}"
        )
    with no_grad():
        order = scores.detach().sort(stable=True, descending=True)[1]
        boxes = dets.detach()[order]
        if boxes.dtype.itemsize == 2:
            boxes = boxes.float()  # an area may be larger than the largest half
        dropped = np.zeros(count, dtype=bool)
        rows = max(1, _PAIRS // max(count, 1))
        for first in range(0, count, rows):
            above = (_overlaps(boxes[first : first + rows], boxes) > iou_threshold).cpu().numpy()
            for i, row in enumerate(above, first):
                if not dropped[i]:
                    dropped[i + 1 :] |= row[i + 1 :]
        kept = from_numpy(np.flatnonzero(~dropped)).to(order.device)  # type: ignore[attr-defined]
        return order[kept]


def _overlaps(first: Tensor, second: Tensor) -> Any:
    """The ratio of intersection and union of each pair."""
    low = first[:, None, :2].maximum(second[None, :, :2])
    high = first[:, None, 2:].minimum(second[None, :, 2:])
    sides = (high - low).clamp(min=0)
    shared = sides[..., 0] * sides[..., 1]
    return shared / (_areas(first)[:, None] + _areas(second)[None] - shared)


def _areas(boxes: Tensor) -> Any:
    return (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])


# ---- regions ----


def _check_regions(op: str, input: Tensor, rois: Tensor) -> None:
    if input.dim() != 4 or rois.dim() != 2 or rois.shape[1] != 5:
        raise ShapeError(
            f"{op}: an input [n, c, h, w] and regions [k, 5] are needed, got "
            f"{tuple(input.shape)} and {tuple(rois.shape)}"
        )
    if input.dtype is not rois.dtype:
        raise RushlightError(f"{op}: input is {input.dtype} and rois are {rois.dtype}")


def _in_chunks(input: Tensor, rois: Tensor, bins: Any, size: tuple[int, int], pool: Any) -> Any:
    """`pool(rows, part)` of the rows that `bins(part)` lists, for some regions at a time.

    The rows are [bins, samples, channels]; results are [k, c, height, width].
    """
    n, c, h, w = input.shape
    rows = input.permute(0, 2, 3, 1).reshape(n * h * w, c)
    found, first, step = [], 0, rois.shape[0]
    while first < rois.shape[0]:
        part = bins(rois[first : first + step], input.shape)
        if part[0].shape[0] > 1 and part[0].numel() > _ROWS:
            step = max(1, step * _ROWS // part[0].numel())
            continue
        flat = part[0].reshape(part[0].shape[0] * size[0] * size[1], -1)
        found.append(pool(rows[flat.reshape(-1)].reshape(*flat.shape, c), flat, part))
        first += step
    if not found:
        return input.new_zeros(0, c, *size)
    return _join("cat", found).reshape(rois.shape[0], *size, c).permute(0, 3, 1, 2).contiguous()


def roi_align(
    input: Tensor,
    rois: Tensor,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    sampling_ratio: int,
    aligned: bool,
) -> Any:
    """The mean of bilinear samples in each bin of each region.

    Args:
        input (Tensor): Maps [n, c, h, w].
        rois (Tensor): Regions [k, 5]: the map's number, x1, y1, x2, y2.
        spatial_scale (float): From the regions' coordinates to the maps'.
        pooled_height (int): Bins per region, down.
        pooled_width (int): Bins per region, across.
        sampling_ratio (int): Samples per bin and direction; 0 for as many as a bin has pixels.
        aligned (bool): Whether coordinates are those of pixels' centres.
    """
    _check_regions("roi_align", input, rois)
    size = (pooled_height, pooled_width)

    def bins(part: Tensor, shape: Any) -> Any:
        with no_grad():
            shift = 0.5 if aligned else 0.0
            box = part[:, 1:].detach() * spatial_scale - shift
            at_y, by_y = _samples(box[:, 1], box[:, 3], size[0], sampling_ratio, aligned, shape[2])
            at_x, by_x = _samples(box[:, 0], box[:, 2], size[1], sampling_ratio, aligned, shape[3])
            start = part[:, 0].detach().long() * (shape[2] * shape[3])
            places = (at_y * shape[3])[:, :, None, :, None] + at_x[:, None, :, None, :]
            weights = by_y[:, :, None, :, None] * by_x[:, None, :, None, :]
            return places + start[:, None, None, None, None], weights

    def mean(rows: Tensor, flat: Tensor, part: Any) -> Any:
        return (part[1].reshape(flat.shape)[:, None] @ rows)[:, 0]

    return _in_chunks(input, rois, bins, size, mean)


def _samples(
    low: Tensor, high: Tensor, bins: int, ratio: int, aligned: bool, length: int
) -> tuple[Any, Any]:
    """Indices and weights [k, bins, samples * 2] along one direction; weights of a bin sum to 1."""
    extent = high - low
    if not aligned:
        extent = extent.clamp(min=1.0)
    step = extent / bins
    counts = step.ceil() if ratio <= 0 else step.new_full(step.shape, ratio)
    most = ratio if ratio > 0 else max(1, int(counts.max().item()))
    sample = creation.arange(most, dtype=low.dtype, device=low.device)
    place = creation.arange(bins, dtype=low.dtype, device=low.device)[:, None]
    each = step[:, None, None]
    number = counts.clamp(min=1.0)[:, None, None]
    at = low[:, None, None] + place * each + (sample + 0.5) * each / number
    is_in = (at >= -1.0) & (at <= length) & (sample < counts[:, None, None])
    at = at.clamp(min=0.0)
    below = at.floor().clamp(max=length - 1)
    at = at.where(below < length - 1, below)
    above = (below + 1).clamp(max=length - 1)
    part = at - below
    share = is_in.to(low.dtype) / number
    indices = _join("stack", [below, above], -1).long().flatten(2)
    return indices, _join("stack", [(1 - part) * share, part * share], -1).flatten(2)


def roi_pool(
    input: Tensor, rois: Tensor, spatial_scale: float, pooled_height: int, pooled_width: int
) -> tuple[Any, Any]:
    """The largest element in each bin of each region, and its place; 0 and -1 of an empty bin.

    Args:
        input (Tensor): Maps [n, c, h, w].
        rois (Tensor): Regions [k, 5]: the map's number, x1, y1, x2, y2.
        spatial_scale (float): From the regions' coordinates to the maps'.
        pooled_height (int): Bins per region, down.
        pooled_width (int): Bins per region, across.
    """
    _check_regions("roi_pool", input, rois)
    size = (pooled_height, pooled_width)
    places: list[Any] = []

    def bins(part: Tensor, shape: Any) -> Any:
        with no_grad():
            box = _rounded(part[:, 1:].detach() * spatial_scale)
            at_y, in_y = _pixels(box[:, 1], box[:, 3], size[0], shape[2])
            at_x, in_x = _pixels(box[:, 0], box[:, 2], size[1], shape[3])
            start = part[:, 0].detach().long() * (shape[2] * shape[3])
            within = (at_y * shape[3])[:, :, None, :, None] + at_x[:, None, :, None, :]
            inside = in_y[:, :, None, :, None] & in_x[:, None, :, None, :]
            return within + start[:, None, None, None, None], inside, within

    def largest(rows: Tensor, flat: Tensor, part: Any) -> Any:
        inside = part[1].reshape(flat.shape)
        value, at = rows.masked_fill(~inside[..., None], float("-inf")).max(dim=1)
        empty = ~inside.any(dim=1)
        found = part[2].expand(part[1].shape).reshape(flat.shape).gather(1, at)
        places.append(found.masked_fill(empty[:, None], -1))
        return value.masked_fill(empty[:, None], 0)

    pooled = _in_chunks(input, rois, bins, size, largest)
    if not places:
        return pooled, creation.zeros(pooled.shape, dtype=int32, device=input.device)
    found = _join("cat", places).reshape(rois.shape[0], *size, input.shape[1]).permute(0, 3, 1, 2)
    return pooled, found.to(int32).contiguous()


def _rounded(box: Tensor) -> Any:
    """The nearest whole numbers; halves go away from zero."""
    return (box.abs() + 0.5).floor() * box.sign()


def _pixels(low: Tensor, high: Tensor, bins: int, length: int) -> tuple[Any, Any]:
    """Indices [k, bins, pixels] of the pixels of each bin along one direction, and which count."""
    step = (high - low + 1).clamp(min=1.0)[:, None] / bins
    place = creation.arange(bins, dtype=low.dtype, device=low.device)
    begin = ((place * step).floor() + low[:, None]).clamp(0, length)
    end = (((place + 1) * step).ceil() + low[:, None]).clamp(0, length)
    most = max(1, int((end - begin).max().item()))
    at = begin[..., None] + creation.arange(most, dtype=low.dtype, device=low.device)
    return at.clamp(0, length - 1).long(), at < end[..., None]


# ---- position-sensitive regions: each bin has channels of its own ----


def _by_bins(op: str, input: Tensor, rois: Tensor, size: tuple[int, int]) -> Tensor:
    """Maps [n * bins, c / bins, h, w]: those of a bin are an image of their own."""
    _check_regions(op, input, rois)
    n, c, h, w = input.shape
    bins = size[0] * size[1]
    if bins < 1 or c % bins:
        raise ShapeError(f"{op}: {c} channels are not a multiple of the {size[0]} x {size[1]} bins")
    return input.reshape(n, c // bins, bins, h, w).transpose(1, 2).flatten(0, 1)


def _first_places(rois: Tensor, size: tuple[int, int], area: int) -> Any:
    """The place [k, height, width] of the first element of each bin's maps."""
    bins = size[0] * size[1]
    number = creation.arange(bins, device=rois.device).reshape(size)
    return (rois[:, 0].detach().long()[:, None, None] * bins + number) * area


def _channels_of_bins(input: Tensor, pooled: Tensor) -> Any:
    """The input's channel from which each element of a result [k, c, height, width] came."""
    _, c, height, width = pooled.shape
    numbers = creation.arange(c * height * width, dtype=int32, device=input.device)
    return numbers.reshape(c, height, width).expand(pooled.shape).contiguous()


def ps_roi_align(
    input: Tensor,
    rois: Tensor,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    sampling_ratio: int,
) -> tuple[Any, Any]:
    """The mean of bilinear samples in each bin of each region, in the bin's own channels.

    The second result are the numbers of the channels.

    Args:
        input (Tensor): Maps [n, c, h, w]; c is a multiple of the number of bins.
        rois (Tensor): Regions [k, 5]: the map's number, x1, y1, x2, y2.
        spatial_scale (float): From the regions' coordinates to the maps'.
        pooled_height (int): Bins per region, down.
        pooled_width (int): Bins per region, across.
        sampling_ratio (int): Samples per bin and direction; 0 for as many as a bin has pixels.
    """
    size = (pooled_height, pooled_width)
    maps = _by_bins("ps_roi_align", input, rois, size)

    def bins(part: Tensor, shape: Any) -> Any:
        with no_grad():
            box = part[:, 1:].detach() * spatial_scale - 0.5
            at_y, by_y = _samples(box[:, 1], box[:, 3], size[0], sampling_ratio, True, shape[2])
            at_x, by_x = _samples(box[:, 0], box[:, 2], size[1], sampling_ratio, True, shape[3])
            start = _first_places(part, size, shape[2] * shape[3])
            places = (at_y * shape[3])[:, :, None, :, None] + at_x[:, None, :, None, :]
            weights = by_y[:, :, None, :, None] * by_x[:, None, :, None, :]
            return places + start[..., None, None], weights

    def mean(rows: Tensor, flat: Tensor, part: Any) -> Any:
        return (part[1].reshape(flat.shape)[:, None] @ rows)[:, 0]

    pooled = _in_chunks(maps, rois, bins, size, mean)
    return pooled, _channels_of_bins(input, pooled)


def ps_roi_pool(
    input: Tensor, rois: Tensor, spatial_scale: float, pooled_height: int, pooled_width: int
) -> tuple[Any, Any]:
    """The mean of the elements in each bin of each region, in the bin's own channels.

    The second result are the numbers of the channels. The mean of an empty bin is 0. The gradient
    is that of these means; torchvision's takes other bins at the maps' last row and column.

    Args:
        input (Tensor): Maps [n, c, h, w]; c is a multiple of the number of bins.
        rois (Tensor): Regions [k, 5]: the map's number, x1, y1, x2, y2.
        spatial_scale (float): From the regions' coordinates to the maps'.
        pooled_height (int): Bins per region, down.
        pooled_width (int): Bins per region, across.
    """
    size = (pooled_height, pooled_width)
    maps = _by_bins("ps_roi_pool", input, rois, size)

    def bins(part: Tensor, shape: Any) -> Any:
        with no_grad():
            box = _rounded(part[:, 1:].detach() * spatial_scale)
            # A region ends before its last pixel, and none reaches the maps' last row and column.
            at_y, in_y = _pixels(box[:, 1], box[:, 3] - 1, size[0], shape[2] - 1)
            at_x, in_x = _pixels(box[:, 0], box[:, 2] - 1, size[1], shape[3] - 1)
            start = _first_places(part, size, shape[2] * shape[3])
            within = (at_y * shape[3])[:, :, None, :, None] + at_x[:, None, :, None, :]
            inside = in_y[:, :, None, :, None] & in_x[:, None, :, None, :]
            return within + start[..., None, None], inside

    def mean(rows: Tensor, flat: Tensor, part: Any) -> Any:
        inside = part[1].reshape(flat.shape)
        share = inside.to(rows.dtype) / inside.sum(1, keepdim=True).clamp(min=1)
        return (share[:, None] @ rows)[:, 0]

    pooled = _in_chunks(maps, rois, bins, size, mean)
    return pooled, _channels_of_bins(input, pooled)


# ---- deformable convolution ----


def deform_conv2d(
    input: Tensor,
    weight: Tensor,
    offset: Tensor,
    mask: Tensor,
    bias: Tensor,
    stride_h: int,
    stride_w: int,
    pad_h: int,
    pad_w: int,
    dilation_h: int,
    dilation_w: int,
    groups: int,
    offset_groups: int,
    use_mask: bool,
) -> Any:
    """A convolution whose taps lie at offsets from their places, with factors.

    Args:
        input (Tensor): Images [n, c, h, w].
        weight (Tensor): [out, c / groups, kernel height, kernel width].
        offset (Tensor): [n, 2 * offset_groups * taps, height, width], down and across for each tap.
        mask (Tensor): Factors [n, offset_groups * taps, height, width]; read with `use_mask`.
        bias (Tensor): [out].
        stride_h (int): Stride down.
        stride_w (int): Stride across.
        pad_h (int): Zeros above and below.
        pad_w (int): Zeros at the sides.
        dilation_h (int): Distance of taps, down.
        dilation_w (int): Distance of taps, across.
        groups (int): Groups of channels.
        offset_groups (int): Groups of channels with offsets of their own.
        use_mask (bool): Whether samples are multiplied by the mask.
    """
    taps, size = _check_taps(
        input,
        weight,
        offset,
        mask if use_mask else None,
        (groups, offset_groups),
        ((pad_h, dilation_h, stride_h), (pad_w, dilation_w, stride_w)),
    )
    n, outs = input.shape[0], weight.shape[0]
    moved = offset.reshape(n, offset_groups, taps, 2, *size)
    tap = creation.arange(taps, device=input.device)
    across = weight.shape[3]
    start_y = _places(tap.div(across, rounding_mode="floor") * dilation_h - pad_h, offset)
    start_x = _places(tap.remainder(across) * dilation_w - pad_w, offset)
    rows = creation.arange(size[0], dtype=offset.dtype, device=input.device) * stride_h
    columns = creation.arange(size[1], dtype=offset.dtype, device=input.device) * stride_w
    at_y = moved[:, :, :, 0] + start_y + rows[:, None]
    at_x = moved[:, :, :, 1] + start_x + columns
    by = mask.reshape(n, offset_groups, taps, *size) if use_mask else None
    step = max(1, _ROWS // max(1, 4 * offset_groups * taps * size[0] * size[1]))
    kernel = weight.reshape(groups, outs // groups, -1)
    found = [input.new_zeros(0, outs, *size)]
    for first in range(0, n, step):
        part = slice(first, first + step)
        taken = _bilinear(input[part], at_y[part], at_x[part])
        if by is not None:
            taken = taken * by[part, :, :, :, :, None]
        images = taken.shape[0]
        # [images, offset groups, taps, height, width, channels] to [images, groups, c * taps, ...].
        lined = taken.permute(0, 1, 5, 2, 3, 4).reshape(images, groups, -1, size[0] * size[1])
        found.append((kernel @ lined).reshape(images, outs, *size))
    return _join("cat", found) + bias[:, None, None]


def _check_taps(
    input: Tensor,
    weight: Tensor,
    offset: Tensor,
    mask: Tensor | None,
    groups: tuple[int, int],
    steps: tuple[tuple[int, int, int], tuple[int, int, int]],
) -> tuple[int, tuple[int, int]]:
    """The number of taps and the size of a result; refuses shapes that do not fit.

    `groups` are of channels and of offsets; `steps` are padding, dilation and stride, down and
    across.
    """
    if input.dim() != 4 or weight.dim() != 4 or offset.dim() != 4:
        raise ShapeError(
            "deform_conv2d: input, weight and offset have four dimensions, got "
            f"{tuple(input.shape)}, {tuple(weight.shape)} and {tuple(offset.shape)}"
        )
    n, c, *sides = input.shape
    outs, each, *kernel = weight.shape
    if c != groups[0] * each or outs % groups[0] or c % groups[1]:
        raise ShapeError(
            f"deform_conv2d: {c} channels do not fit a weight {tuple(weight.shape)} in {groups[0]} "
            f"groups and {groups[1]} groups of offsets"
        )
    height, width = (
        (side + 2 * pad - dilation * (k - 1) - 1) // stride + 1
        for side, k, (pad, dilation, stride) in zip(sides, kernel, steps, strict=True)
    )
    taps = kernel[0] * kernel[1]
    wanted = (n, 2 * groups[1] * taps, height, width)
    factors = (n, groups[1] * taps, height, width)
    if tuple(offset.shape) != wanted:
        raise ShapeError(f"deform_conv2d: offsets are {wanted}, got {tuple(offset.shape)}")
    if mask is not None and tuple(mask.shape) != factors:
        raise ShapeError(f"deform_conv2d: a mask is {factors}, got {tuple(mask.shape)}")
    return taps, (height, width)


def _places(numbers: Tensor, like: Tensor) -> Any:
    return numbers.to(like.dtype)[:, None, None]


def _bilinear(input: Tensor, at_y: Tensor, at_x: Tensor) -> Any:
    """Samples [n, groups, ..., c / groups] at places [n, groups, ...]; outside of an image is 0."""
    n, c, h, w = input.shape
    groups = at_y.shape[1]
    table = input.reshape(n * groups, c // groups, h * w).transpose(1, 2).flatten(0, 1)
    with no_grad():
        low_y, low_x = at_y.detach().floor(), at_x.detach().floor()
        image = creation.arange(n * groups, device=input.device) * (h * w)
        image = image.reshape(n, groups, *[1] * (at_y.dim() - 2))
    total = None
    for step_y in (0, 1):
        for step_x in (0, 1):
            with no_grad():
                y, x = low_y + step_y, low_x + step_x
                inside = (y >= 0) & (y < h) & (x >= 0) & (x < w)
                place = y.clamp(0, h - 1).long() * w + x.clamp(0, w - 1).long() + image
            by_y = at_y - low_y if step_y else low_y + 1 - at_y
            by_x = at_x - low_x if step_x else low_x + 1 - at_x
            share = (by_y * by_x).masked_fill(~inside, 0)
            rows = table[place.reshape(-1)].reshape(*place.shape, -1)
            total = rows * share[..., None] if total is None else total + rows * share[..., None]
    return total


# ---- names ----


def _absent(name: str) -> Callable[..., Any]:
    def refuse(*args: Any, **named: Any) -> Any:
        raise RushlightError(f"torchvision's op {name} is not implemented here")

    return refuse


def provide() -> None:
    """Put the ops at `torch.ops.torchvision`; those that are not implemented refuse a call."""
    given: dict[str, Callable[..., Any]] = {
        "nms": nms,
        "roi_align": roi_align,
        "roi_pool": roi_pool,
        "ps_roi_align": ps_roi_align,
        "ps_roi_pool": ps_roi_pool,
        "deform_conv2d": deform_conv2d,
        "_cuda_version": lambda: -1,
    }
    others = "qroi_align qnms box_iou_rotated"
    backwards = "roi_align roi_pool ps_roi_align ps_roi_pool deform_conv2d"
    names = [*others.split(), *[f"_{name}_backward" for name in backwards.split()]]
    absent: dict[str, Callable[..., Any]] = {name: _absent(name) for name in names}
    for name, function in (absent | given).items():
        VisionOp(name, function)
