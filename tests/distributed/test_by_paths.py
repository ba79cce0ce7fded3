"""Modules of `torch.distributed` that libraries reach by path, on two ranks."""

from __future__ import annotations

from tests.distributed.conftest import Launched


def test_two_ranks(launched: Launched) -> None:
    assert launched(2, "by_paths.py").stdout.count("all is well") == 2
