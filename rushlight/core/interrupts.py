"""Ctrl-C later: a stretch that must be finished once it is begun."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any

# Those whose handlers raise, where there are any: Ctrl-C, requests to end, and timeouts.
_RAISING = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGALRM") if hasattr(signal, name)]


class Uninterrupted:
    """`with Uninterrupted():` holds signals back until the block's end. Only the main thread hears of them."""

    def __enter__(self) -> None:
        self.heard: list[tuple[int, FrameType | None]] = []
        self.before: dict[int, Any] = {}
        if threading.current_thread() is threading.main_thread():
            for number in _RAISING:
                handler = signal.getsignal(number)
                if callable(handler):
                    self.before[number] = handler
                    signal.signal(number, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.heard.append((number, frame))

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)
        for number, frame in self.heard:
            self.before[number](number, frame)
