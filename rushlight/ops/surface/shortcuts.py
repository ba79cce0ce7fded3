"""Memoises the pure ops (`Entry.pure`, Note [Memo]), and reads and writes by brackets."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from rushlight.core.dtypes import INDEX, get_default
from rushlight.ops.arguments import checked
from rushlight.ops.create import creation
from rushlight.ops.family import read_back
from rushlight.ops.index import subscript
from rushlight.ops.linalg import products
from rushlight.ops.reduce import statistics
from rushlight.ops.registry import REGISTRY
from rushlight.ops.surface import inplace
from rushlight.ops.surface.out import tensors_only, with_out
from rushlight.ops.view import views
from rushlight.tape.program.memo import memo
from rushlight.tape.record.value import Value


def _never_itself(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with a view of its argument in place of the argument: a handle of its own, which may get hooks, be
    detached or change its shape in place, and has a record."""

    @functools.wraps(function)
    def called(*args: Any, **named: Any) -> Any:
        made = function(*args, **named)
        x = args[0] if args else named.get("input")
        if made is x:
            return views.view(x, x._spec.shape)
        if made.__class__ is tuple and any(part is x for part in made):
            return tuple([views.view(x, x._spec.shape) if part is x else part for part in made])
        return made

    return called


def _memoised(function: Callable[..., Any]) -> Callable[..., Any]:
    asks = "device" in inspect.signature(function).parameters  # it asks for the defaults
    return memo(function, _defaults if asks else None)


def _defaults() -> Any:
    return get_default(), *creation.chosen_device


def install() -> None:
    for name, entry in REGISTRY.items():
        function = _never_itself(entry.function) if entry.fresh else entry.function
        if entry.pure:
            # A call with `out` writes, so it is never learned and runs the function under the memo.
            takes_out = entry.out and entry.top and entry.out_top
            function = _memoised((with_out if takes_out else tensors_only)(name, function))
            if hasattr(entry.function, "op"):
                function.op = entry.function.op  # type: ignore[attr-defined]
        REGISTRY[name] = replace(entry, function=function)


# ---- functions that are public elsewhere only ----

vector_norm = memo(checked("linalg.vector_norm", statistics.vector_norm))
vecdot = memo(checked("linalg.vecdot", products.vecdot))


# ---- brackets ----

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


def _is_number(key: Any) -> bool:
    """Whether an entry of a key is a 0-dim index that can be read."""
    if not isinstance(key, Value):
        return False
    return not key._spec.shape and key._spec.dtype in INDEX and not key._spec.hidden


def _from_part(part: Any) -> Any:
    if part.__class__ is tuple:
        return slice(*part)
    return Ellipsis if part == "..." else part


@memo
def _get_at(x: Value, *parts: Any) -> Value:
    """x at index tensors and others; slices and `...` in a form that has a hash."""
    return subscript.get_item(
        x, tuple([p if isinstance(p, Value) else _from_part(p) for p in parts])
    )


def get_item(x: Value, key: Any) -> Value:
    """x[key]; views by ints and slices are made here, reads with index tensors are remembered."""
    if key.__class__ is int:
        made = views.pick(x, 0, key)
        return subscript.get_item(x, key) if made is None else made
    if _is_number(key):
        made = views.pick(x, 0, int(read_back.read(key)[0]))
        if made is not None:
            return made
    keys = key if key.__class__ is tuple else (key,)
    others = [k for k in keys if not _is_plain(k)]
    if not others:
        made = subscript.part(x, keys)
        return subscript.get_item(x, key) if made is None else made
    for k in others:  # a mask, and an index without dimensions, are read
        if not isinstance(k, Value) or k._spec.dtype not in INDEX or not k._spec.shape:
            return subscript.get_item(x, key)
    return _get_at(x, *map(_as_part, keys))


def _as_part(key: Any) -> Any:
    if key.__class__ is slice:
        return key.start, key.stop, key.step
    return "..." if key is Ellipsis else key


def set_item(x: Value, key: Any, value: Any) -> None:
    """x[key] = value; at ints and slices it is a write to a view."""
    keys = key if key.__class__ is tuple else (key,)
    number = value.__class__ is float or value.__class__ is int
    usual = all(map(_is_plain, keys)) and (not number or x._spec.dtype.kind == "f")
    if usual and (number or isinstance(value, Value)):
        # What shares memory with itself is refused when it is written.
        inplace.check_record(x, "x[...] = value")
        seen = subscript.part(x, keys)
        if seen is not None and (number or len(value._spec.shape) <= len(seen._spec.shape)):
            inplace.copy_(seen, value)
            return
    subscript.set_item(x, key, value)
