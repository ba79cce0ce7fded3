"""Pooling over windows of fixed size: the largest element, the mean, the p-norm."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rushlight.core.cache import cached
from rushlight.core.dtypes import INDEX, DType, int32, int64
from rushlight.core.errors import ShapeError
from rushlight.core.shapes import numel
from rushlight.ops.create import creation
from rushlight.ops.family.declare import elementwise
from rushlight.ops.index.gather import gather
from rushlight.ops.index.scatter import extreme
from rushlight.ops.pointwise import arithmetic as e
from rushlight.ops.reduce import reductions
from rushlight.ops.registry import composite
from rushlight.ops.view import views
from rushlight.ops.view.formats import follows_image
from rushlight.ops.view.windows import Given, Sizes, bordered, check_fits, each, windows
from rushlight.scalar import build as s
from rushlight.scalar.ir import Expr
from rushlight.tape.record.value import Value

BESIDE = 32  # elements of a window, up to which windows are processed side by side


class Pool:
    """The windows of one call: checked sizes, and padding for windows beyond the input."""

    def __init__(
        self,
        op: str,
        x: Value,
        kernel: Given,
        stride: Given | None,
        padding: Given,
        dilation: Given,
        ceil: bool,
    ) -> None:
        self.op, self.rank = op, int(op[-2])
        rank = self.rank
        shape = x._spec.shape
        if len(shape) not in (rank + 1, rank + 2):
            raise ShapeError(
                f"{op}: input must have {rank + 1} or {rank + 2} dimensions, got {x._spec!r}"
            )
        if 0 in shape[len(shape) - rank - 1 :]:
            raise ShapeError(f"{op}: only the batch of the input may be empty, got {x._spec!r}")
        self.kernel = each(kernel, rank, op, "kernel_size", 1)
        # An empty stride means none, as in PyTorch.
        self.stride = (
            self.kernel
            if stride is None or (isinstance(stride, Sequence) and not stride)
            else each(stride, rank, op, "stride", 1)
        )
        self.padding = each(padding, rank, op, "padding", 0)
        self.dilation = each(dilation, rank, op, "dilation", 1)
        self.sizes: Sizes = shape[-rank:]
        if any(2 * p > k for p, k in zip(self.padding, self.kernel, strict=True)):
            raise ShapeError(
                f"{op}: padding {list(self.padding)} must be at most half of the kernel "
                f"{list(self.kernel)}"
            )
        self.counts = tuple(self._count(i, ceil) for i in range(rank))
        self.sides = tuple(self._sides(i) for i in range(rank))
        grown = tuple(n + a + b for n, (a, b) in zip(self.sizes, self.sides, strict=True))
        check_fits(op, (x,), grown, self.kernel, self.dilation)

    def _count(self, i: int, ceil: bool) -> int:
        span = self.dilation[i] * (self.kernel[i] - 1) + 1
        room = self.sizes[i] + 2 * self.padding[i] - span
        step = self.stride[i]
        count = (-(-room // step) if ceil else room // step) + 1
        # With `ceil` the last window may extend beyond the input, but it starts inside it or in the
        # padding before it.
        if ceil and (count - 1) * step >= self.sizes[i] + self.padding[i]:
            count -= 1
        return count

    def _sides(self, i: int) -> tuple[int, int]:
        span = self.dilation[i] * (self.kernel[i] - 1) + 1
        reach = (self.counts[i] - 1) * self.stride[i] + span
        before = self.padding[i]
        return before, max(before, reach - self.sizes[i] - before)

    @property
    def axis(self) -> int:
        """The dimension of `flat` along which a window lies.

        It is the first for small windows, so that many of them are processed side by side; else the
        last.
        """
        return 0 if numel(self.kernel) <= BESIDE else -1

    def flat(self, x: Value, fill: float) -> Value:
        """The windows, each as a row along `axis`; the other dimensions are (..., counts)."""
        seen = windows(bordered(x, self.sides, fill), self.kernel, self.stride, self.dilation)
        lead = len(x._spec.shape) - self.rank
        for i, count in enumerate(self.counts):  # the padding may hold more windows than requested
            seen = views.slice_dim(seen, lead + i, 0, count)
        shape = seen._spec.shape[: lead + self.rank]
        if self.axis == 0:
            rank = len(seen._spec.shape)
            seen = views.permute(seen, (*range(rank - self.rank, rank), *range(rank - self.rank)))
            return views.reshape(seen, (numel(self.kernel), *shape))
        return views.reshape(seen, (*shape, numel(self.kernel)))

    def along(self, values: Value, i: int) -> Value:
        """A vector with an entry per window of spatial dimension `i`, for broadcasting."""
        return views.reshape(values, (-1,) + (1,) * (self.rank - 1 - i))

    def starts(self, x: Value, i: int) -> Value:
        steps = creation.arange(self.counts[i], device=x._spec.device.device.name)
        return e.sub(e.mul(steps, self.stride[i]), self.padding[i])


def lowest(dtype: DType) -> Any:
    return extreme(dtype, True)


# ---- the largest ----


@cached
def _linear_index(rest: int, size: int, apart: int, length: int) -> Callable[..., Value]:
    """The linear index with one more dimension.

    It is made of the index so far, the position inside a window and the window's start.
    """

    def body(place: Expr, best: Expr, start: Expr) -> Expr:
        at = start + s.remainder_c(best / rest, size) * apart
        # A window of -inf only finds its first element, which may be in the padding: then the first
        # that is not.
        left = s.remainder_c(at, apart)
        return place * length + s.where(at < 0, s.where(left < 0, left + apart, left), at)

    return elementwise(
        "pool_place", body, "An index into flattened dimensions.", INDEX, listed=False
    )


def _linear_indices(pool: Pool, x: Value, best: Value) -> Value:
    """The index into the flattened spatial dimensions, from the position inside each window."""
    place: Value = creation.full((), 0, dtype=best._spec.dtype, device=x._spec.device.device.name)
    rest = numel(pool.kernel)
    for i, (k, d) in enumerate(zip(pool.kernel, pool.dilation, strict=True)):
        rest //= k
        place = _linear_index(rest, k, d, pool.sizes[i])(
            place, best, pool.along(pool.starts(x, i), i)
        )
    return place


def picked(x: Value, places: Value, rank: int) -> Value:
    """The elements of x at indices into its flattened last dimensions."""
    lead = x._spec.shape[: len(x._spec.shape) - rank]
    flat = views.reshape(x, (*lead, numel(x._spec.shape[len(lead) :])))
    taken = gather(flat, -1, views.reshape(places, (*lead, numel(places._spec.shape[len(lead) :]))))
    return views.reshape(taken, places._spec.shape)


def _max_pool(
    op: str,
    input: Value,
    kernel_size: Given,
    stride: Given | None,
    padding: Given,
    dilation: Given,
    ceil_mode: bool,
    return_indices: bool,
) -> Any:
    pool = Pool(op, input, kernel_size, stride, padding, dilation, ceil_mode)
    if not input._spec.numel:
        shape = (*input._spec.shape[: -pool.rank], *pool.counts)
        empty = creation.full(
            shape, 0, dtype=input._spec.dtype, device=input._spec.device.device.name
        )
        if input._spec.differentiable:
            # A function of the input, as every other result.
            empty = e.add(empty, reductions.sum(input))
        return (empty, e.cast(empty, int64)) if return_indices else empty
    flat = pool.flat(input, lowest(input._spec.dtype))
    best = reductions.argmax(flat, pool.axis, True)
    # With a dilation larger than the input all elements may be in the padding: then there is no
    # position in the input.
    apart = any(d > n for d, n in zip(pool.dilation, pool.sizes, strict=True))
    if not return_indices and (apart or not any(map(any, pool.sides))):
        # The position in a window is kept for the gradient: four bytes suffice.
        return views.squeeze(gather(flat, pool.axis, e.cast(best, int32)), pool.axis)
    places = _linear_indices(pool, input, views.squeeze(best, pool.axis))
    largest = picked(input, places, pool.rank)
    return (largest, places) if return_indices else largest


@composite("max_pool1d", method=False, pure=True)
def max_pool1d(
    input: Value,
    kernel_size: Given,
    stride: Given | None = None,
    padding: Given = 0,
    dilation: Given = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """The largest element of each window of a length; the first of equals gets the gradient."""
    return _max_pool(
        "max_pool1d", input, kernel_size, stride, padding, dilation, ceil_mode, return_indices
    )


@composite("max_pool2d", method=False, pure=True)
@follows_image
def max_pool2d(
    input: Value,
    kernel_size: Given,
    stride: Given | None = None,
    padding: Given = 0,
    dilation: Given = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """The largest element of each window of height and width.

    The first of equals gets the gradient.

    Example:
        >>> F.max_pool2d(torch.arange(16.0).reshape(1, 4, 4), 2)
        tensor([[[ 5.,  7.],
                 [13., 15.]]])
    """
    return _max_pool(
        "max_pool2d", input, kernel_size, stride, padding, dilation, ceil_mode, return_indices
    )


@composite("max_pool3d", method=False, pure=True, autocast={"cpu": "float32"})
@follows_image
def max_pool3d(
    input: Value,
    kernel_size: Given,
    stride: Given | None = None,
    padding: Given = 0,
    dilation: Given = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """The largest element of each window of a volume; the first of equals gets the gradient."""
    return _max_pool(
        "max_pool3d", input, kernel_size, stride, padding, dilation, ceil_mode, return_indices
    )


# ---- the mean ----


def _divisor(pool: Pool, x: Value, include_pad: bool) -> Any:
    """The number of elements of each window: one number, or a tensor.

    It is a tensor where windows at the edges have fewer.
    """
    reaches_out = any(after > p for (_, after), p in zip(pool.sides, pool.padding, strict=True))
    if not reaches_out and (include_pad or not any(pool.padding)):
        return numel(pool.kernel)
    total: Value | None = None
    for i, (n, k, p) in enumerate(zip(pool.sizes, pool.kernel, pool.padding, strict=True)):
        first = pool.starts(x, i)
        last = e.minimum(e.add(first, k), _like(first, n + p if include_pad else n))
        count = e.sub(last, first if include_pad else e.maximum(first, _like(first, 0)))
        total = pool.along(count, i) if total is None else e.mul(total, pool.along(count, i))
    assert total is not None
    return e.cast(total, x._spec.dtype)


def _like(x: Value, number: int) -> Value:
    return creation.full((), number, dtype=x._spec.dtype, device=x._spec.device.device.name)


def _avg_pool(
    op: str,
    input: Value,
    kernel_size: Given,
    stride: Given | None,
    padding: Given,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Value:
    pool = Pool(op, input, kernel_size, stride, padding, 1, ceil_mode)
    if divisor_override == 0:
        raise ShapeError(f"{op}: divisor_override must not be zero")
    flat = pool.flat(input, 0)
    divisor = divisor_override or _divisor(pool, input, count_include_pad)
    if input._spec.dtype.kind == "f":
        return e.cast(e.div(reductions.wide_sum(flat, pool.axis), divisor), input._spec.dtype)
    total = reductions.sum(flat, pool.axis)
    # Integers divide towards zero.
    return e.floor_divide(e.sub(total, e.fmod(total, divisor)), divisor)


@composite("avg_pool1d", method=False, pure=True)
def avg_pool1d(
    input: Value,
    kernel_size: Given,
    stride: Given | None = None,
    padding: Given = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Value:
    """The mean of each window of a length.

    Example:
        >>> F.avg_pool1d(torch.tensor([[1.0, 3.0, 5.0, 7.0]]), 2)
        tensor([[2., 6.]])
    """
    return _avg_pool(
        "avg_pool1d", input, kernel_size, stride, padding, ceil_mode, count_include_pad, None
    )


@composite("avg_pool2d", method=False, top=False, out="exact", pure=True)
@follows_image
def avg_pool2d(
    input: Value,
    kernel_size: Given,
    stride: Given | None = None,
    padding: Given = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Value:
    """The mean of each window of height and width."""
    return _avg_pool(
        "avg_pool2d",
        input,
        kernel_size,
        stride,
        padding,
        ceil_mode,
        count_include_pad,
        divisor_override,
    )


@composite(
    "avg_pool3d", method=False, top=False, out="exact", pure=True, autocast={"cpu": "float32"}
)
def avg_pool3d(
    input: Value,
    kernel_size: Given,
    stride: Given | None = None,
    padding: Given = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Value:
    """The mean of each window of depth, height and width."""
    return _avg_pool(
        "avg_pool3d",
        input,
        kernel_size,
        stride,
        padding,
        ceil_mode,
        count_include_pad,
        divisor_override,
    )


# ---- the p-norm ----


def _lp_pool(
    op: str, input: Value, p: float, kernel_size: Given, stride: Given | None, ceil_mode: bool
) -> Value:
    """(sum of x ** p) ** (1 / p).

    It is a mean times the full window's size, as in PyTorch: with `ceil_mode` windows beyond the
    edge count as full.
    """
    rank = int(op[-2])
    if not p:
        raise ShapeError(f"{op}: norm_type must not be 0, got {p!r}")
    mean = _avg_pool(op, e.pow(input, p), kernel_size, stride, 0, ceil_mode, True, None)
    # sign(x) * relu(|x|) is x, but its gradient at 0 is 0, as in PyTorch.
    total = e.mul(
        e.mul(e.sign(mean), e.relu(e.abs(mean))), numel(each(kernel_size, rank, op, "kernel_size"))
    )
    return e.pow(total, 1.0 / p)


@composite("lp_pool1d", method=False, top=False)
def lp_pool1d(
    input: Value,
    norm_type: float,
    kernel_size: int,
    stride: Given | None = None,
    ceil_mode: bool = False,
) -> Value:
    """The p-norm of each window of a length."""
    return _lp_pool("lp_pool1d", input, norm_type, kernel_size, stride, ceil_mode)


@composite("lp_pool2d", method=False, top=False)
@follows_image
def lp_pool2d(
    input: Value,
    norm_type: float,
    kernel_size: Given,
    stride: Given | None = None,
    ceil_mode: bool = False,
) -> Value:
    """The p-norm of each window of height and width."""
    return _lp_pool("lp_pool2d", input, norm_type, kernel_size, stride, ceil_mode)


@composite("lp_pool3d", method=False, top=False)
def lp_pool3d(
    input: Value,
    norm_type: float,
    kernel_size: Given,
    stride: Given | None = None,
    ceil_mode: bool = False,
) -> Value:
    """The p-norm of each window of depth, height and width."""
    return _lp_pool("lp_pool3d", input, norm_type, kernel_size, stride, ceil_mode)
