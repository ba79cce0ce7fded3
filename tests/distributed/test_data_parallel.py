"""DistributedDataParallel in real processes, checkpoints, meshes; see programs/."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import rushlight
import rushlight.distributed as dist
from rushlight.distributed import DDP, checkpoint, planning
from rushlight.distributed.checkpoint.folders import shares
from rushlight.distributed.reducer import buckets
from tests.distributed.conftest import Launched, lines_of
from tests.time_limit import time_limit as time_limit


@pytest.mark.parametrize("count", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_data_parallel(launched: Launched, count: int) -> None:
    ended = launched(count, "data_parallel.py")
    assert all(lines_of(ended, rank)[-1] == f"done {rank} {count}" for rank in range(count))


@pytest.mark.parametrize("count", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_collectives_with_gradients(launched: Launched, count: int) -> None:
    ended = launched(count, "gradients_of_collectives.py")
    assert all(lines_of(ended, rank)[-1] == f"done {rank} {count}" for rank in range(count))


def test_a_checkpoint_of_four_ranks_is_read_by_one(launched: Launched, tmp_path: Path) -> None:
    folder = tmp_path / "saved"
    launched(4, "checkpoints.py", str(folder))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["later", "saved"]
    assert len(list(folder.glob("part*.safetensors"))) == 4
    state = {"model": {"w": rushlight.zeros(5, 3), "b": rushlight.zeros(2)}, "step": 0, "lr": [0.0]}
    checkpoint.load(state, checkpoint_id=folder)
    assert state["step"] == 7 and state["lr"] == [0.5]
    assert state["model"]["w"].tolist() == rushlight.arange(15.0).view(5, 3).tolist()
    checkpoint.load(state, checkpoint_id=tmp_path / "later")
    assert state["step"] == 8 and state["model"]["b"].tolist() == [1.0, 1.0]


def test_checkpoints_of_one_process(tmp_path: Path) -> None:
    state = {"x": rushlight.arange(4), "n": 3}
    checkpoint.save(state, checkpoint_id=tmp_path / "a")
    checkpoint.async_save({**state, "n": 4}, checkpoint_id=tmp_path / "a").wait()
    got = {"x": rushlight.zeros(4, dtype=rushlight.int64), "n": 0}
    checkpoint.load(got, checkpoint_id=tmp_path / "a")
    assert got["n"] == 4 and got["x"].tolist() == [0, 1, 2, 3]
    with pytest.raises(KeyError, match="has no y"):
        checkpoint.load({"y": rushlight.zeros(1)}, checkpoint_id=tmp_path / "a")
    with pytest.raises(rushlight.RushlightError, match="has shape"):
        checkpoint.load({"x": rushlight.zeros(5)}, checkpoint_id=tmp_path / "a")
    with pytest.raises(rushlight.RushlightError, match="no whole checkpoint"):
        checkpoint.load(got, checkpoint_id=tmp_path / "b")


def test_checkpoints_of_hugging_face_s_files(tmp_path: Path) -> None:
    weights = {"a.w": rushlight.arange(6.0).view(2, 3), "b": rushlight.ones(2)}
    writer = checkpoint.HuggingFaceStorageWriter(tmp_path, fqn_to_index_mapping={"a.w": 1, "b": 2})
    checkpoint.save({**weights, "step": 3}, storage_writer=writer)
    names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    assert sorted(p.name for p in tmp_path.glob("*.safetensors")) == names
    told = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    assert told["weight_map"] == {"a.w": names[0], "b": names[1]}
    assert told["metadata"]["total_size"] == 32
    got = {name: rushlight.zeros_like(value) for name, value in weights.items()}
    reader = checkpoint.HuggingFaceStorageReader(tmp_path)
    checkpoint.load(got, storage_reader=reader)
    assert all(rushlight.equal(got[name], weights[name]) for name in weights)
    more = {"a.w": rushlight.zeros(2, 3), "c": rushlight.zeros(1)}
    with pytest.raises(KeyError, match="has no c"):
        checkpoint.load_state_dict(more, reader)
    partial = checkpoint.DefaultLoadPlanner(allow_partial_load=True)
    checkpoint.load_state_dict(more, reader, planner=partial)
    assert more["a.w"].sum().item() == 15 and more["c"].item() == 0


def test_shares_are_even() -> None:
    owner = shares({"a": 8, "b": 4, "c": 3, "d": 1}, 2)
    assert owner == {"a": 0, "b": 1, "c": 1, "d": 1}


def test_buckets() -> None:
    half = rushlight.float16
    parameters = [
        *(rushlight.zeros(100), rushlight.zeros(300, dtype=half), rushlight.zeros(300, dtype=half)),
        *(rushlight.zeros(200), rushlight.zeros(50)),
    ]
    made = buckets(parameters, 1000)
    assert [bucket.numbers for bucket in made] == [[4, 3], [2], [1], [0]]
    assert [n for bucket in buckets(parameters, 1 << 30) for n in bucket.numbers] == [4, 3, 2, 1, 0]


def test_shards_of_one_process_without_a_group() -> None:
    net = rushlight.nn.Linear(3, 2)
    wrapped = DDP(net, shards=4)
    x = rushlight.randn(8, 3)
    wrapped(x).square().mean().backward()
    got = net.weight.grad.clone()
    net.zero_grad()
    net(x).square().mean().backward()
    assert rushlight.allclose(got, net.weight.grad, atol=1e-6)
    with planning.planned_world(1, 0, True):  # a group of one sums in place, too
        again = DDP(net, shards=4)
        net.zero_grad()
        dist.traffic(reset=True)
        again(x).square().mean().backward()
        assert rushlight.equal(got, net.weight.grad) and dist.traffic() == {}
    with pytest.raises(rushlight.ShapeError, match="6 rows for 4 of 4 shards"):
        wrapped(rushlight.randn(6, 3))
    with pytest.raises(ValueError, match="SyncBatchNorm"):
        DDP(rushlight.nn.SyncBatchNorm(2), shards=4)


def test_a_sampler_goes_on_with_another_number_of_processes() -> None:
    sampler = rushlight.utils.data.DistributedSampler
    whole = list(sampler(range(16), 1, 0, seed=3))
    four = [sampler(range(16), 4, rank, seed=3) for rank in range(4)]
    seen = [index for row in zip(*(list(s)[:2] for s in four), strict=True) for index in row]
    two = [sampler(range(16), 2, rank, seed=3) for rank in range(2)]
    for one in two:
        one.skip(8)
        assert len(one) == 4
    seen += [index for row in zip(*two, strict=True) for index in row]
    assert seen == whole
    two[0].set_epoch(1)
    assert len(two[0]) == 8
    with pytest.raises(ValueError, match="no multiple"):
        two[0].skip(3)


@pytest.mark.skipif(sys.platform != "linux", reason="limit: names are exchanged on Linux")
def test_a_checkpoint_is_there_while_it_is_replaced(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A process that is killed at any moment leaves the old one or the new one."""
    folder, renamed = tmp_path / "saved", Path.rename
    checkpoint.save({"x": rushlight.zeros(2)}, checkpoint_id=folder)

    def rename(self: Path, target: Path) -> Path:
        made = renamed(self, target)
        assert (folder / "index.json").exists()
        return made

    monkeypatch.setattr(Path, "rename", rename)
    checkpoint.save({"x": rushlight.ones(2)}, checkpoint_id=folder)
    state = {"x": rushlight.zeros(2)}
    checkpoint.load(state, checkpoint_id=folder)
    assert state["x"].tolist() == [1.0, 1.0] and list(tmp_path.iterdir()) == [folder]


def test_a_pytorch_program_runs_unchanged(launched: Launched) -> None:
    (line,) = lines_of(launched(2, "pytorch_script.py", options=("--device", "cpu")))
    first, last = map(float, line.split()[1:])
    assert last < 0.7 * first
