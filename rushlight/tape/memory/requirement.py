"""What a whole step needs: the limit that a BudgetError names. It is computed for the error only.

# Note [Requirement]
1. A step that failed has left records. What it needs is the most of: the failed call; each recorded
   call, whose inputs are rebuilt (Note [Floor]); each derivative that is to come.
2. A derivative that has run has a program: each of its calls needs the saves it reads, rebuilt one
   after the other, and what was made so far. Else it counts as one call that reads all saves, with
   an intermediate result of the size of the largest gradient it gives. Beside them are the incoming
   gradients, those on their way and those of leaves, in the order of a backward pass. A failed pass
   is continued where it failed. A result that may be written over an input takes no block. A
   gradient that is added to a leaf's own waits for the end of the pass (Note [Backward] 5), and
   counts until then; where a forward pass failed, all leaves are taken to get one.
3. Of a forward pass that failed, or a pass that is differentiated itself, the calls to come are
   unknown. Where earlier steps left plans for operands that this one can have, those are taken, and
   their derivatives; else the next limit may fail later in the step. A call may run again beside
   the gradient of a call that saved its result. Where calls give two gradients, one of them may
   wait, and a value that is joined later. Leaves that no record reaches have their gradients before
   the derivatives of the records run. The records are those before the failed call's inputs and
   before the last record that saved each value with a recipe (`Recipe.saved`). `memory.estimate`
   tells before a step runs.
4. Before an optimiser writes to parameters, dropped values made from them that the program still
   holds are rebuilt, the last one first, and stay (`before_write`): its step needs room for them
   beside the gradients and the state. Who holds a value is told by counts of references, so the
   variables of functions that run count too.
5. State that optimisers are still to make counts beside all else: later steps have it.
6. Scratch is known of few kernels, and the engine keeps to 1.1 of the floor: hence `_SHARE`. A
   limit that failed although it has all that is known failed by these, and gets as large a share
   more. A pass that ended without a limit took no more than `_PEAKS` tells,
   which holds for the failed step as far as its leaf is one of this step's.
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
from collections.abc import Callable, Iterable, Sequence
from itertools import product
from typing import Any

from rushlight.core.cache import Cache
from rushlight.core.shapes import Spec
from rushlight.devices.shared.allocator import Pool, Storage, room_for
from rushlight.tape.memory.recipe import Key, bytes_with_recipe, readers, with_recipe
from rushlight.tape.memory.rehearsal import Demand, calls_for, least_limit
from rushlight.tape.record.op import Grad, Plan, Plans, writes_over
from rushlight.tape.record.state import STATE, WALK
from rushlight.tape.record.value import Leaf, Node, Output, Value

_SHARE = 1.06
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
    # Gradients on their way are not rebuilt; in a pass those that were dropped have to stay.
    passing = [s for s in with_recipe(pool) if s.recipe.fleeting]
    flying = sum(s.room for s in passing if walk is not None or s.block is not None)
    later = Pass(nodes, leaves, waited, None if walk is None else walk.sums).demands
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
        planned = gradient_bytes(leaves) + _planned(pool, specs, held)
        most = max(most, int(planned * _PLANNED_SHARE))
    most += int(gradient_bytes(leaves_with_sums(pool)) * _SHARE)
    free = _peak(pool, walk) - static
    if free >= known:
        most = min(most, free)
    return static + most


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
        heads = [saver() for saver in savers] + [_node_of(value._node) for value in inputs]
        found = _reached(heads)
    nodes = [node for node in found if node.__class__ is Node and node.plan.pool is pool]
    return [node for node in nodes if node.saved is not None]


def _reached(stack: list[Any]) -> list[Any]:
    """Nodes and all that are before them, as far as `_MOST_CALLS` go."""
    found: dict[Any, None] = {}
    while stack and len(found) < _MOST_CALLS:
        node = stack.pop()
        if node not in found and node.__class__ is Node:
            found[node] = None
            stack += _edges(node)
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


def gradient_bytes(leaves: Iterable[Leaf]) -> int:
    return sum(room_for(leaf.spec.nbytes) for leaf in leaves)


def _plans(pool: Pool) -> set[Plan]:
    """The plans that calls left on a device: those that launch, and those of views in caches."""
    caches = [reference() for reference in list(Cache.every.values())]
    kept = [made for cache in caches if cache is not None for made in list(cache.values())]
    kept += [reference() for reference in list(Plans.every.values())]
    return {plan for plan in kept if plan.__class__ is Plan and plan.pool is pool}


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


def call_rooms(plan: Plan, came: int = 0) -> int:
    """The blocks that a call takes, where a result is written over an input after the first."""
    pairs = product(range(len(plan.outs)), range(came, len(plan.ins)))
    over = [plan.rooms[out] for out, given in pairs if writes_over(plan, out, given)]
    return plan.room + plan.rest - max(over, default=0)


# The saves that a call of a derivative reads, by number; the blocks that it and those before take.
Made = tuple[Sequence[int], int]


def derivative_calls(
    plan: Plan, grad: Grad, given: Sequence[int], alone: bool = True
) -> list[Made]:
    """The calls of a derivative, where the gradients it gives are of these sizes.

    By its program, if it has run; else as one call. One kernel writes one of the gradients over the
    incoming one, if it is held `alone`, or over a save: Note [Derivatives] 7, Note [Replay] 8.
    """
    if plan.launch is None:
        return [((), 0)]
    saves = range(len(grad.saves_out) + len(grad.saves_in))
    found = [made for made in (grad.programs or {}).values() if made is not None]
    if grad.fused is not None:
        return [(saves, sum(given) - (plan.room if alone and plan.room in given else 0))]
    if not found:
        return [(saves, sum(given) + max(given, default=0))]
    return _calls_of(found[0].program, len(found[0].program.given) - len(saves), alone)


def _calls_of(program: Any, came: int, alone: bool) -> list[Made]:
    """A program's calls; its first `came` inputs are gradients."""
    kernels = [step for step in program.steps if not step.is_view]
    firsts = [f for f, step in zip(program.firsts, program.steps, strict=True) if not step.is_view]
    roots = [{program.roots[slot][0] for slot in step.sources} for step in kernels]
    held: dict[int, int] = {}  # what was made, by slot
    calls: list[Made] = []
    for number, (step, first) in enumerate(zip(kernels, firsts, strict=True)):
        reads = [slot - came for slot in roots[number] if came <= slot < len(program.given)]
        own = step.plan.room + step.plan.rest
        if len(kernels) == 1:
            own = call_rooms(step.plan, 0 if came == 1 and alone else came)
        calls.append((reads, sum(held.values()) + own))
        held.update({first + i: room for i, room in enumerate(step.plan.rooms)})
        later = set().union(*roots[number + 1 :], program.made)
        held = {slot: room for slot, room in held.items() if slot in later}
    return calls or [((), 0)]


def _saves(node: Node) -> list[Key | None]:
    """What a record saved, its results first; None for what has no recipe."""
    saved = [v._memory if isinstance(v, Value) else None for v in node.saved or ()]
    storages = [s if isinstance(s, Storage) else None for s in (*node.outs, *saved)]
    return [
        None if s is None or s.recipe is None else (s.recipe, s.recipe.index_of(s))
        for s in storages
    ]


class _Gradient:
    """The block of a gradient on its way, and how many records wait for it or a part of it."""

    __slots__ = ("nbytes", "users")

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self.users = 0


class Pass:
    """A backward pass over records: the `demands` of its derivatives, in order.

    `waited` bytes of gradients wait for its end. `sums` are those that have arrived in a pass that
    failed, by the keys of the walk.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        leaves: Sequence[Leaf],
        waited: int,
        sums: dict[Any, Value] | None = None,
    ) -> None:
        # Gradients on their way, by record and the number of its result.
        self.coming: dict[Any, dict[int, _Gradient]] = {}
        self.waiting: dict[Any, int] = dict.fromkeys(nodes, 0)
        self.leaves = set(leaves)
        reached: set[Leaf] = set()
        for node in nodes:
            for edge in _edges(node):
                if edge.__class__ is Leaf:
                    reached.add(edge)
                elif edge in self.waiting:
                    self.waiting[edge] += 1
        self.total = waited + gradient_bytes(self.leaves - reached)  # that cannot be dropped
        self.demands: list[Demand] = []
        self._note()
        self._take(sums or {})
        ready = [node for node, count in self.waiting.items() if not count]
        for node in ready:
            if node not in self.coming:
                self._arrive(node, 0, _Gradient(node.plan.room))
        self._run(ready)

    def _take(self, sums: dict[Any, Value]) -> None:
        blocks: dict[Storage, _Gradient] = {}
        for key, value in sums.items():
            node, index = key if key.__class__ is tuple else (key, 0)
            there = value._memory
            plain = there.recipe is None  # it counts as static
            self._arrive(
                node, index, blocks.setdefault(there, _Gradient(0 if plain else there.room))
            )

    def _run(self, ready: list[Node]) -> None:
        while ready:
            node = ready.pop()
            came = list(self.coming.pop(node, {}).values())
            for edge, block in self._differentiate(node, came):
                below = _node_of(edge)
                self._arrive(below, edge.index if edge.__class__ is Output else 0, block)
                if below in self.waiting:
                    self.waiting[below] -= 1
                    if not self.waiting[below]:
                        ready.append(below)
            self._release(came)

    def _differentiate(self, node: Node, came: list[_Gradient]) -> list[tuple[Any, _Gradient]]:
        """The gradients that a node gives: new blocks, or the one that came."""
        self._run_hooks(node)
        plan, grad = node.plan, node.grad
        found = enumerate(zip(node.edges, plan.ins, strict=False))
        edges = [(i, edge, room_for(spec.nbytes)) for i, (edge, spec) in found if edge is not None]
        alone = all(block.users == 1 for block in came)
        saves = _saves(node)
        for reads, made in derivative_calls(plan, grad, [n for *_, n in edges], alone):
            self._note(filter(None, [saves[i] for i in reads if i < len(saves)]), made)
        parts = _passed_on(plan, grad) if len(came) == 1 else None
        return [
            (edge, came[0] if parts is not None and parts(i, n) else _Gradient(n))
            for i, edge, n in edges
        ]

    def _note(self, reads: Iterable[Key] = (), rooms: int = 0) -> None:
        last = self.demands[-1] if self.demands else None
        if rooms or reads or last is None or self.total > last.beside:
            self.demands.append(Demand(self.total, tuple(dict.fromkeys(reads)), rooms))

    def _run_hooks(self, node: Node) -> None:
        """A hook may make another gradient; one that is retained is a copy, and stays."""
        hooks, rooms = node.hooks, node.plan.rooms
        if hooks is None:
            return
        self._note((), sum(rooms[i] for i in hooks.values))
        for index, kept in hooks.kept.items():
            self.total += sum(rooms[index] for reference in kept.values() if reference())
        self._note()

    def _arrive(self, node: Any, index: int, block: _Gradient) -> None:
        if node.__class__ is Leaf:
            if node in self.leaves:
                self.leaves.discard(node)
                self.total += min(block.nbytes, room_for(node.spec.nbytes))
        else:
            if not block.users:
                self.total += block.nbytes
            block.users += 1
            there = self.coming.setdefault(node, {})
            before, there[index] = there.get(index), block
            if before is not None:  # they are added
                there[index] = made = _Gradient(max(before.nbytes, block.nbytes))
                made.users = 1
                self.total += made.nbytes
                self._note()
                self._release([before, block])
        self._note()

    def _release(self, blocks: Sequence[_Gradient]) -> None:
        for block in blocks:
            block.users -= 1
            if not block.users:
                self.total -= block.nbytes


def _passed_on(plan: Plan, grad: Grad) -> Callable[[int, int], bool]:
    """Tells of the gradient of an input, and its bytes, whether it lies in the one that came."""
    if grad.fused is not None:
        return lambda i, nbytes: False
    found = [made for made in (grad.programs or {}).values() if made is not None]
    if found:
        places = found[0].places
        return lambda i, nbytes: places[i] is not None and not places[i][0]
    if grad.saves_in or grad.saves_out:
        return lambda i, nbytes: False
    # Unknown yet: a view at most.
    return lambda i, nbytes: nbytes <= plan.room


def _node_of(edge: Any) -> Any:
    return edge.node if edge.__class__ is Output else edge


def _edges(node: Node) -> list[Any]:
    return [_node_of(edge) for edge in node.edges if edge is not None]
