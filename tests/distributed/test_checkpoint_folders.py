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


class Prefixed(checkpoint.DefaultSavePlanner):
    """PyTorch's example of other names."""

    def set_up_planner(self, state_dict: Any, *rest: Any, **named: Any) -> None:
        super().set_up_planner({"ema." + k: v for k, v in state_dict.items()}, *rest, **named)


class Halved(checkpoint.DefaultSavePlanner):
    def resolve_data(self, write_item: Any) -> Any:
        found = super().resolve_data(write_item)
        return found.to(rl.float16) if isinstance(found, rl.Tensor) else found


class Renamed(checkpoint.DefaultLoadPlanner):
    """PyTorch's example: names with a prefix in the folder, none in the state."""

    def set_up_planner(self, state_dict: Any, metadata: Any = None, *rest: Any) -> None:
        self.seen = sorted(metadata.state_dict_metadata)
        self.original_state_dict = state_dict
        self.state_dict = {"ema." + k: v for k, v in state_dict.items()}

    def load_bytes(self, read_item: Any, value: Any) -> None:
        self.original_state_dict[read_item.dest_index.fqn[4:]] = rl.load(value)


class Elsewhere(checkpoint.DefaultLoadPlanner):
    def resolve_tensor(self, read_item: Any) -> Any:
        return rl.empty_like(super().resolve_tensor(read_item))

    def commit_tensor(self, read_item: Any, tensor: Any) -> None:
        self.state_dict[read_item.dest_index.fqn].copy_(tensor * 2)


def test_a_planner_names_values_otherwise(tmp_path: Path) -> None:
    state = {"w": rl.arange(3.0), "n": 3}
    checkpoint.save(state, checkpoint_id=tmp_path / "a", planner=Prefixed())
    plain: dict[str, Any] = {"ema.w": rl.zeros(3), "ema.n": 0}
    checkpoint.load(plain, checkpoint_id=tmp_path / "a")
    assert plain["ema.w"].tolist() == [0, 1, 2] and plain["ema.n"] == 3
    got = {"w": rl.zeros(3), "n": 0}
    planner = Renamed()
    checkpoint.load(got, checkpoint_id=tmp_path / "a", planner=planner)
    assert got["w"].tolist() == [0, 1, 2] and got["n"] == 3 and planner.seen == ["ema.n", "ema.w"]
    writer = checkpoint.HuggingFaceStorageWriter(tmp_path / "hf")
    checkpoint.save({"w": rl.arange(3.0)}, storage_writer=writer, planner=Prefixed())
    assert set(rl.io.load_file(tmp_path / "hf" / "model-00001-of-00001.safetensors")) == {"ema.w"}


def test_a_planner_changes_values(tmp_path: Path) -> None:
    state = {"w": rl.arange(3.0), "n": 3}
    checkpoint.async_save(state, checkpoint_id=tmp_path / "a", planner=Halved()).wait()
    part = rl.io.load_file(tmp_path / "a" / "part0.safetensors")
    assert part["w"].dtype is rl.float16
    got = {"w": rl.zeros(3), "n": 0}
    checkpoint.load(got, checkpoint_id=tmp_path / "a", planner=Elsewhere())
    assert got["w"].tolist() == [0, 2, 4] and got["n"] == 3


def test_a_planner_with_plans_is_refused(tmp_path: Path) -> None:
    class Own(checkpoint.DefaultSavePlanner):
        def create_local_plan(self) -> Any:
            return None

    class Shapes(checkpoint.DefaultSavePlanner):
        def transform_object(self, write_item: Any, object: Any) -> Any:
            return object[:1]

    state = {"w": rl.arange(3.0)}
    with pytest.raises(rl.RushlightError, match="Own overrides create_local_plan"):
        checkpoint.save(state, checkpoint_id=tmp_path / "a", planner=Own())
    with pytest.raises(TypeError, match="a planner is a DefaultLoadPlanner, got object"):
        checkpoint.load(state, checkpoint_id=tmp_path / "a", planner=object())
    with pytest.raises(rl.RushlightError, match=r"must give w as a tensor of shape \[3\]"):
        checkpoint.save(state, checkpoint_id=tmp_path / "a", planner=Shapes())
    writer = checkpoint.HuggingFaceStorageWriter(tmp_path / "hf")
    with pytest.raises(rl.RushlightError, match="overrides resolve_data"):
        checkpoint.save(state, storage_writer=writer, planner=Halved())


def test_a_number_that_a_folder_lacks_stays(tmp_path: Path) -> None:
    checkpoint.save({"a": rl.ones(1)}, checkpoint_id=tmp_path / "saved")
    got = {"a": rl.zeros(1), "n": 5}
    partial = checkpoint.DefaultLoadPlanner(allow_partial_load=True)
    checkpoint.load(got, checkpoint_id=tmp_path / "saved", planner=partial)
    assert got["a"].item() == 1 and got["n"] == 5
