"""A time limit: an alarm raises in the main thread.

If that fails, the process ends with all stacks. The limits are wall-clock time: far longer than any
test takes on a machine that is busy with other work.
"""

from __future__ import annotations

import faulthandler
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType

import pytest

SECONDS = 600
WAIT = 300  # for another thread or process


def _ring(number: int, frame: FrameType | None) -> None:
    faulthandler.dump_traceback(file=sys.__stderr__)
    raise TimeoutError(f"the test is not done after {SECONDS} seconds")


@pytest.fixture(autouse=True)
def time_limit() -> Iterator[None]:
    """Import it in files whose tests may hang."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(
        signal, "setitimer"
    ):
        yield
        return
    before = signal.signal(signal.SIGALRM, _ring)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    faulthandler.dump_traceback_later(2 * SECONDS, exit=True, file=sys.__stderr__)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
