"""Recipes: how the bytes of a storage were made, so that they can be dropped and rebuilt.

# Note [Recipes]
1. In a region (a checkpoint or a budget) each call leaves a `Recipe` on the storages it fills:
   plan, parameters, and for each input either the recipe of its storage or, where there is none,
   the storage itself ("plain").
2. A recipe is pure: running it again gives the same bits. Random positions and autocast casts are
   in plan and parameters. An in-place write to all of a storage that has a recipe leaves a new one,
   whose source is the old; any other write makes the storage plain.
3. A recipe keeps other recipes alive, and plain storages, but no storage that has a recipe. A chain
   of recipes ends at plain storages: inputs, parameters, gradients of leaves, small results of a
   budget, and every `LONGEST`-th result. A storage that is read outside of every region becomes
   plain.
4. A plain storage that a recipe reads must keep its bits. Before a write to it, every storage made
   from it that has a recipe is rebuilt if it was dropped, and becomes plain (`before_write`). So
   every storage with a recipe can be rebuilt, at any time.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

from rushlight.devices.shared.allocator import Pool, Storage
from rushlight.tape.record.op import Plan
from rushlight.tape.record.value import Value

LONGEST = 4096

# Weak references by identity: an entry is removed with its object.
Weakly = dict[int, "weakref.ref[Any]"]

# Storages that have a recipe, by pool.
_WITH_RECIPE: dict[Pool, Weakly] = {}

# Plain storages that some recipe reads: a write to any other needs no rebuild.
_READ: Weakly = {}


class Mark:
    """Identifies the region of a recipe, without keeping the region's contents alive."""

    __slots__ = ("outer",)

    def __init__(self, outer: Mark | None) -> None:
        self.outer = outer

    def within(self, other: Mark) -> bool:
        mark: Mark | None = self
        while mark is not None and mark is not other:
            mark = mark.outer
        return mark is other


class Source:
    """The source of a recipe's input: a result of a recipe, or a plain storage at a version."""

    __slots__ = ("index", "memory", "offset", "recipe", "version")

    def __init__(self, value: Value) -> None:
        storage = value._memory
        self.offset = value._offset
        self.version = storage.version
        self.index = 0
        self.memory: Storage | None = None
        self.recipe: Recipe | None = storage.recipe
        if self.recipe is None:
            self.memory = storage
            enter(_READ, storage)
        else:
            self.index = self.recipe.index_of(storage)

    @property
    def key(self) -> tuple[Recipe | None, int]:
        return self.recipe, self.index

    def intact(self) -> bool:
        return self.memory is None or self.memory.version == self.version

    def present(self) -> Storage | None:
        return self.memory if self.recipe is None else self.recipe.present(self.index)


class Recipe:
    """How to refill some storages."""

    __slots__ = (
        "__weakref__",
        "length",
        "mark",
        "outs",
        "params",
        "plan",
        "proof",  # runs the plan in a replay, and compares the bits: Note [Proof]; or None
        "sources",
        "used",
    )

    def __init__(
        self, plan: Plan, params: tuple[Any, ...], sources: tuple[Source, ...], mark: Mark
    ) -> None:
        self.plan = plan
        self.params = params
        self.sources = sources
        self.mark = mark
        self.outs: list[weakref.ref[Storage] | None] = [None] * len(plan.outs)
        self.proof: Any = None
        self.used = 0  # the tick of the last use, for staleness
        self.length: int = 1 + max(
            [s.recipe.length for s in sources if s.recipe is not None], default=0
        )

    def holder(self, index: int) -> Storage | None:
        """The storage of result `index`, present or dropped, unless it was overwritten."""
        reference = self.outs[index]
        storage = None if reference is None else reference()
        return storage if storage is not None and storage.recipe is self else None

    def present(self, index: int) -> Storage | None:
        """The storage that holds the bytes of result `index`."""
        storage = self.holder(index)
        return storage if storage is not None and storage.block is not None else None

    def adopt(self, index: int, storage: Storage) -> None:
        """Make the storage that of result `index`. Its bytes may be dropped after this."""
        self.outs[index] = weakref.ref(storage)
        enter(_WITH_RECIPE.setdefault(storage.pool, {}), storage)
        storage.block, storage.address, storage.recipe = storage.present_address, None, self

    def index_of(self, storage: Storage) -> int:
        return next(i for i, r in enumerate(self.outs) if r is not None and r() is storage)

    def missing(self) -> list[Recipe]:
        """The recipes to run before this one can."""
        return [
            s.recipe
            for s in self.sources
            if s.recipe is not None and s.recipe.present(s.index) is None
        ]


def enter(table: Weakly, thing: Any) -> None:
    """Note an object weakly. Its removal runs no Python code, in which Ctrl-C would be lost."""
    key = id(thing)
    table[key] = weakref.ref(thing, functools.partial(table.pop, key))


def make_plain(storage: Storage) -> None:
    """Drop the storage's recipe: its bytes, which must be present, are kept.

    The caller holds `replay.LOCK`.
    """
    if storage.recipe is not None:
        assert storage.block is not None
        storage.address, storage.block, storage.recipe = storage.block, None, None
        _WITH_RECIPE[storage.pool].pop(id(storage), None)


def with_recipe(pool: Pool) -> Iterator[Storage]:
    """The storages of a pool that have a recipe."""
    for reference in list(_WITH_RECIPE.get(pool, {}).values()):
        storage = reference()
        if storage is not None and storage.recipe is not None:
            yield storage


def no_recipes() -> bool:
    """Whether no storage has a recipe: a write then needs no rebuild."""
    return not any(_WITH_RECIPE.values())


def readers(storage: Storage) -> list[Storage]:
    """The storages with a recipe that depends, directly or not, on the plain `storage`."""
    if id(storage) not in _READ:
        return []
    every = [s for pool in list(_WITH_RECIPE) for s in with_recipe(pool)]
    reading = _reading((s.recipe for s in every), storage)
    return [s for s in every if reading[s.recipe]]


def forget_reads(storage: Storage) -> None:
    """Note that no recipe reads the storage."""
    _READ.pop(id(storage), None)


def _reading(recipes: Iterable[Recipe], storage: Storage) -> dict[Recipe, bool]:
    reading: dict[Recipe, bool] = {}
    stack = [(recipe, False) for recipe in recipes]
    while stack:
        recipe, sources_done = stack.pop()
        if sources_done:
            reading[recipe] = any(
                s.memory is storage if s.recipe is None else reading[s.recipe]
                for s in recipe.sources
            )
        elif recipe not in reading:
            reading[recipe] = False
            stack.append((recipe, True))
            stack.extend((s.recipe, False) for s in recipe.sources if s.recipe is not None)
    return reading
