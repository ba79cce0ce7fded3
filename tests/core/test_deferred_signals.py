"""Ctrl-C at bad moments: while signals are being held back or given back, and while the watching of results is switched."""

from __future__ import annotations

import signal

import pytest

import rushlight as rl
from rushlight.autograd import detect_anomaly, set_detect_anomaly
from rushlight.core import interrupts
from rushlight.tape import arming
from rushlight.tape.blame import Mode

NUMBERS = [signal.SIGINT, signal.SIGTERM, signal.SIGALRM]


def _ignore(*_):
    pass


@pytest.fixture
def handlers():
    """Handlers of our own for every signal that is held back."""
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
        if len(calls) == at:  # what a handler raises that is in place at that moment
            raise KeyboardInterrupt
        return result

    patched = type("Patched", (), {"signal": staticmethod(interrupted), "getsignal": staticmethod(signal.getsignal)})
    monkeypatch.setattr(interrupts, "signal", patched)
    with pytest.raises(KeyboardInterrupt), interrupts.Uninterrupted():
        pass
    assert [signal.getsignal(number) for number in NUMBERS] == [_ignore] * 3


@pytest.mark.parametrize("at", [1, 2])
def test_anomalies_are_not_watched_for_after_an_interrupted_switch(at, monkeypatch):
    calls = []
    switch = arming.switch

    def interrupted(*args):
        calls.append(args)
        if len(calls) == at:
            raise KeyboardInterrupt
        switch(*args)

    monkeypatch.setattr(arming, "switch", interrupted)
    with pytest.raises(KeyboardInterrupt), detect_anomaly():
        assert at == 2
    assert not rl.is_anomaly_enabled()
    assert not Mode.on
    assert rl.log(rl.tensor([-1.0])).isnan().all()
    calls.clear()
    with pytest.raises(KeyboardInterrupt), detect_anomaly(), set_detect_anomaly(False):
        pass
    assert not rl.is_anomaly_enabled()
    assert not Mode.on


def test_every_plan_is_watched_again_after_an_interrupted_switch(monkeypatch):
    x = rl.tensor([-1.0])
    rl.log(x)
    for blocks in (0, 10):  # as after a few blocks, and as in a loop
        arming.Armed.blocks = blocks
        arm, count = arming.arm, [0]

        def interrupted(plan, arm=arm, count=count):
            count[0] += 1
            if count[0] == 1:
                raise KeyboardInterrupt
            arm(plan)

        monkeypatch.setattr(arming, "arm", interrupted)
        with pytest.raises(KeyboardInterrupt), detect_anomaly():
            assert not count  # it is not reached
        monkeypatch.setattr(arming, "arm", arm)
        assert rl.log(x).isnan().all()
        with pytest.raises(rl.AnomalyError), detect_anomaly():
            rl.log(x)
        rl.log(x)
        rl.log(rl.ones(3) - 2)  # a new plan, made while the mode is off
    set_detect_anomaly(False)
