"""Scattering in place: `x[index] = v` writes the indexed elements, not all of x.

# Note [Scattering in place]
1. The pure ops copy x and scatter into the copy. Where nothing is recorded, an in-place form
   announces the memory it is about to write (`write`); a scatter of that memory, or of a view of
   it, then happens there and returns x itself.
2. Values made of that are views of it. A result in the target's own memory means that all is done;
   any other is stored as usual.
3. Indices are checked first, on synchronous devices: a refused write changes nothing.
4. Small tensors are copied, which is faster than the checks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextvars import ContextVar
from typing import Any

from rushlight.core.errors import BoundsError
from rushlight.core.shapes import Spec, collapse
from rushlight.devices.shared.allocator import Storage
from rushlight.ops.family.read_back import read
from rushlight.ops.pointwise import arithmetic as e
from rushlight.ops.reduce import reductions
from rushlight.ops.view import views
from rushlight.ops.view.versions import write_into
from rushlight.tape.record import call
from rushlight.tape.record.needed import edge_of
from rushlight.tape.record.op import Op
from rushlight.tape.record.state import STATE, Changed
from rushlight.tape.record.value import Value

LEAST = 1 << 16  # least bytes of a target

_target: ContextVar[Storage | None] = ContextVar("target", default=None)


def _tensors(arguments: Iterable[Any]) -> Iterable[Value]:
    for a in arguments:
        if isinstance(a, Value):
            yield a
        elif isinstance(a, (list, tuple)):
            yield from _tensors(a)


def is_worth(target: Value, arguments: Iterable[Any]) -> bool:
    """Whether a write can go to the target's memory: it is large, and nothing is recorded."""
    state = STATE.get()
    if state.special or target._spec.nbytes < LEAST:
        return False
    return not state.grad or all(edge_of(v) is None for v in (target, *_tensors(arguments)))


def write(target: Value, made: Callable[[], Value]) -> Value | None:
    """Call `made`, whose scatters of the target's memory write there.

    None if that was all, else the value to store.
    """
    before = _target.get()
    try:  # Ctrl-C after the next call must not leave it set
        _target.set(target._memory)
        result = made()
    finally:
        _target.set(before)
    return None if result._memory is target._memory and result._offset == target._offset else result


def scatter(op: Op, x: Value, index: Value, src: Value, dim: int) -> Value:
    """A scatter of x: x itself where its memory is the target, else a new tensor."""
    storage = _target.get()
    if storage is None or x._memory is not storage or not _merges(x._spec, dim):
        return call.call(op, (x, index, src), (dim,))
    index, src = (e.clone(v) if v._memory is storage else v for v in (index, src))
    _check_range(op.name, index, x._spec.shape[dim])
    plan = call.plan_for(op, (x, index, src), (dim,) if x._spec.contiguous else (dim, "onto"))
    write_into([x], plan, (x, index, src), ())
    return x


def _merges(spec: Spec, dim: int) -> bool:
    parts = (slice(0, dim), slice(dim + 1, None))
    return all(len(collapse(spec.shape[part], (spec.strides[part],))[0]) < 2 for part in parts)


def _check_range(op: str, index: Value, size: int) -> None:
    limits = index._spec.device.device.limits
    if limits.asynchronous or not limits.host_memory:
        return
    for dim, stride in enumerate(index._spec.strides):
        if stride == 0:  # the same index all along
            index = views.slice_dim(index, dim, 0, 1)
    with Changed(grad=False):
        least, most = (int(read(find(index))[0]) for find in (reductions.amin, reductions.amax))
    if least < 0 or most >= size:
        raise BoundsError(f"{op}: an index is outside the range 0 to {size - 1}")
