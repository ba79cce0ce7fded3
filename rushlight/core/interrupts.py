"""Deferred signals: blocks and finalisers that run to their end before Ctrl-C is raised."""

from __future__ import annotations

# Its functions make no enumerations, as those of `signal` do.
import _signal  # type: ignore[import-not-found]
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

# Signals whose handlers raise: Ctrl-C, termination, alarms.
_RAISING = [
    int(getattr(signal, name)) for name in ("SIGINT", "SIGTERM", "SIGALRM") if hasattr(signal, name)
]


class Uninterrupted:
    """`with Uninterrupted():` defers signals to the end of the block.

    Only the main thread gets any.
    """

    def __enter__(self) -> None:
        self.heard: list[int] = []
        self.before: dict[int, Any] = {}
        if threading.current_thread() is not threading.main_thread():
            return
        try:
            for number in _RAISING:
                handler = _signal.getsignal(number)
                if callable(handler):
                    self.before[number] = handler
                    _signal.signal(number, self._note)
        except BaseException:  # a signal that is not deferred yet
            self._put_back()
            raise

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.heard.append(number)  # without the frame, which refers to this object

    def _put_back(self) -> BaseException | None:
        """Install the old handlers again; return what a handler raised meanwhile."""
        left, raised = list(self.before.items()), None
        for _ in range(4):
            try:
                while left:
                    _signal.signal(*left[-1])
                    del left[-1]
                break
            except BaseException as error:
                raised = error.with_traceback(None)  # which refers to this frame
        return raised

    def __exit__(
        self, kind: type | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        raised = self._put_back()
        for number in self.heard:
            self.before[number](number, sys._getframe(1))
        if raised is not None:
            try:
                raise raised
            finally:
                del raised  # its traceback refers to this frame


# ---- functions that no signal stops at their first instruction ----

# Note [Unheard]
# CPython (3.11 and later) checks for signals in the instruction RESUME, with which every function
# starts, unless its argument says that the function continues after an `await`. An `__exit__` or a
# `__del__` that Ctrl-C stops there has not run at all, and nobody calls it again. `unheard`
# therefore gives such a function a RESUME that does not check. Inside the function, signals are
# checked after calls of C functions, at the start of other Python functions and at the ends of
# loops: steps that must happen together have none of those between them, or stand in a `try` that
# finishes them. An interpreter without RESUME gets the function unchanged.

_RESUME = dis.opmap.get("RESUME")
_NO_LOOK = 3  # "after an await"


def unheard(function: F) -> F:
    """The function with a RESUME that does not check for signals."""
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
    """The position of a function's first RESUME, whose argument is 0; None where there is none."""
    text = code.co_code
    found = [at for at in range(0, len(text), 2) if text[at] == _RESUME]
    return found[0] if found and text[found[0] + 1] in (0, _NO_LOOK) else None


# ---- Ctrl-C in a finaliser ----

# Note [Interrupted finalisers]
# An error does not leave a `__del__` or a callback of a weak reference: Python prints a
# KeyboardInterrupt raised there and drops it. With a `__del__` for every tensor this happens to one
# Ctrl-C in ten. So `sys.unraisablehook` is wrapped: where the error is a KeyboardInterrupt, the
# signal is sent again a moment later. Every other error goes to the hook that was there before.

_AGAIN = 0.001  # seconds


@functools.cache
def hear_in_finalisers() -> None:
    """Send a Ctrl-C again that was raised in a finaliser."""
    sys.unraisablehook = functools.partial(_unraisable, sys.unraisablehook)


def _unraisable(before: Callable[[Any], object], unraisable: Any) -> None:
    if issubclass(unraisable.exc_type, KeyboardInterrupt):
        _thread.start_new_thread(_press, ())
    else:
        before(unraisable)


def _press() -> None:
    time.sleep(_AGAIN)
    signal.raise_signal(signal.SIGINT)
