"""A rank that dies, hangs or raises: the others raise, naming it, and nothing is left behind."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import rushlight
import rushlight.distributed as dist
from rushlight import launch
from rushlight.distributed import DistributedError, planning, store_server, waiting
from rushlight.distributed.environment import first_host, place
from rushlight.distributed.store import Watch, Where
from rushlight.distributed.stores import WorldStore
from tests.distributed.conftest import PROGRAMS, Launched, environment, free_port, lines_of
from tests.time_limit import time_limit as time_limit

_SLOW = pytest.mark.slow
MEMORY = Path("/dev/shm")
_KILLS = 20  # of one test, within its time limit
_LAUNCH = (sys.executable, "-m", "rushlight", "launch", "-n", "2")


def _left_behind() -> set[str]:
    return {path.name for path in MEMORY.glob("mpich_shm_*")} if MEMORY.exists() else set()


def _stays(before: set[str]) -> set[str]:
    """What is left for good, not of another test that runs now."""
    found = _left_behind() - before
    until = time.monotonic() + 10
    while found and time.monotonic() < until:
        time.sleep(0.1)
        found &= _left_behind()
    return found


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


@pytest.mark.parametrize(
    "how, size, words",
    [
        ("order", "1000", "rank 1: broadcast(rushlight.float32[1000], src=0)"),
        ("order", "100000", "rank 1: broadcast(rushlight.float32[100000], src=0)"),
        pytest.param("shape", "1000", "rank 1: all_reduce(rushlight.float32[3]", marks=_SLOW),
        pytest.param("dtype", "1000", "all_reduce(rushlight.float64[1000], SUM)", marks=_SLOW),
        pytest.param("dtype", "100000", "all_reduce(rushlight.float64[100000]", marks=_SLOW),
    ],
)
def test_calls_that_differ_do_not_mix(launched: Launched, how: str, size: str, words: str) -> None:
    """Without the debug mode: their messages have other marks."""
    ended = launched(3, "faults.py", how, size, fails=True)
    for rank in (0, 2):
        raised = lines_of(ended, rank)[0].replace("torch.", "rushlight.")
        assert raised.startswith("raised 1 all_reduce |"), raised
        assert words in raised and "the ranks' calls differ" in raised


@pytest.mark.parametrize(
    "how, words",
    [
        ("all_gather", "rank 1: all_gather(rushlight.int32[1000]"),
        pytest.param("reduce_scatter", "rank 1: reduce_scatter(", marks=_SLOW),
        pytest.param("gather", "rank 1: gather(rushlight.int32[1000], dst=0)", marks=_SLOW),
        pytest.param("all_to_all_single", "all_to_all_single(rushlight.int32)", marks=_SLOW),
    ],
)
def test_elements_of_two_dtypes_or_sums_do_not_mix(
    launched: Launched, how: str, words: str
) -> None:
    ended = launched(2, "faults.py", how, fails=True)
    raised = lines_of(ended, 0)[0].replace("torch.", "rushlight.")
    assert words in raised and "the ranks' calls differ" in raised


def test_a_call_that_raises_on_one_rank_is_named(launched: Launched) -> None:
    """That rank goes on; the others would wait for its part until the time is over."""
    ended = launched(3, "faults.py", "raises_inside", fails=True)
    for rank in (0, 2):
        raised = lines_of(ended, rank)[0]
        assert raised.startswith("raised 1 all_gather | "), raised
        assert "raised BudgetError(" in raised


@pytest.mark.parametrize(
    "how",
    [
        "short_gather",
        pytest.param("short_scatter", marks=_SLOW),
        pytest.param("short_all_to_all", marks=_SLOW),
        pytest.param("short_recv", marks=_SLOW),
    ],
)
def test_messages_that_are_too_short_are_told(launched: Launched, how: str) -> None:
    """MPI would leave the rest of the buffer as it was."""
    ended = launched(2, "faults.py", how, fails=True)
    raised = lines_of(ended, 0)[0]
    assert "rank 1 sent 3996 bytes where 4000 were expected" in raised, raised


@pytest.mark.parametrize("size", ["1000", "100000"])
def test_a_rank_that_leaves_a_call_in_the_middle(launched: Launched, size: str) -> None:
    """Its next calls would read another call's elements in shared memory."""
    ended = launched(2, "faults.py", "interrupted", size, fails=True)
    for rank in (0, 1):
        raised = lines_of(ended, rank)[0]
        assert raised.startswith("raised 1 all_gather_into_tensor |"), raised
        assert "it was left in the middle: KeyboardInterrupt" in raised


def test_a_rank_that_does_not_come_is_named(launched: Launched) -> None:
    ended = launched(2, "faults.py", "missing", fails=True)
    assert "ranks [1] of 2 did not come within 3 s" in lines_of(ended, 0)[0]


def test_a_rank_that_fails_before_it_joins_is_named(launched: Launched) -> None:
    ended = launched(2, "faults.py", "early", fails=True)
    (raised,) = lines_of(ended, 0)
    assert raised.startswith("raised 1 init_process_group | ") and "rank 1 is gone" in raised


def test_a_port_that_is_taken() -> None:
    port = str(free_port())
    with socket.socket() as held:
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


@pytest.mark.skipif(not MEMORY.exists(), reason="limit: no /dev/shm")
def test_joining_makes_no_files_of_transports() -> None:
    """A process that is killed while it joins would leave them."""
    before = {path.name for path in MEMORY.glob("ucx_*")}
    command = [*_LAUNCH, str(PROGRAMS / "join.py")]
    process = subprocess.Popen(command, env=environment(), stdout=subprocess.DEVNULL)
    seen: set[str] = set()
    while process.poll() is None:
        seen |= {path.name for path in MEMORY.glob("ucx_*")}
    assert process.returncode == 0 and seen <= before


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


@pytest.mark.skipif(sys.platform != "linux", reason="limit: of /dev/shm")
def test_ranks_killed_while_mpi_begins_leave_no_memory(launched: Launched) -> None:
    """MPI's has a name until all ranks have joined."""
    before = _left_behind()
    ended = launched(2, "killed_early.py", fails=True)
    assert "(signal 9)" in ended.stderr
    assert not _stays(before)


def _children(process: subprocess.Popen[str]) -> dict[int, int]:
    """The ranks that a launcher has started, and their processes."""
    found: dict[int, int] = {}
    for task in Path(f"/proc/{process.pid}/task").glob("*"):
        with contextlib.suppress(OSError):  # a thread, or a child, that has ended
            for pid in map(int, (task / "children").read_text().split()):
                words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
                found.update({int(w[5:]): pid for w in words if w.startswith(b"RANK=")})
    return found


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="limit: reads /proc")
@pytest.mark.parametrize("seed", range(int(os.environ.get("RUSHLIGHT_KILLS", "20")) // _KILLS))
def test_ranks_killed_at_random_points(tmp_path: Path, seed: int) -> None:
    """RUSHLIGHT_KILLS says how often; each time the other rank names the one that was killed."""
    drawn = random.Random(seed)
    before = _left_behind()
    for number in range(_KILLS):
        words = [["collectives"], ["training", str(tmp_path / "saved")]][number % 2]
        process = subprocess.Popen(
            [*_LAUNCH, str(PROGRAMS / "busy.py"), *words],
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        time.sleep(drawn.uniform(0.3, 4.0))
        children = _children(process)
        killed = drawn.randrange(2)
        if len(children) == 2:
            os.kill(children[killed], signal.SIGKILL)
        else:
            process.terminate()
        began = time.monotonic()
        _, told = process.communicate(timeout=60)
        assert process.returncode, told
        assert not any(Path(f"/proc/{pid}").exists() for pid in children.values()), told
        if len(children) == 2:
            assert f"rank {killed} failed first (signal 9)" in told, told
            raised = f"DistributedError: .*rank {killed} is gone"
            assert re.search(raised, told) or time.monotonic() - began > launch.GRACE, told
    assert not _stays(before)


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
    monkeypatch.setenv("SLURM_STEP_NODELIST", "node3")  # of a step on some of the job's nodes
    monkeypatch.setenv("SLURM_STEP_ID", "1")
    second = place()
    assert second is not None and (second.host, second.size) == ("node3", 4)
    assert second.port != found.port
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("MASTER_ADDR", "host")
    monkeypatch.setenv("MASTER_PORT", "5")
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
    found = place()
    assert found is not None and (found.rank, found.size) == (1, 2)
    assert (found.host, found.port) == ("host", 6)


@pytest.mark.parametrize(
    "given",
    [
        {"PMI_RANK": "1", "PMI_SIZE": "2"},  # MPICH
        {"PMIX_RANK": "1", "OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"},  # Open MPI
        {"PMIX_RANK": "1", "SLURM_PROCID": "1", "SLURM_NTASKS": "2"},  # srun --mpi=pmix
    ],
    ids=["MPICH", "Open MPI", "Slurm"],
)
def test_places_that_mpi_tells(monkeypatch: pytest.MonkeyPatch, given: dict[str, str]) -> None:
    for name in ("RANK", "WORLD_SIZE", "PMI_RANK", "PMI_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    found = place()
    assert found is not None and (found.rank, found.size, found.managed) == (1, 2, True)


def test_errors_tell_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    from rushlight.distributed import mpi

    monkeypatch.setitem(sys.modules, "mpi4py", None)
    with pytest.raises(DistributedError, match=r"rushlight\[distributed\]"):
        mpi.library()


def test_a_stranger_does_not_end_the_store() -> None:
    server, port = store_server.in_thread("", 0, 2)
    member = Watch("127.0.0.1", port, 0, 10.0)
    try:
        for line in (b"GET / HTTP/1.1\r\n\r\n", b"watch 1\n{}\n", b"\xff\n"):
            with socket.create_connection(("127.0.0.1", port), 10.0) as stranger:
                stranger.sendall(line)
                assert stranger.recv(1) == b""
        member.trouble = None  # the second one was taken for rank 1
        store = WorldStore(member, "", 10.0)
        store.set("key", "value")
        assert store.get("key") == b"value"
    finally:
        member.close()
        server.end()


def test_a_store_that_ended_has_given_its_port_back() -> None:
    """`--restarts` with `--master-port` listens there again."""
    server, port = store_server.in_thread("", 0, 2)
    member = Watch("127.0.0.1", port, 0, 10.0)
    server.end()
    store_server.listen("", port).close()
    member.close()


def test_an_answer_that_comes_late_is_not_taken_for_the_next() -> None:
    """A rank that was busy answers two questions at once: the first one's call is another."""
    server, port = store_server.in_thread("", 0, 2)
    asker, busy = (Watch("127.0.0.1", port, rank, 10.0) for rank in range(2))

    def place(group: str, number: int) -> Where:
        time.sleep(0.5 if number == 1 else 0.1)
        return Where(f"call {number}", number)

    busy.place = place
    try:
        assert 1 not in asker.places([1], "world0", 1, 0.1)
        assert asker.places([1], "world0", 2, 10.0)[1] == Where("call 2", 2)
    finally:
        asker.close()
        busy.close()
        server.end()


def test_a_rank_that_left_its_groups_tells_what_calls_it_made() -> None:
    """Another rank may be in the last of them; it would say that this one did not make it."""

    class Told:
        def leave(self, done: dict[str, int], others: list[int], patience: float) -> bool:
            self.done = done
            return True

        def close(self) -> None: ...

    watch: Any = Told()
    with planning.planned_world(2, 0, True) as group:
        dist.all_reduce(rushlight.ones(3))
        dist.barrier()
        dist.destroy_process_group()
        group.world.watch = watch
        group.world.leave()
    assert watch.done == {"world0": 2}


def test_a_rank_that_answers_is_named_first() -> None:
    """Rank 0 has raised already, and ended: rank 1, which is elsewhere, is the cause."""

    class Answers:
        def places(self, ranks: Sequence[int], group: str, number: int) -> dict[int, Where]:
            return {1: Where(), 2: Where(str(call))}

    call = waiting.Call("all_reduce", "world0", (0, 1, 2), 2)
    error = waiting.late(call, Answers(), 3.0)  # type: ignore[arg-type]
    assert error.rank == 1
    assert "3 s. rank 1: it is in no collective; rank 0: it does not answer" in str(error)
