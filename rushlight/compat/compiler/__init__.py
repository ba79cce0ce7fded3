"""PyTorch's `torch.compiler` and `torch.compile`: calls stay eager."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from rushlight.core.saying import say_once

F = TypeVar("F")


def compile(
    model: Any = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: Any = "inductor",
    mode: str | None = None,
    options: Any = None,
    disable: bool = False,
    **named: Any,
) -> Any:
    """The function or module itself, which stays eager; without one, a decorator.

    Args:
        model (callable): A function or module.
        fullgraph (bool): Has no effect.
        dynamic (bool): Has no effect.
        backend (str): Has no effect.
        mode (str): Has no effect.
        options (dict): Has no effect.
        disable (bool): Has no effect.
        named: Have no effect.
    """
    say_once("compile: functions and modules stay eager; the options have no effect")
    return _same if model is None else model


def _same(given: F) -> F:
    return given


def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """The function itself; with or without parentheses."""
    return _same if fn is None else fn


def allow_in_graph(fn: F) -> F:
    """The function itself."""
    return fn


def assume_constant_result(fn: F) -> F:
    """The function itself."""
    return fn


def substitute_in_graph(original_fn: Any, **named: Any) -> Callable[[F], F]:
    """A decorator that changes nothing."""
    return _same


def nested_compile_region(fn: Any = None, **named: Any) -> Any:
    """The function itself; with or without parentheses."""
    return _same if fn is None else fn


def is_compiling() -> bool:
    """False: calls are eager."""
    return False


def is_dynamo_compiling() -> bool:
    """False: calls are eager."""
    return False


def is_exporting() -> bool:
    """False: nothing is exported."""
    return False


def reset() -> None:
    """Accepted: nothing is compiled."""


def cudagraph_mark_step_begin() -> None:
    """Accepted: there are no graphs of launches."""


def list_backends(exclude_tags: Any = ()) -> list[str]:
    """None: an empty list."""
    return []


def set_enable_guard_collectives(enabled: bool) -> bool:
    """False, as before: there are no collectives."""
    return False


@contextlib.contextmanager
def set_stance(stance: str = "default", **named: Any) -> Iterator[None]:
    """A block in which nothing changes: calls are eager."""
    yield
