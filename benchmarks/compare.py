"""Timing two libraries against each other in one process: alternating blocks, the best of each.

Blocks alternate so that other work on the machine affects both; the best block is the least
disturbed, and a short one the more likely to be so. With one thread each (RUSHLIGHT_THREADS=1) the
CPU time of that thread counts: so a machine that others use, where several threads wait for each
other, can be measured on too.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass

Work = Callable[[], object]
LEAST = 12  # blocks of each library
LENGTH = 0.002  # seconds of a block, where one call takes less
HOW = f"best of at least {LEAST} alternating blocks"
CLOCK = time.perf_counter
if os.environ.get("RUSHLIGHT_THREADS") == "1":
    CLOCK, HOW = time.thread_time, f"CPU time, {HOW}"


@dataclass(frozen=True)
class Row:
    """One line of the table: seconds per unit of work for both, and the bar of their ratio."""

    name: str
    ours: float
    theirs: float
    bar: float

    @property
    def ratio(self) -> float:
        return self.ours / self.theirs

    @property
    def reached(self) -> bool:
        return self.ratio <= self.bar


def block(work: Work, calls: int) -> float:
    start = CLOCK()
    for _ in range(calls):
        work()
    return (CLOCK() - start) / calls


def compare(
    name: str, ours: Work, theirs: Work, bar: float, units: int = 1, seconds: float = 3.0
) -> Row:
    """Time both for about `seconds`; `units` is the number of ops in one call of the work."""
    for work in (ours, theirs):
        work()
        work()
    once = max(min(block(work, 1) for _ in range(3)) for work in (ours, theirs))
    calls = max(1, int(LENGTH / once))
    best = [float("inf"), float("inf")]
    number, end = 0, time.perf_counter() + seconds
    while number < LEAST or time.perf_counter() < end:
        pair = (ours, theirs) if number % 2 else (theirs, ours)
        for work in pair:
            place = 0 if work is ours else 1
            best[place] = min(best[place], block(work, calls))
        number += 1
    return Row(name, best[0] / units, best[1] / units, bar)


def show_time(seconds: float) -> str:
    for unit, scale in (("us", 1e6), ("ms", 1e3)):
        if seconds * scale < 1000:
            return f"{seconds * scale:.3g} {unit}"
    return f"{seconds:.3g} s"


def table(rows: list[Row], theirs: str) -> str:
    """A Markdown table; `ratio` is Rushlight's time over the other's."""
    lines = [f"| | Rushlight | {theirs} | ratio | bar | |", "|---|---|---|---|---|---|"]
    for r in rows:
        bar, verdict = ("none", "") if math.isinf(r.bar) else (r.bar, "ok" if r.reached else "over")
        times = f"{show_time(r.ours)} | {show_time(r.theirs)} | {r.ratio:.2f}"
        lines.append(f"| {r.name} | {times} | {bar} | {verdict} |")
    return "\n".join(lines)
