"""Regions: blocks in which calls leave recipes, so that values can be dropped and rebuilt.

A checkpoint (`checkpoint.py`) drops the saves of its calls when it ends; a budget drops values when
the allocator needs memory.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from functools import partial
from heapq import heapify, heappop, heappush, nsmallest
from typing import Any, ClassVar

from rushlight.devices.shared.allocator import Pool, Storage
from rushlight.tape.memory import offload, replay
from rushlight.tape.memory.foresight import FORESIGHT, NEVER, Foresight
from rushlight.tape.memory.offload import Offload
from rushlight.tape.memory.pins import COUNTERS, Pins
from rushlight.tape.memory.policy import LEAST_WORK, Candidate, Policy, rebuild_cost
from rushlight.tape.memory.recipe import (
    OFTEN,
    SMALLEST_DROP,
    Mark,
    Recipe,
    groups_of_sources,
    with_recipe,
)
from rushlight.tape.memory.requirement import note_need, static_bytes
from rushlight.tape.record.op import Plan
from rushlight.tape.record.state import STATE, WALK
from rushlight.tape.record.value import Node, Value


class Region:
    """Leaves recipes; the base of checkpoints and budgets."""

    witness: Any = None  # takes digests of what calls make here: Note [Proof]
    chooses = False  # whether `choose` is called
    foresight: Foresight | None = None  # set inside budgets
    policy: Policy | None = None  # ranks the values dropped here; None: the outer region's policy
    offload: Offload | None = None  # where they go; None: where the outer region's go

    def __init__(self) -> None:
        self.outer: Region | None = STATE.get().region
        self.mark = Mark(None if self.outer is None else self.outer.mark)
        self.bounds: dict[Pool, int | None] = {}  # the least limit of the budgets around, by pool
        # Whether `use` has to be called.
        self.listens = type(self).use is not Region.use
        # Whether `note` has to be called also in a followed step.
        self.tells = type(self).note is not Region.note
        if self.outer is not None:
            self.listens = self.listens or self.outer.listens
            self.tells = self.tells or self.outer.tells
            self.witness, self.chooses = self.outer.witness, self.outer.chooses
            self.foresight = self.outer.foresight or self.foresight

    def enable_reclaim(self, pool: Pool) -> None:
        """Called for a recipe on this pool."""
        pool.reclaim = reclaim

    def rebuilds(self, plan: Plan) -> bool:
        """Whether the results of a plan could be dropped here; else they need no recipe."""
        return max(plan.rooms) >= SMALLEST_DROP or (
            self.outer is not None and self.outer.rebuilds(plan)
        )

    def note(self, node: Node) -> None:
        """Called for a recorded node."""
        saver = weakref.ref(node)
        for value in node.saved or ():
            if value._memory.recipe is not None:
                value._memory.recipe.saved = saver
        for storage in node.outs:
            if storage.recipe is not None:
                storage.recipe.saved = saver
        if self.outer is not None:
            self.outer.note(node)

    def use(self, storage: Storage) -> None:
        """Called for a storage that a call in the region reads."""
        if self.outer is not None:
            self.outer.use(storage)

    def choose(self, plan: Plan, inputs: Sequence[Value], result: Any) -> None:
        """Called for a call in the region, after it was made."""
        if self.outer is not None and self.outer.chooses:
            self.outer.choose(plan, inputs, result)

    def unasked(self) -> Region:
        """A region inside, for calls of which `choose` is not told."""
        inside = Region()
        inside.chooses = False
        return inside

    def made_here(self, storage: Storage) -> bool:
        return storage.recipe is not None and storage.recipe.mark.within(self.mark)


# Late, worn, small, score, number, drops before the score, serial, storage.
Item = tuple[bool, bool, bool, float, int, int, int, "weakref.ref[Storage]"]


class Ranking:
    """The storages of a pool that can be dropped for blocks of one size: a heap by score.

    Made once for many requests; `tick` is when. A drop raises the scores of others, so a score is
    computed again before its storage is chosen, where values were dropped since.
    """

    __slots__ = ("copied", "items", "offload", "policy", "room", "tick", "until")

    def __init__(self, pool: Pool, room: int, policy: Policy, offload: Offload) -> None:
        self.room = room
        self.policy = policy
        self.offload = offload
        self.copied = offload.takes(pool) and not offload.is_measured
        costs: dict[Recipe, float] = {}
        self.items: list[Item] = []
        for i, storage in enumerate(with_recipe(pool)):
            stays = storage.recipe.is_settled and not storage.copy and not offload.takes(pool)
            if storage.block is not None and not stays:
                self.items.append(self._item(storage, i, costs))
        heapify(self.items)
        self.tick = COUNTERS.tick
        self.until = self.tick + len(self.items) // _PER_RANKING

    def _item(self, storage: Storage, number: int, costs: dict[Recipe, float]) -> Item:
        recipe: Recipe = storage.recipe
        candidate = Candidate(storage, self.room, costs, self.offload)
        # What a backward pass has made comes last: to rebuild it is to repeat the pass.
        late = recipe.fleeting and candidate.wait != NEVER and not self.copied
        worn = recipe.runs >= OFTEN and not self.copied
        small = storage.room < SMALLEST_DROP
        score = self.policy.score(candidate)
        return late, worn, small, score, number, COUNTERS.drops, recipe.serial, weakref.ref(storage)

    def choose(self, room: int, want: int, spared: set[Storage], late: bool) -> list[Storage]:
        """The first storages, of `want` bytes or with one of the room asked for, or all.

        Without `late` only those before the values of a backward pass.
        """
        chosen: dict[Storage, Item] = {}
        skipped: list[Item] = []
        costs: dict[Recipe, float] = {}
        items, freed = self.items, 0
        while items and freed < want and (late or not items[0][0]):
            item = heappop(items)
            storage = item[-1]()
            recipe = None if storage is None or storage.block is None else storage.recipe
            if storage is None or recipe is None or recipe.serial != item[-2]:
                continue
            if storage in spared:
                skipped.append(item)
                continue
            if recipe.used > self.tick:  # it is ranked again next time
                continue
            if item[5] != COUNTERS.drops:
                again = self._item(storage, item[4], costs)
                if (again[0] and not late) or (items and again > items[0]):
                    heappush(items, again)
                    continue
            chosen[storage] = item
            freed += storage.room
            if storage.room == room:
                break
        found = _enough(list(chosen), min(want, freed))
        for item in (*skipped, *[chosen[s] for s in chosen if s not in found]):
            heappush(items, item)
        return found


# Rankings by pool and room.
_RANKINGS: dict[tuple[Pool, int], Ranking] = {}
# A ranking holds for one call for each so many of its storages.
_PER_RANKING = 4


def reclaim(pool: Pool, room: int, handed: list[int] | None = None) -> bool:
    """Drop values in the policy's order until `room` fits; whether any was dropped.

    The order among kinds of values is that of Note [Replay]; what is pinned stays. `handed` gets
    the block of one of `room` bytes: Note [Budget] 7.
    """
    with replay.LOCK:
        there, live = offload.here(), pool.live
        while True:
            chosen = _choose(pool, room, there)
            if not chosen:
                return (
                    pool.live < live
                    or offload.release(pool)
                    or free_sources(pool)
                    or free_sources(pool, last=True)
                )
            if any(storage.recipe.fleeting for storage in chosen):
                _note_need(pool, room)
            gone = []
            for storage in chosen:
                hands = handed is not None and not handed and storage.room == room
                if _let_go(storage, there, handed if hands else None):
                    gone.append(storage)
            Pins.note_dropped(gone)
            if gone:
                if there.copies_beside(pool):
                    _copy_ahead(pool, room, there)
                return True
            _RANKINGS.clear()  # no copy could be made


def _note_need(pool: Pool, room: int) -> None:
    """Note in a pass, before it drops a gradient, what it would take not to: Note [Requirement] 2.

    Not while a gradient is rebuilt, which would take nothing then.
    """
    walk = WALK.get()
    if walk is not None and not Pins.rebuilds_gradients():
        note_need(walk, pool, room, Pins.pinned())


def _copy_ahead(pool: Pool, room: int, there: Offload) -> None:
    """Begin copies of the values that a ranking has next: Note [Offload] 6."""
    ranking = _RANKINGS.get((pool, room))
    found = [] if ranking is None else nsmallest(_AHEAD, ranking.items)
    storages = [(item[-1](), item) for item in found if not item[0]]
    there.copy_ahead(
        (storage, partial(rebuild_cost, storage.recipe, {}))
        for storage, item in storages
        if storage is not None
        and storage.block is not None
        and storage.recipe is not None
        and storage.recipe.serial == item[-2]
    )


_AHEAD = 2  # values whose copies are begun with a drop


class _Search:
    """The last search of `free_sources`: when, among how many recipes, and what could not go."""

    tick = recipes = 0
    static: ClassVar[dict[Pool, int]] = {}


def begin_growth(pools: Iterable[Pool]) -> None:
    """What is in use when a budget begins has not grown in it: see `_has_grown`."""
    _Search.static.update((pool, pool.live) for pool in pools)


def _has_grown(pool: Pool) -> bool:
    """Whether what cannot be dropped grew since a search or a budget's begin.

    By an eighth of all that is in use beyond what it was then.
    """
    static = static_bytes(pool)
    least = _Search.static[pool] = min(static, _Search.static.get(pool, 0))
    return (static - least) * 8 > pool.live - least


def free_sources(pool: Pool, last: bool = False) -> bool:
    """Free plain storages that only recipes hold, where the storages made from them are smaller.

    These become plain: see Note [Recipes]. Whether any was freed. No search follows another that
    was a few calls before among many recipes. `last`: nothing can be dropped, so that what is made
    from them is pinned, and becomes plain whatever its size.
    """
    since = COUNTERS.tick - _Search.tick
    if Pins.in_replay() or (0 <= since * 16 < _Search.recipes and not last):
        return False
    live = pool.live
    groups, _Search.recipes = groups_of_sources(pool)
    _Search.tick = COUNTERS.tick
    for nbytes, made in groups:
        if (last or nbytes > sum([storage.room for storage in made])) and all(
            storage.recipe is not None and storage.block is not None for storage in made
        ):
            for storage in made:
                replay.cut(storage)
    del groups
    _Search.static[pool] = pool.live
    return pool.live < live


def _choose(pool: Pool, room: int, there: Offload) -> list[Storage]:
    """The storages to drop: those of an equal step before, or the first of a ranking.

    The first may be too few: then the request asks again.
    """
    limit = pool.limit
    over = 0 if limit is None else pool.live + room - limit
    want = over if over > 0 else room  # the device itself is full
    policy, pinned = _policy(), Pins.pinned()
    plans = policy is LEAST_WORK and there is offload.NEVER
    chosen = []
    if plans and FORESIGHT.drops is not None:
        kept = pinned.difference(Pins.replaceable(pool, room))
        chosen = FORESIGHT.planned(pool, room, want, kept)
    if not chosen:
        chosen = _rank(pool, room, want, policy, there, pinned)
    if plans and chosen:
        FORESIGHT.note_drop(pool, chosen)
    return chosen


def _rank(
    pool: Pool, room: int, want: int, policy: Policy, there: Offload, pinned: set[Storage]
) -> list[Storage]:
    """The first storages of a ranking, those before `pinned` that suffice."""
    brought = Pins.pinned(frames=True)
    often = Pins.run_often()  # to drop it for another that it is dropped for would go on for ever
    spared = brought | Pins.needed_soon() | often
    key = (pool, room)
    ranking = _RANKINGS.get(key)
    if (
        ranking is not None
        and ranking.policy is policy
        and ranking.offload is there
        and COUNTERS.tick <= ranking.until
    ):
        chosen = ranking.choose(room, want, spared, late=False)
        if chosen:
            return chosen
    if _has_grown(pool) and free_sources(pool):
        return []
    if len(_RANKINGS) > _MOST_RANKINGS:
        _RANKINGS.clear()
    ranking = _RANKINGS[key] = Ranking(pool, room, policy, there)
    chosen = []
    for kept in (spared, brought, pinned):
        chosen = chosen or ranking.choose(room, want, kept | often, late=False)
    if sum([storage.room for storage in chosen]) < want:
        chosen = Pins.replaceable(pool, room) or chosen
    for kept in (brought | often, pinned | often, pinned):
        chosen = chosen or ranking.choose(room, want, kept, late=True)
    return chosen


def _let_go(storage: Storage, there: Offload, handed: list[int] | None) -> bool:
    """Drop a storage, copied out first where it must or should be; whether it was dropped."""
    recipe: Recipe = storage.recipe
    if storage.copy is None:
        if recipe.is_settled:
            if not (there.takes(storage.pool) and there.copy(storage)):
                return False
        elif there.takes(storage.pool):
            work = rebuild_cost(recipe, {}) if there.is_measured else 0.0
            if there.chooses(storage, work):
                there.copy(storage)  # or it is rebuilt
    drop(storage, handed)
    return True


_MOST_RANKINGS = 64


def _enough(chosen: list[Storage], want: int) -> list[Storage]:
    """Those of the storages that suffice; the last is one of them."""
    spare = sum(storage.room for storage in chosen) - want
    kept = []
    for storage in reversed(chosen[:-1]):
        if storage.room <= spare:
            spare -= storage.room
        else:
            kept.append(storage)
    return [*reversed(kept), *chosen[-1:]]


def _policy() -> Policy:
    """The policy of the innermost region around the calling code that has one."""
    region = STATE.get().region
    while region is not None:
        if region.policy is not None:
            policy: Policy = region.policy
            return policy
        region = region.outer
    return LEAST_WORK


def _want_sources(recipe: Recipe) -> None:
    """Note when what a dropped value is made from is used: with the value, if not before."""
    foresight = FORESIGHT
    wait = foresight.wait(recipe)
    at = 0 if wait is None or wait == NEVER else foresight.now + wait
    used, stack = recipe.used, [recipe]
    while stack:
        for origin, index, _ in stack.pop().sources:
            if origin.__class__ is not Recipe:
                continue
            sooner = at and not int(foresight.coming) <= origin.wanted <= at
            if sooner:
                origin.wanted = at
            if origin.used < used:
                origin.used = used
            elif not sooner:
                continue
            if not origin.at_hand(index):
                stack.append(origin)


def drop(storage: Storage, handed: list[int] | None = None) -> None:
    """Free a storage's block, or hand it over."""
    COUNTERS.drops += 1
    recipe = storage.recipe  # None: its owner frees it
    if recipe is not None:
        if storage.copy is None:
            _want_sources(recipe)
        else:
            storage.copy.leave(storage)
    if COUNTERS.watch is not None:
        COUNTERS.watch.dropped(storage)
    # `Pool.give`, inlined: it must not be interrupted in between. See Note [Counting and threads].
    address = storage.present_address
    assert address is not None
    storage.address = storage.block = None
    storage.pool.live -= storage.room
    (storage.blocks if handed is None else handed).append(address)
