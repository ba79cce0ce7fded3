"""The list of public ops. A declaration puts its op here; `Tensor` and the package take their names from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rushlight.ops.arguments import checked


@dataclass(frozen=True)
class Entry:
    """One public op: what `rushlight.<name>` and `Tensor.<name>` are."""

    name: str
    function: Callable[..., Any]
    doc: str
    method: bool  # also a method of Tensor
    top: bool  # also a name of the package; else only of nn.functional


REGISTRY: dict[str, Entry] = {}


def register(
    name: str, function: Callable[..., Any], doc: str, method: bool = True, top: bool = True
) -> Callable[..., Any]:
    """Put a function on the list; what it returns is the function as ops call it, without the check of its arguments."""
    if name in REGISTRY:
        raise ValueError(f"op {name!r} is declared twice")
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    shown = name.replace("_", ".", 1) if name.startswith(("fft_", "linalg_")) else name
    public = function if hasattr(function, "op") else checked(shown, function)
    REGISTRY[name] = Entry(name, public, doc, method, top)
    return function


def composite(
    name: str, method: bool = True, top: bool = True
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Declare an op that is only a function of other ops; its docstring is its doc."""

    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        return register(name, function, function.__doc__ or "", method, top)

    return wrap


def second_name(
    alias: str, function: Callable[..., Any], method: bool = True
) -> Callable[..., Any]:
    """Declare another name of an op; it takes what the op takes."""

    def called(*args: Any, **named: Any) -> Any:
        return function(*args, **named)

    called.__wrapped__ = function  # type: ignore[attr-defined]  # whose signature it shows
    if hasattr(function, "op"):
        called.op = function.op  # type: ignore[attr-defined]  # from which the in-place form is made
    return register(alias, called, function.__doc__ or "", method)
