"""Weights that are functions of parameters.

# Note [Parametrised modules]
1. A parametrised module gets another class, below its own, on which the weight is a property: reading it runs the
   functions on what is kept in `module.parametrizations.<name>` (`original`, or `original0`, `original1`, ... where the
   functions take several tensors); writing it runs their `right_inverse` and changes the originals.
2. The functions are modules, run in the order of registration; `right_inverse` in the other.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from rushlight.core.errors import ShapeError
from rushlight.nn.containers import ModuleDict, ModuleList
from rushlight.nn.members import PARAMETER
from rushlight.nn.module import Module
from rushlight.nn.parameter import Parameter
from rushlight.tape.state import no_grad
from rushlight.tensor import Tensor

__all__ = [
    "ParametrizationList",
    "cached",
    "is_parametrized",
    "register_parametrization",
    "remove_parametrizations",
    "type_before_parametrizations",
]

_kept: list[dict[tuple[int, str], Any]] = []  # one dict per open `cached()`; the last is in use


@contextlib.contextmanager
def cached() -> Iterator[None]:
    """Inside it a parametrised weight is computed once and kept."""
    _kept.append(_kept[-1] if _kept else {})
    try:
        yield
    finally:
        _kept.pop()


class ParametrizationList(ModuleList):
    """The functions of one weight, and the tensors they begin with."""

    def __init__(self, modules: Sequence[Module], original: Tensor, unsafe: bool = False) -> None:
        super().__init__(modules)
        self.unsafe = unsafe
        given = original
        with no_grad():
            for module in reversed(modules):
                if hasattr(module, "right_inverse"):
                    with contextlib.suppress(NotImplementedError):  # then the weight is where it begins
                        given = module.right_inverse(given)
        self.is_tensor = isinstance(given, Tensor)
        parts = [given] if self.is_tensor else list(given)
        self.ntensors = len(parts)
        for name, part in zip(self._names, parts, strict=True):
            if isinstance(original, Parameter):
                self.register_parameter(name, Parameter(part.detach(), original.requires_grad))
            else:
                self.register_buffer(name, part)

    @property
    def _names(self) -> list[str]:
        return ["original"] if self.is_tensor else [f"original{i}" for i in range(self.ntensors)]

    def forward(self) -> Tensor:
        first, *rest = self
        value = first(*(getattr(self, name) for name in self._names))
        for module in rest:
            value = module(value)
        return value

    @no_grad()
    def right_inverse(self, value: Tensor) -> None:
        """Change the originals so that the weight becomes `value`."""
        given: Any = value
        for module in reversed(list(self)):
            if not hasattr(module, "right_inverse"):
                raise RuntimeError(
                    f"parametrization {type(module).__name__} has no right_inverse, so the weight cannot be assigned to"
                )
            given = module.right_inverse(given)
        parts = [given] if self.is_tensor else list(given)
        for name, part in zip(self._names, parts, strict=True):
            getattr(self, name).copy_(part)


def _property_of(name: str) -> property:
    def read(self: Any) -> Any:
        if not _kept:
            return self.parametrizations[name]()
        key = (id(self), name)
        if key not in _kept[-1]:
            _kept[-1][key] = self.parametrizations[name]()
        return _kept[-1][key]

    def write(self: Any, value: Tensor) -> None:
        self.parametrizations[name].right_inverse(value)

    return property(read, write)


def _class_for(kind: type[Module], names: Iterable[str]) -> type:
    """A class below another on which weights are properties; copies of a module share it, so it never changes."""

    def assign(self: Any, name: str, value: Any) -> None:
        if isinstance(type(self).__dict__.get(name), property):
            object.__setattr__(self, name, value)
        else:
            kind.__setattr__(self, name, value)

    members = {name: _property_of(name) for name in names}
    named = {"__setattr__": assign, "__module__": kind.__module__}
    return type(f"Parametrized{kind.__name__}", (kind,), {**named, **members})


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Whether the module, or one weight of it, is parametrised."""
    found = module.__dict__.get("parametrizations")
    if not isinstance(found, ModuleDict):
        return False
    return len(found) > 0 if tensor_name is None else tensor_name in found


def type_before_parametrizations(module: Module) -> type:
    """The module's class as it was written."""
    return type(module).__bases__[0] if is_parametrized(module) else type(module)


def register_parametrization(
    module: Module, tensor_name: str, parametrization: Module, *, unsafe: bool = False
) -> Module:
    """Make a weight (or buffer) of a module the result of `parametrization(weight)`; several are run in turn.

    Unless `unsafe`, the result must have the shape and type of the weight.
    """
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        chain = module.parametrizations[tensor_name]
        before = getattr(module, tensor_name)
        if not unsafe:
            _check(module, tensor_name, before, parametrization(before))
        chain.append(parametrization)
        chain.unsafe = chain.unsafe or unsafe
        return module
    if module._kinds.get(tensor_name) not in (PARAMETER, "buffer"):
        raise ValueError(f"{type(module).__name__} has no parameter or buffer {tensor_name!r} to parametrise")
    original = getattr(module, tensor_name)
    chain = ParametrizationList([parametrization], original, unsafe)
    if not unsafe:
        _check(module, tensor_name, original, chain())
    kind = type_before_parametrizations(module)
    if not is_parametrized(module):
        module.parametrizations = ModuleDict()
    delattr(module, tensor_name)
    module.parametrizations[tensor_name] = chain
    object.__setattr__(module, "__class__", _class_for(kind, module.parametrizations))
    return module


def _check(module: Module, name: str, before: Tensor, after: Any) -> None:
    if not isinstance(after, Tensor) or after.shape != before.shape or after.dtype is not before.dtype:
        got = after.spec if isinstance(after, Tensor) else type(after).__name__
        raise ShapeError(
            f"a parametrization of {type(module).__name__}.{name} must give {before.spec!r}, got {got!r}; "
            f"unsafe=True allows it"
        )


def remove_parametrizations(module: Module, tensor_name: str, leave_parametrized: bool = True) -> Module:
    """Take all parametrizations off a weight: it becomes what they gave, or (not `leave_parametrized`) the original."""
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"{type(module).__name__}.{tensor_name} is not parametrised")
    chain = module.parametrizations[tensor_name]
    if not leave_parametrized and not chain.is_tensor:
        raise ValueError("there are several original tensors: only leave_parametrized=True makes one weight of them")
    with no_grad():
        value = getattr(module, tensor_name) if leave_parametrized else chain.original
    originals = [getattr(chain, name) for name in chain._names]
    kind = type_before_parametrizations(module)
    del module.parametrizations[tensor_name]
    left = module.parametrizations
    object.__setattr__(module, "__class__", _class_for(kind, left) if len(left) else kind)
    if isinstance(originals[0], Parameter):
        needed = any(p.requires_grad for p in originals)
        setattr(module, tensor_name, Parameter(value.detach().clone(), needed))
    else:
        module.register_buffer(tensor_name, value.detach())
    if not len(left):
        delattr(module, "parametrizations")
    return module
