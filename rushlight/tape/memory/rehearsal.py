"""A step rehearsed in numbers: the least limit inside which its calls can be made.

# Note [Rehearsal]
1. A demand is a call to come: the results it reads, the blocks it takes, and the bytes that cannot
   be dropped beside it. Those of a step are in its order: the calls that are recorded, by their
   recipes, then derivatives. A value that is there is read as it is: less may suffice than by Note
   [Floor], which rebuilds each.
2. Inside a limit, values are dropped and rebuilt in numbers as the engine does it (Note [Replay]):
   the longest chain first; of what may go, first what the replay does not need, then what it needs
   later, then what waiting frames have, of each frame once. A result replaces an input that can be
   rebuilt where nothing else is left, and a write goes to the old version's block where nothing
   else needs that.
3. The order among values is that of the default policy, with estimated costs and the next use
   known. The first step of a program goes by the last use instead, and later ones by measured
   costs: so the limit is near the least one, not equal to it. Gradients on their way count as bytes
   that stay.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rushlight.tape.memory.recipe import MOST_RUNS, OFTEN, SMALLEST_DROP, Key, Recipe
from rushlight.tape.record.op import writes_over

_MOST_STEPS = 30_000  # calls run again: a limit that takes more is too little
_STEP = 1.15  # from one limit to the next, until one suffices
_NEVER = 1 << 30


class Demand(NamedTuple):
    """A call to come."""

    beside: int  # bytes that stay while it runs
    reads: tuple[Key, ...]
    rooms: int  # of the blocks that it takes
    recipe: Recipe | None = None  # of its results, where they may be dropped later


def calls_for(keys: Iterable[Key]) -> list[Demand]:
    """The calls that make these results, in the order of making."""
    seen: set[Recipe] = set()
    stack = [recipe for recipe, _ in keys]
    while stack:
        recipe = stack.pop()
        if recipe not in seen and not recipe.fleeting:
            seen.add(recipe)
            stack += [o for o, _, _ in recipe.sources if o.__class__ is Recipe]
    recipes = sorted(seen, key=lambda recipe: recipe.serial)
    return [Demand(0, _sources(r), 0 if r.onto else _rooms(r), r) for r in recipes]


def least_limit(demands: Sequence[Demand]) -> int:
    """The least bytes, beside what is static, in which all demands can be met: to 1 %."""
    low = max((d.beside + sum(map(_room, d.reads)) for d in demands), default=0)
    rehearsal, high = Rehearsal(demands), low
    enough = low + 2 * max((d.rooms for d in demands), default=0)
    while not rehearsal.fits(high):
        low, high = high, int(high * _STEP) + SMALLEST_DROP
        enough = max(enough, high)
        if rehearsal.steps_of_all > 10 * _MOST_STEPS:
            return enough
    while high - low > high // 100 + 64:
        middle = (low + high) // 2
        low, high = (low, middle) if rehearsal.fits(middle) else (middle, high)
    return high


def _sources(recipe: Recipe) -> tuple[Key, ...]:
    return tuple({(o, i): 0 for o, i, _ in recipe.sources if o.__class__ is Recipe})


def _room(key: Key) -> int:
    recipe, index = key
    return recipe.rooms[index]


def _rooms(recipe: Recipe) -> int:
    plan = recipe.plan
    return recipe.rooms[0] if recipe.onto is not None else plan.room + plan.rest


class _Frame:
    """Results that are brought for one call."""

    __slots__ = ("is_firm", "order", "recipe", "there")

    def __init__(self, recipe: Recipe | None, order: list[Key]) -> None:
        self.recipe = recipe
        self.order = order  # the last comes next
        self.there: set[Key] = set()
        self.is_firm = False


class Rehearsal:
    """The demands of a step, inside one limit after the other."""

    def __init__(self, demands: Sequence[Demand]) -> None:
        self.demands = demands
        self.uses: dict[Key, list[int]] = {}  # the numbers of the demands that read a result
        for number, demand in enumerate(demands):
            for key in demand.reads:
                self.uses.setdefault(key, []).append(number)
        self.steps_of_all = 0

    def fits(self, limit: int) -> bool:
        self.limit = limit
        self.present: dict[Key, int] = {}  # the bytes of what is there
        self.held = self.steps = 0
        self.worn: Counter[Recipe] = Counter()  # how often a recipe was run again
        found = all(self._meet(number, demand) for number, demand in enumerate(self.demands))
        self.steps_of_all += self.steps + len(self.demands)
        return found

    def _meet(self, number: int, demand: Demand) -> bool:
        self.now, self.beside = number, demand.beside
        recipe, present = demand.recipe, self.present
        self.needed: Counter[Key] = Counter(demand.reads)
        self.runs: Counter[Recipe] = Counter()
        self.expected: set[Recipe] = set()
        for key in demand.reads:
            if key not in present:
                self._expect(key[0])
        self.frames = [_Frame(None, self._ordered(demand.reads))]
        if not self._bring() or not self._take(demand.rooms, recipe):
            return False
        self.frames = []
        if recipe is not None:
            if recipe.onto is not None:  # it is written to where it is
                self._remove(demand.reads[-1] if _is_old(recipe) else None)
            self._put(recipe)
        return True

    def _ordered(self, keys: Iterable[Key]) -> list[Key]:
        """As `turn_of` has it."""
        there = self.present
        return sorted(keys, key=lambda key: (key not in there, key[0].length, -key[0].serial))

    def _expect(self, recipe: Recipe) -> None:
        stack = [recipe]
        while stack:
            recipe = stack.pop()
            if recipe in self.expected:
                continue
            self.expected.add(recipe)
            for key in _sources(recipe):
                self.needed[key] += 1
                if key not in self.present:
                    stack.append(key[0])

    def _bring(self) -> bool:
        """Make present, and pin, what the first frame reads; whether it can be."""
        frames, present = self.frames, self.present
        while True:
            frame = frames[-1]
            while frame.order and frame.order[-1] in present:
                frame.there.add(frame.order.pop())
            if frame.order:
                recipe = frame.order[-1][0]
                frames.append(_Frame(recipe, self._ordered(_sources(recipe))))
                continue
            if frame.recipe is None:
                return True
            if not self._run_again(frame, frame.recipe):
                return False

    def _run_again(self, frame: _Frame, recipe: Recipe) -> bool:
        self.steps += 1
        self.runs[recipe] += 1
        self.worn[recipe] += 1
        if self.steps > _MOST_STEPS or self.runs[recipe] > MOST_RUNS:
            return False
        sources, rooms, old = _sources(recipe), _rooms(recipe), None
        if recipe.onto is not None and _is_old(recipe):
            last = recipe.sources[-1][:2]
            if self.needed[last] <= 1 and not self._is_used(last):
                rooms, old = 0, last
        rooms -= sum(room for i, room in enumerate(recipe.rooms) if (recipe, i) in self.present)
        if not self._take(rooms, recipe):
            return False
        self._remove(old)
        self.frames.pop()
        self._put(recipe)
        self.expected.discard(recipe)
        for key in sources:
            self.needed[key] -= 1
            if self.needed[key] <= 0:
                del self.needed[key]
                if not self._is_used(key):
                    self._remove(key)
        return True

    def _put(self, recipe: Recipe) -> None:
        for index, room in enumerate(recipe.rooms):
            if (recipe, index) not in self.present:
                self.present[recipe, index] = room
                self.held += room

    def _remove(self, key: Key | None) -> None:
        if key is not None:
            self.held -= self.present.pop(key, 0)

    def _is_used(self, key: Key) -> bool:
        return self._next_use(key) != _NEVER

    def _next_use(self, key: Key) -> int:
        uses = self.uses.get(key, ())
        place = bisect_left(uses, self.now)
        return uses[place] if place < len(uses) else _NEVER

    # ---- room ----

    def _take(self, rooms: int, recipe: Recipe | None) -> bool:
        """Make room for the blocks of a call whose sources the last frame has; whether there is."""
        if self._over(rooms) <= 0:
            return True
        pinned, brought = set(self.frames[-1].there), set()
        for frame in self.frames:
            brought |= frame.there
            if frame.is_firm:
                pinned |= frame.there
        for kept in (brought.union(self.needed), brought, pinned):
            gone = self._drop(rooms, kept)
            for frame in self.frames[:-1]:
                given_up = frame.there & gone
                if given_up:
                    frame.is_firm = True
                    frame.there -= given_up
                    frame.order[:0] = given_up
            if self._over(rooms) <= 0:
                return True
        replaced = None if recipe is None else self._replaced(recipe, pinned)
        if replaced is not None and self._over(rooms) <= self.present[replaced]:
            self._remove(replaced)
            return True
        return False

    def _over(self, rooms: int) -> int:
        return self.held + self.beside + rooms - self.limit

    def _drop(self, rooms: int, kept: set[Key]) -> set[Key]:
        """Drop values in the order of the policy until there is room; those that went."""
        going = sorted([key for key in self.present if key not in kept], key=self._score)
        gone = set()
        for key in going:
            if self._over(rooms) <= 0:
                break
            self._remove(key)
            gone.add(key)
            if key in self.needed:
                self._expect(key[0])
        return gone

    def _score(self, key: Key) -> tuple[bool, bool, float]:
        recipe, room, wait = key[0], self.present[key], self._next_use(key) - self.now
        work = recipe.plan.cost * (self.worn[recipe] + 1)
        return self.worn[recipe] >= OFTEN, room < SMALLEST_DROP, work / (room * (wait + 1))

    def _replaced(self, recipe: Recipe, pinned: set[Key]) -> Key | None:
        """The largest source that a result may be written over."""
        others = [frame.there for frame in self.frames[:-1] if frame.is_firm]
        plan, found = recipe.plan, None
        for given, (origin, index, offset) in enumerate(recipe.sources):
            key = (origin, index)
            if origin.__class__ is not Recipe or offset or any(key in there for there in others):
                continue
            if recipe.onto is None and any(
                writes_over(plan, out, given) for out in range(len(plan.outs))
            ):
                found = key if found is None or _room(key) > _room(found) else found
        return found


def _is_old(recipe: Recipe) -> bool:
    """Whether the last source of a write is a recipe's old version."""
    return recipe.sources[-1][0].__class__ is Recipe
