"""Regions: stretches of a program in which calls leave recipes, so that values can be dropped and rebuilt.

A checkpoint drops what its calls saved when it ends; a budget drops what the allocator needs, when it needs it.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from rushlight.devices.allocator import Pool, Storage
from rushlight.tape import call, replay
from rushlight.tape.replay import Counters, Pins, Recipe
from rushlight.tape.state import STATE
from rushlight.tape.value import Node, Value

# Storages that have a recipe, by pool and identity; an entry goes when its storage does.
_WATCHED: dict[Pool, dict[int, weakref.ref[Storage]]] = {}

# Dropping a block smaller than this frees too little to be worth a rebuild.
_SMALLEST_DROP = 4096


class Region:
    """Where recipes are left; the base of checkpoints and budgets."""

    def __init__(self) -> None:
        self.outer: Region | None = STATE.get().region

    def watch(self, storage: Storage) -> None:
        table = _WATCHED.setdefault(storage.pool, {})
        key = id(storage)
        table[key] = weakref.ref(storage, lambda _: table.pop(key, None))
        storage.pool.reclaim = reclaim

    def note(self, node: Node) -> None:
        """Hear of a recorded node."""
        if self.outer is not None:
            self.outer.note(node)

    def use(self, storage: Storage) -> None:
        """Hear of a storage that a call in the region reads."""

    def made_here(self, storage: Storage) -> bool:
        recipe = storage.recipe
        region = None if recipe is None else recipe.region
        while region is not None and region is not self:
            region = region.outer
        return region is self


def watched(pool: Pool) -> Iterator[Storage]:
    for reference in list(_WATCHED.get(pool, {}).values()):
        storage = reference()
        if storage is not None:
            yield storage


def dropped(pool: Pool) -> list[Storage]:
    return [s for s in watched(pool) if s.address is None]


def reclaim(pool: Pool, room: int) -> bool:
    """Drop rebuildable values, cheapest per byte and staleness first, until `room` fits; whether any was dropped."""
    with replay.LOCK:
        want = room if pool.limit is None else pool.held + room - pool.limit
        costs: dict[Recipe, float] = {}
        ranked = sorted(
            (_score(s, costs), i, s) for i, s in enumerate(watched(pool)) if _droppable(s)
        )
        freed = 0
        for _, _, storage in ranked:
            if freed >= want:
                break
            drop(storage)
            freed += storage.room
        return freed > 0


def drop(storage: Storage) -> None:
    assert storage.address is not None
    address, storage.address = storage.address, None
    storage.pool.give(address, storage.room)


def _droppable(storage: Storage) -> bool:
    if storage.address is None or storage.recipe is None or storage.room < _SMALLEST_DROP or storage in Pins.counts:
        return False
    return all(source.intact() for source in storage.recipe.sources)


def _score(storage: Storage, costs: dict[Recipe, float]) -> float:
    recipe = storage.recipe
    return rebuild_cost(recipe, costs) / (storage.room * (Counters.tick - recipe.used + 1.0))


def rebuild_cost(recipe: Recipe, costs: dict[Recipe, float]) -> float:
    """The work to rebuild a result, with that of its dropped ancestors."""
    stack = [recipe]
    while stack:
        step = stack[-1]
        if step in costs:
            stack.pop()
            continue
        missing = [
            s.recipe for s in step.sources if s.recipe is not None and s.recipe.present(s.index) is None
        ]
        waiting = [r for r in missing if r not in costs]
        if waiting:
            stack.extend(waiting)
            continue
        costs[step] = step.plan.cost + sum(costs[r] for r in missing)
        stack.pop()
    return costs[recipe]


class Checkpoint(Region):
    """A stretch whose interior is dropped when it ends and rebuilt, once, when backward first needs any of it."""

    def __init__(self) -> None:
        super().__init__()
        self.nodes: list[Node] = []
        self.entries: list[tuple[weakref.ref[Node], bool, int, Any]] = []
        # What came in from outside: a rebuild starts from here, not from further up.
        self.entered: set[Storage] = set()
        self.inner: list[Checkpoint] = []
        if isinstance(self.outer, Checkpoint):
            self.outer.inner.append(self)

    def note(self, node: Node) -> None:
        self.nodes.append(node)
        super().note(node)

    def use(self, storage: Storage) -> None:
        if not self.made_here(storage):
            self.entered.add(storage)

    def close(self, kept: Iterable[Storage]) -> None:
        """Drop what the interior nodes saved, except storages in `kept` (the results)."""
        keep = set(kept)
        for node in self.nodes:
            self._drop_saves(node, keep)
        self.nodes.clear()
        for region in self.inner:
            region.entered = {s for s in region.entered if s in keep or not self.made_here(s)}
        self.inner.clear()
        if not self.entries:
            self.entered.clear()

    def _drop_saves(self, node: Node, keep: set[Storage]) -> None:
        if node.saved is None:
            return
        saved: list[Any] = list(node.saved)
        outs: list[Any] = list(node.outs)
        before = len(self.entries)
        for i, value in enumerate(saved):
            if isinstance(value, Value) and value.storage not in keep and self.made_here(value.storage):
                saved[i] = None
                self.entries.append((weakref.ref(node), True, i, DroppedValue(value)))
        for i, storage in enumerate(outs):
            if isinstance(storage, Storage) and storage not in keep and self.made_here(storage):
                outs[i] = None
                self.entries.append((weakref.ref(node), False, i, DroppedStorage(storage)))
        if len(self.entries) > before:
            node.saved, node.outs = tuple(saved), tuple(outs)
            node.dropped = (*(node.dropped or ()), self)

    def restore(self) -> None:
        """Rebuild every dropped save of nodes that still need theirs, each recipe once."""
        entries, self.entries = self.entries, []
        for reference, is_input, position, entry in entries:
            node = reference()
            if node is None or node.saved is None:
                continue
            if is_input:
                node.saved = _placed(node.saved, position, entry.restore())
            else:
                node.outs = _placed(node.outs, position, entry.restore())
            node.dropped = tuple(r for r in node.dropped or () if r is not self) or None
        self.entered.clear()


def _placed(items: Sequence[Any], position: int, item: Any) -> tuple[Any, ...]:
    return (*items[:position], item, *items[position + 1 :])


class DroppedStorage:
    """What is left of a saved storage: its recipe."""

    __slots__ = ("index", "recipe", "version")

    def __init__(self, storage: Storage) -> None:
        self.recipe: Recipe = storage.recipe
        self.index = next(i for i, r in enumerate(self.recipe.outs) if r is not None and r() is storage)
        self.version = storage.version

    def restore(self) -> Storage:
        with replay.LOCK:
            storage = replay.refill(self.recipe, self.index)
        # The bits are those that were saved, so the version is too.
        storage.version = self.version
        return storage


class DroppedValue:
    """What is left of a saved value: its storage's recipe, and how it was seen."""

    __slots__ = ("node", "offset", "spec", "storage")

    def __init__(self, value: Value) -> None:
        self.storage = DroppedStorage(value.storage)
        self.spec = value.spec
        self.offset = value.offset
        self.node = value.node

    def restore(self) -> Value:
        return call.make_value(self.spec, self.storage.restore(), self.offset, self.node)


def restore_saves(node: Node) -> None:
    for region in node.dropped:
        region.restore()
