"""DTensor on 2 and 4 processes."""

from __future__ import annotations

import pytest

import rushlight
from rushlight.distributed.tensor.dtensor import _of_the_part
from rushlight.methods import Unmade
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


def test_a_method_of_parts_that_was_not_used_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Methods of Tensor are made when they are first asked for: here, for a DTensor."""
    made = vars(rushlight.Tensor)["is_complex"]
    monkeypatch.setattr(
        rushlight.Tensor, "is_complex", Unmade(rushlight.Tensor, "is_complex", lambda: made)
    )
    of_the_part = _of_the_part("is_complex")
    assert [of_the_part(rushlight.ones(2)) for _ in range(2)] == [False, False]
