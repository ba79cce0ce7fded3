"""Ctrl-C later: stretches and finalisers that must be finished once they are begun."""

from __future__ import annotations

import _thread
import dis
import functools
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import CodeType, FrameType, TracebackType
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

# Those whose handlers raise, where there are any: Ctrl-C, requests to end, and timeouts.
_RAISING = [
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGALRM") if hasattr(signal, name)
]


class Uninterrupted:
    """`with Uninterrupted():` holds signals back until the block's end. Only the main thread hears of them."""

    def __enter__(self) -> None:
        self.heard: list[tuple[int, FrameType | None]] = []
        self.before: dict[int, Any] = {}
        if threading.current_thread() is not threading.main_thread():
            return
        try:
            for number in _RAISING:
                handler = signal.getsignal(number)
                if callable(handler):
                    self.before[number] = handler
                    signal.signal(number, self._note)
        except BaseException:  # one that is not held back yet
            self._put_back()
            raise

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.heard.append((number, frame))

    def _put_back(self) -> BaseException | None:
        """Give every signal its handler again; what one that has it already raises in between."""
        left, raised = list(self.before.items()), None
        for _ in range(4):
            try:
                while left:
                    signal.signal(*left[-1])
                    del left[-1]
                break
            except BaseException as error:
                raised = error
        return raised

    def __exit__(
        self, kind: type | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        raised = self._put_back()
        for number, frame in self.heard:
            self.before[number](number, frame)
        if raised is not None:
            raise raised


# ---- functions that begin without hearing of signals ----

# Note [Unheard]
# The interpreter (CPython 3.11 and later) looks for signals in the instruction RESUME, with which every function starts, unless
# its argument says that the function goes on after an `await`. An `__exit__` or a `__del__` that Ctrl-C stops there has not run
# at all, and nobody calls it again. So `unheard` gives such a function a RESUME that does not look. Inside, signals are heard
# after calls of C functions, at the start of other Python functions and at the ends of loops: what must happen together is
# written without those between, or in a `try` that finishes it. An interpreter without RESUME gets the function as it is.

_RESUME = dis.opmap.get("RESUME")
_NO_LOOK = 3  # "after an await"


def unheard(function: F) -> F:
    """The function, which no signal keeps from beginning."""
    code: CodeType = function.__code__
    at = _first_resume(code)
    if at is not None:
        text = bytearray(code.co_code)
        text[at + 1] = _NO_LOOK
        function.__code__ = code.replace(co_code=bytes(text))
    return function


def is_unheard(code: CodeType) -> bool:
    at = _first_resume(code)
    return at is not None and code.co_code[at + 1] == _NO_LOOK


def _first_resume(code: CodeType) -> int | None:
    """Where RESUME is; None where no RESUME of a function's start is found, whose argument is 0."""
    text = code.co_code
    found = [at for at in range(0, len(text), 2) if text[at] == _RESUME]
    return found[0] if found and text[found[0] + 1] in (0, _NO_LOOK) else None


# ---- Ctrl-C in a finaliser ----

# Note [Interrupted finalisers]
# An error does not leave a `__del__`: Ctrl-C that is heard there would be printed and forgotten. With a `__del__` for every tensor
# that meets one in ten, and callbacks of weak references meet it too. So errors that nobody can catch are looked at: where one is
# Ctrl-C it is pressed again a moment later. Every other one goes to whom it went before.

_AGAIN = 0.001  # seconds


@functools.cache
def hear_in_finalisers() -> None:
    """Have Ctrl-C heard that comes where errors go nowhere."""
    sys.unraisablehook = functools.partial(_unraisable, sys.unraisablehook)


def _unraisable(before: Callable[[Any], object], unraisable: Any) -> None:
    if issubclass(unraisable.exc_type, KeyboardInterrupt):
        _thread.start_new_thread(_press, ())
    else:
        before(unraisable)


def _press() -> None:
    time.sleep(_AGAIN)
    signal.raise_signal(signal.SIGINT)
