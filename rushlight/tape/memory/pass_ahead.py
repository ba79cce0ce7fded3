"""A backward pass that is to come, in bytes: what its derivatives read and take, in order.

# Note [Pass ahead]
1. A derivative that has run has a program: each of its calls needs the saves it reads, and what was
   made so far. One that is at most one kernel has a program before it runs (`Grad.fused`). Else it
   counts as one call that reads all saves, with an intermediate result of the size of the largest
   gradient it gives.
2. Beside them are the incoming gradients, those on their way and those of leaves, in the order of
   a backward pass. Gradients may share one block: views of it, or the one that came, passed on. A
   sum is made in the memory of a gradient that nobody else has (Note [Backward] 2).
3. A failed pass is continued where it failed. A gradient that is added to a leaf's own waits for
   the end of the pass (Note [Backward] 5), and counts until then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any

from rushlight.devices.shared.allocator import Storage, room_for
from rushlight.tape.memory.recipe import Key
from rushlight.tape.memory.rehearsal import Demand
from rushlight.tape.record.op import Grad, Plan, writes_over
from rushlight.tape.record.value import Leaf, Node, Output, Value

# The saves that a call of a derivative reads, by number; the blocks that it and those before take.
Made = tuple[Sequence[int], int]


def call_rooms(plan: Plan, came: int = 0) -> int:
    """The blocks that a call takes, where a result is written over an input after the first."""
    pairs = product(range(len(plan.outs)), range(came, len(plan.ins)))
    over = [plan.rooms[out] for out, given in pairs if writes_over(plan, out, given)]
    return plan.room + plan.rest - max(over, default=0)


def derivative_calls(
    plan: Plan, grad: Grad, given: Sequence[int], alone: bool = True
) -> list[Made]:
    """The calls of a derivative, where the gradients it gives are of these sizes.

    One kernel writes one of the gradients over the incoming one, if it is held `alone`, or over a
    save: Note [Derivatives] 7, Note [Replay] 8.
    """
    if plan.launch is None:
        return [((), 0)]
    saves = len(grad.saves_out) + len(grad.saves_in)
    program = _program_of(plan, grad)
    if program is None:
        return [(range(saves), sum(given) + max(given, default=0))]
    return _calls_of(program, len(program.given) - saves, alone)


def _program_of(plan: Plan, grad: Grad) -> Any:
    """A derivative's program, as far as there is one without tracing its rule."""
    found = [made for made in (grad.programs or {}).values() if made is not None]
    if found:
        return found[0].program
    if grad.fused is None or len(plan.outs) > 1:
        return None
    saved = [*[plan.outs[i] for i in grad.saves_out], *[plan.ins[i] for i in grad.saves_in]]
    return grad.fused([plan.out, *saved])


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
    """The block of a gradient on its way, and how many records wait for it or a part of it.

    `owned`: nobody else has it, so that others are added to it.
    """

    __slots__ = ("nbytes", "owned", "users")

    def __init__(self, nbytes: int, owned: bool = False) -> None:
        self.nbytes = nbytes
        self.owned = owned
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
        in_place: bool = True,
    ) -> None:
        self.in_place = in_place  # whether gradients are added in the memory of one of them
        # Gradients on their way, by record and the number of its result.
        self.coming: dict[Any, dict[int, _Gradient]] = {}
        self.waiting: dict[Any, int] = dict.fromkeys(nodes, 0)
        self.leaves = set(leaves)
        reached: set[Leaf] = set()
        for node in nodes:
            for edge in edges_of(node):
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
            came = [block for _, block in sorted(self.coming.pop(node, {}).items())]
            for edge, block in self._differentiate(node, came):
                below = node_of(edge)
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
        blocks = self._blocks(node, edges, came)
        times = Counter(map(id, blocks))
        for block in blocks:
            block.owned = block.owned and times[id(block)] == 1
        return [(edge, block) for (_, edge, _), block in zip(edges, blocks, strict=True)]

    def _blocks(
        self, node: Node, edges: Sequence[tuple[int, Any, int]], came: list[_Gradient]
    ) -> list[_Gradient]:
        """The blocks of a node's gradients, for its edges: input, edge and bytes."""
        plan, grad = node.plan, node.grad
        program = _program_of(plan, grad)
        if program is None:
            # A view at most, where nothing is saved.
            is_view = len(came) == 1 and not (grad.saves_in or grad.saves_out)
            return [
                came[0] if is_view and n <= plan.room else _Gradient(n, not is_view)
                for *_, n in edges
            ]
        first, made = len(program.given) - len(grad.saves_in) - len(grad.saves_out), {}
        blocks = []
        for i, _, n in edges:
            result = program.results[i]
            slot = -1 if result is None else program.rooted(result).slot
            if 0 <= slot < first:
                blocks.append(came[slot] if slot < len(came) else _Gradient(n))
            elif slot < len(program.given):
                blocks.append(_Gradient(0))  # no gradient, or a save
            else:
                if slot not in made:
                    made[slot] = _Gradient(room_for(program.specs[slot].nbytes), True)
                blocks.append(made[slot])
        return blocks

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
            if before is None:
                pass
            elif self.in_place and (before.owned or block.owned):
                there[index], other = (before, block) if before.owned else (block, before)
                self._note()
                self._release([other])
            else:
                there[index] = made = _Gradient(max(before.nbytes, block.nbytes), True)
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


def gradient_bytes(leaves: Iterable[Leaf]) -> int:
    return sum(room_for(leaf.spec.nbytes) for leaf in leaves)


def node_of(edge: Any) -> Any:
    return edge.node if edge.__class__ is Output else edge


def edges_of(node: Node) -> list[Any]:
    return [node_of(edge) for edge in node.edges if edge is not None]
