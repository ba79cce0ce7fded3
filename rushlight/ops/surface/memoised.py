"""Memoises the pure ops (`Entry.pure`, Note [Memo])."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from rushlight.core.dtypes import get_default
from rushlight.ops.create import creation
from rushlight.ops.registry import Entry
from rushlight.ops.surface.out import tensors_only
from rushlight.ops.view import views
from rushlight.tape.program.memo import memo


def _never_itself(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with a view of its argument in place of the argument.

    It is a new handle with a record, which may get hooks, be detached or change its shape in place.
    """

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
    return get_default(), *creation.chosen_device, *creation.CURRENT.items()


def finished(entry: Entry) -> Entry:
    """The entry of a declaration with the function that users call."""
    function = _never_itself(entry.function) if entry.fresh else entry.function
    if entry.pure:
        function = _memoised(tensors_only(entry.name, function))
        if hasattr(entry.function, "op"):
            function.op = entry.function.op  # type: ignore[attr-defined]
    return replace(entry, function=function)
