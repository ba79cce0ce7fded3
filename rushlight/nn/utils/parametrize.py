"""Weights that are functions of parameters.

# Note [Parametrised modules]
1. A parametrised module gets a subclass of its class, on which the weight is a property: reading it
   runs the functions on `module.parametrizations.<name>` (`original`, or `original0`, `original1`,
   ... where the functions take several tensors); writing it runs their `right_inverse` and changes
   the originals.
2. The functions are modules, run in the order of registration; `right_inverse` in reverse.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from rushlight.core.errors import ShapeError
from rushlight.lazy import shown
from rushlight.nn.containers import ModuleDict, ModuleList
from rushlight.nn.module import Module
from rushlight.nn.parameter import Parameter, replace_content
from rushlight.tape.record.state import no_grad
from rushlight.tensor import Tensor

__all__ = [
    "ParametrizationList",
    "cached",
    "is_parametrized",
    "register_parametrization",
    "remove_parametrizations",
    "transfer_parametrizations_and_params",
    "type_before_parametrizations",
]


def __dir__() -> list[str]:
    return shown(__name__)


_kept: list[dict[tuple[int, str], Any]] = []  # one dict per open `cached()`; the last is in use


@contextlib.contextmanager
def cached() -> Iterator[None]:
    """A block in which a parametrised weight is computed once and kept."""
    _kept.append(_kept[-1] if _kept else {})
    try:
        yield
    finally:
        _kept.pop()


class ParametrizationList(ModuleList):
    """The functions of one weight, and the tensors they start from."""

    def __init__(self, modules: Sequence[Module], original: Tensor, unsafe: bool = False) -> None:
        super().__init__(modules)
        self.unsafe = unsafe
        given: Any = original
        # A function without an inverse starts from the tensor itself.
        with no_grad(), contextlib.suppress(NotImplementedError):
            for module in reversed(modules):
                if hasattr(module, "right_inverse"):
                    # Then the weight itself is the start.
                    with contextlib.suppress(NotImplementedError):
                        given = module.right_inverse(given)
        self.is_tensor = isinstance(given, Tensor)
        parts = self._checked(given, original)
        self.ntensors = len(parts)
        if self.is_tensor:  # the same object, which an optimiser may hold
            if given is not original:
                replace_content(
                    original, given.detach().clone() if given._base is not None else given.detach()
                )
            parts = [original]
        for name, part in zip(self._names, parts, strict=True):
            if not isinstance(original, Parameter):
                self.register_buffer(name, part)
            elif part is original:
                self.register_parameter(name, original)
            else:
                self.register_parameter(name, Parameter(part.detach(), original.requires_grad))

    def _checked(self, given: Any, original: Tensor) -> list[Any]:
        if isinstance(given, Tensor):
            if given.dtype is not original.dtype:
                raise ValueError(
                    "a parametrization of one tensor: its right_inverse must keep the type "
                    f"{original.dtype!r}, got {given.dtype!r}"
                )
            return [given]
        if not isinstance(given, Sequence):
            raise ValueError(
                f"right_inverse must give a tensor or several, got {type(given).__name__}"
            )
        for i, part in enumerate(given):
            if not isinstance(part, Tensor):
                raise ValueError(
                    f"right_inverse must give tensors, got {type(part).__name__} at place {i}"
                )
        return list(given)

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
                    f"parametrization {type(module).__name__} has no right_inverse, so the weight "
                    "cannot be assigned to"
                )
            given = module.right_inverse(given)
        if self.is_tensor != isinstance(given, Tensor):
            wanted = "a tensor" if self.is_tensor else f"{self.ntensors} tensors"
            raise ValueError(f"right_inverse must give {wanted}, got {type(given).__name__}")
        parts = [given] if self.is_tensor else list(given)
        if len(parts) != self.ntensors:
            raise ValueError(f"right_inverse must give {self.ntensors} tensors, got {len(parts)}")
        for name, part in zip(self._names, parts, strict=True):
            known = getattr(self, name)
            if (
                not isinstance(part, Tensor)
                or part.dtype is not known.dtype
                or part.shape != known.shape
            ):
                raise ValueError(
                    f"right_inverse must give {known._spec!r} for {name}, got {part!r}"
                )
            known.copy_(part)


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
    """A subclass on which weights are properties.

    Copies of a module share it, so it never changes.
    """

    def assign(self: Any, name: str, value: Any) -> None:
        if isinstance(type(self).__dict__.get(name), property):
            object.__setattr__(self, name, value)
        else:
            kind.__setattr__(self, name, value)

    members = {name: _property_of(name) for name in names}

    def refuse(self: Any, protocol: Any) -> Any:
        raise RuntimeError(
            f"a parametrised {kind.__name__} cannot be pickled: its class is made as the program "
            "runs; save its state_dict()"
        )

    def copied(self: Any, memo: dict[int, Any]) -> Any:
        made = object.__new__(type(self))
        memo[id(self)] = made
        made.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return made

    named = {
        "__setattr__": assign,
        "__module__": kind.__module__,
        "__reduce_ex__": refuse,
        "__deepcopy__": copied,
    }
    return type(f"Parametrized{kind.__name__}", (kind,), {**named, **members})


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Whether the module, or one of its weights, is parametrised."""
    found = module.__dict__.get("parametrizations")
    if not isinstance(found, ModuleDict):
        return False
    return len(found) > 0 if tensor_name is None else tensor_name in found


def type_before_parametrizations(module: Module) -> type:
    """The module's class before parametrization."""
    return type(module).__bases__[0] if is_parametrized(module) else type(module)


def register_parametrization(
    module: Module, tensor_name: str, parametrization: Module, *, unsafe: bool = False
) -> Module:
    """Make a weight (or buffer) of a module the result of `parametrization(weight)`.

    Several parametrizations run in turn. Unless `unsafe`, the result must have the shape and dtype
    of the weight.
    """
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        chain = module.parametrizations[tensor_name]
        before = getattr(module, tensor_name)
        if not unsafe:
            after = parametrization(before)
            _check_spec_kept(module, tensor_name, before, after)
            if hasattr(parametrization, "right_inverse"):
                _check_inverse(module, tensor_name, before, parametrization.right_inverse(after))
        chain.append(parametrization)
        chain.unsafe = chain.unsafe or unsafe
        return module
    if tensor_name not in module._parameters and tensor_name not in module._buffers:
        raise ValueError(
            f"{type(module).__name__} has no parameter or buffer {tensor_name!r} to parametrise"
        )
    original = getattr(module, tensor_name)
    chain = ParametrizationList([parametrization], original, unsafe)
    if not unsafe:
        _check_spec_kept(module, tensor_name, original, chain())
    kind = type_before_parametrizations(module)
    if not is_parametrized(module):
        module.parametrizations = ModuleDict()
    delattr(module, tensor_name)
    module.parametrizations[tensor_name] = chain
    object.__setattr__(module, "__class__", _class_for(kind, module.parametrizations))
    return module


def _check_spec_kept(module: Module, name: str, before: Tensor, after: Any) -> None:
    if (
        not isinstance(after, Tensor)
        or after.shape != before.shape
        or after.dtype is not before.dtype
    ):
        got = after._spec if isinstance(after, Tensor) else type(after).__name__
        raise ShapeError(
            f"a parametrization of {type(module).__name__}.{name} must give {before._spec!r}, got "
            f"{got!r}; unsafe=True allows it"
        )


def _check_inverse(module: Module, name: str, before: Tensor, given: Any) -> None:
    """Add a further parametrization; its `right_inverse` feeds the one before it."""
    if (
        not isinstance(given, Tensor)
        or given.shape != before.shape
        or given.dtype is not before.dtype
    ):
        got = given._spec if isinstance(given, Tensor) else type(given).__name__
        raise ValueError(
            f"right_inverse of a parametrization of {type(module).__name__}.{name} must give "
            f"{before._spec!r}, got {got!r}"
        )


def transfer_parametrizations_and_params(
    from_module: Module, to_module: Module, tensor_name: str | None = None
) -> Module:
    """Copy the parametrizations of one weight or of all, with their tensors, to another module."""
    if not is_parametrized(from_module):
        return to_module
    for name in list(from_module.parametrizations) if tensor_name is None else [tensor_name]:
        chain = from_module.parametrizations[name]
        if not hasattr(to_module, name):
            setattr(to_module, name, Parameter(getattr(from_module, name).detach().clone()))
        for part in chain:
            register_parametrization(to_module, name, part, unsafe=chain.unsafe)
        for original in chain._names:
            setattr(to_module.parametrizations[name], original, getattr(chain, original))
    return to_module


def remove_parametrizations(
    module: Module, tensor_name: str, leave_parametrized: bool = True
) -> Module:
    """Remove all parametrizations of a weight.

    It becomes their result, or the original unless `leave_parametrized`.
    """
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"{type(module).__name__}.{tensor_name} is not parametrised")
    chain = module.parametrizations[tensor_name]
    if not leave_parametrized and not chain.is_tensor:
        raise ValueError(
            "there are several original tensors: only leave_parametrized=True makes one weight of "
            "them"
        )
    with no_grad():
        value: Any = getattr(module, tensor_name) if leave_parametrized else chain.original
    originals = [getattr(chain, name) for name in chain._names]
    kind = type_before_parametrizations(module)
    del module.parametrizations[tensor_name]
    left = module.parametrizations
    object.__setattr__(module, "__class__", _class_for(kind, left) if len(left) else kind)
    if chain.is_tensor:
        if leave_parametrized and value is not originals[0]:
            replace_content(originals[0], value.detach().clone())
        if isinstance(originals[0], Parameter):
            setattr(module, tensor_name, originals[0])
        else:
            module.register_buffer(tensor_name, originals[0])
    elif isinstance(originals[0], Parameter):
        needed = any(p.requires_grad for p in originals)
        setattr(module, tensor_name, Parameter(value.detach().clone(), needed))
    else:
        module.register_buffer(tensor_name, value.detach())
    if not len(left):
        delattr(module, "parametrizations")
    return module
