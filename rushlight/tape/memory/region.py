"""Regions: blocks in which calls leave recipes, so that values can be dropped and rebuilt.

A checkpoint drops the saves of its calls when it ends; a budget drops values when the allocator
needs memory.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from typing import Any

from rushlight.devices.shared.allocator import Pool, Storage
from rushlight.tape.memory import replay
from rushlight.tape.memory.policy import LEAST_WORK, Candidate, Policy
from rushlight.tape.memory.recipe import Mark, Recipe, make_plain, with_recipe
from rushlight.tape.memory.replay import Pins
from rushlight.tape.record import call
from rushlight.tape.record.op import Plan
from rushlight.tape.record.state import STATE
from rushlight.tape.record.value import Node, Value

# Dropping a block smaller than this frees too little to be worth a rebuild.
_SMALLEST_DROP = 4096


class Region:
    """Leaves recipes; the base of checkpoints and budgets."""

    policy: Policy | None = None  # ranks the values dropped here; None: the outer region's policy

    def __init__(self) -> None:
        self.outer: Region | None = STATE.get().region
        self.mark = Mark(None if self.outer is None else self.outer.mark)

    def enable_reclaim(self, pool: Pool) -> None:
        """Called for a recipe on this pool."""
        pool.reclaim = reclaim

    def rebuilds(self, plan: Plan) -> bool:
        """Whether the results of a plan could be dropped here; else they need no recipe."""
        return max(plan.rooms) >= _SMALLEST_DROP or (
            self.outer is not None and self.outer.rebuilds(plan)
        )

    def note(self, node: Node) -> None:
        """Called for a recorded node."""
        if self.outer is not None:
            self.outer.note(node)

    def use(self, storage: Storage) -> None:
        """Called for a storage that a call in the region reads."""
        if self.outer is not None:
            self.outer.use(storage)

    def made_here(self, storage: Storage) -> bool:
        return storage.recipe is not None and storage.recipe.mark.within(self.mark)


def reclaim(pool: Pool, room: int) -> bool:
    """Drop rebuildable values in the policy's order until `room` fits; whether any was dropped."""
    with replay.LOCK:
        limit = pool.limit
        over = 0 if limit is None else pool.held + room - limit
        want = over if over > 0 else room  # the device itself is full
        costs: dict[Recipe, float] = {}
        pinned = Pins.pinned()
        score = _policy().score
        ranked = sorted(
            (score(Candidate(s, room, costs)), i, s)
            for i, s in enumerate(with_recipe(pool))
            if s.block is not None and s.room >= _SMALLEST_DROP and s not in pinned
        )
        freed = 0
        for _, _, storage in ranked:
            if freed >= want:
                break
            drop(storage)
            freed += storage.room
            if storage.room == room:
                break  # this block is reused for the request
        return freed > 0


def _policy() -> Policy:
    """The policy of the innermost region around the calling code that has one."""
    region = STATE.get().region
    while region is not None:
        if region.policy is not None:
            policy: Policy = region.policy
            return policy
        region = region.outer
    return LEAST_WORK


def drop(storage: Storage) -> None:
    # `Pool.give`, inlined: it must not be interrupted in between. See Note [Counting and threads].
    address = storage.present_address
    assert address is not None
    storage.address = storage.block = None
    storage.pool.live -= storage.room
    storage.blocks.append(address)


class Checkpoint(Region):
    """A block whose saves are dropped when it ends, and rebuilt when backward first needs one."""

    def __init__(self) -> None:
        super().__init__()
        self.nodes: list[Node] = []
        self.entries: list[tuple[weakref.ref[Node], bool, int, Any]] = []
        # Inputs from outside: a rebuild starts from these.
        self.entered: set[Storage] = set()
        self.results: list[weakref.ref[Storage]] = []
        self.inner: list[Checkpoint] = []
        self.around = self._checkpoint_around()

    def _checkpoint_around(self) -> Checkpoint | None:
        region = self.outer
        while region is not None and not isinstance(region, Checkpoint):
            region = region.outer
        return region

    def rebuilds(self, plan: Plan) -> bool:
        return True

    def note(self, node: Node) -> None:
        self.nodes.append(node)
        super().note(node)

    def use(self, storage: Storage) -> None:
        if not self.made_here(storage):
            self.entered.add(storage)
            super().use(storage)

    def close(self, results: Iterable[Storage]) -> None:
        """Drop the saves of the interior nodes.

        A result that is still held is found by its recipe.
        """
        for node in self.nodes:
            self._drop_saves(node)
        for region in self.inner:
            region.entered = {s for s in region.entered if not self.made_here(s)}
        if self.around is not None:
            self.around.inner.extend([self, *self.inner])
        self.results = [weakref.ref(s) for s in results if self.made_here(s)]
        self.nodes.clear()
        self.inner.clear()
        if not self.entries:
            self._finish()

    def give_up(self) -> None:
        """The block ended by an error: drop everything of it."""
        self.nodes.clear()
        self.inner.clear()
        self.entered.clear()

    def _finish(self) -> None:
        self.entered.clear()
        with replay.LOCK:  # another thread may be about to drop one
            for reference in self.results if self.outer is None else ():
                # Results are not dropped after this, so they need not keep their sources.
                storage = reference()
                if storage is not None and storage.present_address is not None:
                    make_plain(storage)
        self.results.clear()

    def _drop_saves(self, node: Node) -> None:
        if node.saved is None:
            return
        saved: list[Any] = list(node.saved)
        outs: list[Any] = list(node.outs)
        before = len(self.entries)
        for i, value in enumerate(saved):
            if isinstance(value, Value) and self.made_here(value._memory):
                saved[i] = None
                self.entries.append(
                    (weakref.ref(node), True, i, DroppedValue(value, _edge_of_save(node, i)))
                )
        for i, storage in enumerate(outs):
            if isinstance(storage, Storage) and self.made_here(storage):
                outs[i] = None
                self.entries.append((weakref.ref(node), False, i, DroppedStorage(storage)))
        if len(self.entries) > before:
            node.saved, node.outs = tuple(saved), tuple(outs)
            node.dropped = (*(node.dropped or ()), self)

    def restore(self) -> None:
        """Rebuild every dropped save of nodes that still need theirs, each recipe once.

        One thread does it for all nodes of the region; another that needs one of them waits, and
        finds nothing left to do.
        """
        with replay.LOCK:
            self._restore()

    def _restore(self) -> None:
        needed = [
            (node, *rest) for reference, *rest in self.entries if _still_needs(node := reference())
        ]
        # No drops there: all of it is needed, and stays.
        outside = STATE.get().region is None
        storages = replay.refill([entry.key for _, _, _, entry in needed], hold=outside)
        for (node, is_input, position, entry), storage in zip(needed, storages, strict=True):
            # The bits are those that were saved, so the version is too.
            storage.version = entry.version
            if is_input:
                edge = None if entry.edge is None else node.edges[entry.edge]
                node.saved = _with_item(node.saved, position, entry.seen(storage, edge))
            else:
                node.outs = _with_item(node.outs, position, storage)
            node.dropped = tuple(r for r in node.dropped or () if r is not self) or None
        self.entries = []  # last: work that Ctrl-C interrupts is repeated
        self._finish()


def _edge_of_save(node: Node, position: int) -> int | None:
    """The index of a node's edge that is the record of a value it saved."""
    place: int = node.grad.saves_in[position]
    if node.plan.op.inputs is None or node.saved is None:
        return place
    # Saves of a user's function come after its inputs, and may be one of them.
    record = node.saved[position]._node
    return next(
        (i for i, edge in enumerate(node.edges) if edge is record and edge is not None), None
    )


def _still_needs(node: Node | None) -> bool:
    return node is not None and node.saved is not None


def _with_item(items: Sequence[Any], position: int, item: Any) -> tuple[Any, ...]:
    return (*items[:position], item, *items[position + 1 :])


class DroppedStorage:
    """A dropped saved storage: its recipe."""

    __slots__ = ("key", "version")

    def __init__(self, storage: Storage) -> None:
        self.key: tuple[Recipe, int] = storage.recipe, storage.recipe.index_of(storage)
        self.version = storage.version


class DroppedValue(DroppedStorage):
    """A dropped saved value: its storage's recipe, and its layout.

    Its node is an edge of the node that saved it; a reference here would make a cycle.
    """

    __slots__ = ("edge", "offset", "spec")

    def __init__(self, value: Value, edge: int | None) -> None:
        super().__init__(value._memory)
        self.edge = edge  # index of the edge
        self.spec = value._spec
        self.offset = value._offset

    def seen(self, storage: Storage, edge: Any) -> Value:
        return call.rooted(call.make_value(self.spec, storage, self.offset, edge))


def restore_saves(node: Node) -> None:
    for region in node.dropped or ():
        region.restore()
