"""Rebuilding dropped storage from its recipe.

# Note [Replay]
1. In a region (a checkpoint or a budget) each call leaves a `Recipe` on the storages it fills: plan, parameters, and for
   each input either the recipe of the storage it came from or, where there is none, the storage itself.
2. A recipe is pure: running it again gives the same bits. Random positions and autocast casts are in plan and parameters.
   In-place writes are recorded as the pure op they stand for, with a new recipe for the storage.
3. A storage whose bytes are dropped has address None. `rebuild` fills it from the nearest ancestors that are there, each
   recipe at most once, without recursion. Values needed only on the way are let go as soon as their last user has run.
4. A source that is a plain storage must still have the version it had; otherwise the value cannot be rebuilt. So a write
   to a storage first rebuilds the dropped values that depend on it (`before_write`).
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable, Sequence
from typing import Any

from rushlight.core.errors import InplaceError
from rushlight.devices.allocator import Storage
from rushlight.tape.op import Plan
from rushlight.tape.value import Value

LOCK = threading.RLock()


class Recipe:
    """How to fill some storages again."""

    __slots__ = ("__weakref__", "outs", "params", "plan", "region", "sources", "used")

    def __init__(self, plan: Plan, params: tuple[Any, ...], sources: tuple[Source, ...], region: Any) -> None:
        self.plan = plan
        self.params = params
        self.sources = sources
        self.region = region
        self.outs: list[weakref.ref[Storage] | None] = [None] * len(plan.outs)
        self.used = 0  # the tick of the last use, for staleness

    def present(self, index: int) -> Storage | None:
        """The storage that holds result `index` now, if its bytes are there and not overwritten."""
        reference = self.outs[index]
        storage = reference() if reference is not None else None
        if storage is None or storage.recipe is not self or storage.address is None:
            return None
        return storage

    def adopt(self, index: int, storage: Storage) -> None:
        self.outs[index] = weakref.ref(storage)
        storage.recipe = self


class Source:
    """Where an input of a recipe comes from: result `index` of `recipe`, or a storage at a version."""

    __slots__ = ("index", "offset", "recipe", "storage", "version")

    def __init__(self, value: Value) -> None:
        storage = value.storage
        self.offset = value.offset
        self.recipe: Recipe | None = storage.recipe
        self.index = 0
        self.storage: Storage | None = None
        self.version = storage.version
        if self.recipe is None:
            self.storage = storage
        else:
            self.index = next(i for i, r in enumerate(self.recipe.outs) if r is not None and r() is storage)

    def intact(self) -> bool:
        return self.storage is None or self.storage.version == self.version


class Counters:
    """What was rebuilt since the last reset, and the clock of use."""

    nodes = 0
    nbytes = 0
    tick = 0


class Pins:
    """Storages that must not be dropped now; a context for one call."""

    counts: dict[Storage, int] = {}  # noqa: RUF012 (one table for the process, under LOCK)

    def __init__(self, storages: Iterable[Storage]) -> None:
        self.storages = list(storages)

    def __enter__(self) -> Pins:
        for storage in self.storages:
            self.add(storage)
        return self

    def __exit__(self, *_: object) -> None:
        for storage in self.storages:
            self.remove(storage)

    @classmethod
    def add(cls, storage: Storage) -> None:
        cls.counts[storage] = cls.counts.get(storage, 0) + 1

    @classmethod
    def remove(cls, storage: Storage) -> None:
        left = cls.counts[storage] - 1
        if left:
            cls.counts[storage] = left
        else:
            del cls.counts[storage]


def run_in_region(plan: Plan, inputs: Sequence[Value], params: tuple[Any, ...], region: Any) -> list[Storage]:
    """Fill new storages by `plan`, with the inputs pinned and a recipe left on the results."""
    with LOCK, Pins(v.storage for v in inputs):
        ins = _addresses(inputs)
        storages = [Storage(plan.pool, room) for room in plan.rooms]
        assert plan.launch is not None
        plan.launch(*[s.address for s in storages], *ins, *plan.tail, *params)
        leave_recipe(plan, inputs, params, storages, region)
    return storages


def leave_recipe(
    plan: Plan, inputs: Sequence[Value], params: tuple[Any, ...], storages: Sequence[Storage], region: Any
) -> None:
    recipe = Recipe(plan, params, tuple(Source(v) for v in inputs), region)
    for value in inputs:
        region.use(value.storage)
    Counters.tick += 1
    recipe.used = Counters.tick
    for source in recipe.sources:
        if source.recipe is not None:
            source.recipe.used = Counters.tick
    for i, storage in enumerate(storages):
        recipe.adopt(i, storage)
        region.watch(storage)


def addresses(inputs: Sequence[Value]) -> list[int]:
    """The inputs' addresses, after rebuilding what was dropped."""
    with LOCK, Pins(v.storage for v in inputs):
        return _addresses(inputs)


def _addresses(inputs: Sequence[Value]) -> list[int]:
    for value in inputs:
        if value.storage.address is None:
            rebuild(value.storage)
    return [v.storage.address + v.offset for v in inputs]  # type: ignore[operator]


def is_plain(*values: Value) -> bool:
    """Whether the values' bytes are there and nobody could have to rebuild something from them."""
    return all(v.storage.address is not None and v.storage.recipe is None for v in values)


def ensure(storage: Storage) -> int:
    """The storage's address, rebuilt if it was dropped."""
    if storage.address is None:
        with LOCK:
            rebuild(storage)
    assert storage.address is not None
    return storage.address


def rebuild(target: Storage) -> None:
    """Fill a dropped storage."""
    recipe = target.recipe
    index = next(i for i, r in enumerate(recipe.outs) if r is not None and r() is target)
    refill(recipe, index)


def refill(recipe: Recipe, index: int) -> Storage:
    """A storage with result `index` of the recipe: the one that is there, or a rebuilt one."""
    found = recipe.present(index)
    if found is not None:
        return found
    order, pinned = _missing(recipe)
    uses: dict[Recipe, int] = {}
    for step in order:
        for source in step.sources:
            if source.recipe is not None:
                uses[source.recipe] = uses.get(source.recipe, 0) + 1
    have: dict[Recipe, list[Storage]] = {}
    try:
        for step in order:
            have[step] = _run_again(step, have)
            for storage in have[step]:
                Pins.add(storage)
            for source in step.sources:
                _let_go(source.recipe, uses, have)
        return have[recipe][index]
    finally:
        for storages in have.values():
            for storage in storages:
                Pins.remove(storage)
        for storage in pinned:
            Pins.remove(storage)


def _let_go(recipe: Recipe | None, uses: dict[Recipe, int], have: dict[Recipe, list[Storage]]) -> None:
    if recipe is None or recipe not in have:
        return
    uses[recipe] -= 1
    if not uses[recipe]:
        for storage in have.pop(recipe):
            Pins.remove(storage)


def _missing(recipe: Recipe) -> tuple[list[Recipe], list[Storage]]:
    """The recipes to run for `recipe`, sources first, and the storages they start from (pinned)."""
    order: list[Recipe] = []
    pinned: list[Storage] = []
    seen: set[Recipe] = set()
    stack: list[tuple[Recipe, bool]] = [(recipe, False)]
    while stack:
        step, ready = stack.pop()
        if ready:
            order.append(step)
            continue
        if step in seen:
            continue
        seen.add(step)
        stack.append((step, True))
        for source in step.sources:
            if not source.intact():
                for storage in pinned:
                    Pins.remove(storage)
                raise InplaceError(
                    f"{step.plan.op.name}: a dropped result must be rebuilt, but one of its inputs was overwritten in place "
                    f"since; write to a clone instead, or leave the budget or checkpoint first"
                )
            if source.recipe is None:
                continue
            found = source.recipe.present(source.index)
            if found is None:
                stack.append((source.recipe, False))
            else:
                Pins.add(found)
                pinned.append(found)
    return order, pinned


def _run_again(recipe: Recipe, have: dict[Recipe, list[Storage]]) -> list[Storage]:
    plan = recipe.plan
    ins = []
    for source in recipe.sources:
        storage = source.storage
        if storage is None:
            assert source.recipe is not None
            made = have.get(source.recipe)
            storage = made[source.index] if made is not None else source.recipe.present(source.index)
        assert storage is not None
        assert storage.address is not None
        ins.append(storage.address + source.offset)
    storages = [_refilled(recipe, i) for i in range(len(plan.outs))]
    plan.launch(*[s.address for s in storages], *ins, *plan.tail, *recipe.params)  # type: ignore[misc]
    Counters.nodes += 1
    Counters.nbytes += sum(spec.nbytes for spec in plan.outs)
    Counters.tick += 1
    recipe.used = Counters.tick
    return storages


def _refilled(recipe: Recipe, index: int) -> Storage:
    """The storage to fill: the dropped one if it is still held and current, else a new one."""
    plan = recipe.plan
    reference = recipe.outs[index]
    shell = reference() if reference is not None else None
    if shell is not None and shell.recipe is recipe:
        if shell.address is None:
            shell.address = plan.pool.take(shell.room)
        return shell
    storage = Storage(plan.pool, plan.rooms[index])
    if shell is None:
        recipe.adopt(index, storage)
        if recipe.region is not None:
            recipe.region.watch(storage)
    return storage


def before_write(storage: Storage, dropped: Iterable[Storage]) -> None:
    """Rebuild the dropped values whose recipe reads `storage`, while its bytes are still there."""
    for other in list(dropped):
        if other is not storage and other.address is None and _depends(other.recipe, storage):
            with LOCK, Pins([storage]):
                rebuild(other)


def _depends(recipe: Recipe, storage: Storage) -> bool:
    seen = {recipe}
    stack = [recipe]
    while stack:
        step = stack.pop()
        for source in step.sources:
            if source.storage is storage:
                return True
            if source.recipe is None or source.recipe in seen:
                continue
            if source.recipe.present(source.index) is storage:
                return True
            if source.recipe.present(source.index) is None:
                seen.add(source.recipe)
                stack.append(source.recipe)
    return False
