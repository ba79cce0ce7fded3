"""`shadow`: a share of all launches is computed again by another device, and compared.

# Note [Shadow check]
1. While it is on every plan's `launch` is another one, which decides whether to compare: the hot
   path is unchanged. Anomaly checks and profiles exchange launches too: Note [Arming].
2. Launch n is compared where n times 2^64 / golden ratio, modulo 2^64, is below the fraction of
   2^64. That is the same from run to run, and meets every launch of a loop sooner or later,
   whatever the number of launches of a turn.
3. Operands are copied to the host before the launch, since it may write over one. The results are
   those of the launch, so bits do not change.
4. The judge is `reference`; see judge.py. What it cannot compute is listed as not compared.
"""

from __future__ import annotations

import atexit
import functools
import itertools
import sys
import weakref
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, ClassVar, TypeVar
from weakref import ref

from rushlight.core.errors import WrongResult
from rushlight.core.interrupts import unheard
from rushlight.tape.anomaly.arming import shadow_launches
from rushlight.tape.record import source_line
from rushlight.tape.record.op import Plan, describe
from rushlight.tape.shadow.drift import Found, Report, compare
from rushlight.tape.shadow.judge import (
    Busy,
    Judge,
    fetch,
    judge_of,
    judging,
    moved,
    values,
    work_of,
)

F = TypeVar("F", bound=Callable[..., Any])
Launch = Callable[..., None]
_GOLDEN, _WHOLE = 0x9E3779B97F4A7C15, 1 << 64


class _Setting:
    """The innermost block's share, count of launches and report."""

    def __init__(self, fraction: float) -> None:
        self.below = int(fraction * _WHOLE)
        self.count = itertools.count(1)
        self.report = Report(fraction)


class _Now:
    setting: _Setting | None = None
    judges: ClassVar[weakref.WeakKeyDictionary[Plan, Judge | None]] = weakref.WeakKeyDictionary()


class Shadowed:
    """A plan's launch while the check is on."""

    __slots__ = ("plan", "under")

    def __init__(self, plan: Plan, under: Launch) -> None:
        self.plan, self.under = ref(plan), under  # weakly: the plan holds this

    def __call__(self, *numbers: Any) -> None:
        setting = _Now.setting
        if setting is None or Busy.now:
            self.under(*numbers)
            return
        n = next(setting.count)
        setting.report.launches = n
        if n * _GOLDEN % _WHOLE >= setting.below:
            self.under(*numbers)
            return
        plan = self.plan()
        assert plan is not None
        _check(plan, self.under, numbers, setting.report, n)


def _check(plan: Plan, launch: Launch, numbers: Sequence[Any], report: Report, number: int) -> None:
    """Launch, and compare the results with the judge's."""
    judge = _judge_of(plan)
    if judge is None:
        report.skip(plan.op.name)
        launch(*numbers)
        return
    outs, ins = len(plan.outs), len(plan.ins)
    given = [fetch(s.device, numbers[outs + i], s) for i, s in enumerate(plan.ins)]
    launch(*numbers)
    got = [fetch(plan.pool, numbers[i], spec) for i, spec in enumerate(plan.outs)]
    params = numbers[outs + ins + len(plan.tail) :]
    with judging():
        want = judge.run(given, params)
        near = [
            judge.run([moved(plan, i, x, side) for i, x in enumerate(given)], params)
            for side in (0, 1)
            if any(spec.differentiable for spec in plan.ins)
        ]
    place, results = source_line.here(), []
    for i, spec in enumerate(plan.outs):
        twin = judge.plan.outs[i]
        mine, right = values(got[i], spec), values(want[i], twin)
        others = [values(each[i], twin) for each in near]
        found = compare(spec.dtype, mine, right, others, work_of(plan))
        if found.wrong is not None:
            raise _error(plan, i, found, mine, right, str(place), number)
        results.append(found)
    report.add(plan.op.name, place.module, results)


def _judge_of(plan: Plan) -> Judge | None:
    judges = _Now.judges
    if plan not in judges:
        judges[plan] = judge_of(plan)
    return judges[plan]


def _error(
    plan: Plan, i: int, found: Found, mine: Any, right: Any, place: str, number: int
) -> WrongResult:
    import numpy as np

    device = plan.pool.device
    wrong: Any = found.wrong
    first = tuple(int(n) for n in np.argwhere(wrong)[0])
    count, name = int(wrong.sum()), plan.op.name
    which = f" {i}" if len(plan.outs) > 1 else ""
    message = (
        f"{name}: a wrong result{which} on {device.name} ({device.limits.description}): {count} of "
        f"{mine.size} elements, the first at {list(first)}: {mine[first]!s} in place of "
        f"{right[first]!s}; launch {number}, at {place} (operands {describe(plan.ins)}; result "
        f"{describe(plan.outs)})"
    )
    shapes = tuple(spec.shape for spec in plan.ins)
    return WrongResult(message, op=name, device=device.name, shapes=shapes, place=place)


# ---- the switch ----


def _switch(setting: _Setting | None) -> None:
    before, _Now.setting = _Now.setting, setting
    if (before is None) == (setting is None):
        return
    shadow_launches(None if setting is None else Shadowed)


class shadow:
    """Inside, a share of all launches is computed again by another device and compared.

    Args:
        fraction: the share of launches, from 0 to 1.

    The block's value is a report: how many launches were compared, and by op and module how far
    results drifted. A wrong result raises `WrongResult`. Which launches are compared is the same
    from run to run, and no bits change. Decorates too. The check is one for the process.
    """

    def __init__(self, fraction: float = 0.01) -> None:
        self.fraction = float(fraction)
        if not 0.0 <= self.fraction <= 1.0:
            raise ValueError(f"shadow: a fraction is from 0 to 1, got {fraction!r}")
        self.before: list[_Setting | None] = []

    def __enter__(self) -> Report:
        setting = _Setting(self.fraction)
        self.before.append(_Now.setting)
        _switch(setting)
        return setting.report

    @unheard
    def __exit__(
        self, kind: type | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _switch(self.before.pop())

    def __call__(self, function: F) -> F:
        fraction = self.fraction

        @functools.wraps(function)
        def inside(*args: Any, **named: Any) -> Any:
            with shadow(fraction):
                return function(*args, **named)

        return inside  # type: ignore[return-value]


def shadow_program(fraction: float) -> None:
    """Turn the check on for the whole program; the report is written at its end."""
    setting = _Setting(fraction)
    _switch(setting)
    atexit.register(lambda: print(f"shadow: {setting.report}", file=sys.stderr))
