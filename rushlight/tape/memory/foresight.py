"""The plan of a step: next uses, costs and drops, read from an earlier step that began alike.

# Note [Foresight]
1. Inside budgets every call is counted within its step. A step begins when a budget is entered, and
   at the first call after a backward pass that is not under `no_grad`, as an optimiser's are. Its
   record has each call's plan, the calls that used its results, and its time. Replays are not
   counted. In a backward pass of one thread that records nothing, a node's derivative counts as one
   call (`enter`), however many it makes: how it runs depends on the memory that is free.
2. The last `MOST_STEPS` records are kept, without those of steps that ended by an error. While the
   calls of the step are those of a record, call by call, that record says when each value is used
   next and what it costs. Once they differ, another record with the same beginning is taken, or
   none: then the policy goes by the time since the last use, and by estimated costs.
3. A call is timed, unless something was dropped during it: by the host where its device works
   synchronously (`host_memory`), in the second equal step by marks around the launch where the
   device has queues (Note [Streams]); they are read when the step ends, as far as they were
   reached. From the second equal step on the least time of a plan's calls counts, converted to the
   unit of the estimates, `Plan.cost`, by the ratio of the two over the whole record.
4. A record also has the drops of its step, in order, each with the call that it was for. From the
   `STEADY`-th equal step under one limit on they are made again without a ranking: a request gets
   what was dropped up to its call and is still there; where that is too little, what is dropped
   later and not used before. What a request needs beyond that is ranked. Values of other steps are
   not in a record. Of the last equal steps the drops of that are taken which had the least work to
   do again (`again`): one goes by staleness, one by estimates, one by times, and each may be best.
5. Such a step follows the record: a call is compared with the record's, and nothing is noted, since
   the record has it (`replay.following`). The lists of both are the same until a call differs. Of
   its recipes only those are kept by number that the record drops (`dropped`).
6. Such a step is quiet where its record, and those that begin with the same call, dropped no
   gradient: then its gradients need no recipe, and derivatives run almost as outside of a budget
   (Note [Derivatives] 8). Where its calls differ, derivatives run as in other steps from there on,
   but its gradients still get no recipes (`is_plain`): a recipe would keep the gradients before it,
   which have none. A step whose calls differ in the backward pass leaves no record, since uses of
   its gradients are not known, and the one that it followed counts as one that dropped gradients.
   So do all after a refusal.
7. A record has numbers only: it keeps no plan and no memory. It changes the choice of what is
   dropped, never bits.
"""

from __future__ import annotations

import weakref
from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, NamedTuple

from rushlight.devices.shared.allocator import Pool, Storage
from rushlight.devices.shared.registry import opened
from rushlight.tape.memory.recipe import UNTIMED, Recipe, list_pending
from rushlight.tape.record.op import Plan
from rushlight.tape.record.state import STATE, WALK
from rushlight.tape.record.value import Node

MOST_STEPS = 4
MOST_CALLS = 1 << 16  # in a record
NEVER = 1 << 30  # calls until the next use of what is not used again


STEADY = 4
_PART = 2.0**-20  # of a derivative: one call
# Where its gradients are added to others: after its calls, however many these were in the record.
ENDED = 0.5
_MARKED = 2  # the equal step in which launches have marks


class Drop(NamedTuple):
    """Values that were dropped for a request: numbers of recipes and of results."""

    call: int
    pool: int  # its identity
    values: tuple[tuple[int, int], ...]


class Record:
    """The calls of a step."""

    __slots__ = (
        *("again", "costs", "drops", "fleeting", "late", "limit", "plans", "repeats", "seconds"),
        *("uses", "walked", "works"),
    )

    def __init__(self) -> None:
        self.plans: list[int] = []  # identities of plans, and of derivatives (`Grad`)
        # Of the results of each call: the calls that read them, and places in derivatives.
        self.uses: list[list[float]] = []
        self.seconds: list[float] = []  # of each call
        self.costs: list[float] = []  # their estimates
        self.walked = MOST_CALLS  # the first call of a backward pass
        # Of each call: whether it is one of a backward pass that records nothing.
        self.fleeting: list[bool] = []
        self.works: list[float] = []  # of each call, made when the step ends
        self.drops: list[Drop] = []
        self.again: list[int] = []  # the calls that were run again
        self.late = False  # whether gradients were dropped, or may have to be
        self.limit: int | None = None  # of the first call's device
        self.repeats = 1  # the number of equal steps, up to this one

    def share(self, known: Record) -> None:
        """Take the lists of an equal step."""
        self.plans, self.costs, self.fleeting = known.plans, known.costs, known.fleeting
        self.seconds, self.uses, self.works = known.seconds, known.uses, known.works
        self.repeats, self.walked = known.repeats + 1, known.walked

    def part(self, count: int) -> None:
        """Have lists of its own, with the first calls."""
        self.plans, self.costs = self.plans[:count], self.costs[:count]
        self.fleeting, self.seconds = self.fleeting[:count], self.seconds[:count]
        self.uses = [uses[: bisect_left(uses, count)] for uses in self.uses[:count]]
        self.works, self.repeats = [], 1
        if self.walked >= count:
            self.walked = MOST_CALLS

    def close(self) -> None:
        """Compute the calls' work: measured where possible, in the unit of the estimates."""
        least: dict[int, float] = {}  # by plan: a single time may be that of anything
        for plan, s in zip(self.plans, self.seconds, strict=True):
            least[plan] = min(s, least.get(plan, UNTIMED))
        pairs = list(zip([least[plan] for plan in self.plans], self.costs, strict=True))
        timed = [pair for pair in pairs if pair[0] != UNTIMED]
        seconds = sum([s for s, _ in timed])
        per_second = sum([cost for _, cost in timed]) / seconds if seconds else 0.0
        if self.repeats < 2:  # one time may be that of anything
            self.works = self.costs
        else:
            self.works = [cost if s == UNTIMED else s * per_second for s, cost in pairs]


class Foresight:
    """The record of the step that runs, and the one that it resembles. The caller holds LOCK."""

    def __init__(self) -> None:
        self.steps: list[Record] = []
        self.record = Record()
        self.count = 0  # of the step's recipes, without those of gradients
        self.flying = 0  # of those
        # The numbers that a followed record drops, those of gradients as ~number; their recipes.
        self.dropped: set[int] = set()
        self.kept: dict[int, weakref.ref[Recipe]] = {}
        self.known: Record | None = None
        self.followed: list[int] = []  # the plans of the record that is followed
        # Marks before and after launches, by the number of the call.
        self.marks: dict[int, tuple[Any, Any]] = {}
        self.now = -1  # the index of the last call
        self.is_inside = False  # whether that is a derivative, which runs
        self.inner = 0.0  # the part of it that is done: `_PART` for each of its calls
        self.drops: list[Drop] | None = None  # those that are made again; None: values are ranked
        self.next_drop: dict[int, int] = {}  # of them, by pool
        self.is_quiet = False  # Note [Foresight] 6
        self.is_plain = False  # whether the step's gradients have no recipes

    @property
    def is_fleeting(self) -> bool:
        """Whether the last call is one of a backward pass without a record."""
        return self.record.fleeting[self.now]

    @property
    def place(self) -> float:
        """The index of the last call, or the place in the derivative that runs."""
        return self.now + self.inner if self.is_inside else self.now

    @property
    def coming(self) -> float:
        """The place of the first call that has not ended."""
        return self.now + self.inner + _PART if self.is_inside else self.now + 1

    @property
    def learns(self) -> bool:
        """Whether calls are noted, since no record is followed."""
        return not self.followed

    @property
    def is_timing(self) -> bool:
        """Whether the next call is timed."""
        return not self.followed and (not self.is_inside or WALK.get() is None)

    def begin(self) -> None:
        """Begin another step."""
        record = self.record
        if self.now >= 0:
            if self.followed and self.now + 1 < len(self.followed):
                self._leave()
            if self.learns:
                self._read_marks()
                record.close()
            if self.followed or not self.is_plain:
                self.steps = [*self.steps[1 - MOST_STEPS :], record]
        list_pending()
        self.record, self.count, self.flying = Record(), 0, 0
        self.known = self.drops = None
        self.dropped, self.kept = set(), {}
        self.followed, self.is_quiet, self.is_plain = [], False, False
        self.now = -1

    def mark(self, pool: Pool) -> Any:
        """A mark of the device after its work so far; None where the next call needs none."""
        queues = pool.device.limits.queues
        if queues is None or self.followed or self.known is None or self.record.repeats != _MARKED:
            return None
        return queues.main.mark(timed=True)

    def _read_marks(self) -> None:
        """Take the times of the launches that are done."""
        seconds = self.record.seconds
        for call, (first, last) in self.marks.items():
            if call < len(seconds) and last.done():
                seconds[call] = min(seconds[call], last.since(first) / 1e3)
        self.marks = {}

    def note_refusal(self) -> None:
        """A request was refused: gradients may have to be dropped, in steps to come too."""
        if self.is_plain:
            for step in self.steps:
                step.late = True

    def forget(self) -> None:
        """Forget the step that runs: it was not finished, and its uses are not all there."""
        self.now, self.marks = -1, {}
        self.begin()

    def call(self, plan: Plan, seconds: float = UNTIMED) -> None:
        """Count a call, which took so long, unless it is one of a derivative that was entered.

        Another thread may have begun a step since then: it is the first call of that.
        """
        walk = WALK.get()
        if walk is not None and walk.by_node and self.now >= 0:
            self.inner += _PART
            return
        now, followed = self.now + 1, self.followed
        self.is_inside = False
        if now < len(followed) and followed[now] == id(plan):
            self.now = now
        else:
            self._note(id(plan), plan, seconds)

    def enter(self, node: Node) -> None:
        """Count the derivative of a node that no followed record has next, before it runs."""
        self._note(id(node.grad), node.plan, UNTIMED)
        self.is_inside, self.inner = True, 0.0

    def _note(self, key: int, plan: Plan, seconds: float) -> None:
        """Note a call, or the derivative of one, that no followed record has there."""
        walk = WALK.get()
        is_next = walk is None and self.record.walked <= self.now and STATE.get().grad
        if is_next or self.now + 1 >= MOST_CALLS:
            self.begin()
        elif self.followed:
            self._leave()
        now, record, known = self.now + 1, self.record, self.known
        record.plans.append(key)
        record.costs.append(plan.cost)
        record.fleeting.append(walk is not None and not walk.create)
        if walk is not None and now < record.walked:
            record.walked = now
        record.uses.append([])
        if not now or (known is not None and known.plans[now : now + 1] != [key]):
            count = now + 1
            found = (s for s in reversed(self.steps) if s.plans[:count] == record.plans)
            known = self.known = next(found, None)
            self.drops, record.repeats = None, 1
        if not now:
            record.limit = plan.pool.limit
            _tell_devices()
        if known is not None:
            record.repeats = known.repeats + 1 if known.limit == record.limit else 1
            seconds = min(seconds, known.seconds[now])
        record.seconds.append(seconds)
        self.now = now
        if known is not None and not now and record.repeats >= STEADY:
            self.followed, self.next_drop = known.plans, {}
            self.drops = self._best(known).drops
            self.dropped = {number for drop in self.drops for number, _ in drop.values}
            alike = [step for step in self.steps if step.plans[0] == key]
            self.is_quiet = self.is_plain = not any(step.late for step in alike)
            record.share(known)

    def _best(self, known: Record) -> Record:
        """Of the steps that equal a record, the last of those that ran least again."""
        equal = [s for s in self.steps if s.limit == known.limit and s.plans == known.plans]
        return min(reversed(equal), key=lambda step: sum([known.works[i] for i in step.again]))

    def note_run(self, recipe: Recipe) -> None:
        """Count a recipe that was run again."""
        if recipe.record is self.record:
            self.record.again.append(recipe.call)

    def _leave(self) -> None:
        """Stop following a record."""
        record, known, is_early = self.record, self.known, self.now < self.record.walked
        record.part(self.now + 1)
        self.followed, self.is_quiet = [], False
        if is_early:  # no gradient was made yet
            self.is_plain = False
        elif self.is_plain and known is not None:
            known.late = True

    def wait(self, recipe: Recipe) -> int | None:
        """The calls until a recipe's results are used next; None where nothing tells."""
        known = self.known
        if known is None or recipe.record is not self.record:
            return None
        uses = known.uses[recipe.call]
        following = bisect_left(uses, self.coming)
        wait = int(uses[following]) - self.now if following < len(uses) else NEVER
        wanted = recipe.wanted
        return wanted - self.now if int(self.coming) <= wanted < self.now + wait else wait

    def work(self, recipe: Recipe) -> float:
        """What running a recipe costs, in the unit of `Plan.cost`."""
        known = self.known
        if known is None or recipe.record is not self.record or recipe.fleeting:
            return recipe.plan.cost
        return known.works[recipe.call]

    def number(self, recipe: Recipe) -> None:
        """Give a new recipe its place in the step's record."""
        record, now = self.record, self.now
        recipe.record, recipe.call = record, now
        recipe.fleeting = record.fleeting[now]
        if recipe.fleeting:
            recipe.number = ~self.flying
            self.flying += 1
        else:
            recipe.number = self.count
            self.count += 1
        if recipe.number in self.dropped:
            self.kept[recipe.number] = weakref.ref(recipe)

    # ---- drops ----

    def planned(self, pool: Pool, room: int, want: int, kept: set[Storage]) -> list[Storage]:
        """What the step before has dropped up to this call, as far as a request needs it.

        Where that is too little, also what it drops later and does not use before.
        """
        drops, found, freed = self.drops, [], 0
        if drops is None:
            return []
        for number in range(self.next_drop.get(id(pool), 0), len(drops)):
            drop = drops[number]
            if drop.pool != id(pool):
                continue
            is_due = drop.call <= self.now
            if is_due:
                self.next_drop[id(pool)] = number + 1
            for storage in [self._value(*value) for value in drop.values]:
                if storage is None or storage in kept or storage in found:
                    continue
                wait = NEVER if is_due else self.wait(storage.recipe)
                if wait is None or wait <= drop.call - self.now:
                    continue
                found.append(storage)
                freed += storage.room
                if storage.room == room:
                    return found
            if freed >= want:
                break
        return found

    def _value(self, number: int, index: int) -> Storage | None:
        """A result of the step's recipes, where it is present."""
        reference = self.kept.get(number)
        recipe = None if reference is None else reference()
        return None if recipe is None else recipe.present(index)

    def note_drop(self, pool: Pool, storages: Sequence[Storage]) -> None:
        """Keep what was chosen for a request."""
        record = self.record
        recipes: list[Recipe] = [storage.recipe for storage in storages]
        record.late = record.late or any(recipe.fleeting for recipe in recipes)
        pairs = zip(recipes, storages, strict=True)
        values = [(r.number, r.index_of(s)) for r, s in pairs if r.record is record]
        if values:
            record.drops.append(Drop(self.now, id(pool), tuple(values)))


def _tell_devices() -> None:
    """Tell the devices that a limit binds that a step begins: Note [Layout]."""
    for pool in opened():
        steps = pool.device.limits.steps
        if steps is not None and pool.limit is not None:
            steps(pool)


FORESIGHT = Foresight()
