"""Functions of a tensor's metadata: they run no kernel."""

from __future__ import annotations

from typing import Any

from rushlight.core.errors import ShapeError
from rushlight.core.shapes import Size, broadcast_shapes as _broadcast
from rushlight.tape.record import state
from rushlight.tape.record.value import Value


def is_tensor(obj: Any) -> bool:
    """Whether an object is a tensor.

    Args:
        obj: Any object.
    """
    return isinstance(obj, Value)


def is_floating_point(input: Value) -> bool:
    """Whether the dtype is floating-point."""
    return input._spec.dtype.kind == "f"


def is_complex(input: Value) -> bool:
    """Whether the dtype is complex."""
    return input._spec.dtype.kind == "c"


def is_inference(input: Value) -> bool:
    """Whether a tensor was made in inference mode. See Note [Inference tensors]."""
    return state.is_inference(input._memory)


def is_conj(input: Value) -> bool:
    """False: conjugates are never lazy here."""
    return False


def is_neg(input: Value) -> bool:
    """False: negatives are never lazy here."""
    return False


def numel(input: Value) -> int:
    """The number of elements."""
    return input._spec.numel


def broadcast_shapes(*shapes: Any) -> Size:
    """The shape to which shapes (tuples or numbers) broadcast."""
    for shape in shapes:
        if not isinstance(shape, (int, list, tuple)):
            raise ShapeError(f"broadcast_shapes: takes integers and tuples of them, got {shape!r}")
    listed = [(s,) if isinstance(s, int) else tuple(s) for s in shapes]
    if any(n < 0 for shape in listed for n in shape):
        raise ShapeError(f"broadcast_shapes: sizes must not be negative, got {listed}")
    return Size(_broadcast(listed, "broadcast_shapes"))
