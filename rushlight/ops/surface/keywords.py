"""PyTorch's other names of arguments.

# Note [Keywords]
1. An argument has one name in a declaration. PyTorch takes NumPy's `axis` and `keepdims` for `dim`
   and `keepdim` everywhere, and has a few arguments whose name depends on the overload. `SECOND`
   has those of the arguments that many ops share, a declaration states its own (`Entry.keywords`).
2. What a declaration takes as `*sizes` PyTorch takes as one sequence by name too.
3. The names are looked at only where a call has keywords at all, and under `memo` only where the
   call is not known.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from rushlight.core.dtypes import PYTHON
from rushlight.ops.surface.signatures import INTERNAL

_VARIADIC = 4  # co_flags of a function with *args

# Other name -> names in declarations, of which a function has at most one.
SECOND: dict[str, tuple[str, ...]] = {
    "axis": ("dim",),
    "keepdims": ("keepdim",),
    "axis0": ("dim0",),
    "axis1": ("dim1",),
    "train": ("training",),
    "input": ("tensor", "B", "A", "x"),  # of two that a function has, the second
    "b": ("B",),
    "other": ("B",),
    "shape": ("size",),
    "src": ("source",),
    "x": ("input",),  # NumPy's
    "a": ("input",),
    "x1": ("input",),
    "x2": ("other",),
}


def _names(function: Callable[..., Any]) -> tuple[tuple[str, ...], str | None, int]:
    """A function's named parameters, its `*args`, and the number of positional ones."""
    inner: Any = function
    while hasattr(inner, "__wrapped__"):
        inner = inner.__wrapped__
    code = getattr(inner, "__code__", None)
    if code is None:
        return (), None, 0
    count = code.co_argcount + code.co_kwonlyargcount
    rest = code.co_varnames[count] if code.co_flags & _VARIADIC else None
    return code.co_varnames[:count], None if rest in INTERNAL else rest, code.co_argcount


class Names:
    """The other names of one function's parameters."""

    __slots__ = ("known", "name", "positional", "rest", "second")

    def __init__(self, function: Callable[..., Any], is_method: bool = False) -> None:
        names, self.rest, count = _names(function)
        self.positional = names[:count]
        self.name = getattr(function, "__name__", "function")
        self.known = frozenset(names)
        self.second = {
            other: name
            for other, choices in SECOND.items()
            if other not in self.known
            for name in choices
            if name in names[int(is_method) :]  # no keyword gives the tensor of a method
        }
        self.second |= getattr(function, "keywords", {})

    def of(
        self, args: tuple[Any, ...], named: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The same call with the declaration's names."""
        renamed: dict[str, Any] = {}
        if isinstance(named.get("dtype"), type):
            named["dtype"] = PYTHON.get(named["dtype"], named["dtype"])
        for name, value in named.items():
            name = self.second.get(name, name)
            if name in renamed:
                raise TypeError(f"{self.name}() got several values for the argument {name!r}")
            renamed[name] = value
        if self.rest in renamed:  # arguments before `*args` must be positional too
            before = [renamed.pop(name) for name in self.positional[len(args) :] if name in renamed]
            args = (*args, *before, renamed.pop(self.rest))
        return args, renamed


def with_second_names(function: Callable[..., Any]) -> Callable[..., Any]:
    """The method with PyTorch's other argument names; itself where it has none."""
    if hasattr(function, "takes_names"):
        return function
    names = Names(function, is_method=True)
    if not names.second and names.rest is None:
        return function

    @functools.wraps(function)
    def called(*args: Any, **named: Any) -> Any:
        if named:
            args, named = names.of(args, named)
        return function(*args, **named)

    return called


def of_input(kind: type, name: str) -> Callable[..., Any]:
    """A method of tensors as a function of the package, whose first argument is called `input`."""
    method = getattr(kind, name)

    def function(input: Any, *args: Any, **named: Any) -> Any:
        return method(input, *args, **named)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = method.__doc__
    return function
