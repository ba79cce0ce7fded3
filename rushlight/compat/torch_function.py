"""Whether classes define `__torch_function__`, and the call of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextvars import ContextVar
from typing import Any

from rushlight.methods import disabled_torch_function
from rushlight.tensor import Tensor

# Whether functions do not ask now: see Note [Torch function].
OFF: ContextVar[bool] = ContextVar("torch_function_off", default=False)


class DisableTorchFunctionSubclass:
    """A block in which the classes' `__torch_function__` is not called."""

    def __enter__(self) -> None:
        self._token = OFF.set(True)

    def __exit__(self, *_: object) -> None:
        OFF.reset(self._token)


def is_tensor_like(inp: Any) -> bool:
    """Whether it is a tensor, or its class defines `__torch_function__`."""
    return isinstance(inp, Tensor) or hasattr(type(inp), "__torch_function__")


def overrides(kind: type) -> bool:
    """Whether a class has a `__torch_function__`, and does not disable it; not so of Tensor."""
    found = getattr(kind, "__torch_function__", disabled_torch_function)
    return found is not disabled_torch_function and kind is not Tensor


def part_of(value: Any) -> Any:
    """What an elementwise kernel runs on: this rank's part of a distributed tensor, else itself."""
    return getattr(value, "_local_tensor", value)


def has_torch_function(relevant_args: Iterable[Any]) -> bool:
    """Whether the class of one of them defines `__torch_function__`."""
    return not OFF.get() and any(overrides(type(arg)) for arg in relevant_args)


def has_torch_function_unary(arg: Any) -> bool:
    """As `has_torch_function`, of one."""
    return not OFF.get() and overrides(type(arg))


def has_torch_function_variadic(*args: Any) -> bool:
    """As `has_torch_function`."""
    return has_torch_function(args)


def handle_torch_function(
    public_api: Callable[..., Any], relevant_args: Iterable[Any], *args: Any, **named: Any
) -> Any:
    """Call `__torch_function__` of the classes that define it, subclasses first."""
    kinds: list[type] = []
    given: list[Any] = []
    for arg in relevant_args:
        kind = type(arg)
        if overrides(kind) and kind not in kinds:
            at = next((i for i, k in enumerate(kinds) if issubclass(kind, k)), len(kinds))
            kinds.insert(at, kind)
            given.insert(at, arg)
    for arg in given:
        found = arg.__torch_function__(public_api, tuple(kinds), args, named)
        if found is not NotImplemented:
            return found
    raise TypeError(
        f"no implementation of {public_api!r} for {', '.join(k.__name__ for k in kinds)}: each "
        "__torch_function__ returned NotImplemented"
    )
