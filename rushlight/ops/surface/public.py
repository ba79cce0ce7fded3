"""Public functions of the namespaces: ops, and functions of ops, with users' checks and keywords.

A namespace makes each of its functions here when the name is first used. See Note [Lazy names].
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any

from rushlight.ops.arguments import checked, without_out
from rushlight.ops.registry import REGISTRY
from rushlight.ops.surface.documentation import describe, described
from rushlight.ops.surface.keywords import of_input, with_second_names
from rushlight.ops.surface.out import kinds_only, tensors_only, with_out

PACKAGE = "rushlight"
# Modules whose names users do not import.
_INTERNAL = tuple(f"{PACKAGE}.{room}." for room in ("ops", "compat", "tape"))


def located(where: str, name: str, function: Any) -> Any:
    """The function, with its public module and name, for pickling and printing."""
    is_made = getattr(function, "__module__", "") == PACKAGE  # it is stored there after this
    if name[0] != "_" and not is_made:
        _locate(where, name, name, function)
    return function


def method_located(kind: type, name: str, method: Any) -> Any:
    """The same of a method; one that is a function of the package too keeps its name there."""
    _locate(kind.__module__, f"{kind.__qualname__}.{name}", name, method)
    return method


def _locate(module: str, qualified: str, name: str, function: Any) -> None:
    if isinstance(function, FunctionType) and not _is_found(function):
        function.__module__, function.__qualname__, function.__name__ = module, qualified, name


def _is_found(function: FunctionType) -> bool:
    module = sys.modules.get(function.__module__)
    if module is None or function.__module__.startswith(_INTERNAL):
        return False
    return vars(module).get(function.__qualname__) is function


def checked_kinds(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of a namespace that refuses arguments of other kinds by name."""
    return described(kinds_only(function.__name__, checked(function.__name__, function)))


def storing(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of a namespace with the keyword `out`; `stores` names the stored value."""
    return described(with_out(function.__name__, function))


def with_its_out(name: str, found: Any) -> Any:
    """`rushlight.<name>`, defined elsewhere; a function that states what it stores takes `out`."""
    if getattr(found, "stores", "") and not hasattr(found, "takes_out"):
        found = described(with_out(name, found))
    return located(PACKAGE, name, found)


def of_package(name: str, function: Any) -> Any:
    """`rushlight.<name>`, of a function that refuses arguments of other kinds."""
    if not hasattr(function, "op"):
        function = kinds_only(name, checked(name, function))
        if not hasattr(function, "stores"):
            describe(function)
    return with_its_out(name, function)


def of_tensors(name: str, function: Any) -> Any:
    """`rushlight.<name>`, of a function with another implementation for sparse tensors."""
    return located(PACKAGE, name, described(tensors_only(name, checked(name, function))))


def in_place_of_package(tensor: type, name: str) -> Any:
    """`rushlight.<name>_`, a method of tensors."""
    function: Any = of_input(tensor, name)
    self, *others = inspect.signature(getattr(tensor, name)).parameters.values()
    function.__signature__ = inspect.Signature([self.replace(name="input"), *others])
    return of_package(name, function)


def op_of_package(name: str) -> Any:
    """`rushlight.<name>`, an op."""
    entry = REGISTRY[name]
    function = entry.function
    if entry.out and entry.out_top and not hasattr(function, "takes_out"):
        function = with_out(name, function)
    elif not _checks_itself(function):
        function = tensors_only(name, function)
    return located(PACKAGE, name, described(function))


def method_of_tensor(name: str) -> Any:
    """`Tensor.<name>`, an op, without `out`."""
    return described(with_second_names(without_out(REGISTRY[name].function)))


def op_of_namespace(where: str, name: str, op: str) -> Any:
    """An op as a function of `where`, under its name there."""
    entry = REGISTRY[op]
    function = entry.function
    functional = where == f"{PACKAGE}.nn.functional"
    if entry.top and entry.out and entry.out_top and entry.pure:
        return getattr(sys.modules[PACKAGE], op)
    takes_out = entry.out and (not functional or _is_of_functional(op))
    if takes_out and not hasattr(function, "takes_out"):
        function = with_out(name, function)
    elif functional and not entry.top and not _checks_itself(function):
        function = tensors_only(name, function)
    elif entry.top and getattr(sys.modules[PACKAGE], op) is function:
        return function
    return located(where, name, described(function))


def _is_of_functional(op: str) -> bool:
    entry = REGISTRY[op]
    return not entry.top and not entry.special and not op.startswith("fft_")


def _checks_itself(function: Any) -> bool:
    return any(hasattr(function, fact) for fact in ("op", "takes_names", "takes_out"))
