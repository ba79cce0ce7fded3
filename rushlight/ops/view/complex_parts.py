"""Complex numbers viewed as real and imaginary parts and back: views with another dtype.

It also relates a base of one dtype and a view of the other: how the view is recorded again, and the
base's record after a write to the view.
"""

from __future__ import annotations

from typing import Any

from rushlight.core.dtypes import DType, complex_type, float32, float64, real_type
from rushlight.core.errors import DTypeError, ShapeError
from rushlight.core.shapes import Shape, Spec
from rushlight.ops.family.view import View, shift_none
from rushlight.ops.pointwise import arithmetic as e
from rushlight.ops.registry import composite
from rushlight.ops.view import views
from rushlight.tape.record import call
from rushlight.tape.record.value import Node, Value


def split_layout(shape: Shape, strides: Shape) -> views.View3:
    return (*shape, 2), (*(2 * st for st in strides), 1), 0


def _join(shape: Shape, strides: Shape) -> views.View3:
    return shape[:-1], tuple(st // 2 for st in strides[:-1]), 0


_as_real = View(
    "view_as_real",
    split_layout,
    lambda g, x: joined(g),
    "Complex numbers as pairs.",
    real_type,
    shift=shift_none,
)
_as_complex = View(
    "view_as_complex",
    _join,
    lambda g, x: split(g),
    "Pairs as complex numbers.",
    complex_type,
    batching="view.complex",
)


def split(x: Value) -> Value:
    """A complex tensor as a real one with one more dimension, of 2; a view."""
    return call.call(_as_real, (x,))


def _joins(x: Value) -> bool:
    """Whether the pairs of x are adjacent in memory, as complex numbers are."""
    spec = x._spec
    even = all(
        st % 2 == 0 or n == 1 for st, n in zip(spec.strides[:-1], spec.shape[:-1], strict=True)
    )
    return spec.strides[-1] == 1 and even and x._offset % complex_type(spec.dtype).itemsize == 0


def joined(x: Value) -> Value:
    """Pairs in the last dimension as complex numbers: a view where possible, else of a copy."""
    return call.call(_as_complex, (x if _joins(x) else e.clone(x),))


@composite("view_as_real")
def view_as_real(input: Value) -> Value:
    """A complex tensor as a real one with a last dimension of 2; a view.

    Example:
        >>> torch.view_as_real(torch.tensor([1 + 2j]))
        tensor([[1., 2.]])
    """
    if input._spec.dtype.kind != "c":
        raise DTypeError(f"view_as_real: takes a complex tensor, got {input._spec!r}")
    return split(input)


@composite("view_as_complex", autocast={"cpu": "float32"})
def view_as_complex(input: Value) -> Value:
    """A real tensor whose last dimension of 2 holds real and imaginary parts as a complex one.

    a view.
    """
    spec = input._spec
    if spec.dtype not in (float32, float64):
        raise DTypeError(
            f"view_as_complex: takes float32 or float64, got {spec!r}; cast with .float()"
        )
    if not spec.shape or spec.shape[-1] != 2:
        raise ShapeError(f"view_as_complex: the last dimension must have 2 elements, got {spec!r}")
    if not _joins(input):
        raise ShapeError(
            f"view_as_complex: the pairs of {spec!r} with strides {list(spec.strides)} do not lie "
            "side by side at even places; use .contiguous() first"
        )
    return call.call(_as_complex, (input,))


def _part(x: Value, which: int) -> Value:
    pairs = split(x)
    return views.select(pairs, len(pairs._spec.shape) - 1, which)


def real_part(x: Value) -> Value:
    return _part(x, 0) if x._spec.dtype.kind == "c" else x


def imag_part(x: Value) -> Value:
    if x._spec.dtype.kind != "c":
        raise DTypeError(f"imag: only complex tensors have an imaginary part, got {x._spec!r}")
    return _part(x, 1)


def are_parts(a: DType, b: DType) -> bool:
    """Whether one is a complex dtype and the other its real dtype."""
    return a is not b and real_type(a) is real_type(b)


def record_write(base: Value, view: Value, spec: Spec, offset: int) -> Node | None:
    """The record of a base after a write to a view: the old base with elements replaced."""
    of_base, of_view = base._spec.dtype, spec.dtype
    if of_base is of_view:
        seen = (spec.shape, spec.strides, offset // spec.dtype.itemsize)
        return _recorded(views.write_view, (base, view), seen)._node
    if not are_parts(of_base, of_view):
        return None
    # The write is one of real numbers; a complex base is viewed as such.
    pairs = _recorded(_as_real, (base,)) if of_base.kind == "c" else base
    new = _recorded(_as_real, (view,)) if of_view.kind == "c" else view
    shape, strides, _ = (
        split_layout(spec.shape, spec.strides)
        if of_view.kind == "c"
        else (spec.shape, spec.strides, 0)
    )
    seen = (shape, strides, offset // pairs._spec.dtype.itemsize)
    written = _recorded(views.write_view, (pairs, new), seen)
    return (_recorded(_as_complex, (written,)) if of_base.kind == "c" else written)._node


def with_view(base: Value, view: Value, spec: Spec, offset: int) -> Value:
    """A copy of a base in which the view of this spec, at this byte offset, has other elements."""
    of_base, of_view = base._spec.dtype, spec.dtype
    if of_base is not of_view and not are_parts(of_base, of_view):
        return base
    pairs = split(base) if of_base.kind == "c" and of_view is not of_base else base
    shape, strides = spec.shape, spec.strides
    if of_view.kind == "c" and of_view is not of_base:
        view = split(view)
        shape, strides, _ = split_layout(shape, strides)
    made = call.call(
        views.write_view, (pairs, view), (shape, strides, offset // pairs._spec.dtype.itemsize)
    )
    return joined(made) if pairs is not base else made


def _recorded(op: Any, inputs: tuple[Value, ...], static: Any = ()) -> Value:
    """A value with the record of a call that does not run: its bits are in place already."""
    plan = call.plan_for(op, inputs, static)
    node = call.record(plan, inputs, (), (inputs[0]._memory,))
    return call.make_value(plan.out, inputs[0]._memory, inputs[0]._offset, node)
