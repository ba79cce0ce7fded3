"""A composed op as one record: several launches that follow one another, and one derivative made of theirs.

# Note [Composed records]
1. A program (Note [Shortcuts]) whose operands and results are small together (`SMALL`) runs as one plan: its launches in
   order, intermediate results in memory of the call's own. Each step's record would cost more than its work.
2. What the steps' derivatives save is saved by the one record: operands, results, and intermediate results, which are
   results of the plan behind the program's own, handed to nobody. There is a plan per set of operands that need gradients.
3. The derivative walks the steps from the last to the first, with their own rules. It is made of ops, so it can be
   differentiated again; gradients of saved intermediate results, which the next order asks for, come in as any other's.
4. Sums of gradients have another order here than along single records. So whether a call is composed follows from the operands'
   specs and the static arguments alone: the first call, which is watched, is done again, and calls in a checkpoint, in a budget
   or under hooks of saves are composed like any others.
5. Nothing outlives a call but what its record saves: every byte is the user's, and a budget can count on it.
6. Views at the end of a program stay views of their own; those that show a whole launch's result in another shape are that
   result's shape.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any

from rushlight.core.shapes import Spec
from rushlight.tape.record import call
from rushlight.tape.record.needed import Needed, edge_of
from rushlight.tape.record.op import Grad, Op, Plan, Shadow, Static
from rushlight.tape.record.state import State
from rushlight.tape.record.value import Output, Value

SMALL = 4 << 20  # bytes of all operands and results of the steps, together

Step = tuple[Plan, tuple[Any, ...], tuple[int, ...]]


class Layout:
    """Slots of a program: what was given, then every step's results; where each lies and who made it."""

    def __init__(self, steps: Sequence[Step], given: Sequence[Spec]) -> None:
        self.given = len(given)
        self.specs: list[Spec] = list(given)
        self.roots: list[tuple[int, int]] = [
            (i, 0) for i in range(self.given)
        ]  # a slot with memory, and bytes into it
        self.makers: list[tuple[int, int]] = [
            (-1, -1)
        ] * self.given  # a step, and which of its results
        self.first: list[int] = []  # of every step: the slot of its first result
        for number, (plan, _, sources) in enumerate(steps):
            self.first.append(len(self.specs))
            for i, spec in enumerate(plan.outs):
                slot = len(self.specs)
                if plan.launch is None:
                    root, skip = self.roots[sources[0]]
                    self.roots.append((root, skip + plan.offsets[i]))
                else:
                    self.roots.append((slot, 0))
                self.makers.append((number, i))
                self.specs.append(spec)

    def shows_whole(self, slot: int) -> bool:
        """Whether the slot is all of a launch's result, in order."""
        root, skip = self.roots[slot]
        spec = self.specs[slot]
        return (
            root >= self.given
            and not skip
            and spec.contiguous
            and spec.numel == self.specs[root].numel
        )


class Composed(Op):
    """The steps of a program as one op."""

    __slots__ = ("layout", "results", "steps")

    def __init__(
        self, name: str, steps: Sequence[Step], layout: Layout, results: Sequence[int]
    ) -> None:
        super().__init__(name, "Several calls in one record.")
        self.steps = tuple(steps)
        self.layout = layout
        self.results = tuple(results)

    def make_plan(self, ins: Sequence[Spec], static: Static) -> Plan:
        for plan, _, _ in self.steps:  # whoever looks on sees the kernels
            plan.op.make_plan(plan.ins, plan.static)
        return self.plan_for(0)

    def plan_for(self, needs: int) -> Plan:
        """The plan for calls in which the operands in the bit mask need gradients."""
        layout = self.layout
        grads = _step_grads(self.steps, layout, needs)
        wanted = _saved_roots(self.steps, layout, grads)
        shown = [layout.roots[r][0] for r in self.results]
        hidden = [slot for slot in wanted if slot >= layout.given and slot not in shown]
        outs = [layout.specs[r] for r in self.results] + [layout.specs[slot] for slot in hidden]
        launch = _Launch(self.steps, layout, [*shown, *hidden])
        ins, cost = layout.specs[: layout.given], sum(step[0].cost for step in launch.steps)
        inner, tail, places, _ = launch.steps[0]
        if (
            len(launch.steps) == 1
            and tail == inner.tail
            and places == [(i, 0) for i in range(len(outs) + len(ins))]
        ):
            plan = Plan(
                self, ins, outs, inner.plain, (), tail, cost, kernel=inner.kernel
            )  # it is that kernel
        else:
            plan = Plan(self, ins, outs, launch, (), (), cost, listed=False)
        if needs:
            owners = [*shown, *hidden]
            saves_in = tuple([slot for slot in wanted if slot < layout.given])
            saves_out = tuple([owners.index(slot) for slot in wanted if slot >= layout.given])
            plan.grads[needs] = grad = Grad(
                needs, saves_in, saves_out, _Rule(self, grads, [*self.results, *hidden])
            )
            grad.programs = {}
        return plan

    def make_grad(self, plan: Plan, needs: int) -> Grad:
        return self.plan_for(needs).grads[needs]


def _step_grads(steps: Sequence[Step], layout: Layout, needs: int) -> list[Grad | None]:
    """The derivative of every step through which a gradient passes."""
    flows = [bool(needs >> i & 1) for i in range(layout.given)]
    grads: list[Grad | None] = []
    for plan, _, sources in steps:
        mask = sum(1 << i for i, s in enumerate(sources) if flows[s])
        recorded = bool(mask) and plan.out.differentiable
        grads.append((plan.grads.get(mask) or plan.grad(mask)) if recorded else None)
        flows += [recorded and bool(spec.differentiable) for spec in plan.outs]
    return grads


def _saved_roots(steps: Sequence[Step], layout: Layout, grads: Sequence[Grad | None]) -> list[int]:
    """The slots with memory that the derivatives read, in order."""
    found: set[int] = set()
    for number, grad in enumerate(grads):
        if grad is not None:
            found |= {layout.roots[steps[number][2][i]][0] for i in grad.saves_in}
            found |= {layout.roots[layout.first[number] + j][0] for j in grad.saves_out}
    return sorted(found)


class _Launch:
    """Every launch of the steps, in order; called like a kernel: addresses of results, then of operands."""

    __slots__ = ("count", "rooms", "steps")

    def __init__(self, steps: Sequence[Step], layout: Layout, outs: Sequence[int]) -> None:
        place = {slot: i for i, slot in enumerate(outs)}
        place.update({i: len(outs) + i for i in range(layout.given)})
        self.count = len(outs)
        self.rooms: list[int] = []  # of what lives for the call only
        self.steps: list[tuple[Plan, tuple[Any, ...], list[tuple[int, int]], Any]] = []
        for number, (plan, params, sources) in enumerate(steps):
            if plan.launch is None:
                continue
            places: list[tuple[int, int]] = []
            for j, room in enumerate(plan.rooms):
                slot = layout.first[number] + j
                if slot not in place:
                    place[slot] = len(outs) + layout.given + len(self.rooms)
                    self.rooms.append(room)
                places.append((place[slot], 0))
            for s in sources:
                root, skip = layout.roots[s]
                places.append((place[root], skip))
            plain = len(places) > 1 and not any(skip for _, skip in places)
            take = itemgetter(*[i for i, _ in places]) if plain else None
            self.steps.append((plan, (*plan.tail, *params), places, take))

    def __call__(self, *numbers: int) -> None:
        addresses = list(numbers)
        pool = self.steps[0][0].pool
        taken: list[tuple[int, int]] = []
        try:  # as `Scratch` does, written out for speed
            for room in self.rooms:
                address = pool.take(room)
                taken.append((address, room))
                addresses.append(address)
            for plan, tail, places, take in self.steps:
                if take is not None:
                    plan.launch(*take(addresses), *tail)  # type: ignore[misc]
                else:
                    plan.launch(*[addresses[i] + skip for i, skip in places], *tail)  # type: ignore[misc]
        finally:
            if taken:
                pool.give_all(taken)


class _Rule:
    """The derivative of a composed call. See Note [Composed records] 3."""

    __slots__ = ("grads", "op", "outs")

    def __init__(self, op: Composed, grads: Sequence[Grad | None], outs: Sequence[int]) -> None:
        self.op = op
        self.grads = grads
        self.outs = outs  # the slots of the plan's results

    def __call__(self, grads: list[Any], values: list[Any], params: tuple[Any, ...]) -> list[Any]:
        op, layout = self.op, self.op.layout
        known = self._known(values)
        sums: dict[int, Value] = {}
        for slot, g in zip(self.outs, grads, strict=True):
            if g is not None:
                sums[slot] = g
        for number in reversed(range(len(op.steps))):
            grad = self.grads[number]
            plan, numbers, sources = op.steps[number]
            first = layout.first[number]
            slots = range(first, first + len(plan.outs))
            arrived = [sums.pop(slot, None) for slot in slots]
            if grad is None or all(g is None for g in arrived):
                continue
            saved = {*[sources[i] for i in grad.saves_in], *[first + j for j in grad.saves_out]}
            operands = [
                self._value(s, known) if s in saved else Shadow(layout.specs[s])
                for s in (*sources, *slots)
            ]
            parts = grad.rule(arrived, operands, numbers)
            for s, part, spec in zip(sources, parts, plan.ins, strict=True):
                if part is not None:
                    part = _fitted(part, spec)
                    sums[s] = part if s not in sums else Needed.add(sums[s], part)
        return [sums.get(i) for i in range(layout.given)]

    def _known(self, values: list[Any]) -> dict[int, Any]:
        """The saved values by the slots that have memory."""
        layout = self.op.layout
        known: dict[int, Any] = {
            i: v for i, v in enumerate(values[: layout.given]) if isinstance(v, Value)
        }
        for slot, value in zip(self.outs, values[layout.given :], strict=True):
            if isinstance(value, Value):
                known[slot] = value
                root = layout.roots[slot][0]
                if root != slot:
                    known[root] = Needed.reshape(value, layout.specs[root].shape)
        return known

    def _value(self, slot: int, known: dict[int, Any]) -> Any:
        """A slot's value; one that is a view is made again."""
        found = known.get(slot)
        if found is None:
            number, i = self.op.layout.makers[slot]
            plan, _, sources = self.op.steps[number]
            source = self._value(sources[0], known)
            if source._spec is plan.ins[0]:
                made = call.run(plan, (source,))
            else:  # it was packed, and came back laid out otherwise
                made = call.call(plan.op, (source,), plan.static)
            found = known[slot] = made[i] if made.__class__ is tuple else made
        return found


def _fitted(part: Value, spec: Spec) -> Value:
    if part._spec.shape != spec.shape:
        part = Needed.sum_to(part, spec.shape)
    return part if part._spec.dtype is spec.dtype else Needed.cast(part, spec.dtype)


def compose(name: str, steps: Sequence[Step], given: Sequence[Spec], results: Sequence[int]) -> Any:
    """The steps up to the views at the end as one op, and those views; None where they are to stay as they are."""
    if len(steps) < 2 or any(spec.hidden for spec in given):
        return None
    end = len(steps)
    while end and steps[end - 1][0].launch is None:
        end -= 1
    layout = Layout(steps, given)
    if sum(spec.nbytes for i, spec in enumerate(layout.specs) if layout.roots[i][0] == i) > SMALL:
        return None
    # A view at the end that shows a whole result is that result's shape; it is told from others by what it shows.
    while end < len(steps) and all(
        layout.shows_whole(layout.first[end] + j) for j in range(len(steps[end][0].outs))
    ):
        end += 1
    core, views = steps[:end], steps[end:]
    made = layout.first[end] if end < len(steps) else len(layout.specs)
    if sum(plan.launch is not None for plan, _, _ in core) == 0 or len(core) < 2:
        return None
    wanted = [s for _, _, sources in views for s in sources] + list(results)
    shown = sorted({s for s in wanted if len(given) <= s < made})
    roots = [layout.roots[s][0] for s in shown]
    if not shown or len(set(roots)) < len(roots) or not all(layout.shows_whole(s) for s in shown):
        return None
    pools = {id(plan.pool) for plan, _, _ in core} | {id(spec.device) for spec in given}
    flags = [layout.specs[s].differentiable for s in shown]
    if len(pools) > 1 or (any(flags) and not flags[0]):
        return None
    if any(flags) and not _all_followed(core, given, shown):
        return None
    firsts = [layout.first[number] for number in range(end, len(steps))]
    return Composition(
        Composed(name, core, Layout(core, given), shown), tuple(zip(views, firsts, strict=True))
    )


def _all_followed(steps: Sequence[Step], given: Sequence[Spec], results: Sequence[int]) -> bool:
    """Whether gradients of the results can come from every operand that has any: one seen only through integers has no record."""
    masks = [1 << i if spec.differentiable else 0 for i, spec in enumerate(given)]
    followed = 0
    every = sum(masks)
    for plan, _, sources in steps:
        mask = 0
        for source in sources:
            mask |= masks[source]
        masks += [mask if spec.differentiable else 0 for spec in plan.outs]
    for result in results:
        followed |= masks[result]
    return followed == every


class Composition:
    """A composed op, and the views behind it, each with the slot of its first result in the program."""

    __slots__ = ("alone", "differentiable", "op", "plans", "views")

    def __init__(self, op: Composed, views: Sequence[tuple[Step, int]]) -> None:
        self.op = op
        self.views = views
        self.alone = len(op.results) == 1 and not views  # its one result is all there is to see
        self.differentiable = bool(op.layout.specs[op.results[0]].differentiable)
        self.plans: dict[int, Plan] = {}

    def run_alone(self, values: Sequence[Value], state: State) -> Value:
        """The result of an op that is `alone`."""
        if state.special:
            return self._results(values, state)[0]
        needs = 0
        ins: list[int] = []
        recorded = state.grad and self.differentiable
        bit = 1
        try:
            for value in values:
                if recorded and (
                    value._node is not None
                    or (value._base is not None and edge_of(value) is not None)
                ):
                    needs |= bit
                bit += bit
                ins.append(value._memory.address + value._offset)  # type: ignore[operator]
        except TypeError:  # dropped
            return self._results(values, state)[0]
        plan = self.plans.get(needs) or self._plan(needs)
        if not needs:
            return call.launch_one(plan, ins, (), state.birth)
        if len(plan.outs) == 1:
            made = call.launch_one(plan, ins, (), 0)
            made._node = call.record(plan, values, (), (made._memory,))
            return made
        storages = [call.make_storage(plan.pool, room) for room in plan.rooms]
        plan.launch(*[s.address for s in storages], *ins, *plan.tail)  # type: ignore[misc]
        node: Any = call.record(plan, values, (), storages)
        return call.make_value(plan.out, storages[0], 0, Output(node, 0))

    def _plan(self, needs: int) -> Plan:
        plan = self.plans[needs] = self.op.plan_for(needs)
        return plan

    def _results(self, values: Sequence[Value], state: State) -> Sequence[Value]:
        needs = 0
        if state.grad and self.differentiable:
            needs = sum(1 << i for i, value in enumerate(values) if edge_of(value) is not None)
        plan = self.plans.get(needs) or self._plan(needs)
        made = call.run(plan, values)
        return made if made.__class__ is tuple else (made,)

    def run(self, values: Sequence[Value], state: State) -> dict[int, Any]:
        """The program's slots, as far as anybody sees them."""
        slots: dict[int, Any] = dict(enumerate(values))
        slots.update(zip(self.op.results, self._results(values, state), strict=False))
        for (view, params, sources), first in self.views:
            made = call.run(view, [slots[s] for s in sources], params)
            slots.update(enumerate(made if made.__class__ is tuple else (made,), first))
        return slots
