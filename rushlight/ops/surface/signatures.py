"""Public signatures: a function's parameters without the internal ones."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable
from typing import Any

from rushlight.core.errors import RushlightError
from rushlight.ops.family.map import Elementwise

_INTERNAL = frozenset(["number", "older"])  # the second operand of internal calls; older orders
_TAKEN = {"layout": None, "pin_memory": False}  # the keywords in `**named` of a new tensor


def public_signature(function: Callable[..., Any]) -> inspect.Signature:
    """The public signature: no internal parameter, `out` as a keyword, `**named` spelled out."""
    given = inspect.signature(function)
    parameters: list[inspect.Parameter] = []
    by_name = False  # what follows an internal parameter cannot be given by place
    for p in given.parameters.values():
        if _is_internal(p):
            by_name = by_name or p.kind is p.POSITIONAL_OR_KEYWORD
        else:
            moved = by_name and p.kind is p.POSITIONAL_OR_KEYWORD
            parameters.append(p.replace(kind=p.KEYWORD_ONLY) if moved else p)
    if getattr(function, "takes_out", False) and "out" not in given.parameters:
        parameters.append(_keyword("out", None))
    return given.replace(parameters=sorted(_spelled(parameters), key=lambda p: p.kind))


def method_signature(function: Callable[..., Any]) -> inspect.Signature:
    """The same of a method of Tensor: without `out`."""
    given = public_signature(function)
    return given.replace(parameters=[p for p in given.parameters.values() if p.name != "out"])


def plain_signature(function: Callable[..., Any]) -> inspect.Signature:
    """`public_signature` without annotations, which name internal classes."""
    given = public_signature(function).parameters.values()
    return inspect.Signature([p.replace(annotation=p.empty) for p in given])


def refuse_call(
    name: str,
    function: Callable[..., Any],
    error: TypeError,
    args: tuple[Any, ...],
    named: dict[str, Any],
) -> None:
    """Raise for a failed call that does not fit the signature; name the argument and show both."""
    if isinstance(error, RushlightError):
        return
    signature = plain_signature(function)
    try:
        signature.bind(*args, **named)
    except TypeError as misfit:
        said = f"{name}(): {misfit}; its signature is {name}{signature}"
        raise TypeError(said) from None


def operands_of(function: Callable[..., Any]) -> int | None:
    """The number of operands of an elementwise op; None for another function."""
    op = getattr(function, "op", None)
    if not isinstance(op, Elementwise) or not isinstance(op.body, types.FunctionType):
        return None
    return op.body.__code__.co_argcount


def _is_internal(parameter: inspect.Parameter) -> bool:
    return parameter.name.startswith("_") or parameter.name in _INTERNAL


def _keyword(name: str, default: Any) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation="Any"
    )


def _spelled(parameters: list[inspect.Parameter]) -> list[inspect.Parameter]:
    made = []
    there = {p.name for p in parameters}
    for p in parameters:
        if p.kind is p.VAR_KEYWORD and "device" in there:
            made += [_keyword(name, what) for name, what in _TAKEN.items() if name not in there]
        elif p.name == "out":
            made.append(p.replace(kind=p.KEYWORD_ONLY))
        else:
            made.append(p)
    return made
