"""Public signatures, without internal parameters, and the errors of calls that do not fit them."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable
from typing import Any

from rushlight.core.errors import OperandError, RushlightError
from rushlight.ops.arguments import ArgumentKindError, described, may_be_operand, rename_op
from rushlight.ops.family.map import Elementwise
from rushlight.tape.record.value import Value

# The second operand of internal calls, older orders, and arguments that no call may give.
INTERNAL = frozenset(["number", "older", "rest"])
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


def explain(
    name: str,
    function: Callable[..., Any],
    error: Exception,
    args: tuple[Any, ...],
    named: dict[str, Any],
) -> None:
    """After a failed call: raise for what is wrong with its arguments, or name the op.

    A call that does not fit the signature, and an argument that lacks an attribute of tensors, are
    told from other errors of Python's own.
    """
    if not isinstance(error, RushlightError) or isinstance(error, OperandError):
        signature = plain_signature(function)
        try:
            bound = signature.bind(*args, **named)
        except TypeError as misfit:
            raise TypeError(
                f"{name}() {_said(misfit, signature, args)}; its signature is {name}{signature}"
            ) from None
        if isinstance(error, AttributeError):
            _refuse_kind(name, error, bound)
        if isinstance(error, OperandError):
            _refuse_operand(name, bound)
    rename_op(name.removesuffix("_"), name, error)


def _said(misfit: TypeError, signature: inspect.Signature, args: tuple[Any, ...]) -> str:
    """Why a call does not fit a signature, in Python's own words."""
    said = str(misfit)
    if said.startswith("too many"):
        count = len([p for p in signature.parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD])
        noun = "argument" if count == 1 else "arguments"
        return f"takes {count} positional {noun} but {len(args)} were given"
    return f"got {said}" if said.startswith("multiple") else said


def _refuse_kind(name: str, error: AttributeError, bound: inspect.BoundArguments) -> None:
    """Raise for an argument that is no tensor, if one lacks an attribute of tensors."""
    lacking = error.obj
    if isinstance(lacking, (Value, types.ModuleType)):
        return
    found = [n for n, given in bound.arguments.items() if _is_in(lacking, given, 3)]
    if found:
        raise ArgumentKindError(
            f"{name}(): argument {found[0]!r} must be a tensor, got {described(lacking)}; make one "
            "with rushlight.tensor(...)"
        ) from None
    if error.name == "_spec":
        raise ArgumentKindError(f"{name}(): a tensor is needed, got {described(lacking)}") from None


def _refuse_operand(name: str, bound: inspect.BoundArguments) -> None:
    """Raise for an argument that is neither a tensor nor a number."""
    for n, given in bound.arguments.items():
        single = bound.signature.parameters[n].kind is not inspect.Parameter.VAR_POSITIONAL
        if single and not may_be_operand(given):
            raise OperandError(
                f"{name}(): argument {n!r} must be a tensor or a number, got {described(given)}; "
                "make a tensor of it with rushlight.tensor(...)"
            ) from None


def _is_in(thing: Any, given: Any, depth: int) -> bool:
    """Whether an argument is the thing, or has it among its elements."""
    if isinstance(given, (tuple, list)) and depth > 0:
        return any(_is_in(thing, each, depth - 1) for each in given)
    return type(given) is type(thing)  # a converted argument is of the same class


def operands_of(function: Callable[..., Any]) -> int | None:
    """The number of operands of an elementwise op; None for another function."""
    op = getattr(function, "op", None)
    if not isinstance(op, Elementwise) or not isinstance(op.body, types.FunctionType):
        return None
    return op.body.__code__.co_argcount


def _is_internal(parameter: inspect.Parameter) -> bool:
    hidden = parameter.name.startswith("_") and parameter.name != "_stacklevel"
    return hidden or parameter.name in INTERNAL


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
            made.append(p.replace(kind=p.KEYWORD_ONLY, default=None))
        else:
            made.append(p)
    return made
