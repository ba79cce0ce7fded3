"""Public functions that ask `__torch_function__` of their arguments, while somebody wants it.

# Note [Torch function]
1. The package's functions know nothing of `__torch_function__`. While a trace or a mode is in place
   the public namespaces hold functions that ask first; at its end they hold the plain ones again.
   So calls cost what they cost as long as nobody asks.
2. A name that loads during that time is found by the namespace's `__getattr__`, which is exchanged
   too. A module that imported a function before is exchanged where the trace says so (`homes`).
3. The function that `__torch_function__` gets is the plain one.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import sys
from collections.abc import Callable, Iterable, Iterator
from types import FunctionType, ModuleType
from typing import Any

from rushlight.compat import torch_function

NAMESPACES = (
    "rushlight",
    "rushlight.nn.functional",
    "rushlight.nn.init",
    "rushlight.linalg",
    "rushlight.fft",
    "rushlight.special",
)
MODES: list[Any] = []


def asking_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that asks modes and its arguments' classes before it calls `function`."""

    @functools.wraps(function)
    def asks(*args: Any, **kwargs: Any) -> Any:
        if MODES:
            mode = MODES.pop()
            try:
                kinds = tuple({type(a) for a in args if torch_function.has_torch_function_unary(a)})
                return mode.__torch_function__(function, kinds, args, kwargs)
            finally:
                MODES.append(mode)
        if torch_function.has_torch_function(_flat(args, kwargs)):
            return torch_function.handle_torch_function(
                function, _flat(args, kwargs), *args, **kwargs
            )
        return function(*args, **kwargs)

    asks.asked_for = function  # type: ignore[attr-defined]
    return asks


def _flat(args: Iterable[Any], kwargs: dict[str, Any]) -> list[Any]:
    """The arguments, and the elements of lists and tuples among them."""
    found: list[Any] = []
    for arg in (*args, *kwargs.values()):
        found.extend(arg) if isinstance(arg, list | tuple) else found.append(arg)
    return found


def _is_public(name: str, value: Any) -> bool:
    home = getattr(value, "__module__", None) or ""
    return (
        isinstance(value, FunctionType)
        and not name.startswith("__")
        and home.partition(".")[0] == "rushlight"
        and not hasattr(value, "asked_for")
    )


@contextlib.contextmanager
def exchanged(places: Iterable[tuple[Any, str, Any]]) -> Iterator[None]:
    """A block in which attributes of modules' dicts and of classes have other values."""
    before: list[tuple[Any, str, Any]] = []
    try:
        for holder, name, value in places:
            held = holder[name] if isinstance(holder, dict) else getattr(holder, name)
            before.append((holder, name, held))
            _put(holder, name, value)
        yield
    finally:
        for holder, name, value in reversed(before):
            _put(holder, name, value)


def _put(holder: Any, name: str, value: Any) -> None:
    if isinstance(holder, dict):
        holder[name] = value
    else:
        setattr(holder, name, value)


def _finding(space: dict[str, Any], late: list[tuple[Any, str]]) -> Callable[[str], Any]:
    """The `__getattr__` of a namespace while its functions ask."""
    find = space["__getattr__"]

    def found(name: str) -> Any:
        value = find(name)
        plain = getattr(value, "asked_for", value)
        if not _is_public(name, plain):
            return value
        late.append((space, name))
        space[name] = asking_function(plain)
        return space[name]

    return found


@contextlib.contextmanager
def asking(homes: Iterable[dict[str, Any]] = ()) -> Iterator[None]:
    """A block in which public functions ask `__torch_function__`. See Note [Torch function]."""
    modules: list[ModuleType] = [importlib.import_module(name) for name in NAMESPACES]
    spaces = [vars(module) for module in modules]
    torch = sys.modules.get("torch")
    if torch is not None and getattr(torch, "torch", None) is torch:
        spaces.append(vars(torch))
    late: list[tuple[Any, str]] = []
    places: list[tuple[Any, str, Any]] = []
    others = [home for home in homes if all(home is not space for space in spaces)]
    for space in (*spaces, *others):
        if str(space.get("__name__", "")).startswith("rushlight.") and space in others:
            continue
        places += [
            (space, name, asking_function(value))
            for name, value in list(space.items())
            if _is_public(name, value)
        ]
    places += [(s, "__getattr__", _finding(s, late)) for s in spaces if "__getattr__" in s]
    with exchanged(places):
        try:
            yield
        finally:
            for space, name in late:
                space[name] = space[name].asked_for
