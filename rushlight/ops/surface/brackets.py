"""`x[key]` and `x[key] = value`."""

from __future__ import annotations

from typing import Any

from rushlight.core.dtypes import INDEX
from rushlight.ops.family import read_back
from rushlight.ops.index import subscript
from rushlight.ops.view import inplace, views
from rushlight.tape.program.memo import memo
from rushlight.tape.record.value import Value

_SIMPLE = (int, type(None))


def _is_plain(key: Any) -> bool:
    """Whether an entry of a key is an int, None, `...` or a slice of ints."""
    kind = key.__class__
    if kind is slice:
        return (
            key.start.__class__ in _SIMPLE
            and key.stop.__class__ in _SIMPLE
            and key.step.__class__ in _SIMPLE
        )
    return kind is int or key is None or key is Ellipsis


def _is_number(key: Value) -> bool:
    """Whether a key is a 0-dim index that can be read."""
    return not key._spec.shape and key._spec.dtype in INDEX and not key._spec.hidden


def _from_part(part: Any) -> Any:
    if part.__class__ is tuple:
        return slice(*part)
    return Ellipsis if part == "..." else part


@memo
def _get_at(x: Value, *parts: Any) -> Value:
    """x at index tensors and others; slices and `...` in a hashable form."""
    return subscript.get_item(
        x, tuple([p if isinstance(p, Value) else _from_part(p) for p in parts])
    )


def get_item(x: Value, key: Any) -> Value:
    """x[key]; views by ints and slices are made here, reads with index tensors are memoised."""
    if key.__class__ is int:
        made = views.pick(x, 0, key)
        return subscript.get_item(x, key) if made is None else made
    if isinstance(key, Value):
        if key._spec.shape and key._spec.dtype in INDEX:
            return _get_at(x, key)
        if _is_number(key):
            made = views.pick(x, 0, int(read_back.read(key)[0]))
            if made is not None:
                return made
        return subscript.get_item(x, key)  # masks and 0-dim indices are read
    keys = key if key.__class__ is tuple else (key,)
    indices = 0
    for k in keys:
        if isinstance(k, Value):
            if k._spec.dtype not in INDEX or not k._spec.shape:
                return subscript.get_item(x, key)
            indices += 1
    if not indices:
        made = subscript.part(x, keys)
        return subscript.get_item(x, key) if made is None else made
    if indices == len(keys):
        return _get_at(x, *keys)
    if all(isinstance(k, Value) or _is_plain(k) for k in keys):
        return _get_at(x, *map(_as_part, keys))
    return subscript.get_item(x, key)


def _as_part(key: Any) -> Any:
    if key.__class__ is slice:
        return key.start, key.stop, key.step
    return "..." if key is Ellipsis else key


def set_item(x: Value, key: Any, value: Any) -> None:
    """x[key] = value; at ints and slices it is a write to a view."""
    keys = key if key.__class__ is tuple else (key,)
    number = value.__class__ is float or value.__class__ is int
    if isinstance(value, Value) or (number and x._spec.dtype.kind == "f"):
        seen = subscript.part(x, keys)
        if seen is not None and (number or len(value._spec.shape) <= len(seen._spec.shape)):
            if not inplace.copied_at_once(seen, value):
                # A write refuses memory that overlaps itself.
                inplace.check_record(x, "x[...] = value")
                inplace.copy_(seen, value)
            return
    subscript.set_item(x, key, value)
