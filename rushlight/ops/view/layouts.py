"""Memory layout methods of Tensor: strides, memory formats, storages.

See Note [Layouts of results].
"""

from __future__ import annotations

from typing import Any

from rushlight.core.errors import RushlightError, ShapeError
from rushlight.core.shapes import Shape, kept_strides, strides_in_order, suggests_last
from rushlight.ops.create import creation
from rushlight.ops.pointwise import arithmetic as e
from rushlight.ops.surface.documentation import describe
from rushlight.ops.view import views
from rushlight.ops.view.laid import laid
from rushlight.tape.memory import replay
from rushlight.tape.record.value import Value

# Memory formats with channels last: the order of dimensions, outermost first.
ORDERS: dict[Any, Shape] = {
    f: f.order for f in (creation.channels_last, creation.channels_last_3d) if f.order
}


def _order_of(op: str, x: Value, memory_format: Any) -> Shape | None:
    """The order of dimensions of a format; None where it is contiguous."""
    if memory_format in (None, creation.contiguous_format, creation.preserve_format):
        return None
    known = isinstance(memory_format, creation.MemoryFormat)
    order = ORDERS.get(memory_format) if known else None
    if order is None:
        raise RushlightError(f"{op}: memory_format is one of PyTorch's, got {memory_format!r}")
    if len(order) != len(x._spec.shape):
        raise ShapeError(f"{op}: {memory_format!r} is for {len(order)} dimensions, got {x._spec!r}")
    return order


def _lies_in(x: Value, memory_format: Any) -> bool:
    wanted = creation.strides_in("is_contiguous", x._spec.shape, memory_format)
    return all(
        n == 1 or have == want
        for n, have, want in zip(x._spec.shape, x._spec.strides, wanted, strict=True)
    )


def contiguous(self: Value, memory_format: Any = None) -> Value:
    """The tensor itself where it is contiguous, or in the given memory format; else a copy."""
    order = _order_of("contiguous", self, memory_format)
    if order is None:
        return views.contiguous(self)
    if _lies_in(self, memory_format):
        return self
    return laid(self, strides_in_order(self._spec.shape, order))


def converted(x: Value, memory_format: Any) -> Value:
    """The tensor itself where its strides suggest the memory format, else a copy in that format."""
    order = _order_of("to", x, memory_format)
    if (order is not None) == suggests_last(x._spec):
        return x
    return laid(x, strides_in_order(x._spec.shape, order or range(len(x._spec.shape))))


def clone(self: Value, *, memory_format: Any = None) -> Value:
    """A copy in new memory, with the strides of a dense tensor unless a memory format is given."""
    spec = self._spec
    if memory_format is None or memory_format is creation.preserve_format:
        return e.clone(self) if spec.contiguous else laid(self, kept_strides(spec))
    order = _order_of("clone", self, memory_format) or range(len(spec.shape))
    return laid(self, strides_in_order(spec.shape, order))


def clone_of(input: Value, *, memory_format: Any = None) -> Value:
    """A copy in new memory, with the strides of a dense tensor unless a memory format is given."""
    return clone(input, memory_format=memory_format) if isinstance(input, Value) else e.clone(input)


# The registry's op, which knows one layout.
describe(clone_of)
clone_of.__wrapped__ = e.clone  # type: ignore[attr-defined]


def is_contiguous(self: Value, memory_format: Any = None) -> bool:
    """Whether the tensor is contiguous, or in the given memory format."""
    if (
        isinstance(memory_format, creation.MemoryFormat)
        and memory_format in ORDERS
        and len(ORDERS[memory_format]) != len(self._spec.shape)
    ):
        return False
    order = _order_of("is_contiguous", self, memory_format)
    return self._spec.contiguous if order is None else _lies_in(self, memory_format)


def stride(self: Value, dim: int | None = None) -> Any:
    """The step, in elements, along each dimension."""
    return self._spec.strides if dim is None else self._spec.strides[dim]


def storage_offset(self: Value) -> int:
    """The number of elements of its storage before the first."""
    itemsize = self._spec.dtype.itemsize  # read first: a sparse tensor refuses here
    return self._offset // itemsize


def element_size(self: Value) -> int:
    """Bytes of one element."""
    return self._spec.dtype.itemsize


def dim_order(self: Value, *, ambiguity_check: Any = False) -> Shape:
    """The dimensions from the largest stride to the smallest."""
    if not isinstance(ambiguity_check, (bool, list, tuple)):
        raise TypeError(
            "dim_order: ambiguity_check is a bool or a list of memory formats, got "
            f"{ambiguity_check!r}"
        )
    strides = self._spec.strides
    steps = [(st, n) for st, n in zip(strides, self._spec.shape, strict=True) if n > 1]
    if isinstance(ambiguity_check, bool):
        ambiguous = ambiguity_check and len({st for st, _ in steps}) < len(self._spec.shape)
    else:  # between these formats
        ambiguous = sum(is_contiguous(self, given) for given in ambiguity_check) > 1
    if ambiguous:
        raise RushlightError(
            f"dim_order: the strides {list(strides)} of {self._spec!r} allow more than one order"
        )
    return tuple(sorted(range(len(strides)), key=lambda d: (-strides[d], d)))


def data_ptr(self: Value) -> int:
    """The address of the first element; 0 where there is none.

    The memory is never dropped after this.
    """
    if not self._spec.numel:
        return 0
    return replay.keep(self._memory) + self._offset


METHODS = (
    contiguous,
    clone,
    is_contiguous,
    stride,
    storage_offset,
    element_size,
    dim_order,
    data_ptr,
)
