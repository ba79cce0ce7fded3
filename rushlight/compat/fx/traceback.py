"""PyTorch's `torch.fx.traceback`: facts of a node that go to the nodes made from it."""

from __future__ import annotations

import contextlib
import functools
import traceback
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

__all__ = [
    "annotate",
    "annotate_fn",
    "format_stack",
    "get_current_meta",
    "has_preserved_node_meta",
    "preserve_node_meta",
    "set_current_meta",
    "set_stack_trace",
]

_META: ContextVar[dict[str, Any] | None] = ContextVar("node_meta", default=None)
_PRESERVED: ContextVar[bool] = ContextVar("node_meta_preserved", default=False)


def _current() -> dict[str, Any]:
    found = _META.get()
    if found is None:
        found = {}
        _META.set(found)
    return found


@contextlib.contextmanager
def preserve_node_meta(enable: bool = True) -> Iterator[None]:
    """A block in which `set_current_meta` has an effect.

    Args:
        enable (bool): Whether it has.
    """
    token, inner = _PRESERVED.set(enable), _META.set(dict(_current()))
    try:
        yield
    finally:
        _META.reset(inner)
        _PRESERVED.reset(token)


def has_preserved_node_meta() -> bool:
    """Whether the block of `preserve_node_meta` is open."""
    return _PRESERVED.get()


@contextlib.contextmanager
def set_current_meta(node: Any, pass_name: str = "") -> Iterator[None]:
    """A block in which the current facts are those of a node.

    Args:
        node (Node): The node.
        pass_name (str): Has no effect.
    """
    if not (has_preserved_node_meta() and node.meta):
        yield
        return
    token = _META.set(dict(node.meta))
    try:
        yield
    finally:
        _META.reset(token)


def get_current_meta() -> dict[str, Any]:
    """The current facts."""
    return _current()


@contextlib.contextmanager
def annotate(annotation_dict: dict[str, Any]) -> Iterator[None]:
    """A block in which the current facts have entries of the user's, as "custom".

    Args:
        annotation_dict (dict): The entries.
    """
    current = _current()
    token = _META.set({**current, "custom": {**current.get("custom", {}), **annotation_dict}})
    try:
        yield
    finally:
        _META.reset(token)


def annotate_fn(annotation_dict: dict[str, Any]) -> Callable[[Any], Any]:
    """A decorator: the function runs in a block of `annotate`.

    Args:
        annotation_dict (dict): The entries.
    """

    def decorate(function: Any) -> Any:
        @functools.wraps(function)
        def call(*args: Any, **named: Any) -> Any:
            with annotate(annotation_dict):
                return function(*args, **named)

        return call

    return decorate


def set_stack_trace(stack: list[str]) -> None:
    """Note the lines of a stack in the current facts, inside of `preserve_node_meta`.

    Args:
        stack (list): The lines.
    """
    if has_preserved_node_meta() and stack:
        _current()["stack_trace"] = "".join(stack)


def format_stack() -> list[str]:
    """The noted lines, inside of `preserve_node_meta`; else those of the call."""
    if has_preserved_node_meta():
        return [_current().get("stack_trace", "")]
    return traceback.format_list(traceback.extract_stack()[:-1])
