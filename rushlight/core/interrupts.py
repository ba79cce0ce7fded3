"""Ctrl-C later: stretches and finalisers that must be finished once they are begun."""

from __future__ import annotations

import _thread
import functools
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import CodeType, FrameType, TracebackType
from typing import Any

# Those whose handlers raise, where there are any: Ctrl-C, requests to end, and timeouts.
_RAISING = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGALRM") if hasattr(signal, name)]


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

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        raised = self._put_back()
        for number, frame in self.heard:
            self.before[number](number, frame)
        if raised is not None:
            raise raised


# ---- Ctrl-C in a finaliser ----

# Note [Interrupted finalisers]
# The interpreter hears of signals at the start of every Python function, a `__del__` too. An error does not leave those: Ctrl-C
# would be printed and forgotten, and the finaliser would not have run. With a `__del__` for every tensor that meets one Ctrl-C
# in ten. So errors that nobody can catch are looked at: one that came before the first line of a `__del__` named to `finish`
# has it run after all, and Ctrl-C is pressed again a moment later. Every other one goes to whom it went before.

_FINISHED: set[CodeType] = set()
_AGAIN = 0.001  # seconds


def finish(finaliser: Any) -> None:
    """Have this `__del__` run, and Ctrl-C heard, where the one interrupts the other."""
    if not _FINISHED:
        sys.unraisablehook = functools.partial(_unraisable, sys.unraisablehook)
    _FINISHED.add(finaliser.__code__)


def _unraisable(before: Callable[[Any], object], unraisable: Any) -> None:
    trace = unraisable.exc_traceback
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    code = None if trace is None else trace.tb_frame.f_code
    if trace is None or code not in _FINISHED or trace.tb_lineno != code.co_firstlineno:
        before(unraisable)
        return
    trace.tb_frame.f_locals["self"].__del__()
    if issubclass(unraisable.exc_type, KeyboardInterrupt):
        _thread.start_new_thread(_press, ())
    else:
        before(unraisable)


def _press() -> None:
    time.sleep(_AGAIN)
    signal.raise_signal(signal.SIGINT)
