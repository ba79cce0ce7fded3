"""When a value is next used: read from the record of an earlier step that began in the same way.

# Note [Foresight]
1. Inside budgets every call is counted within its step. A step begins when a budget is entered, and
   at the first call after a backward pass that is not under `no_grad`, as an optimiser's are. Its
   record has each call's plan and the calls that used its results. Replays are not counted.
2. The last `MOST_STEPS` records are kept, without those of steps that ended by an error. While the
   calls of the step are those of a record, call by call, that record says when each value is used
   next. Once they differ, another record with the same beginning is taken, or none: then the policy
   goes by the time since the last use.
3. A record has numbers only: it keeps no plan and no memory. It changes the choice of what is
   dropped, never bits.
"""

from __future__ import annotations

from bisect import bisect_right

from rushlight.tape.memory.recipe import Recipe
from rushlight.tape.record.op import Plan
from rushlight.tape.record.state import STATE, WALK

MOST_STEPS = 4
MOST_CALLS = 1 << 16  # in a record
NEVER = 1 << 30  # calls until the next use of what is not used again


class Record:
    """The calls of a step."""

    __slots__ = ("plans", "uses")

    def __init__(self) -> None:
        self.plans: list[int] = []  # their identities
        self.uses: list[list[int]] = []  # of the results of each call


class Foresight:
    """The record of the step that runs, and the one that it follows. The caller holds LOCK."""

    def __init__(self) -> None:
        self.steps: list[Record] = []
        self.record = Record()
        self.known: Record | None = None
        self.has_backward = False  # whether the step has had one
        self.fleeting = False  # whether the last call is one of a backward pass without a record
        self.now = -1  # the index of the last call

    def begin(self) -> None:
        """Begin another step."""
        if self.record.plans:
            self.steps = [*self.steps[1 - MOST_STEPS :], self.record]
        self.record = Record()
        self.known = None
        self.has_backward = False
        self.now = -1

    def forget(self) -> None:
        """Forget the step that runs: it was not finished, and its uses are not all there."""
        self.record = Record()
        self.begin()

    def call(self, plan: Plan) -> None:
        """Count a call."""
        walk = WALK.get()
        if walk is not None:
            self.has_backward = True
        elif self.has_backward and STATE.get().grad:
            self.begin()
        self.fleeting = walk is not None and not walk.create
        now, record, known, key = self.now + 1, self.record, self.known, id(plan)
        if now >= MOST_CALLS:
            self.begin()
            now, record, known = 0, self.record, None
        self.now = now
        record.plans.append(key)
        record.uses.append([])
        if not now or (known is not None and (now >= len(known.plans) or known.plans[now] != key)):
            count = now + 1
            self.known = next(
                (s for s in reversed(self.steps) if s.plans[:count] == record.plans), None
            )

    def wait(self, recipe: Recipe) -> int | None:
        """The calls until a recipe's results are used next; None where nothing tells."""
        known = self.known
        if known is None or recipe.record is not self.record:
            return None
        uses = known.uses[recipe.call]
        following = bisect_right(uses, self.now)
        wait = uses[following] - self.now if following < len(uses) else NEVER
        wanted = recipe.wanted - self.now
        return wanted if 0 < wanted < wait else wait


FORESIGHT = Foresight()
