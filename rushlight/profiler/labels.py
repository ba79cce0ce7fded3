"""Labelled blocks: `record_function`."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable
from typing import Any

from rushlight.profiler.recorder import LABEL, Recorder


class record_function(contextlib.ContextDecorator):
    """A block with a label that profiles show; it also decorates a function.

    Args:
        name (str): The label.
        args (str): Text that is shown with it.
    """

    def __init__(self, name: str, args: str | None = None) -> None:
        self.name, self.args = name, args
        self.begun: list[float] = []

    def __enter__(self) -> record_function:
        self.begun.append(time.perf_counter())
        return self

    def __exit__(self, *_: object) -> None:
        begin = self.begun.pop()
        recorder = Recorder.running
        if recorder is not None:
            recorder.note(self.name, LABEL, max(begin, recorder.began), self.args or "")


def record(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator that labels a function's calls."""

    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def called(*args: Any, **named: Any) -> Any:
            with record_function(name):
                return function(*args, **named)

        return called

    return wrap
