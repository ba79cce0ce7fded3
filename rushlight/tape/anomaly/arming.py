"""The launch of a plan: its plain one, or the one with anomaly checks; a profile times either.

# Note [Arming]
1. Turning the mode on arms every plan: its `launch` becomes `checked`. That is a step per plan, and
   programs turn the mode on and off in every step of a loop. So after the first few blocks turning
   it off leaves plans armed.
2. An armed launch gives the same bits when the mode is off. A launch in Python then restores the
   plain one (`loosen`); a kernel on the CPU, whose checks cost little, stays until it finds an
   anomaly. Loose plans, and plans made in the meantime, are armed when the mode comes back.
3. `set_detect_anomaly(False)` restores every plain launch.
4. A profile wraps whichever launch a plan has (`wrap_launches`), and those that it gets later.
   Below it a shadow check wraps them (`shadow_launches`); its launches have an attribute `under`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar
from weakref import ref

from rushlight.tape.anomaly.blame import Mode
from rushlight.tape.record.op import Plan, Plans

Launch = Callable[..., None]
FEW = 3  # blocks whose end restores every plain launch
MOST = 4096  # loose plans that are remembered


class Armed:
    """The state of all plans."""

    # Makes the launch with checks, of a plan and the numbers of its first launch.
    make: ClassVar[Callable[[Plan, Sequence[Any]], Launch]]
    all = False  # all except the loose ones
    blocks = 0  # how often the mode was turned off
    loose: ClassVar[list[ref[Plan]]] = []
    wrap: ClassVar[Callable[[Plan, Any], Any] | None] = None  # of a profile
    bare: ClassVar[Callable[[Any], Any] | None] = None  # the launch that a profile's stands for
    shadow: ClassVar[Callable[[Plan, Any], Any] | None] = None  # of a shadow check


def wrap_launches(wrap: Callable[[Plan, Any], Any] | None, bare: Callable[[Any], Any]) -> None:
    """Put `wrap(plan, launch)` in the place of every launch; None: back again.

    `bare` gives the launch that is wrapped, and any other as it is.
    """
    Armed.wrap, Armed.bare = wrap, bare
    _put_all()


def shadow_launches(shadow: Callable[[Plan, Any], Any] | None) -> None:
    """Put `shadow(plan, launch)` in the place of every launch; None: back again."""
    Armed.shadow = shadow
    _put_all()


def _put_all() -> None:
    _watch_new()
    for reference in list(Plans.every.values()):
        plan = reference()
        if plan is not None:
            _put(plan, plan.launch if Armed.bare is None else Armed.bare(plan.launch))


def _put(plan: Plan, launch: Any) -> None:
    launch = getattr(launch, "under", launch)
    launch = launch if Armed.shadow is None else Armed.shadow(plan, launch)
    plan.launch = launch if Armed.wrap is None else Armed.wrap(plan, launch)


def _watch_new() -> None:
    """Have new plans met where their launch is another than the plain one."""
    exchanged = Armed.all or Armed.wrap is not None or Armed.shadow is not None
    Plans.on_new = _meet if exchanged else None


def _meet(plan: Plan) -> None:
    if Mode.on:
        arm(plan)
        return
    _put(plan, plan.plain)
    if Armed.all:
        _note_loose(plan)


def switch(on: bool, infinite: bool, for_good: bool = False) -> None:
    """Switch anomaly checks on or off; `for_good`: restore every plain launch."""
    Mode.infinite = infinite
    if on and not Mode.on:
        loose = list(Armed.loose)
        for reference in loose if Armed.all else list(Plans.every.values()):
            plan = reference()
            if plan is not None:
                arm(plan)
        del Armed.loose[: len(loose)]  # here: after Ctrl-C in between they are still known
        Armed.all = True
    elif Mode.on and not on:
        Armed.blocks += 1
    Mode.on = Plans.read_twice = on
    _watch_new()
    if not on and Armed.all and (for_good or Armed.blocks <= FEW):
        _disarm_all()


def _disarm_all() -> None:
    for reference in list(Plans.every.values()):
        plan = reference()
        if plan is not None:
            _put(plan, plan.plain)
    Armed.loose = []
    Armed.all = False
    _watch_new()


def arm(plan: Plan) -> None:
    if plan.checked is None:
        plan.checked = partial(_first_launch, ref(plan))
    _put(plan, plan.checked)


def loosen(plan: Plan) -> Any:
    """Restore the plain launch."""
    _put(plan, plan.plain)
    _note_loose(plan)
    return plan.plain


def _note_loose(plan: Plan) -> None:
    Armed.loose.append(ref(plan))
    if len(Armed.loose) > MOST:  # the mode has been off for long
        _disarm_all()


def known(reference: ref[Plan]) -> Plan:
    """The plan of a launch. A plan holds its launches, so they hold it weakly.

    A running one is alive.
    """
    plan = reference()
    assert plan is not None
    return plan


def _first_launch(reference: ref[Plan], *numbers: Any) -> None:
    """Make the launch with checks; they depend on whether the plan writes in place."""
    plan = known(reference)
    if not Mode.on:
        loosen(plan)(*numbers)
        return
    checked = plan.checked = Armed.make(plan, numbers)
    _put(plan, checked)
    checked(*numbers)
