"""PyTorch's `torch.autograd.profiler`: labels of blocks; a trace is not recorded yet."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

from rushlight.core.errors import RushlightError


class record_function(contextlib.ContextDecorator):
    """A block with a label, which a profiler would show."""

    def __init__(self, name: str, args: str | None = None) -> None:
        self.name, self.args = name, args

    def __enter__(self) -> record_function:
        return self

    def __exit__(self, *_: object) -> None:
        return None


class EventList(list[Any]):
    """The calls of a profile, in PyTorch."""


class profile:
    """A recording of every op's time in PyTorch, which is refused here where it is enabled."""

    def __init__(self, enabled: bool = True, **named: Any) -> None:
        if enabled:
            raise RushlightError(
                "autograd.profiler.profile is not supported; memory.record() records memory by op "
                "and line"
            )

    def __enter__(self) -> profile:
        return self

    def __exit__(self, *_: object) -> None:
        return None


class emit_nvtx(contextlib.nullcontext[None]):
    """A block whose ops have marks for NVIDIA's tools in PyTorch; nothing changes here."""

    def __init__(self, enabled: bool = True, record_shapes: bool = False) -> None:
        super().__init__(None)


def record(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator that labels a function's calls."""

    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def called(*args: Any, **named: Any) -> Any:
            with record_function(name):
                return function(*args, **named)

        return called

    return wrap
