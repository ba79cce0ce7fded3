"""Sharded parameters in real processes: the bits of DDP, and less memory; see programs/fsdp.py."""

from __future__ import annotations

import gc
import re
import subprocess
import sys
import weakref
from pathlib import Path

import pytest

import rushlight
from rushlight.distributed import checkpoint, planning
from rushlight.distributed.fsdp import fully_shard
from tests.distributed.conftest import LIMIT, ROOT, Launched, environment, lines_of
from tests.time_limit import time_limit as time_limit


@pytest.mark.parametrize("count", [1, 2, pytest.param(4, marks=pytest.mark.slow)])
def test_fully_shard_gives_the_bits_of_data_parallel(launched: Launched, count: int) -> None:
    ended = launched(count, "fsdp.py")
    assert all(lines_of(ended, rank)[-1] == f"done {rank} {count}" for rank in range(count))


def test_copies_of_parts_have_the_bits_of_data_parallel(launched: Launched) -> None:
    """A mesh of 2 x 2: sums over the ranks of a copy, then over copies."""
    ended = launched(4, "fsdp.py", "hybrid")
    assert all(lines_of(ended, rank)[-1] == f"done {rank} 4" for rank in range(4))


def test_bytes_per_rank_fall_with_the_number_of_ranks(launched: Launched) -> None:
    """Parameters, gradients and AdamW's state: 4 of each element, over the ranks."""
    peaks = []
    for count in (1, 2, 4):
        line = next(
            line for line in lines_of(launched(count, "fsdp.py", "peaks")) if line[:5] == "peaks"
        )
        whole, held, peak = map(int, line.split()[1:])
        # The ranks of a host share a buffer, which counts.
        assert 4 * whole // count <= held <= 4 * whole // count + (3 << 20)
        peaks.append(peak)
    # Of eight layers a rank has its gradients, and a few whole ones on their way.
    assert peaks[2] < peaks[1] < peaks[0], peaks


@pytest.mark.parametrize("count", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_the_wrapper_and_states_of_sharded_models(launched: Launched, count: int) -> None:
    ended = launched(count, "fsdp_states.py")
    assert all(lines_of(ended, rank)[-1] == f"done {rank} {count}" for rank in range(count))


def test_a_sharded_checkpoint_goes_on_with_another_number_of_ranks(
    launched: Launched, tmp_path: Path
) -> None:
    folder = tmp_path / "saved"

    def digest(count: int, word: str) -> str:
        lines = lines_of(launched(count, "fsdp_states.py", str(folder), word))
        return next(line for line in lines if line.startswith("digest"))

    saved = digest(4, "save")
    assert (tmp_path / "saved-later").is_dir()
    assert digest(2, "load") == saved == digest(1, "load")
    # One process without a group reads whole tensors.
    state = {"model": {"1.up.weight": rushlight.zeros(21, 10)}, "step": 0}
    checkpoint.load(state, checkpoint_id=folder)
    assert state["step"] == 2 and bool(state["model"]["1.up.weight"].any())
    with pytest.raises(rushlight.RushlightError, match="has shape"):
        checkpoint.load({"model": {"0.bias": rushlight.zeros(3)}}, checkpoint_id=folder)


def test_tensor_parallel_layers_are_shared_out(launched: Launched, tmp_path: Path) -> None:
    ended = launched(4, "fsdp_tensor_parallel.py", str(tmp_path / "saved"))
    assert all(lines_of(ended, rank)[-1] == f"done {rank} 4" for rank in range(4))


@pytest.mark.parametrize("count", [2, 4])
def test_zero_redundancy_gives_the_bits_of_one_optimizer(launched: Launched, count: int) -> None:
    ended = launched(count, "zero.py")
    assert all(lines_of(ended, rank)[-1] == f"done {rank} {count}" for rank in range(count))


def test_the_example_learns_and_goes_on(tmp_path: Path) -> None:
    folder = str(tmp_path / "gpt")

    def printed(count: int, *words: str) -> str:
        command = [sys.executable, "-m", "rushlight", "launch", "-n", str(count)]
        program = [str(ROOT / "examples" / "fsdp_gpt.py"), "--short", "--batch", "8"]
        ended = subprocess.run(
            [*command, *program, *words],
            env=environment(),
            capture_output=True,
            text=True,
            timeout=LIMIT,
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout

    first = re.search(r"keeps (\d+) of (\d+) .*loss (\S+) to (\S+)", printed(2, "--save", folder))
    assert first is not None
    own, every, before, after = map(float, first.groups())
    assert own < 0.51 * every and after < before
    again = re.search(r"loss (\S+) to (\S+)", printed(1, "--load", folder))
    assert again is not None and float(again[1]) < before


def test_a_pytorch_program_as_it_is(launched: Launched, tmp_path: Path) -> None:
    ended = launched(2, "pytorch_fsdp_script.py", str(tmp_path))
    assert [lines_of(ended, rank) for rank in (0, 1)] == [["done"], ["done"]]


def test_a_class_that_a_function_makes_is_freed_with_its_modules() -> None:
    """Its methods may refer to a model."""

    def sharded() -> weakref.ref[rushlight.nn.Module]:
        held = rushlight.nn.Linear(3, 2)

        class Loss(rushlight.nn.Module):
            def forward(self, x: rushlight.Tensor) -> rushlight.Tensor:
                return held(x).sum()

        fully_shard(Loss())
        assert type(fully_shard(Loss())).__name__ == "FSDPLoss"
        return weakref.ref(held)

    with planning.planned_world(1, 0, True):
        held = sharded()
    gc.collect()
    assert held() is None
