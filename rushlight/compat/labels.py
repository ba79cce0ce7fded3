"""PyTorch's `torch.ops.profiler`: labelled blocks as a pair of functions."""

from __future__ import annotations

import types
from typing import Any

from rushlight.compat.overrides import wrap_torch_function
from rushlight.profiler.labels import record_function


def _record_function_enter(name: str, args: str | None = None) -> record_function:
    """Begin a labelled block; what is returned ends it."""
    return record_function(name, args).__enter__()


@wrap_torch_function(lambda handle: (handle,))  # a trace gives a proxy
def _record_function_exit(handle: Any) -> None:
    """End the block that `handle` began."""
    handle.__exit__(None, None, None)


profiler = types.SimpleNamespace(
    _record_function_enter=_record_function_enter,
    _record_function_enter_new=_record_function_enter,
    _record_function_exit=_record_function_exit,
)
