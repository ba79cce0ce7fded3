"""The same bytes with another dtype: `x.view(dtype)`. No gradient passes, as in PyTorch."""

from __future__ import annotations

from functools import cache

from rushlight.core.dtypes import DType
from rushlight.core.errors import RushlightError
from rushlight.core.shapes import Shape, Spec
from rushlight.ops.family.build import check_device_dtype
from rushlight.ops.family.view import View
from rushlight.tape.record import call
from rushlight.tape.record.value import Value


def _rule(shape: Shape, strides: Shape, old: int, new: int) -> tuple[Shape, Shape, int]:
    """The last dimension counts elements of the new size; `old` and `new` are bytes per element."""
    if old == new:
        return shape, strides, 0
    last = shape[-1] * old // new
    return (*shape[:-1], last), (*(st * old // new for st in strides[:-1]), 1), 0


def _no_gradient(g: Value, x: Spec, old: int, new: int) -> None:
    raise AssertionError("a retyped view is detached")


@cache
def _view_as(dtype: DType) -> View:
    return View(
        f"view_{dtype.name}",
        _rule,
        _no_gradient,
        f"The bytes as {dtype.name}.",
        lambda _: dtype,
        batching="view.retyped",
    )


def _check_sizes(x: Value, dtype: DType) -> None:
    spec, old, new = x._spec, x._spec.dtype.itemsize, dtype.itemsize
    what = f"view: {spec!r} cannot be seen as {dtype.name}, whose elements have another size:"
    if not spec.shape:
        raise RushlightError(f"{what} it needs a dimension; add one with .unsqueeze(0)")
    if spec.strides[-1] != 1 and spec.shape[-1] != 1:
        raise RushlightError(
            f"{what} the last dimension must lie element by element; use .contiguous() first"
        )
    ratio = new // old
    if ratio < 2:
        return
    if spec.shape[-1] % ratio or x._offset % new or any(st % ratio for st in spec.strides[:-1]):
        raise RushlightError(
            f"{what} the last size, every other stride and the offset must be multiples of {ratio}"
        )


def retyped(x: Value, dtype: DType) -> Value:
    """The bytes of x in another dtype.

    The last dimension grows or shrinks with the element size.
    """
    check_device_dtype("view", x._spec.device, dtype)
    x = call.detached(x)
    if dtype is x._spec.dtype:
        return x
    if dtype.itemsize != x._spec.dtype.itemsize:
        _check_sizes(x, dtype)
    return call.call(_view_as(dtype), (x,), (x._spec.dtype.itemsize, dtype.itemsize))
