"""Tensor parallel modules on 2, 4 and 8 processes."""

from __future__ import annotations

import re

import pytest

from tests.distributed.conftest import ROOT, Launched, lines_of
from tests.time_limit import time_limit as time_limit


def test_two_ranks_have_the_logits_and_gradients_of_one_and_repeat_their_bits(
    launched: Launched,
) -> None:
    first, again = (lines_of(launched(2, "tensor_parallel.py")) for _ in range(2))
    assert first == again and first[0].startswith("done ")


def test_the_example_has_the_losses_of_one_process(launched: Launched) -> None:
    printed = launched(2, str(ROOT / "examples" / "tensor_parallel_gpt.py"), "--short").stdout
    held, every = map(int, re.search(r"(\d+) of (\d+) parameters on each", printed).groups())
    assert every / 2 < held < every * 0.52
    (apart,) = re.search(r"by at most (\S+)", printed).groups()
    assert float(apart) < 1e-4


@pytest.mark.parametrize("count", [4, pytest.param(8, marks=pytest.mark.slow)])
def test_more_ranks(launched: Launched, count: int) -> None:
    (line,) = lines_of(launched(count, "tensor_parallel.py"))
    assert line.startswith("done ")
