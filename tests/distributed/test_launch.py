"""`rushlight launch`: its options, and what it does after a failure."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

from rushlight import launch
from rushlight.distributed import DistributedError
from tests.distributed.conftest import Launched, lines_of
from tests.time_limit import time_limit as time_limit


def test_options_come_before_those_of_run() -> None:
    given, rest = launch.parse(["-n", "4", "--restarts=2", "--device", "cpu", "a.py", "-n", "3"])
    assert (given.count, given.restarts) == (4, 2)
    assert rest == ["--device", "cpu", "a.py", "-n", "3"]
    words = ["--nproc_per_node", "2", "--nnodes", "2", "--node-rank", "1", "--master-addr", "h"]
    given, rest = launch.parse([*words, "--master-port", "7", "-m", "package"])
    assert (given.count, given.nnodes, given.node, given.host, given.port) == (2, 2, 1, "h", 7)
    assert rest == ["-m", "package"]


@pytest.mark.parametrize("words", [["-n", "0", "a.py"], ["--nnodes", "2", "a.py"]])
def test_bad_options(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        launch.parse(words)
    assert "error" in capsys.readouterr().err


def test_a_port_of_the_launcher_that_is_taken(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as held:
        held.bind(("", 0))
        held.listen()
        port = str(held.getsockname()[1])
        given, _ = launch.parse(["--master-port", port, "a.py"])
        assert launch.start(given, ["true"], {}) == 1
    assert f"port {port} cannot be used" in capsys.readouterr().err


@pytest.mark.slow
def test_a_restart_gives_the_bits_of_an_undisturbed_run(launched: Launched, tmp_path: Path) -> None:
    (whole,) = lines_of(launched(2, "restarts.py", str(tmp_path / "a"), "lives"))
    ended = launched(2, "restarts.py", str(tmp_path / "b"), "dies", options=("--restarts", "1"))
    (again,) = lines_of(ended)
    assert whole.startswith("first ") and again == whole.replace("first", "again")
    assert "start 2 of 2" in ended.stderr


def test_ray_that_is_missing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    given, rest = launch.parse(["--ray", "-n", "2", "a.py"])
    assert given.ray and rest == ["a.py"]
    with pytest.raises(DistributedError, match="pip install ray"):
        launch.start(given, ["a.py"], {})


@pytest.mark.slow
def test_ray_starts_it(launched: Launched) -> None:
    pytest.importorskip("ray", reason="limit: Ray is not installed")
    ended = launched(2, "join.py", options=("--ray",))
    assert "[0] rank 0 of 2: 3.0" in ended.stdout + ended.stderr
