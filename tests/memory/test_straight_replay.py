"""Replays that begin in one row of launches and go on by frames. See Note [Replay] 9."""

from __future__ import annotations

from typing import Any

import rushlight as rl
from rushlight import BudgetError, memory
from rushlight.tape.memory import rebuild
from rushlight.tape.memory.pins import Pins
from rushlight.tape.memory.region import drop
from tests.memory.training_step import bits


def test_what_a_launchs_scratch_drops_is_made_again(monkeypatch):
    x = rl.rand(64, 64)
    want = bits(x.sin() + x.cos())
    with memory.budget(1 << 30):
        first, second = x.sin(), x.cos()
        both = first + second
        for value in (first, second, both):
            drop(value._memory)
        plan = first._memory.recipe.plan  # which runs last
        launch, dropped = plan.launch, []

        def dropping(*args: Any) -> None:
            launch(*args)
            if not dropped:  # as where its scratch took the room
                dropped.append(second._memory)
                drop(second._memory)
                Pins.note_dropped(dropped)

        monkeypatch.setattr(plan, "launch", dropping)
        assert bits(both) == want
        assert dropped


def test_a_refused_row_of_launches_goes_on_by_frames(monkeypatch):
    x = rl.rand(64, 64)
    want = bits(x.sin().cos())
    make, refused = rebuild.make_storage, []

    def refusing(*args: Any) -> Any:
        if not refused:
            refused.append(args)
            raise BudgetError("no room", 0)
        return make(*args)

    with memory.budget(1 << 30):
        y = x.sin().cos()
        drop(y._memory)
        monkeypatch.setattr(rebuild, "make_storage", refusing)
        assert bits(y) == want
    assert refused
