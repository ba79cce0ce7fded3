"""The view of a base with a given layout, recorded again after a write to the base."""

from __future__ import annotations

from rushlight.core.dtypes import real_type
from rushlight.core.shapes import Shape, Spec
from rushlight.ops.index.strided_views import strided_view
from rushlight.ops.view import views
from rushlight.ops.view.complex_parts import are_parts, joined, split, split_layout
from rushlight.tape.record import call
from rushlight.tape.record.value import Value


def view_of(base: Value, spec: Spec, offset: int) -> Value:
    """The view of a base with this spec and byte offset, recorded."""
    skip = offset // real_type(spec.dtype).itemsize
    if spec.dtype is base._spec.dtype:
        return _strided(base, spec.shape, spec.strides, offset // spec.dtype.itemsize)
    if not are_parts(base._spec.dtype, spec.dtype):  # bytes with another dtype have no gradient
        call.check_reach(spec, base._memory, base._offset + offset)
        return call.make_view(base, spec, base._offset + offset)
    if base._spec.dtype.kind == "c":
        return _strided(split(base), spec.shape, spec.strides, skip)
    shape, strides, _ = split_layout(spec.shape, spec.strides)
    return joined(_strided(base, shape, strides, skip))


def _strided(x: Value, shape: Shape, strides: Shape, skip: int) -> Value:
    if _overlaps(shape, strides):  # then several gradients are added in one element of x
        return strided_view(x, shape, strides, skip)
    return call.call(views.as_strided, (x,), (shape, strides, skip))


def _overlaps(shape: Shape, strides: Shape) -> bool:
    """Whether two positions of a layout may be one element: it is expanded or has windows."""
    reach = 0
    for step, n in sorted((step, n) for n, step in zip(shape, strides, strict=True) if n > 1):
        if step <= reach:
            return True
        reach += (n - 1) * step
    return False
