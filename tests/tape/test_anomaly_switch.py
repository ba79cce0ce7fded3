"""Ctrl-C while anomaly checks are switched on or off: the mode and the plans stay consistent."""

from __future__ import annotations

import pytest

import rushlight as rl
from rushlight.autograd import detect_anomaly, set_detect_anomaly
from rushlight.tape.anomaly import arming
from rushlight.tape.anomaly.blame import Mode


@pytest.mark.parametrize("at", [1, 2])
def test_checks_are_off_after_an_interrupted_switch(at, monkeypatch):
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


def test_every_plan_is_checked_again_after_an_interrupted_switch(monkeypatch):
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
