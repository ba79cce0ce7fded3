"""Pipelines on 2 and 4 processes."""

from __future__ import annotations

import pytest

from rushlight.distributed.pipelining.schedules import Action, _alternated
from tests.distributed.conftest import Launched, lines_of
from tests.time_limit import time_limit as time_limit


@pytest.mark.parametrize("count", [2, 4])
def test_stages_have_the_bits_of_accumulated_microbatches(launched: Launched, count: int) -> None:
    ended = launched(count, "pipeline.py")
    for rank in range(count):
        word, gpipe, one = lines_of(ended, rank)[-1].split()
        assert word == "done" and int(one) < int(gpipe)


def test_one_forward_one_backward() -> None:
    forwards, backwards = ([Action(way, 0, n) for n in range(3)] for way in (True, False))
    made = _alternated(forwards, backwards, 2)
    assert [("F" if a.is_forward else "B") + str(a.chunk) for a in made] == [
        *("F0", "F1", "B0", "F2", "B1", "B2")
    ]
