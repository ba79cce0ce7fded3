"""Folders of states, as one process without a group writes and reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest

import rushlight as rl
from rushlight.distributed import checkpoint


class Pair(NamedTuple):
    first: float
    second: Any


def test_values_in_tuples_are_loaded(tmp_path: Path) -> None:
    def state(number: float) -> dict[str, Any]:
        groups = [{"betas": (number, 0.5), "pair": Pair(number, rl.full((2,), number))}]
        return {"groups": groups, "top": (number, "a" if number else "b")}

    checkpoint.save(state(0.25), checkpoint_id=tmp_path / "saved")
    found = state(0.0)
    kept = found["groups"][0]["pair"].second
    checkpoint.load(found, checkpoint_id=tmp_path / "saved")
    assert found["top"] == (0.25, "a") and found["groups"][0]["betas"] == (0.25, 0.5)
    pair = found["groups"][0]["pair"]
    assert type(pair) is Pair and pair.first == 0.25
    assert pair.second is kept and kept.tolist() == [0.25, 0.25]


def test_an_optimizer_gets_its_options(tmp_path: Path) -> None:
    def made(betas: tuple[float, float]) -> rl.optim.Optimizer:
        p = rl.ones(2, requires_grad=True)
        p.sum().backward()
        optimizer = rl.optim.Adam([p], betas=betas)
        optimizer.step()
        return optimizer

    checkpoint.save({"o": made((0.5, 0.75))}, checkpoint_id=tmp_path / "saved")
    other = made((0.9, 0.999))
    checkpoint.load({"o": other}, checkpoint_id=tmp_path / "saved")
    assert other.param_groups[0]["betas"] == (0.5, 0.75)


def test_two_values_of_one_name_are_refused(tmp_path: Path) -> None:
    state = {"a": {"b": rl.ones(1)}, "a.b": rl.zeros(1)}
    with pytest.raises(rl.RushlightError, match=r"two values of the state have the name 'a\.b'"):
        checkpoint.save(state, checkpoint_id=tmp_path / "saved")


def test_a_number_is_not_left_where_a_tensor_was_saved(tmp_path: Path) -> None:
    checkpoint.save({"a": rl.ones(1)}, checkpoint_id=tmp_path / "saved")
    with pytest.raises(rl.RushlightError, match="a is a tensor in"):
        checkpoint.load({"a": 3}, checkpoint_id=tmp_path / "saved")
