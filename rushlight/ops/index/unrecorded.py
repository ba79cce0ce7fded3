"""Views by ints and slices where nothing is recorded, worked out at once.

# Note [Unrecorded views]
1. A plan of a view knows its place, so a loop over x[i] would make a plan, and a program, for every i: for a record that
   nobody wants. Where none is, and nothing special is set, the view is made from the spec alone.
2. The functions give None where there is a record, or an error to be raised: then the usual way does it.
3. A key that comes again may get a program, which is quicker still (`comes_again`).
4. Specs are known weakly. Those of the last views are kept here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight.core.shapes import Shape, Spec, check_inside
from rushlight.tape.record import call
from rushlight.tape.record.state import STATE
from rushlight.tape.record.value import Value, history_of

MOST = 1024

get_state = STATE.get
new = object.__new__
# A step so long is no matter for layout where it leads to one element only: its stride might not fit int64.
FAR = 1 << 31
_rows: dict[
    Spec, tuple[int, int, Spec]
] = {}  # the first dimension's size and step in bytes, and the spec of a row
_parts: dict[
    Any, tuple[Spec, int, int]
] = {}  # a view's spec, and the least and the most elements it may be on
_seen: dict[Any, int] = {}


def is_unrecorded(x: Value) -> bool:
    """Whether a view of x would have no record, and is nobody else's business."""
    state = get_state()
    if state.special:
        return False
    if not state.grad:
        return True
    base = x._base
    return x._node is None and (base is None or history_of(x) == history_of(base))


def row(x: Value, i: int) -> Value | None:
    """x[i]."""
    if not is_unrecorded(x):
        return None
    spec = x._spec
    known = _rows.get(spec)
    if known is None:
        if not spec.shape:
            return None
        out = Spec.of(spec.device, spec.dtype, spec.shape[1:], spec.strides[1:])
        known = _keep(_rows, spec, (spec.shape[0], spec.strides[0] * spec.dtype.itemsize, out))
    size, step, out = known
    if i < 0:
        i += size
    if not 0 <= i < size:
        return None
    value = new(call.Handle)
    value._spec = out
    value._memory = x._memory
    value._offset = x._offset + i * step
    value._node = None
    base = x._base
    value._base = x if base is None else base
    value._history = history_of(x)
    return value


def part(x: Value, parts: Sequence[Any]) -> Value | None:
    """The view of x by ints, (start, stop, step) and "..."; None for other keys too."""
    if not is_unrecorded(x):
        return None
    spec = x._spec
    left = len(spec.shape) - len(parts) + parts.count("...")
    if left < 0:
        return None
    shape: list[int] = []
    strides: list[int] = []
    dim = skip = 0
    for key in parts:
        if key == "...":
            end = dim + left
            shape += spec.shape[dim:end]
            strides += spec.strides[dim:end]
            dim, left = end, 0
            continue
        if key is None:
            return None
        size, stride = spec.shape[dim], spec.strides[dim]
        dim += 1
        if key.__class__ is int:
            if not -size <= key < size:
                return None
            skip += (key % size) * stride
            continue
        if key[2] is not None and key[2] <= 0:
            return None
        start, stop, step = slice(*key).indices(size)
        count = max(0, -(-(stop - start) // step))
        skip += start * stride if count else 0
        shape.append(count)
        strides.append(stride * (step if count > 1 or step < FAR else 1))
    return at(x, (*shape, *spec.shape[dim:]), (*strides, *spec.strides[dim:]), skip)


def at(x: Value, shape: Shape, strides: Shape, skip: int) -> Value:
    """The view of x with a shape and strides, so many elements on."""
    spec = x._spec
    key = (spec, shape, strides)
    known = _parts.get(key)
    if known is None:
        known = _keep(_parts, key, _placed(spec, shape, strides))
    out, least, most = known
    if not least <= skip <= most:
        check_inside("slice", spec, out, skip * spec.dtype.itemsize)
    return call.make_view(x, out, x._offset + skip * spec.dtype.itemsize)


def _placed(spec: Spec, shape: Shape, strides: Shape) -> tuple[Spec, int, int]:
    out = Spec.of(spec.device, spec.dtype, shape, strides)
    size = spec.dtype.itemsize
    return out, (spec.low - out.low) // size, (spec.high - out.high) // size


def comes_again(x: Value, parts: Sequence[Any]) -> bool:
    """Whether this view of such a tensor was asked for not long ago, more often than `x[key] += y` asks for it."""
    key = (x._spec, *parts)
    times = _seen.get(key, 0)
    if times < 2:
        _keep(_seen, key, times + 1)
    return times >= 2


def _keep(table: dict[Any, Any], key: Any, made: Any) -> Any:
    if len(table) >= MOST and key not in table:
        table.clear()
    table[key] = made
    return made
