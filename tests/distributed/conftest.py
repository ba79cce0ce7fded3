"""Several processes: `launched(n, program, *words)` runs a program of `programs/` in each.

Where mpi4py is missing the tests skip; RUSHLIGHT_REQUIRE=distributed makes them fail instead.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rushlight.core.config import required_devices
from rushlight.distributed import is_mpi_available

PROGRAMS = Path(__file__).parent / "programs"
ROOT = Path(__file__).parent.parent.parent
LIMIT = 300
Launched = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(autouse=True, scope="session")
def _mpi() -> None:
    if not is_mpi_available():
        reason = "mpi4py is missing: pip install 'rushlight[distributed]'"
        if "distributed" in required_devices():
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)


def environment(**more: str) -> dict[str, str]:
    """This process's, without what a starter would have set."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "RUSHLIGHT_BUDGET")
    }
    paths = [str(ROOT), kept.get("PYTHONPATH", "")]
    kept["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    return {**kept, "RUSHLIGHT_THREADS": "1", **more}


@pytest.fixture
def launched() -> Launched:
    """Run a program in `count` processes and get what they wrote; it must succeed by default."""

    def run(
        count: int, program: str, *words: str, fails: bool = False, options: tuple[str, ...] = ()
    ) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "rushlight", "launch", "-n", str(count), *options]
        ended = subprocess.run(
            [*command, str(PROGRAMS / program), *words],
            env=environment(),
            capture_output=True,
            text=True,
            timeout=LIMIT,
        )
        assert (ended.returncode != 0) == fails, ended.stdout + ended.stderr
        return ended

    return run


def lines_of(ended: subprocess.CompletedProcess[str], rank: int = 0) -> list[str]:
    """What a rank printed."""
    start = f"[{rank}] "
    return [
        line.removeprefix(start) for line in ended.stdout.splitlines() if line.startswith(start)
    ]


def free_port() -> int:
    """A port that nobody listens at."""
    with socket.socket() as one:
        one.bind(("", 0))
        found: int = one.getsockname()[1]
        return found
