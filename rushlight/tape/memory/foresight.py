"""The plan of a step: next uses, costs and drops, read from an earlier step that began alike.

# Note [Foresight]
1. Inside budgets every call is counted within its step. A step begins when a budget is entered, and
   at the first call after a backward pass that is not under `no_grad`, as an optimiser's are. Its
   record has each call's plan, the calls that used its results, and its time. Replays are not
   counted.
2. The last `MOST_STEPS` records are kept, without those of steps that ended by an error. While the
   calls of the step are those of a record, call by call, that record says when each value is used
   next and what it costs. Once they differ, another record with the same beginning is taken, or
   none: then the policy goes by the time since the last use, and by estimated costs.
3. A call is timed where its device works synchronously (`host_memory`) and nothing was dropped
   during it. From the second equal step on the least time counts, converted to the unit of the
   estimates, `Plan.cost`, by the ratio of the two over the whole record.
4. A record also has the drops of its step, in order, each with the request that it was for. From
   the `STEADY`-th equal step on they are made again, request by request, without a ranking: the
   choice is then the same in each step. At the first request that differs the rest of the step
   ranks.
5. A record has numbers only: it keeps no plan and no memory. It changes the choice of what is
   dropped, never bits.
"""

from __future__ import annotations

import weakref
from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from rushlight.devices.shared.allocator import Pool, Storage
from rushlight.tape.memory.recipe import UNTIMED, Recipe
from rushlight.tape.record.op import Plan
from rushlight.tape.record.state import STATE, WALK

MOST_STEPS = 4
MOST_CALLS = 1 << 16  # in a record
NEVER = 1 << 30  # calls until the next use of what is not used again


STEADY = 4


class Drop(NamedTuple):
    """A request for which values were dropped, and these: numbers of recipes and of results."""

    call: int
    pool: int  # its identity
    room: int
    want: int
    values: tuple[tuple[int, int], ...]


class Record:
    """The calls of a step."""

    __slots__ = ("costs", "drops", "plans", "repeats", "seconds", "uses", "works")

    def __init__(self) -> None:
        self.plans: list[int] = []  # their identities
        self.uses: list[list[int]] = []  # of the results of each call
        self.seconds: list[float] = []  # of each call
        self.costs: list[float] = []  # their estimates
        self.works: list[float] = []  # of each call, made when the step ends
        self.drops: list[Drop] | None = []  # None: a value of another step was dropped
        self.repeats = 1  # the number of equal steps, up to this one

    def close(self) -> None:
        """Compute the calls' work: measured where possible, in the unit of the estimates."""
        count = len(self.uses)
        if count < len(self.plans):  # it ended before the known one, whose lists it had
            self.plans, self.costs = self.plans[:count], self.costs[:count]
        pairs = list(zip(self.seconds, self.costs, strict=False))
        timed = [pair for pair in pairs if pair[0] != UNTIMED]
        seconds = sum([s for s, _ in timed])
        per_second = sum([cost for _, cost in timed]) / seconds if seconds else 0.0
        if self.repeats < 2:  # one time may be that of anything
            self.works = self.costs
        else:
            self.works = [cost if s == UNTIMED else s * per_second for s, cost in pairs]


class Foresight:
    """The record of the step that runs, and the one that it follows. The caller holds LOCK."""

    def __init__(self) -> None:
        self.steps: list[Record] = []
        self.record = Record()
        self.recipes: list[weakref.ref[Recipe]] = []  # of the step, by number
        self.known: Record | None = None
        self.has_backward = False  # whether the step has had one
        self.fleeting = False  # whether the last call is one of a backward pass without a record
        self.now = -1  # the index of the last call
        self.next_drop: int | None = None  # of the known record; None: its drops are not followed

    def begin(self) -> None:
        """Begin another step."""
        if self.record.uses:
            self.record.close()
            self.steps = [*self.steps[1 - MOST_STEPS :], self.record]
        self.record, self.recipes = Record(), []
        self.known = self.next_drop = None
        self.has_backward = False
        self.now = -1

    def forget(self) -> None:
        """Forget the step that runs: it was not finished, and its uses are not all there."""
        self.record = Record()
        self.begin()

    def call(self, plan: Plan, seconds: float = UNTIMED) -> None:
        """Count a call, which took so long."""
        walk = WALK.get()
        if walk is not None:
            self.has_backward = True
            self.fleeting = not walk.create
        else:
            if self.has_backward and STATE.get().grad:
                self.begin()
            self.fleeting = False
        now, record, known = self.now + 1, self.record, self.known
        if known is None or now >= len(known.plans) or known.plans[now] != id(plan):
            self._leave_known(plan, now, seconds)
            return
        least = known.seconds[now]
        record.seconds.append(seconds if seconds < least else least)
        record.uses.append([])
        self.now = now

    def _leave_known(self, plan: Plan, now: int, seconds: float) -> None:
        """Count a call that the known record does not have there, and look for another one."""
        if now >= MOST_CALLS:
            self.begin()
            now = 0
        record, known = self.record, self.known
        if known is not None:  # whose lists it had
            record.plans, record.costs = known.plans[:now], known.costs[:now]
        record.plans.append(id(plan))
        record.costs.append(plan.cost)
        self.now = now
        if not now or known is not None:
            count = now + 1
            found = (s for s in reversed(self.steps) if s.plans[:count] == record.plans)
            known = self.known = next(found, None)
            record.repeats = 1
            self.next_drop = None
        if known is not None:
            record.plans, record.costs = known.plans, known.costs
            record.repeats = known.repeats + 1
            seconds = min(seconds, known.seconds[now])
            if not now and known.repeats >= STEADY - 1:
                self.next_drop = 0
        record.seconds.append(seconds)
        record.uses.append([])

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

    def work(self, recipe: Recipe) -> float:
        """What running a recipe costs, in the unit of `Plan.cost`."""
        known = self.known
        if known is None or recipe.record is not self.record:
            return recipe.plan.cost
        return known.works[recipe.call]

    def number(self, recipe: Recipe) -> None:
        """Give a new recipe its place in the step's record."""
        recipe.record, recipe.call, recipe.fleeting = self.record, self.now, self.fleeting
        recipe.number = len(self.recipes)
        self.recipes.append(weakref.ref(recipe))

    # ---- drops ----

    def planned(self, pool: Pool, room: int, want: int) -> list[Storage]:
        """What the known record's step dropped for this request; nothing where it had another."""
        at, known = self.next_drop, self.known
        if at is None or known is None or not known.drops or at >= len(known.drops):
            return []
        self.next_drop = None
        drop = known.drops[at]
        if (self.now, id(pool), room, want) != drop[:4]:
            return []
        found = []
        for number, index in drop.values:
            recipe = self.recipes[number]() if number < len(self.recipes) else None
            storage = None if recipe is None else recipe.present(index)
            if storage is None:
                return []
            found.append(storage)
        self.next_drop = at + 1
        return found

    def note_drop(self, pool: Pool, room: int, want: int, storages: Sequence[Storage]) -> None:
        """Keep what was chosen for a request."""
        record = self.record
        if record.drops is None:
            return
        recipes: list[Recipe] = [storage.recipe for storage in storages]
        if any(recipe.record is not record for recipe in recipes):
            record.drops = None
            return
        values = [(r.number, r.index_of(s)) for r, s in zip(recipes, storages, strict=True)]
        record.drops.append(Drop(self.now, id(pool), room, want, tuple(values)))


FORESIGHT = Foresight()
