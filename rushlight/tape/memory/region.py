"""Regions: blocks in which calls leave recipes, so that values can be dropped and rebuilt.

A checkpoint (`checkpoint.py`) drops the saves of its calls when it ends; a budget drops values when
the allocator needs memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight.devices.shared.allocator import Pool, Storage
from rushlight.tape.memory import replay
from rushlight.tape.memory.policy import LEAST_WORK, Candidate, Policy
from rushlight.tape.memory.recipe import Mark, Recipe, with_recipe
from rushlight.tape.memory.replay import Pins
from rushlight.tape.record.op import Plan
from rushlight.tape.record.state import STATE
from rushlight.tape.record.value import Node, Value

# Dropping a block smaller than this frees too little to be worth a rebuild.
_SMALLEST_DROP = 4096


class Region:
    """Leaves recipes; the base of checkpoints and budgets."""

    witness: Any = None  # takes digests of what calls make here: Note [Proof]
    chooses = False  # whether `choose` is called
    policy: Policy | None = None  # ranks the values dropped here; None: the outer region's policy

    def __init__(self) -> None:
        self.outer: Region | None = STATE.get().region
        self.mark = Mark(None if self.outer is None else self.outer.mark)
        if self.outer is not None:
            self.witness, self.chooses = self.outer.witness, self.outer.chooses

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
    if replay.Counters.watch is not None:
        replay.Counters.watch.dropped(storage)
    # `Pool.give`, inlined: it must not be interrupted in between. See Note [Counting and threads].
    address = storage.present_address
    assert address is not None
    storage.address = storage.block = None
    storage.pool.live -= storage.room
    storage.blocks.append(address)
