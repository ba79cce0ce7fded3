"""Memoises the pure ops (`Entry.pure`, Note [Shortcuts]), and reads and writes by brackets."""

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
from rushlight.ops.index import subscript, unrecorded
from rushlight.ops.linalg import products
from rushlight.ops.reduce import statistics
from rushlight.ops.registry import REGISTRY
from rushlight.ops.surface import inplace
from rushlight.ops.surface.out import tensors_only, with_out
from rushlight.ops.view import views
from rushlight.tape.program.shortcut import shortcut, shortcut_of_one, shortcut_of_two
from rushlight.tape.record.value import Value

# Functions of one tensor, which comes first. Their static numbers are dimensions and sizes.
ONE = (
    *(
        "sum",
        "mean",
        "amax",
        "amin",
        "argmax",
        "argmin",
        "all",
        "any",
        "prod",
        "count_nonzero",
        "nansum",
    ),
    *("softmax", "log_softmax", "logsumexp", "cumsum", "cumprod"),
    *(
        "reshape",
        "view",
        "permute",
        "transpose",
        "t",
        "squeeze",
        "unsqueeze",
        "expand",
        "flatten",
        "unflatten",
    ),
    *(
        "narrow",
        "select",
        "movedim",
        "swapaxes",
        "swapdims",
        "diagonal",
        "unbind",
        "chunk",
        "split",
    ),
    *(
        "tril",
        "triu",
        "flip",
        "roll",
        "repeat",
        "contiguous",
        "trace",
        "diag",
        "rot90",
        "broadcast_to",
        "tensor_split",
    ),
    *("sort", "topk", "kthvalue", "aminmax", "nanmean", "glu", "pixel_shuffle", "pixel_unshuffle"),
)
# Functions of two tensors, the first and the last argument.
TWO = ("matmul", "mm", "bmm", "mv", "dot", "index_select", "gather")


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


def _with_defaults(function: Callable[..., Any]) -> Callable[..., Any]:
    return shortcut(function, lambda: (get_default(), *creation.chosen_device))


def _memoised(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    if "device" in inspect.signature(function).parameters:  # it asks for the defaults
        return _with_defaults(function)
    if name in ONE:
        return shortcut_of_one(function)
    return shortcut_of_two(function) if name in TWO else shortcut(function)


def install() -> None:
    for name, entry in REGISTRY.items():
        function = _never_itself(entry.function) if entry.fresh else entry.function
        if entry.pure:
            # A call with `out` writes, so it is never learned and runs the function under the shortcut.
            takes_out = entry.out and entry.top and entry.out_top
            function = _memoised(name, (with_out if takes_out else tensors_only)(name, function))
            if hasattr(entry.function, "op"):
                function.op = entry.function.op  # type: ignore[attr-defined]
        REGISTRY[name] = replace(entry, function=function)


# ---- functions that are public elsewhere only ----

vector_norm = shortcut(checked("linalg.vector_norm", statistics.vector_norm))
vecdot = shortcut(checked("linalg.vecdot", products.vecdot))


# ---- brackets ----

_SIMPLE = (int, type(None))


def _as_part(key: Any) -> Any:
    """An int, slice, None or ... of a key as something with a hash; False for any other."""
    if key.__class__ is int or key is None:
        return key
    if key.__class__ is slice:
        ends = (key.start, key.stop, key.step)
        return ends if all(end.__class__ in _SIMPLE for end in ends) else False
    return "..." if key is Ellipsis else False


def _from_part(part: Any) -> Any:
    return slice(*part) if isinstance(part, tuple) else Ellipsis if part == "..." else part


@shortcut_of_one
def _get_parts(x: Value, *parts: Any) -> Value:
    return subscript.get_item(x, tuple([_from_part(p) for p in parts]))


@shortcut
def _get_at(x: Value, *parts: Any) -> Value:
    """The same with index tensors among the parts."""
    return subscript.get_item(
        x, tuple([p if isinstance(p, Value) else _from_part(p) for p in parts])
    )


def get_item(x: Value, key: Any) -> Value:
    """x[key]; ints, slices and index tensors take the shortcut."""
    if key.__class__ is int:
        made = unrecorded.row(x, key)
        return _get_parts(x, key) if made is None else made
    if (
        isinstance(key, Value)
        and not key._spec.shape
        and key._spec.dtype in INDEX
        and not key._spec.hidden
    ):
        made = unrecorded.row(x, int(read_back.read(key)[0]))
        if made is not None:
            return made
    keys = key if key.__class__ is tuple else (key,)
    parts = []
    several = False
    for k in keys:
        part = _as_part(k)
        if part is False:
            # A mask, and an index without dimensions, are read.
            if not isinstance(k, Value) or k._spec.dtype not in INDEX or not k._spec.shape:
                return subscript.get_item(x, key)
            part, several = k, True
        parts.append(part)
    return _get_at(x, *parts) if several else _get_view(x, parts)


def _get_view(x: Value, parts: list[Any]) -> Value:
    """A view by ints and slices: at once, or by a program where it comes again. See Note [Unrecorded views]."""
    made = unrecorded.row(x, parts[0]) if len(parts) == 1 and parts[0].__class__ is int else None
    if made is None and not unrecorded.comes_again(x, parts):
        made = unrecorded.part(x, parts)
    return _get_parts(x, *parts) if made is None else made


def set_item(x: Value, key: Any, value: Any) -> None:
    """x[key] = value; numbers, and tensors of no more dimensions, at ints and slices take the shortcut."""
    parts = [_as_part(k) for k in key] if key.__class__ is tuple else [_as_part(key)]
    number = value.__class__ is float or value.__class__ is int
    if any(part is False for part in parts) or (number and x._spec.dtype.kind != "f"):
        subscript.set_item(x, key, value)
        return
    if not number and not isinstance(value, Value):
        subscript.set_item(x, key, value)
        return
    inplace.check_record(
        x, "x[...] = value"
    )  # what shares memory with itself is refused when it is written
    seen = _get_view(x, parts)
    if number or len(value._spec.shape) <= len(seen._spec.shape):
        inplace.copy_(seen, value)
    else:
        subscript.set_item(x, key, value)
