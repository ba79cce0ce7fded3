"""Shared fixtures: devices by name, a kernel cache of its own, one thread per worker.

Note [Devices in tests]
1. A test that takes the fixture `device` runs once on each of `DEVICES`. One that needs a device by
   name calls `require_device(name)`, which is a fixture too.
2. A missing GPU skips the test, with the reason; RUSHLIGHT_REQUIRE=webgpu makes it fail instead.
3. A skip that starts with "limit:" says what this adapter lacks ("limit: no float64"). The summary
   line of a required device, which `.ci/run` reads, does not count it.
"""

from __future__ import annotations

import contextlib
import faulthandler
import functools
import gc
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rushlight.core.cache import forget
from rushlight.core.config import required_devices
from rushlight.core.errors import DeviceUnavailable
from rushlight.core.precision import allow_tf32
from rushlight.devices.shared.registry import accelerators, kind_of, names, pool_of
from rushlight.devices.webgpu import launch as webgpu_launch
from rushlight.tape.record.state import PROGRAM, STATE

try:
    from hypothesis import settings
except ModuleNotFoundError:  # a GPU machine may have pytest alone
    settings = None

DEVICES = [name for name in names() if kind_of(name).computes]
EVERYWHERE = set(DEVICES) - set(accelerators())  # need no hardware, so they may never skip


def pytest_configure(config: pytest.Config) -> None:
    # The xdist workers inherit the folder, so each kernel is built once; `pytest --cache-clear`
    # empties it.
    os.environ.setdefault(
        "RUSHLIGHT_CACHE", str(config.rootpath / ".pytest_cache" / "d" / "kernels")
    )
    if "PYTEST_XDIST_WORKER" in os.environ:
        # As many workers as cores: more threads would only wait for each other. Tests of threading
        # set their own.
        os.environ.setdefault("RUSHLIGHT_THREADS", "1")
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Mesa's llvmpipe holds half a megabyte for each pipeline; a test uses few.
    webgpu_launch.KEPT_PIPELINES = 256
    if settings is not None:
        # No deadline: the first example of a shape builds its kernel.
        settings.register_profile("rushlight", deadline=None, derandomize="CI" in os.environ)
        settings.load_profile("rushlight")


def _faults(config: pytest.Config) -> Path:
    """The folder in which each xdist worker writes its stacks if it crashes."""
    return config.rootpath / ".pytest_cache" / "d" / "faults"


def pytest_sessionstart(session: pytest.Session) -> None:
    folder = _faults(session.config)
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker is None:
        for old in folder.glob("*.txt"):
            old.unlink()
        return
    folder.mkdir(parents=True, exist_ok=True)
    # A crashed worker's standard error is far above the summary, where a cut log does not show it.
    session.config.stash[_FAULT_FILE] = file = (folder / f"{worker}.{os.getpid()}.txt").open("w")
    faulthandler.enable(file)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """A test that leaves a mode or a budget behind fails, not the one after it."""
    left = STATE.get()
    if left is not PROGRAM:
        STATE.set(PROGRAM)
        pytest.fail(f"the test left the thread's state changed: {left}")


def pytest_collection_finish(session: pytest.Session) -> None:
    # Millions of objects belong to pytest's items: without them a collection takes milliseconds,
    # and what walks all objects, as a BudgetError does, meets none of other tests' parameters.
    gc.collect()
    gc.freeze()


def pytest_sessionfinish(session: pytest.Session) -> None:
    file = session.config.stash.get(_FAULT_FILE, None)
    if file is not None:
        faulthandler.enable(sys.__stderr__)
        file.close()
        with contextlib.suppress(OSError):
            Path(file.name).unlink()


_FAULT_FILE = pytest.StashKey()


@pytest.fixture(autouse=True)
def asking_ends() -> Iterator[None]:
    """A subclass or a tracer of one test lets functions ask for the rest of the process."""
    yield
    dispatch = sys.modules.get("rushlight.compat.dispatch")
    if dispatch is not None and dispatch.ask_from_now_on.cache_info().currsize:
        dispatch.ask_from_now_on.cache_clear()
        dispatch.stop_asking()


@pytest.fixture(scope="module", autouse=True)
def empty_caches() -> Iterator[None]:
    """Each file leaves its plans behind: with those of all files a worker grows to gigabytes.

    What it leaves all the same no collection looks at again: tests collect often, and each would
    take a second more at the end than at the start.
    """
    yield
    forget()
    gc.collect()
    gc.freeze()


@functools.cache
def _why_missing(name: str) -> str | None:
    try:
        pool_of(name)
    except DeviceUnavailable as error:
        return str(error)
    return None


@pytest.fixture(scope="session")
def require_device() -> Callable[[str], str]:
    """Call it with a device's name: a missing device skips the test, or fails it where required."""

    def require(name: str) -> str:
        reason = _why_missing(name)
        if reason is None:
            return name
        if name in EVERYWHERE or name in required_devices():
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)

    return require


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest, require_device: Callable[[str], str]) -> str:
    """Each device's name in turn."""
    return require_device(request.param)


def _reports(
    terminalreporter: pytest.TerminalReporter, outcome: str, name: str
) -> Iterator[pytest.TestReport]:
    for report in terminalreporter.stats.get(outcome, []):
        if isinstance(report, pytest.TestReport) and name in report.nodeid:
            yield report


def _is_limit(report: pytest.TestReport) -> bool:
    return isinstance(report.longrepr, tuple) and report.longrepr[2].startswith("Skipped: limit:")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for path in sorted(_faults(terminalreporter.config).glob("*.txt")):
        # Its file is gone if a worker ended as it should; empty if it was killed from outside.
        lines = [x for x in path.read_text().splitlines() if x and "site-packages" not in x]
        lines = lines or ["no stacks: it was killed, by the system or by a signal"]
        terminalreporter.write_line(f"{path.stem} crashed:")
        for line in lines[:12]:
            terminalreporter.write_line(line)
    for name in required_devices():
        passed = len(list(_reports(terminalreporter, "passed", name)))
        skipped = sum(
            not _is_limit(report) for report in _reports(terminalreporter, "skipped", name)
        )
        terminalreporter.write_line(f"{name} (required): {passed} passed, {skipped} skipped")


@pytest.fixture(scope="module")
def float32_convolutions() -> Iterator[None]:
    """Without TF32, to which a GPU may round the factors of convolutions."""
    allow_tf32("convolution", False)
    yield
    allow_tf32("convolution", True)
