"""What a whole step needs: the limit that a BudgetError names. It is computed for the error only.

# Note [Requirement]
1. A step that failed has left records. What it needs is the most of: the failed call; each recorded
   call, whose inputs are rebuilt (Note [Floor]); each derivative that is to come.
2. A derivative needs its incoming gradients, its saves, rebuilt one after the other, the gradients
   it gives, and an intermediate result of the size of the largest. Beside them are the gradients on
   their way and those of leaves, in the order of a backward pass. A failed pass is continued where
   it failed.
3. Of a forward pass that failed, the calls to come are unknown. Where earlier steps left plans for
   operands that this one can have, those are taken, and their derivatives; else the next limit may
   fail later in the step. Leaves that no record reaches have their gradients before the derivatives
   of the records run. `memory.estimate` tells before a step runs.
   The records are those before the failed call's inputs and before the last record that saved each
   value with a recipe (`Recipe.saved`).
4. Kernels' own scratch is in no record, and the engine keeps to 1.1 of the floor: hence `_SHARE`.

# Note [Floor]
The least limit for a call is what is plain, plus the most of these: the blocks of its inputs and
results; and for each input, in the order of making, its own need and the blocks of the inputs
before it (the order of Note [Replay] 1 needs no more, but for values that several inputs share).
The need of a present or plain input is its block; that of a dropped one follows from its recipe in
the same way. For a chain of calls this is the largest call; for residual nets the largest call and
the skips around it; for a U-Net the largest call and the skips that are open there; for a balanced
tree it grows with the depth.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rushlight.core.cache import Cache
from rushlight.devices.shared.allocator import Pool, Storage, room_for
from rushlight.tape.memory.recipe import Recipe, with_recipe
from rushlight.tape.record.op import Grad, Plan, Plans
from rushlight.tape.record.state import WALK
from rushlight.tape.record.value import Leaf, Node, Output, Value

Key = tuple[Recipe, int]  # a result of a recipe

_SHARE = 1.25
_MOST_CALLS = 50_000  # that are looked at for one error


def static_bytes(pool: Pool) -> int:
    """The bytes that cannot be dropped."""
    return pool.live - sum(s.room for s in with_recipe(pool) if s.block is not None)


def required_bytes(pool: Pool, call: Plan | None, inputs: Sequence[Value]) -> int:
    """The limit that the records of a failed step ask for; `call` is what failed."""
    walk = WALK.get()
    nodes = records(pool, inputs)
    if walk is None:
        leaves = leaves_to_come(pool)
    else:
        leaves = [leaf for leaf in _on(pool, walk.waiting) if leaf.grad is None]
    floor, static = Floor(), static_bytes(pool)
    # Gradients on their way are not rebuilt.
    flying = [s for s in with_recipe(pool) if s.block is not None and s.recipe.fleeting]
    now = sum(s.room for s in flying) + call_bytes(floor, call, inputs)
    calls = max((floor.of(_saves(node)) for node in nodes), default=0)
    known = max(now, calls, Pass(nodes, leaves, floor).most)
    most = int(known * _SHARE)
    if walk is None:
        specs = {leaf.spec for leaf in _on(pool, _every_leaf())}
        for plan in (n.plan for n in nodes) if call is None else (call, *[n.plan for n in nodes]):
            specs.update(plan.ins, plan.outs)
        planned = int((gradient_bytes(leaves) + _planned(pool, specs)) * _SHARE)
        most = max(most, planned)
        if pool.peak > (pool.limit or 0):  # earlier steps ran without a limit, in so much
            most = min(most, max(known, pool.peak - static))
    return static + most


def call_bytes(floor: Floor, call: Plan | None, inputs: Sequence[Value]) -> int:
    """The bytes that a call needs beside plain storages and gradients on their way."""
    if call is None:
        return 0
    storages = [value._memory for value in inputs]
    kept = [s for s in storages if s.recipe is not None and not s.recipe.fleeting]
    return floor.of([(s.recipe, s.recipe.index_of(s)) for s in kept], sum(call.rooms))


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


def gradient_bytes(leaves: Iterable[Leaf]) -> int:
    return sum(room_for(leaf.spec.nbytes) for leaf in leaves)


def _plans(pool: Pool) -> set[Plan]:
    """The plans that calls left on a device: those that launch, and those of views in caches."""
    caches = [reference() for reference in list(Cache.every.values())]
    kept = [made for cache in caches if cache is not None for made in list(cache.values())]
    kept += [reference() for reference in list(Plans.every.values())]
    return {plan for plan in kept if plan.__class__ is Plan and plan.pool is pool}


def _planned(pool: Pool, specs: set[Any]) -> int:
    """The most that calls with plans from earlier steps need, or their derivatives.

    Those are taken whose operands the step can have: operands of its calls, leaves, results of
    others. Integers beside them, as labels are, are taken as given.
    """
    left, before = list(_plans(pool)), -1
    most = 0
    while len(left) != before:
        before = len(left)
        waiting = []
        for plan in left:
            numbers = [spec for spec in plan.ins if spec.differentiable]
            if specs.issuperset(numbers or plan.ins):
                specs.update(plan.outs)
                most = max(most, _need_of_plan(plan))
            else:
                waiting.append(plan)
        left = waiting
    return most


def _need_of_plan(plan: Plan) -> int:
    if plan.launch is None:
        return 0
    ins = [room_for(spec.nbytes) for spec in plan.ins]
    most = sum(ins) + sum(plan.rooms)
    if plan.grads:  # rebuilt in a backward pass, beside a gradient that came and one on its way
        most += 2 * plan.room
    for needs, grad in plan.grads.items():
        given = [nbytes for i, nbytes in enumerate(ins) if needs >> i & 1]
        saved = sum(ins[i] for i in grad.saves_in) + sum(plan.rooms[i] for i in grad.saves_out)
        most = max(most, plan.room + saved + derivative_bytes(plan, grad, given))
    return most


def derivative_bytes(plan: Plan, grad: Grad, given: Sequence[int]) -> int:
    """The blocks that a derivative allocates, where the gradients it gives are of these sizes.

    One kernel writes one of them over the incoming gradient: Note [Derivatives] 7.
    """
    if plan.launch is None:
        return 0
    if grad.fused is not None:
        return sum(given) - (plan.room if plan.room in given else 0)
    return sum(given) + max(given, default=0)


class Floor:
    """The bytes, beside plain storages, with which results of recipes can be made present."""

    def __init__(self) -> None:
        self.known: dict[Any, int] = {}
        self.calls = 0

    def of(self, keys: Iterable[Key], rooms: int = 0) -> int:
        """For all of these at once, with blocks of `rooms` bytes: Note [Floor]."""
        stack = [_Call(keys, rooms, frozenset())]
        found = 0
        while True:
            call = stack[-1]
            below = call.next(found)
            if below is None:
                found = self.known[call.key] = max(call.most, call.held + call.rooms)
                stack.pop()
                if not stack:
                    return found
                continue
            known = self.known.get(below.key)
            self.calls += known is None
            if known is None and self.calls < _MOST_CALLS:
                stack.append(below)
                found = 0
            else:
                found = below.rooms if known is None else known


class _Call:
    """A call whose inputs are made present, in the order of their making."""

    __slots__ = ("held", "key", "keys", "most", "pinned", "rooms", "started")

    def __init__(self, keys: Iterable[Key], rooms: int, pinned: frozenset[Key]) -> None:
        self.keys = sorted(set(keys) - pinned, key=lambda key: -key[0].serial)
        self.rooms = rooms
        self.pinned = pinned
        self.key = (tuple(self.keys), rooms, pinned)
        self.held = self.most = 0
        self.started = False  # whether the last of the keys is being made

    def next(self, found: int) -> _Call | None:
        """The call that makes the next input, after that of the last one needed `found` bytes."""
        if self.started:
            recipe, index = key = self.keys.pop()
            self.most = max(self.most, self.held + found)
            self.held += recipe.rooms[index]
            self.pinned |= {key}
            self.started = False
        if not self.keys:
            return None
        self.started = True
        recipe, _ = self.keys[-1]
        below = [(origin, i) for origin, i, _ in recipe.sources if origin.__class__ is Recipe]
        return _Call(below, sum(recipe.rooms), self.pinned)


def _saves(node: Node) -> list[Key]:
    values = [v._memory for v in node.saved or () if isinstance(v, Value)]
    storages = [s for s in (*values, *node.outs) if isinstance(s, Storage)]
    return [(s.recipe, s.recipe.index_of(s)) for s in storages if s.recipe is not None]


class Pass:
    """A backward pass over records, in bytes. `most` is what it needs beside plain storages."""

    def __init__(self, nodes: Sequence[Node], leaves: Sequence[Leaf], floor: Floor) -> None:
        self.floor = floor
        self.coming: dict[Any, int] = {}  # gradients on their way, by node
        self.waiting: dict[Any, int] = dict.fromkeys(nodes, 0)
        self.leaves = set(leaves)
        reached: set[Leaf] = set()
        for node in nodes:
            for edge in _edges(node):
                if edge.__class__ is Leaf:
                    reached.add(edge)
                elif edge in self.waiting:
                    self.waiting[edge] += 1
        self.total = gradient_bytes(self.leaves - reached)
        self.most = self.total
        self._run([node for node, count in self.waiting.items() if not count])

    def _run(self, ready: list[Node]) -> None:
        for node in ready:
            self._arrive(node, node.plan.room)
        while ready:
            node = ready.pop()
            given = self._differentiate(node)
            for edge, nbytes in given:
                self._arrive(edge, nbytes)
                if edge in self.waiting:
                    self.waiting[edge] -= 1
                    if not self.waiting[edge]:
                        ready.append(edge)

    def _differentiate(self, node: Node) -> list[tuple[Any, int]]:
        """The gradients that a node gives."""
        incoming = self.coming.pop(node, 0)
        edges = [(e, s) for e, s in zip(node.edges, node.plan.ins, strict=False) if e is not None]
        given = [(_node_of(edge), room_for(spec.nbytes)) for edge, spec in edges]
        made = derivative_bytes(node.plan, node.grad, [nbytes for _, nbytes in given])
        self.most = max(self.most, self.total + self.floor.of(_saves(node), made))
        self.total -= incoming
        return given

    def _arrive(self, node: Any, nbytes: int) -> None:
        if node.__class__ is Leaf:
            if node in self.leaves:
                self.leaves.discard(node)
                self.total += nbytes
            return
        before = self.coming.get(node, 0)
        self.coming[node] = max(before, nbytes)
        self.total += self.coming[node] - before
        if before:  # they are added
            self.most = max(self.most, self.total + 2 * nbytes)
        self.most = max(self.most, self.total)


def _node_of(edge: Any) -> Any:
    return edge.node if edge.__class__ is Output else edge


def _edges(node: Node) -> list[Any]:
    return [_node_of(edge) for edge in node.edges if edge is not None]
