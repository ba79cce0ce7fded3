"""PyTorch's checks of conditions, which raise errors of the named class."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rushlight.core.errors import RushlightError
from rushlight.tensor import Tensor

Message = Callable[[], Any] | None


def check_with(error_type: type[Exception], cond: bool, message: Message = None) -> None:
    """Raise the error unless the condition is True; `message()` is its text."""
    if not isinstance(cond, bool):
        raise TypeError(
            f"_check: the condition must be a bool, got {type(cond).__name__}; use "
            "_check_tensor_all for tensors"
        )
    if not cond:
        raise error_type("_check: a condition does not hold" if message is None else str(message()))


def check(cond: bool, message: Message = None) -> None:
    """RuntimeError unless the condition is True."""
    check_with(RuntimeError, cond, message)


def check_index(cond: bool, message: Message = None) -> None:
    """IndexError unless the condition is True."""
    check_with(IndexError, cond, message)


def check_value(cond: bool, message: Message = None) -> None:
    """ValueError unless the condition is True."""
    check_with(ValueError, cond, message)


def check_type(cond: bool, message: Message = None) -> None:
    """TypeError unless the condition is True."""
    check_with(TypeError, cond, message)


def check_not_implemented(cond: bool, message: Message = None) -> None:
    """NotImplementedError unless the condition is True."""
    check_with(NotImplementedError, cond, message)


def check_is_size(i: int, message: Message = None, *, max: int | None = None) -> None:
    """RuntimeError unless a number can be a size."""
    check(
        i >= 0 and (max is None or i <= max), message or (lambda: f"_check_is_size: {i} is no size")
    )


def check_tensor_all_with(
    error_type: type[Exception], cond: Tensor, message: Message = None
) -> None:
    """Raise the error unless every element is True; the result is read from the device."""
    if not isinstance(cond, Tensor) or cond.dtype.name != "bool":
        raise TypeError("_check_tensor_all: the condition must be a tensor of bools")
    check_with(error_type, bool(cond.all()), message)


def check_tensor_all(cond: Tensor, message: Message = None) -> None:
    """RuntimeError unless every element is True."""
    check_tensor_all_with(RuntimeError, cond, message)


def assert_true(condition: Any, message: str) -> None:
    """AssertionError unless the condition holds."""
    if not condition:
        raise AssertionError(message)


def assert_async(input: Tensor, assert_msg: str = "") -> None:
    """RuntimeError unless the one element is nonzero; it is read at once."""
    if input.numel() != 1:
        raise RushlightError(f"_assert_async: one element is needed, got {input._spec!r}")
    if not bool(input):
        raise RushlightError(assert_msg or f"_assert_async: the element of {input._spec!r} is zero")
