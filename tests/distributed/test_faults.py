"""A rank that dies, hangs or raises: the others raise, naming it, and nothing is left behind."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rushlight.distributed import DistributedError, environment as places
from rushlight.distributed.environment import first_host, place
from tests.distributed.conftest import PROGRAMS, Launched, environment, lines_of
from tests.time_limit import time_limit as time_limit

_SLOW = pytest.mark.slow
MEMORY = Path("/dev/shm")
_LAUNCH = (sys.executable, "-m", "rushlight", "launch", "-n", "2")


def _left_behind() -> set[str]:
    return {path.name for path in MEMORY.glob("mpich_shm_*")} if MEMORY.exists() else set()


@pytest.mark.parametrize(
    "how, words",
    [
        ("raises", "rank 1 is gone: KeyError: 'a fault of the program'"),
        ("killed", "rank 1 is gone: it was killed"),
        pytest.param("exits", "rank 1 ended its program after 1", marks=_SLOW),
        ("hangs", "not ended within 3 s. rank 1: it is in no collective"),
        pytest.param("stops", "rank 1: it does not answer", marks=_SLOW),
    ],
)
def test_the_others_raise(launched: Launched, how: str, words: str) -> None:
    ended = launched(3, "faults.py", how, fails=True)
    for rank in (0, 2):
        raised, after = lines_of(ended, rank)
        assert raised.startswith("raised 1 all_reduce | ") and words in raised
        assert after == "after True"
    assert "rushlight launch: rank 1 failed first" in ended.stderr
    told = ended.stderr
    assert how != "raises" or told.endswith("KeyError: 'a fault of the program'\n")


@pytest.mark.parametrize(
    "how, words",
    [
        ("shape", "rank 1: all_reduce(rushlight.float32[3], SUM)"),
        pytest.param("dtype", "rank 1: all_reduce(rushlight.float64[1000], SUM)", marks=_SLOW),
        pytest.param("order", "rank 1: broadcast(rushlight.float32[1000], src=0)", marks=_SLOW),
    ],
)
def test_calls_that_differ_are_named(
    launched: Launched, monkeypatch: pytest.MonkeyPatch, how: str, words: str
) -> None:
    monkeypatch.setenv("TORCH_DISTRIBUTED_DEBUG", "DETAIL")
    ended = launched(3, "faults.py", how, fails=True)
    for rank in range(3):
        raised = lines_of(ended, rank)[0].replace("torch.", "rushlight.")
        assert words in raised and "the ranks' calls differ" in raised
        assert raised.startswith("raised 1 ")


def test_a_rank_that_does_not_come_is_named(launched: Launched) -> None:
    ended = launched(2, "faults.py", "missing", fails=True)
    assert "ranks [1] of 2 did not come within 3 s" in lines_of(ended, 0)[0]


def test_a_port_that_is_taken() -> None:
    port = str(places.free_port())
    with places.socket.socket() as held:
        held.bind(("", int(port)))
        held.listen()
        given = environment(RANK="0", WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
        ended = subprocess.run(
            [sys.executable, str(PROGRAMS / "join.py")],
            env=given,
            capture_output=True,
            text=True,
            timeout=120,
        )
    assert ended.returncode and f"rank 0 cannot listen at port {port}" in ended.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="limit: reads /proc")
def test_children_end_with_the_launcher() -> None:
    process = subprocess.Popen(
        [*_LAUNCH, str(PROGRAMS / "faults.py"), "sleeps"],
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    until = time.monotonic() + 60
    children: list[int] = []
    while len(children) < 2 and time.monotonic() < until:
        children = [
            int(pid)
            for task in Path(f"/proc/{process.pid}/task").glob("*")
            for pid in (task / "children").read_text().split()
        ]
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    while any(Path(f"/proc/{pid}").exists() for pid in children) and time.monotonic() < until:
        time.sleep(0.05)
    assert len(children) == 2 and not any(Path(f"/proc/{pid}").exists() for pid in children)


@pytest.mark.slow
def test_ranks_killed_at_random_points() -> None:
    """RUSHLIGHT_KILLS says how often; each time all processes end, well before the time limit."""
    drawn = random.Random(1)
    before = _left_behind()
    for _ in range(int(os.environ.get("RUSHLIGHT_KILLS", "20"))):
        process = subprocess.Popen(
            [*_LAUNCH, str(PROGRAMS / "busy.py")],
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        time.sleep(drawn.uniform(0.3, 3.0))
        children = [
            int(pid)
            for task in Path(f"/proc/{process.pid}/task").glob("*")
            for pid in (task / "children").read_text().split()
        ]
        if len(children) == 2:
            os.kill(children[drawn.randrange(2)], signal.SIGKILL)
        else:
            process.terminate()
        _, told = process.communicate(timeout=60)
        assert process.returncode, told
        assert len(children) < 2 or "DistributedError" in told or "signal 9" in told, told
    assert len(_left_behind() - before) <= 2  # of ranks that died before they knew each other


# ---- places ----


def test_places(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "PMI_RANK"):
        monkeypatch.delenv(name, raising=False)
    assert place() is None
    assert first_host("gpu[03-07,12],cpu1") == "gpu03" and first_host("a,b") == "a"
    monkeypatch.setenv("SLURM_PROCID", "3")
    monkeypatch.setenv("SLURM_NTASKS", "4")
    monkeypatch.setenv("SLURM_JOB_NODELIST", "node[2-3]")
    monkeypatch.setenv("SLURM_JOB_ID", "123456")
    found = place()
    assert found is not None and (found.rank, found.size, found.host) == (3, 4, "node2")
    assert found.port == 20000 + 123456 % 20000
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("MASTER_ADDR", "host")
    monkeypatch.setenv("MASTER_PORT", "5")
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
    found = place()
    assert found is not None and (found.rank, found.size) == (1, 2)
    assert (found.host, found.port) == ("host", 6)


def test_errors_tell_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    from rushlight.distributed import mpi

    monkeypatch.setitem(sys.modules, "mpi4py", None)
    with pytest.raises(DistributedError, match=r"rushlight\[distributed\]"):
        mpi.library()
