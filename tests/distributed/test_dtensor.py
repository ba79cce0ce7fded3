"""DTensor on 2 and 4 processes."""

from __future__ import annotations

import pytest

from tests.distributed.conftest import Launched, lines_of
from tests.time_limit import time_limit as time_limit


@pytest.mark.parametrize("count", [2, 4])
def test_parts_and_redistribution(launched: Launched, count: int) -> None:
    assert lines_of(launched(count, "dtensors.py")) == ["done"]


@pytest.mark.parametrize("count", [2, 4])
def test_ops_under_all_placements(launched: Launched, count: int) -> None:
    (line,) = lines_of(launched(count, "dtensor_ops.py"))
    assert line.startswith("done")


@pytest.mark.parametrize("count", [2, 4])
def test_training(launched: Launched, count: int) -> None:
    assert lines_of(launched(count, "dtensor_training.py")) == ["done"]


def test_a_pytorch_program_as_it_is(launched: Launched) -> None:
    assert lines_of(launched(2, "pytorch_dtensor_script.py")) == ["done"]
