"""One CUDA card: NCCL with one rank, and two ranks that share the card (programs/card.py)."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.distributed.conftest import PROGRAMS, environment
from tests.time_limit import time_limit as time_limit


@pytest.mark.slow
def test_one_card(require_device: Callable[[str], str]) -> None:
    require_device("cuda")
    ended = subprocess.run(
        [sys.executable, str(PROGRAMS / "card.py")],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert ended.stdout.endswith("all parts hold\n"), ended.stdout + ended.stderr
