"""PyTorch's `torch.overrides`: `__torch_function__` of classes, and modes."""

from __future__ import annotations

from collections.abc import Callable
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
