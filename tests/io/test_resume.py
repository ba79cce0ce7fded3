"""A training run that is saved and continued in another process gives the bits of one run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import rushlight as rl
from rushlight.devices.shared.registry import names
from tests.time_limit import WAIT

ROOT = Path(__file__).parent.parent.parent


def train(*args: object) -> None:
    command = [sys.executable, "-m", "tests.io.training", *map(str, args)]
    subprocess.run(command, check=True, timeout=WAIT, cwd=ROOT)


def check_equal(a: Any, b: Any, at: str = "") -> None:
    """Compare nested states; tensors and numbers bit by bit."""
    assert type(a) is type(b), at
    if isinstance(a, rl.Tensor):
        assert a.dtype is b.dtype and a.shape == b.shape and a.device == b.device, at
        a, b = (x.detach().cpu().numpy().tobytes() for x in (a, b))
        assert a == b, at
    elif isinstance(a, dict):
        assert list(a) == list(b), at
        for key in a:
            check_equal(a[key], b[key], f"{at}/{key}")
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b), at
        for i, (one, other) in enumerate(zip(a, b, strict=True)):
            check_equal(one, other, f"{at}/{i}")
    elif isinstance(a, float):
        assert a.hex() == b.hex(), at
    else:
        assert a == b, at


@pytest.mark.parametrize(
    ("device", "workers", "half", "steps"),
    [
        ("cpu", 0, 13, 26),  # inside an epoch, with a gradient that is not complete
        ("cpu", 2, 13, 26),
        ("cpu", 2, 10, 15),  # after the last batch of an epoch
        pytest.param(
            *("webgpu", 0, 3, 6),
            marks=pytest.mark.skipif("webgpu" not in names(), reason="needs webgpu"),
        ),
    ],
)
def test_training_continues_with_equal_bits(
    device: str, workers: int, half: int, steps: int, tmp_path: Path
) -> None:
    given = ["--device", device, "--workers", workers, "--steps", steps]
    train(*given, "--until", steps, "--save", tmp_path / "whole")
    train(*given, "--until", half, "--save", tmp_path / "half")
    train(*given, "--until", steps, "--resume", tmp_path / "half", "--save", tmp_path / "resumed")
    whole, resumed = rl.load(tmp_path / "whole"), rl.load(tmp_path / "resumed")
    assert len(set(whole["losses"])) > len(whole["losses"]) // 2  # it does train
    check_equal(whole, resumed)
