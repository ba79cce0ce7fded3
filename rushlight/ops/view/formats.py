"""Results of ops on images in the memory format of their input: Note [Layouts of results] 3."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from rushlight.core.shapes import strides_last, suggests_last
from rushlight.ops.view import views
from rushlight.ops.view.laid import in_strides
from rushlight.tape.record.value import Value


def in_format(result: Any, last: bool) -> Any:
    """A result, or each of several, with its channels last, or contiguous."""
    if isinstance(result, tuple):
        return tuple([in_format(v, last) for v in result])
    if not last or result._spec.hidden:
        return views.contiguous(result)
    return in_strides(result, strides_last(result._spec.shape))


def packed(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, whose result is contiguous for any layout of its operands, as in PyTorch."""

    @functools.wraps(function)
    def called(*args: Any, **named: Any) -> Any:
        return views.contiguous(function(*args, **named))

    return called


def follows_image(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function of an image, whose results have the image's memory format."""

    @functools.wraps(function)
    def called(input: Value, *args: Any, **named: Any) -> Any:
        return in_format(function(input, *args, **named), suggests_last(input._spec))

    return called
