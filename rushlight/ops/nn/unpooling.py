"""The inverse of max pooling: elements at their original positions, zeros elsewhere."""

from __future__ import annotations

from collections.abc import Sequence

from rushlight.core.dtypes import int64
from rushlight.core.errors import DTypeError, ShapeError
from rushlight.core.shapes import Spec, numel
from rushlight.ops.create.creation import full_spec
from rushlight.ops.index.scatter import scattered
from rushlight.ops.pointwise import arithmetic as e
from rushlight.ops.reduce import reductions
from rushlight.ops.registry import composite
from rushlight.ops.view import views
from rushlight.ops.view.formats import follows_image
from rushlight.ops.view.windows import Given, Sizes, each
from rushlight.tape.record.value import Value


def _scattered(zeros: Value, index: Value, source: Value) -> Value:
    """The source at its indices along the last dimension."""
    if not index._spec.numel:
        # Still a function of it.
        return e.add(zeros, reductions.sum(source)) if source._spec.differentiable else zeros
    dim = len(zeros._spec.shape) - 1
    return scattered("unpool", zeros, dim, index, source)


def _size(
    op: str, given: Sizes, default: Sizes, stride: Sizes, output_size: Sequence[int] | None
) -> Sizes:
    if output_size is None:
        return default
    wanted = tuple(int(n) for n in output_size)
    wanted = wanted[2:] if len(wanted) == len(given) + 2 else wanted
    if len(wanted) != len(given) or any(
        not d - s < n < d + s for n, d, s in zip(wanted, default, stride, strict=True)
    ):
        raise ValueError(
            f"{op}: output_size {list(wanted)} is not within a stride of {list(default)}"
        )
    return wanted


def _unpool(
    rank: int,
    input: Value,
    indices: Value,
    kernel_size: Given,
    stride: Given | None,
    padding: Given,
    output_size: Sequence[int] | None,
) -> Value:
    op = f"max_unpool{rank}d"
    shape = input._spec.shape
    if indices._spec.dtype is not int64:
        raise DTypeError(
            f"{op}: the indices must be int64, got {indices._spec!r}; cast with .long()"
        )
    if len(shape) not in (rank + 1, rank + 2) or indices._spec.shape != shape:
        raise ShapeError(
            f"{op}: input {input._spec!r} must have {rank + 1} or {rank + 2} dimensions, and "
            f"indices {indices._spec!r} its shape"
        )
    kernel = each(kernel_size, rank, op, "kernel_size", 1)
    step = (
        kernel
        if stride is None or (isinstance(stride, Sequence) and not stride)
        else each(stride, rank, op, "stride", 1)
    )
    border = each(padding, rank, op, "padding", 0)
    given = shape[-rank:]
    default = tuple(
        (n - 1) * s - 2 * p + k for n, s, p, k in zip(given, step, border, kernel, strict=True)
    )
    sizes = _size(op, given, default, step, output_size)
    if min(sizes) < 0:
        raise ShapeError(
            f"{op}: padding {list(border)} leaves a negative size {list(sizes)} of {input._spec!r}"
        )
    lead = shape[:-rank]
    zeros = full_spec(Spec.of(input._spec.device, input._spec.dtype, (*lead, numel(sizes))), 0)
    flat = (*lead, numel(given))
    placed = _scattered(zeros, views.reshape(indices, flat), views.reshape(input, flat))
    return views.reshape(placed, (*lead, *sizes))


@composite("max_unpool1d", method=False, top=False, autocast={"cpu": "float32"})
def max_unpool1d(
    input: Value,
    indices: Value,
    kernel_size: Given,
    stride: Given | None = None,
    padding: Given = 0,
    output_size: Sequence[int] | None = None,
) -> Value:
    """The results of max_pool1d at their positions in zeros."""
    return _unpool(1, input, indices, kernel_size, stride, padding, output_size)


@composite("max_unpool2d", method=False, top=False, autocast={"cpu": "float32"})
@follows_image
def max_unpool2d(
    input: Value,
    indices: Value,
    kernel_size: Given,
    stride: Given | None = None,
    padding: Given = 0,
    output_size: Sequence[int] | None = None,
) -> Value:
    """The results of max_pool2d at their positions in zeros."""
    return _unpool(2, input, indices, kernel_size, stride, padding, output_size)


@composite("max_unpool3d", method=False, top=False, autocast={"cpu": "float32"})
def max_unpool3d(
    input: Value,
    indices: Value,
    kernel_size: Given,
    stride: Given | None = None,
    padding: Given = 0,
    output_size: Sequence[int] | None = None,
) -> Value:
    """The results of max_pool3d at their positions in zeros."""
    return _unpool(3, input, indices, kernel_size, stride, padding, output_size)
