"""PyTorch's `torch.overrides`: `__torch_function__` of classes, and modes."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from types import FunctionType
from typing import Any

from rushlight.compat import dispatch
from rushlight.compat.subclasses import (
    get_default_nowrap_functions as get_default_nowrap_functions,
)
from rushlight.compat.torch_function import (
    handle_torch_function as handle_torch_function,
    has_torch_function as has_torch_function,
    has_torch_function_unary as has_torch_function_unary,
    has_torch_function_variadic as has_torch_function_variadic,
    is_tensor_like as is_tensor_like,
)
from rushlight.tensor import Tensor


class TorchFunctionMode:
    """A block in which functions and methods ask `__torch_function__` of this object first."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        raise NotImplementedError

    def __enter__(self) -> TorchFunctionMode:
        dispatch.start_asking()
        dispatch.MODES.set((*dispatch.MODES.get(), self))
        return self

    def __exit__(self, *error: Any) -> None:
        dispatch.MODES.set(dispatch.MODES.get()[:-1])
        dispatch.stop_asking()


class BaseTorchFunctionMode(TorchFunctionMode):
    """A mode that calls the function."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return func(*args, **(kwargs or {}))


_PLACES = ("", ".nn.functional", ".nn.init", ".linalg", ".fft", ".special")


@functools.cache
def get_overridable_functions() -> dict[Any, list[Any]]:
    """By module, the functions that ask `__torch_function__`; by `Tensor`, its methods."""
    found: dict[Any, list[Any]] = {}
    for path in _PLACES:
        holder = importlib.import_module(f"rushlight{path}")
        things = [getattr(holder, name) for name in holder.__all__]
        found[holder] = [thing for thing in things if isinstance(thing, FunctionType)]
    methods = [getattr(Tensor, name) for name in dir(Tensor)]
    found[Tensor] = [method for method in methods if isinstance(method, FunctionType)]
    return found


def get_ignored_functions() -> set[Any]:
    """The functions that never ask: those that make tensors of no other."""
    own = importlib.import_module("rushlight")
    names = "tensor zeros ones full empty arange linspace rand randn randint eye manual_seed"
    return {getattr(own, name) for name in names.split()}


@functools.cache
def _full_names() -> dict[Any, str]:
    found: dict[Any, str] = {}
    for holder, things in reversed(get_overridable_functions().items()):
        path = "torch.Tensor" if holder is Tensor else f"torch{holder.__name__[9:]}"
        found.update((thing, f"{path}.{thing.__name__}") for thing in things)
    return found


def resolve_name(f: Any) -> str | None:
    """PyTorch's full name of a function or method; None of what is neither."""
    if isinstance(f, str):
        return f
    try:
        return _full_names().get(f)
    except TypeError:  # not hashable
        return None


def is_tensor_method_or_property(func: Any) -> bool:
    """Whether it is a method of Tensor, or the getter of a property."""
    name = getattr(func, "__name__", "")
    return name == "__get__" or getattr(Tensor, name, None) is func


def wrap_torch_function(dispatcher: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator: the function asks `__torch_function__` of what `dispatcher(*args)` gives."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def asking(*args: Any, **named: Any) -> Any:
            relevant = tuple(dispatcher(*args, **named))
            if has_torch_function(relevant):
                return handle_torch_function(asking, relevant, *args, **named)
            return function(*args, **named)

        return asking

    return decorate


def _get_current_function_mode() -> Any:
    """The innermost mode; None where there is none."""
    modes = dispatch.MODES.get()
    return modes[-1] if modes else None


def _len_torch_function_stack() -> int:
    """How many modes there are."""
    return len(dispatch.MODES.get())
