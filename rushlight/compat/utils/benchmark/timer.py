"""Times of a statement that is compiled into a loop; the device is waited for around it."""

from __future__ import annotations

import contextlib
import enum
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from rushlight import cpu
from rushlight.compat.utils.benchmark.measurement import Measurement, TaskSpec
from rushlight.core.errors import RushlightError
from rushlight.devices.shared.registry import opened

_LOOP = """\
def timed(_count, _clock):
{setup}
    _begin = _clock()
    for _ in range(_count):
{stmt}
    return _clock() - _begin
"""
_LARGEST = 1_000_000_000


def timer() -> float:
    """The time, once the devices that were used are done."""
    for pool in opened():
        pool.device.synchronize()
    return time.perf_counter()


class Language(enum.Enum):
    """PyTorch's languages of statements; C++ is refused."""

    PYTHON = 0
    CPP = 1


class Timer:
    """Times a statement.

    Args:
        stmt (str): The statement, or several lines.
        setup (str): Runs before the clock starts.
        global_setup (str): Of C++ alone: refused.
        timer (function): The clock.
        globals (dict): The names that the statement uses.
        label (str): What is timed, as tables say; so are `sub_label`, `description` and `env`.
        num_threads (int): How many threads the CPU's kernels use.
        language: Python.
    """

    def __init__(
        self,
        stmt: str = "pass",
        setup: str = "pass",
        global_setup: str = "",
        timer: Callable[[], float] = timer,
        globals: dict[str, Any] | None = None,
        label: str | None = None,
        sub_label: str | None = None,
        description: str | None = None,
        env: str | None = None,
        num_threads: int = 1,
        language: Language | str = Language.PYTHON,
    ) -> None:
        if language not in (Language.PYTHON, "py", "python"):
            raise RushlightError(f"Timer: statements are Python, got language {language!r}")
        if global_setup:
            raise RushlightError("Timer: global_setup is for C++; use setup")
        stmt, setup = textwrap.dedent(stmt).strip(), textwrap.dedent(setup).strip()
        self._timer = timer
        self._globals = dict(globals or {})
        self._globals.setdefault("torch", sys.modules.get("torch") or sys.modules["rushlight"])
        self._task_spec = TaskSpec(
            stmt, setup, "", label, sub_label, description, env, int(num_threads)
        )
        text = _LOOP.format(
            setup=textwrap.indent(setup or "pass", " " * 4),
            stmt=textwrap.indent(stmt or "pass", " " * 8),
        )
        found: dict[str, Any] = {}
        exec(compile(text, "<benchmark>", "exec"), self._globals, found)
        self._loop: Callable[[int, Callable[[], float]], float] = found["timed"]

    def _time(self, number: int) -> float:
        return max(self._loop(number, self._timer), 1e-9)

    @contextlib.contextmanager
    def _threads(self) -> Iterator[None]:
        before = cpu.get_num_threads()
        cpu.set_num_threads(self._task_spec.num_threads)
        try:
            yield
        finally:
            cpu.set_num_threads(before)

    def timeit(self, number: int = 1000000) -> Measurement:
        """One measurement of so many runs, after a few that are not counted."""
        with self._threads():
            self._time(max(number // 100, 2))
            return Measurement(number, [self._time(number)], self._task_spec)

    def repeat(self, repeat: int = -1, number: int = -1) -> NoReturn:
        raise NotImplementedError("Timer.repeat: PyTorch has none; use blocked_autorange")

    def autorange(self, callback: Callable[[int, float], NoReturn] | None = None) -> NoReturn:
        raise NotImplementedError("Timer.autorange: PyTorch has none; use blocked_autorange")

    def _block_size(self, min_run_time: float) -> int:
        """A number of runs beside which reading the clock costs a thousandth."""
        overhead = sorted(self._empty() for _ in range(5))[2]
        number = 1
        while True:
            taken = self._time(number)
            if overhead / taken <= 1e-4 and taken >= min_run_time / 1000:
                return number
            if taken > min_run_time or number >= _LARGEST:
                return number
            number *= 10

    def _empty(self) -> float:
        begin = self._timer()
        return self._timer() - begin

    def blocked_autorange(
        self, callback: Callable[[int, float], Any] | None = None, min_run_time: float = 0.2
    ) -> Measurement:
        """Blocks of runs for at least so many seconds; the block's size is found first."""
        with self._threads():
            number = self._block_size(min_run_time)
            times: list[float] = []
            while sum(times) < min_run_time:
                times.append(self._time(number))
                if callback is not None:
                    callback(number, times[-1])
        return Measurement(number, times, self._task_spec)

    def adaptive_autorange(
        self,
        threshold: float = 0.1,
        *,
        min_run_time: float = 0.01,
        max_run_time: float = 10.0,
        callback: Callable[[int, float], Any] | None = None,
    ) -> Measurement:
        """Blocks of runs until the times agree within a share of the median."""
        with self._threads():
            number = self._block_size(min_run_time)
            found = Measurement(number, [], self._task_spec)
            while sum(found.raw_times) < max_run_time:
                found.raw_times.append(self._time(number))
                if callback is not None:
                    callback(number, found.raw_times[-1])
                enough = sum(found.raw_times) >= min_run_time and len(found.raw_times) > 3
                if enough and found.meets_confidence(threshold):
                    break
        return found

    def collect_callgrind(self, *args: Any, **named: Any) -> NoReturn:
        """Refused: instructions are not counted."""
        raise RushlightError("Timer.collect_callgrind: is not supported; use blocked_autorange")
