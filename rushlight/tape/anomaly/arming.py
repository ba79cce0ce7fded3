"""Which launch a plan runs: its plain one, or the one that looks at what it makes.

# Note [Arming]
1. Turning the mode on arms every plan: its `launch` becomes `watched`. That is a step per plan, and programs turn the mode on
   and off in every step of a loop. So after the first few blocks turning it off leaves plans armed.
2. An armed launch gives the same bits when the mode is off. One in Python then puts the plain launch back (`loosen`); a kernel
   on the CPU, for which watching costs next to nothing, goes on, until it meets something to tell. What is loose, and what was
   made in the meantime, is armed when the mode comes back.
3. `set_detect_anomaly(False)` puts every plain launch back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar
from weakref import ref

from rushlight.tape.anomaly.blame import Mode
from rushlight.tape.record.op import Plan, Plans

Launch = Callable[..., None]
FEW = 3  # blocks that put every plain launch back
MOST = 4096  # loose plans that are remembered


class Armed:
    """The state of all plans."""

    make: ClassVar[
        Callable[[Plan, Sequence[Any]], Launch]
    ]  # of a plan, and the numbers of its first launch
    all = False  # all but the loose ones
    blocks = 0  # how often the mode was turned off
    loose: ClassVar[list[ref[Plan]]] = []


def switch(on: bool, infinite: bool, for_good: bool = False) -> None:
    """Watch results from now on, or do not; `for_good`: nothing of it shall be left."""
    Mode.infinite = infinite
    if on and not Mode.on:
        loose = list(Armed.loose)
        for reference in loose if Armed.all else list(Plans.every.values()):
            plan = reference()
            if plan is not None:
                arm(plan)
        del Armed.loose[: len(loose)]  # now: after Ctrl-C in between they are still known
        Armed.all = True
        Plans.watch = arm
    elif Mode.on and not on:
        Armed.blocks += 1
        Plans.watch = _note_loose
    Mode.on = on
    if not on and Armed.all and (for_good or Armed.blocks <= FEW):
        _disarm_all()


def _disarm_all() -> None:
    for reference in list(Plans.every.values()):
        plan = reference()
        if plan is not None:
            plan.launch = plan.plain
    Armed.loose = []
    Armed.all = False
    Plans.watch = None


def arm(plan: Plan) -> None:
    if plan.watched is None:
        plan.watched = partial(_first_launch, ref(plan))
    plan.launch = plan.watched


def loosen(plan: Plan) -> Any:
    """The plain launch, put back where it was."""
    plan.launch = plan.plain
    _note_loose(plan)
    return plan.plain


def _note_loose(plan: Plan) -> None:
    Armed.loose.append(ref(plan))
    if len(Armed.loose) > MOST:  # the mode has been off for long
        _disarm_all()


def known(reference: ref[Plan]) -> Plan:
    """The plan of a launch. A plan has its launches, so these know it weakly; one that is launched is there."""
    plan = reference()
    assert plan is not None
    return plan


def _first_launch(reference: ref[Plan], *numbers: Any) -> None:
    """Make the watched launch: what it needs to look at can depend on whether the plan writes in place."""
    plan = known(reference)
    if not Mode.on:
        loosen(plan)(*numbers)
        return
    watched = plan.launch = plan.watched = Armed.make(plan, numbers)
    watched(*numbers)
