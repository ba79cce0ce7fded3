"""Ctrl-C while signal handlers are exchanged: the handlers that were there come back."""

from __future__ import annotations

import signal

import pytest

from rushlight.core import interrupts

NUMBERS = [signal.SIGINT, signal.SIGTERM, signal.SIGALRM]


def _ignore(*_):
    pass


@pytest.fixture
def handlers():
    """Own handlers for every deferred signal."""
    before = {number: signal.signal(number, _ignore) for number in NUMBERS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("at", range(1, 7))
def test_handlers_come_back_whenever_a_signal_comes(at, handlers, monkeypatch):
    calls = []

    def interrupted(number, handler):
        result = signal.signal(number, handler)
        calls.append(number)
        if len(calls) == at:  # as a handler raises that is installed at that moment
            raise KeyboardInterrupt
        return result

    patched = type(
        "Patched",
        (),
        {"signal": staticmethod(interrupted), "getsignal": staticmethod(signal.getsignal)},
    )
    monkeypatch.setattr(interrupts, "_signal", patched)
    with pytest.raises(KeyboardInterrupt), interrupts.Uninterrupted():
        pass
    assert [signal.getsignal(number) for number in NUMBERS] == [_ignore] * 3
