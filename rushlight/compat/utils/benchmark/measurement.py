"""One measurement: what was timed, and the times of its repetitions."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

_UNITS = (("ns", "nanosecond", 1e-9), ("us", "microsecond", 1e-6), ("ms", "millisecond", 1e-3))
_SECONDS = ("s", "second", 1.0)
_WIDE = 0.25  # an interquartile range above this share of the median gets a warning


def select_unit(t: float) -> tuple[str, float]:
    """The unit in which a time reads best, and its seconds."""
    name, _, seconds = unit_of(t)
    return name, seconds


def unit_of(seconds: float) -> tuple[str, str, float]:
    """The short name, the name and the seconds of the largest unit of which there is one."""
    for unit in (_SECONDS, *reversed(_UNITS)):
        if seconds >= unit[2]:
            return unit
    return _UNITS[0]


@dataclasses.dataclass(init=True, repr=False, eq=True, frozen=True)
class TaskSpec:
    """What a timer runs, and what its tables say of it."""

    stmt: str
    setup: str
    global_setup: str = ""
    label: str | None = None
    sub_label: str | None = None
    description: str | None = None
    env: str | None = None
    num_threads: int = 1

    @property
    def title(self) -> str:
        """The label, or the statement."""
        if self.label is not None:
            return self.label + (f": {self.sub_label}" if self.sub_label else "")
        if "\n" not in self.stmt:
            return self.stmt + (f": {self.sub_label}" if self.sub_label else "")
        lines = self.stmt.split("\n")
        return "\n".join([self.sub_label or "", *(f"  {line}" for line in lines)]).strip("\n")

    def setup_str(self) -> str:
        return "" if self.setup in ("", "pass") else f"setup: {self.setup}"


@dataclasses.dataclass(init=True, repr=False)
class Measurement:
    """The times of the runs of one statement; `raw_times` are those of `number_per_run` of them."""

    number_per_run: int
    raw_times: list[float]
    task_spec: TaskSpec
    metadata: dict[Any, Any] | None = None

    def __getattr__(self, name: str) -> Any:
        # label, sub_label, description, num_threads, ... of the task
        if name[:1] != "_" and name in {f.name for f in dataclasses.fields(TaskSpec)}:
            return getattr(self.task_spec, name)
        raise AttributeError(f"Measurement has no attribute {name!r}", name=name)

    @property
    def times(self) -> list[float]:
        """Seconds of one run, per repetition."""
        return [t / self.number_per_run for t in self.raw_times]

    def _checked(self) -> list[float]:
        if not self.raw_times:
            raise ValueError("Measurement: there are no times")
        return sorted(self.times)

    @property
    def median(self) -> float:
        return statistics.median(self._checked())

    @property
    def mean(self) -> float:
        return statistics.fmean(self._checked())

    @property
    def iqr(self) -> float:
        """The interquartile range: how far the middle half of the times lies apart."""
        times = self._checked()
        return _quantile(times, 0.75) - _quantile(times, 0.25)

    @property
    def significant_figures(self) -> int:
        """How many digits of the median the spread of the times leaves: 1 to 5."""
        times = self._checked()
        total = len(times)
        lower, upper = times[total // 4], times[(3 * total) // 4]
        middle = 2.0 * 1.253 * (upper - lower) / 1.349 / math.sqrt(total)
        return min(max(-math.floor(math.log10(middle / self.median)), 1), 5) if middle else 5

    @property
    def has_warnings(self) -> bool:
        return len(self.raw_times) > 1 and not self.meets_confidence()

    def meets_confidence(self, threshold: float = _WIDE) -> bool:
        """Whether the middle half of the times lies within a share of the median."""
        return self.iqr / self.median < threshold

    @property
    def title(self) -> str:
        return self.task_spec.title

    @property
    def env(self) -> str:
        return "Unspecified env" if self.task_spec.env is None else self.task_spec.env

    @property
    def as_row_name(self) -> str:
        return self.task_spec.sub_label or self.task_spec.stmt or "[Unknown]"

    def __repr__(self) -> str:
        """The task and its median; PyTorch prints the same facts."""
        name, _, unit = unit_of(self.median)
        count = len(self.raw_times)
        lines = [f"{type(self).__name__}: {self.title}"]
        lines += [text for text in (self.task_spec.description, self.task_spec.setup_str()) if text]
        if count == 1:
            lines.append(f"  {self.median / unit:.2f} {name}")
        else:
            times = self._checked()
            low, high = _quantile(times, 0.25), _quantile(times, 0.75)
            lines += [
                f"  Median: {self.median / unit:.2f} {name}",
                f"  IQR:    {self.iqr / unit:.2f} {name} ({low / unit:.2f} to {high / unit:.2f})",
            ]
        runs = f", {self.number_per_run} runs{' per measurement' if count > 1 else ''}"
        threads = self.task_spec.num_threads
        lines.append(
            f"  {count} measurement{'s' if count > 1 else ''}{runs}, "
            f"{threads} thread{'s' if threads > 1 else ''}"
        )
        if self.has_warnings:
            share = 100 * self.iqr / self.median
            lines.append(f"  WARNING: the interquartile range is {share:.1f}% of the median")
        return "\n".join(lines)

    @staticmethod
    def merge(measurements: Iterable[Measurement]) -> list[Measurement]:
        """Measurements of the same task as one each; their times are those of single runs."""
        grouped: dict[TaskSpec, list[Measurement]] = {}
        for each in measurements:
            grouped.setdefault(each.task_spec, []).append(each)
        return [
            Measurement(1, [t for each in group for t in each.times], task)
            for task, group in grouped.items()
        ]


def _quantile(ordered: Sequence[float], share: float) -> float:
    """Between the two nearest of ascending numbers."""
    at = share * (len(ordered) - 1)
    below = math.floor(at)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (at - below)


def rounded(value: float, figures: int) -> float:
    """A number with so many significant digits."""
    if not value:
        return 0.0
    return round(value, figures - 1 - math.floor(math.log10(abs(value))))
