"""PyTorch's `torch.fx.operator_schemas`: arguments by name, as signatures tell."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

from rushlight.core.errors import RushlightError
from rushlight.nn.module import Module

__all__ = [
    "ArgsKwargsPair",
    "check_for_mutable_operation",
    "create_type_hint",
    "get_signature_for_torch_op",
    "normalize_function",
    "normalize_module",
    "type_matches",
]


class ArgsKwargsPair(NamedTuple):
    """The arguments of a call by position, and those by name."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def get_signature_for_torch_op(op: Callable[..., Any], return_schemas: bool = False) -> Any:
    """The signature of an op, in a list; None where it tells none.

    Args:
        op (callable): The op.
        return_schemas (bool): Refused: ops have no TorchScript schemas.
    """
    if return_schemas:
        raise RushlightError("get_signature_for_torch_op: ops have no TorchScript schemas")
    try:
        return [inspect.signature(op)]
    except (TypeError, ValueError):
        return None


def _normalised(
    function: Callable[..., Any], args: Any, kwargs: Any, by_name: bool
) -> ArgsKwargsPair | None:
    try:
        bound = inspect.signature(function).bind(*args, **(kwargs or {}))
    except (TypeError, ValueError):
        return None
    bound.apply_defaults()
    if not by_name:
        return ArgsKwargsPair(bound.args, bound.kwargs)
    kinds = {name: one.kind for name, one in bound.signature.parameters.items()}
    if inspect.Parameter.VAR_POSITIONAL in kinds.values():
        return None
    positional = inspect.Parameter.POSITIONAL_ONLY
    first = tuple(value for name, value in bound.arguments.items() if kinds[name] is positional)
    named: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        if kinds[name] is inspect.Parameter.VAR_KEYWORD:
            named.update(value)
        elif kinds[name] is not positional:
            named[name] = value
    return ArgsKwargsPair(first, named)


def normalize_function(
    target: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    arg_types: Any = None,
    kwarg_types: Any = None,
    normalize_to_only_use_kwargs: bool = False,
) -> ArgsKwargsPair | None:
    """The arguments of a call with defaults filled in; None where they do not fit.

    Args:
        target (callable): What is called.
        args (tuple): Its arguments by position.
        kwargs (dict): Its arguments by name.
        arg_types (tuple): Has no effect: a function has one signature here.
        kwarg_types (dict): Has no effect.
        normalize_to_only_use_kwargs (bool): Whether all arguments are given by name.
    """
    return _normalised(target, args, kwargs, normalize_to_only_use_kwargs)


def normalize_module(
    root: Module,
    target: str,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    normalize_to_only_use_kwargs: bool = False,
) -> ArgsKwargsPair | None:
    """The arguments of a submodule's forward, as `normalize_function`.

    Args:
        root (Module): The module above.
        target (str): The submodule's path.
        args (tuple): The arguments by position.
        kwargs (dict): The arguments by name.
        normalize_to_only_use_kwargs (bool): Whether all arguments are given by name.
    """
    try:
        inner = root.get_submodule(target)
    except AttributeError as error:
        raise RuntimeError(
            f"Tried to normalize arguments of {target}, which the root module has not"
        ) from error
    return _normalised(inner.forward, args, kwargs, normalize_to_only_use_kwargs)


def _refused(*args: Any, **named: Any) -> Any:
    """Refused: it asks for TorchScript's schemas and types, which ops here do not have."""
    raise RushlightError("fx.operator_schemas: ops have no TorchScript schemas and types")


check_for_mutable_operation = create_type_hint = type_matches = _refused
