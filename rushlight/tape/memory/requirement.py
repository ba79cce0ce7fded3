"""What a whole step needs: the limit that a BudgetError names. It is computed for the error only.

# Note [Requirement]
1. A step that failed has left records. What it needs is found by a rehearsal (Note [Rehearsal]) of
   the recorded calls, of the call that failed and of the derivatives that are to come (Note [Pass
   ahead]), in limits from the most that one of them reads.
2. Before a pass drops a gradient it notes what it would take not to (`note_need`). Such a limit is
   asked for too: to rebuild a gradient is to repeat the pass, of which the part before the failure
   has left no records.
3. Of a forward pass that failed, or a pass that is differentiated itself, the calls to come are
   unknown. Where earlier steps left plans for operands that this one can have, those are taken, and
   their derivatives. Where calls give two gradients, one of them may wait, and a value that is
   joined later. All leaves are taken to get a gradient. Of a program's first forward pass only its
   leaves tell what is to come: the more of them no call has read, the more is asked for, up to
   three times (`_share_to_come`). The records are those before the failed call's inputs and before
   the last record that saved each value with a recipe (`Recipe.saved`). `memory.estimate` tells
   before a step runs.
4. Before an optimiser writes to parameters, dropped values made from them that the program still
   holds are rebuilt, the last one first, and stay (`before_write`): its step needs room for them
   beside the gradients and the state. Who holds a value is told by counts of references, so the
   variables of functions that run count too.
5. State that optimisers are still to make counts beside all else: later steps have it.
6. The engine keeps to 1.1 of the floor, and scratch is known of few kernels: hence `_SHARE`. A
   limit that failed although it has all that is known failed by these, and gets `_FAILED_SHARE`
   more. A pass that ended without a limit took no more than `_PEAKS` tells, which holds for the
   failed step as far as its leaf is one of this step's.
7. A leaf to which an earlier step has added gradients (`Leaf.sums`) gets further ones: in the first
   pass of a step those of the next count too, since they wait beside the first's.

# Note [Floor]
The least limit for a call is what is plain, plus the most of these: the blocks of its inputs and
results, less that of a result that replaces an input (Note [Replay] 8); and for each input, in the
order of making, its own need and the blocks of the inputs before it (the order of Note [Replay] 1
needs no more, but for values that several inputs share).
The need of a present or plain input is its block; that of a dropped one follows from its recipe in
the same way. For a chain of calls this is the largest call; for residual nets the largest call and
the skips around it; for a U-Net the largest call and the skips that are open there; for a balanced
tree it grows with the depth.
"""

from __future__ import annotations

import sys
import weakref
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from rushlight.core.cache import Cache
from rushlight.core.shapes import Spec
from rushlight.devices.shared.allocator import Pool, Storage, room_for
from rushlight.tape.memory.pass_ahead import (
    Pass,
    call_rooms,
    derivative_calls,
    edges_of,
    gradient_bytes,
    node_of,
)
from rushlight.tape.memory.recipe import Key, bytes_with_recipe, readers, with_recipe
from rushlight.tape.memory.rehearsal import Demand, calls_for, least_limit
from rushlight.tape.record.op import Plan, Plans
from rushlight.tape.record.state import STATE, WALK
from rushlight.tape.record.value import Leaf, Node, Value, is_of_op

_SHARE = 1.08
_FAILED_SHARE = 1.1
_PLANNED_SHARE = 1.25
# By device: the peak when the last backward pass ended that had no limit, and a leaf of that pass.
_PEAKS: dict[Pool, tuple[int, weakref.ref[Any]]] = {}
_MOST_CALLS = 50_000  # that are looked at for one error


def static_bytes(pool: Pool) -> int:
    """The bytes that cannot be dropped."""
    return pool.live - bytes_with_recipe(pool)


def most_rows(pool: Pool, spec: Spec) -> int | None:
    """The rows of a new value that a limit has room for twice; None where it has for all of it.

    Beside what cannot be dropped, and gradients on their way.
    """
    limit = pool.limit
    if limit is None or not spec.contiguous or pool.live + room_for(spec.nbytes) <= limit:
        return None
    free = limit - static_bytes(pool) - bytes_with_recipe(pool, lambda s: s.recipe.fleeting)
    if room_for(spec.nbytes) <= free:
        return None
    return max(1, free // 2 * spec.shape[0] // spec.nbytes)


def required_bytes(pool: Pool, call: Plan | None, inputs: Sequence[Value]) -> int:
    """The limit that the records of a failed step ask for; `call` is what failed."""
    walk = WALK.get()
    nodes = records(pool, inputs)
    waited = 0  # by gradients that wait for the end of the pass, dropped or not
    if walk is None:
        # Gradients that are there may be added to.
        leaves = leaves_of(pool) if nodes and STATE.get().grad else leaves_to_come(pool)
    else:
        arrived = set(map(id, [*walk.found, *[owner for owner, *_ in walk.changed]]))
        arrived.update(id(leaf) for leaf, _ in walk.waits)
        leaves = [leaf for leaf in _on(pool, walk.waiting) if id(leaf) not in arrived]
        memories = {g._memory for _, g in walk.waits}
        waited = sum(s.room for s in memories if s.pool is pool and s.recipe is not None)
    static = static_bytes(pool)
    # Gradients on their way are not rebuilt: those that are read, or wait, stay.
    asked = {v._memory for v in (*inputs, *(() if walk is None else walk.sums.values()))}
    passing = [s for s in with_recipe(pool) if s.recipe.fleeting]
    flying = sum(s.room for s in passing if s.block is not None or s in asked)
    sums = None if walk is None else walk.sums
    later = Pass(nodes, leaves, waited, sums, walk is None or walk.in_place).demands
    if call is not None:
        later.insert(0, Demand(flying, _kept_keys(inputs), call_rooms(call)))
    known = least_limit([*calls_for(key for demand in later for key in demand.reads), *later])
    most = int(known * _SHARE)
    left = (pool.limit or 0) - static
    if left >= known:
        known, most = left, int(left * _FAILED_SHARE)
    if walk is None or walk.create:
        held = {leaf.spec for leaf in _on(pool, _every_leaf())}
        specs = set(held)
        for plan in (n.plan for n in nodes) if call is None else (call, *[n.plan for n in nodes]):
            specs.update(plan.ins, plan.outs)
        if call is not None and STATE.get().grad:
            needs = sum(1 << i for i, v in enumerate(inputs) if v._node is not None)
            call.grads.get(needs) or call.grad(needs)
        planned = gradient_bytes(leaves) + _planned(pool, specs, held)
        most = max(most, int(planned * _PLANNED_SHARE))
        to_come = _share_to_come(pool, nodes, inputs)
        most += int((most - gradient_bytes(leaves)) * 2 * to_come**2)
    most += int(gradient_bytes(leaves_with_sums(pool)) * _PLANNED_SHARE)
    free = _peak(pool, walk) - static
    if free >= known:
        most = min(most, free)
    return max(static + most, 0 if walk is None else walk.needs.get(pool, 0))


def note_need(walk: Any, pool: Pool, room: int, pinned: set[Storage]) -> None:
    """Called when a pass has no room for a request beside what is pinned and gradients."""
    gradients = [*walk.sums.values(), *[g for _, g in walk.waits]]
    asked = {g._memory for g in gradients} | pinned
    every = with_recipe(pool)
    kept = sum(s.room for s in every if s in asked or (s.recipe.fleeting and s.block is not None))
    need = static_bytes(pool) + int((kept + room) * _SHARE)
    walk.needs[pool] = max(need, walk.needs.get(pool, 0))


def note_peak(pool: Pool, leaf: Any) -> None:
    """Called when a pass that gave a leaf its gradient has ended without a limit."""
    _PEAKS[pool] = pool.peak, weakref.ref(leaf)


def _peak(pool: Pool, walk: Any) -> int:
    """What the last such pass took, if it may have been the one that failed; else 0."""
    peak, reference = _PEAKS.get(pool, (0, None))
    leaf: Any = None if reference is None else reference()
    if leaf is None or not _on(pool, [leaf]) or (walk is not None and leaf not in walk.waiting):
        return 0
    return peak


def _kept_keys(inputs: Sequence[Value]) -> tuple[Key, ...]:
    """What a call reads that can be rebuilt."""
    recipes = {v._memory: v._memory.recipe for v in inputs}
    kept = [(s, r) for s, r in recipes.items() if r is not None and not r.fleeting]
    return tuple((recipe, recipe.index_of(storage)) for storage, recipe in kept)


# ---- values that outlive their records ----


def held_bytes(pool: Pool, nodes: Sequence[Node]) -> int:
    """What `before_write` needs to make all plain that the program holds, made from parameters."""
    held, demands = 0, []
    for storage in reversed(held_values(pool, nodes)):
        recipe = storage.recipe
        demands.append(Demand(held, ((recipe, recipe.index_of(storage)),), 0))
        held += storage.room
    return int(least_limit(demands) * _SHARE)


def held_values(pool: Pool, nodes: Sequence[Node]) -> list[Storage]:
    """Storages made from parameters to which something else than these records refers."""
    handles = [handle for leaf in leaves_of(pool) if (handle := leaf.handle()) is not None]
    made = [s for s in readers([v._memory for v in handles]) if not s.recipe.fleeting]
    saves = [v for node in nodes for v in node.saved or () if isinstance(v, Value)]
    own = Counter([id(v) for v in saves])  # the references of records to values
    values = list({id(v): v for v in saves}.values())
    del saves
    bases = [v._base for v in values if v._base is not None]
    values += {id(base): base for base in bases if id(base) not in own}.values()
    own.update(map(id, bases))
    del bases
    inner = Counter([id(v._memory) for v in values])  # and to storages
    inner.update([id(storage) for node in nodes for storage in node.outs])
    beside = [n > own[id(v)] for v, n in zip(values, _references(values), strict=True)]
    found = {id(v._memory) for v, is_held in zip(values, beside, strict=True) if is_held}
    return [
        storage
        for storage, n in zip(made, _references(made), strict=True)
        if id(storage) in found or n > inner[id(storage)]
    ]


def _references(things: Sequence[Any]) -> list[int]:
    """How many references there are to each of them, beside that of this list."""
    known = [object(), *things]
    own, *counts = [sys.getrefcount(thing) for thing in known]
    return [count - own - 1 for count in counts]


# ---- the records, leaves and plans of a step ----


def records(pool: Pool, inputs: Sequence[Value] = ()) -> list[Node]:
    """The records whose derivatives are to come.

    In a backward pass those that wait; else those before the inputs of the failed call, and before
    the records that saved a value with a recipe.
    """
    walk = WALK.get()
    if walk is not None:
        found = list(walk.waiting)
    else:
        savers = [s.recipe.saved for s in with_recipe(pool) if s.recipe.saved is not None]
        heads = [saver() for saver in savers] + [node_of(value._node) for value in inputs]
        found = _reached(heads)
    nodes = [node for node in found if is_of_op(node) and node.plan.pool is pool]
    return [node for node in nodes if node.saved is not None]


def _reached(stack: list[Any]) -> list[Any]:
    """Nodes and all that are before them, as far as `_MOST_CALLS` go."""
    found: dict[Any, None] = {}
    while stack and len(found) < _MOST_CALLS:
        node = stack.pop()
        if node not in found and is_of_op(node):
            found[node] = None
            stack += edges_of(node)
    return list(found)


def _every_leaf() -> list[Leaf]:
    found = [reference() for reference in list(Leaf.every.values())]
    return [leaf for leaf in found if leaf is not None]


def _on(pool: Pool, things: Iterable[Any]) -> list[Leaf]:
    """The leaves among them that a program has on this device."""
    leaves = [leaf for leaf in things if leaf.__class__ is Leaf]
    return [f for f in leaves if f.spec.device is pool and f.handle() is not None]


def leaves_of(pool: Pool) -> list[Leaf]:
    return _on(pool, _every_leaf())


def leaves_to_come(pool: Pool) -> list[Leaf]:
    """The leaves that have no gradient yet."""
    return [leaf for leaf in leaves_of(pool) if leaf.grad is None]


def leaves_with_sums(pool: Pool) -> list[Leaf]:
    """Leaves whose first gradient is to come, or came in this pass, and gets additions later."""
    walk = WALK.get()
    if walk is not None and walk.collect:
        return []
    first = set() if walk is None else {id(owner) for owner, old, _ in walk.changed if old is None}
    return [
        leaf for leaf in leaves_of(pool) if leaf.sums and (leaf.grad is None or id(leaf) in first)
    ]


def _plans(pool: Pool) -> set[Plan]:
    """The plans that calls left on a device: those that launch, and those of views in caches."""
    caches = [reference() for reference in list(Cache.every.values())]
    kept = [made for cache in caches if cache is not None for made in list(cache.values())]
    kept += [reference() for reference in list(Plans.every.values())]
    return {plan for plan in kept if plan.__class__ is Plan and plan.pool is pool}


def _share_to_come(pool: Pool, nodes: Sequence[Node], inputs: Sequence[Value]) -> float:
    """The part of the leaves that no call has read yet, of this step or of an earlier one."""
    leaves = leaves_of(pool)
    planned = {spec for plan in _plans(pool) for spec in plan.ins}
    read = {edge for node in nodes for edge in edges_of(node)} | {v._node for v in inputs}
    unread = [leaf for leaf in leaves if leaf not in read and leaf.spec not in planned]
    return len(unread) / max(1, len(leaves))


def _planned(pool: Pool, specs: set[Any], held: set[Any]) -> int:
    """The most that calls with plans from earlier steps need, or their derivatives.

    Those are taken whose operands the step can have: operands of its calls, leaves, results of
    others. Integers beside them, as labels are, are taken as given. A call without operands is
    taken where its result is like one of those.
    """
    left, before = [plan for plan in _plans(pool) if not plan.roomy], -1
    taken: list[Plan] = []
    while len(left) != before:
        before = len(left)
        waiting = []
        for plan in left:
            numbers = [spec for spec in plan.ins if spec.differentiable]
            if specs.issuperset(numbers or plan.ins or plan.outs):
                specs.update(plan.outs)
                taken.append(plan)
            else:
                waiting.append(plan)
        left = waiting
    return Planned(taken, held).most


class Planned:
    """The needs of plans whose calls are to come, beside operands with the specs `held`."""

    def __init__(self, plans: Sequence[Plan], held: set[Any]) -> None:
        self.held = held
        self.beside: dict[Any, int] = {}  # by spec: the gradient that came when such a save is read
        self.forked = 0  # the largest gradient that one call gives twice: one of them waits
        for plan in plans:
            for needs, grad in plan.grads.items() if plan.launch is not None else ():
                read = [
                    *[plan.ins[i] for i in grad.saves_in],
                    *[plan.outs[i] for i in grad.saves_out],
                ]
                for spec in read:
                    self.beside[spec] = max(self.beside.get(spec, 0), plan.room)
                given = sorted(room for i, room in enumerate(self._ins(plan)) if needs >> i & 1)
                self.forked = max(self.forked, *given[-2:-1], 0)
        self.most = max((self._need(plan) for plan in plans), default=0)

    def _ins(self, plan: Plan) -> list[int]:
        return [0 if spec in self.held else room_for(spec.nbytes) for spec in plan.ins]

    def _need(self, plan: Plan) -> int:
        """The most that a call needs, run again in a backward pass, or its derivative."""
        if plan.launch is None:
            return 0
        ins, waiting = self._ins(plan), 2 * min(self.forked, plan.room)
        most = sum(ins) + call_rooms(plan)
        if plan.grads:
            most += waiting + max(self.beside.get(spec, 0) for spec in plan.outs)
        for needs, grad in plan.grads.items():
            given = [room_for(spec.nbytes) for i, spec in enumerate(plan.ins) if needs >> i & 1]
            rooms = [*[plan.rooms[i] for i in grad.saves_out], *[ins[i] for i in grad.saves_in]]
            for reads, made in derivative_calls(plan, grad, given):
                most = max(most, plan.room + waiting + sum(rooms[i] for i in reads) + made)
        return most
