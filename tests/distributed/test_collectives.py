"""Collectives between real processes; the checks are in programs/collectives.py."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import rushlight
from rushlight.distributed import arenas
from rushlight.distributed.work import Work
from tests.distributed.conftest import PROGRAMS, Launched, environment, free_port, lines_of
from tests.time_limit import time_limit as time_limit


@pytest.mark.parametrize("count", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_collectives(launched: Launched, count: int) -> None:
    ended = launched(count, "collectives.py")
    for rank in range(count):
        assert lines_of(ended, rank)[-1] == f"done {rank} {count}"


@pytest.mark.parametrize("how", ["messages", "pieces"])
def test_collectives_without_shared_memory_and_with_little(launched: Launched, how: str) -> None:
    ended = launched(3, "collectives.py", how)
    assert lines_of(ended)[-1] == "done 0 3"


@pytest.mark.slow
def test_collectives_on_webgpu(launched: Launched, require_device: Callable[[str], object]) -> None:
    require_device("webgpu")
    ended = launched(2, "collectives.py", "webgpu")
    assert lines_of(ended)[-1] == "done 0 2"


def _port() -> str:
    return str(free_port())


def _run_all(environments: list[dict[str, str]], *words: str) -> list[str]:
    running = [
        subprocess.Popen(
            [sys.executable, str(PROGRAMS / "join.py"), *words],
            env=one,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for one in environments
    ]
    told = [process.communicate(timeout=120)[0] for process in running]
    assert all(process.returncode == 0 for process in running), told
    return told


def test_processes_started_singly_join_by_torchrun_s_variables() -> None:
    port = _port()
    told = _run_all(
        [
            environment(RANK=str(r), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
            for r in range(2)
        ]
    )
    assert told == ["rank 0 of 2: 3.0\n", "rank 1 of 2: 3.0\n"]


def test_processes_join_by_a_file_that_an_earlier_run_left(tmp_path: Path) -> None:
    path = tmp_path / "address"
    path.write_text(f"127.0.0.1 {_port()}\n")
    words = [sys.executable, str(PROGRAMS / "join.py"), f"file://{path}"]
    running: list[subprocess.Popen[str]] = []
    try:
        for rank in ("1", "0"):
            running.append(
                subprocess.Popen(
                    [*words, rank], env=environment(), stdout=subprocess.PIPE, text=True
                )
            )
            time.sleep(1.5)  # the first one has read the file
        told = [process.communicate(timeout=60)[0] for process in running]
    finally:
        for process in running:
            process.kill()
    assert told == ["rank 1 of 2: 3.0\n", "rank 0 of 2: 3.0\n"]


@pytest.mark.slow
def test_processes_started_singly_join_by_slurm_s_variables() -> None:
    told = _run_all(
        [
            environment(
                SLURM_PROCID=str(r),
                SLURM_NTASKS="2",
                SLURM_JOB_NODELIST="127.0.0.1",
                SLURM_JOB_ID=_JOB,
            )
            for r in range(2)
        ]
    )
    assert sorted(told) == ["rank 0 of 2: 3.0\n", "rank 1 of 2: 3.0\n"]


_JOB = str(int(_port()) % 20000)


def test_mpiexec_starts_it() -> None:
    command = Path(sys.executable).with_name("mpiexec")
    if not command.exists():
        pytest.skip("limit: mpiexec is not beside this Python")
    ended = subprocess.run(
        [str(command), "-n", "2", sys.executable, str(PROGRAMS / "join.py")],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ended.returncode == 0, ended.stderr
    lines = [line for line in ended.stdout.splitlines() if line]
    assert sorted(lines) == ["rank 0 of 2: 3.0", "rank 1 of 2: 3.0"]


def test_every_future_of_a_work_is_set() -> None:
    work = Work(lambda: 3)
    early = [work.get_future(), work.get_future()]
    work._perform()
    assert [future.done() and future.wait() for future in [*early, work.get_future()]] == [3] * 3


def test_memory_of_ranks_is_the_hosts_whatever_the_default_device() -> None:
    with rushlight.device("null"):
        made, _ = arenas._own(1 << 12)
    assert made is not None and made.device.type == "cpu" and made.is_shared()
