"""Programs of derivatives, as a backward pass runs them.

# Note [Derivatives]
1. A rule is a pure function of gradients, saved values and constants of its plan. `Grad.programs`
   keeps a program of it for each set of present gradients, by their specs; the specs of the saves
   follow from the plan. The program ends with the gradients fitted to the operands' shapes and
   dtypes.
2. The first pass traces the rule (Note [Traces]), or calls `Grad.fused`: an elementwise call's
   derivative is one kernel, or none where the gradient is passed through, and is made without a
   trace. None is kept where there is no program.
3. Programs run where nothing is recorded and nothing special is set, from addresses alone; the rule
   runs otherwise, and where a save was dropped, packed, freed or written to.
4. Which gradients are fresh buffers, shared with nothing, is known when the program is made
   (`fresh`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight.core.shapes import Spec
from rushlight.tape.program.program import Program, Reference, Step
from rushlight.tape.record import call
from rushlight.tape.record.call import launch_one
from rushlight.tape.record.state import STATE
from rushlight.tape.record.value import Node, Value

# A gradient per operand, and whether it is a fresh buffer.
Parts = tuple[Sequence[Value | None], Sequence[bool]]


class Derivative:
    """A program over the present gradients, then the saved results, then the saved operands."""

    __slots__ = ("alone", "as_made", "fresh", "judged", "picks", "plan", "program", "single")

    def __init__(self, program: Program, came: int, numbered: bool) -> None:
        self.program = program
        count = len(program.given)
        places = [None if r is None else program.rooted(r) for r in program.results]
        owners = [None if p is None else p.slot for p in places]
        # Per operand: the index among the present gradients and the made results, the byte offset,
        # and the spec of a view.
        picks: list[tuple[int, int, Spec | None] | None] = []
        for place in places:
            if place is None:
                picks.append(None)
                continue
            slot, offset, spec = place
            index = slot if slot < came else came + program.made.index(slot)
            picks.append(
                (index, offset, None if spec is program.specs[slot] and not offset else spec)
            )
        self.picks = tuple(picks)
        self.fresh = tuple(
            [
                p is not None and p[0] >= came and p[2] is None and owners.count(o) == 1
                for p, o in zip(picks, owners, strict=True)
            ]
        )
        kernel = program.kernel
        # A node's parameters follow its numbers only where the step passes them on.
        fixed = kernel is not None and program.launches[0].numbers != kernel.tail
        fixed = fixed or (numbered and any(step.params is not None for step in program.steps))
        self.plan = None if fixed else kernel  # of the one kernel that the program is
        self.single = self.plan is not None and len(self.plan.outs) == 1
        # Whether the kernel's results are the gradients, in order.
        in_order = [(came + i, 0, None) for i in range(len(program.made))]
        self.as_made = self.plan is not None and picks == in_order
        self.alone = self.single and self.as_made
        # Whether no launch excuses bad saves, so that anomalies are found as they are made: see
        # Note [Anomaly checks] 4.
        self.judged = not program.launches or (
            self.plan is not None and self.plan.op.causes is not None
        )
        assert all(o is None or o < came or o >= count for o in owners)

    @staticmethod
    def of(program: Program | None, came: int, numbered: bool) -> Derivative | None:
        """None where there is no program, it returns a save, or its own call places a view."""
        if program is None or any(step.moves for step in program.steps):
            return None
        owners = [program.rooted(r).slot for r in program.results if r is not None]
        return (
            None
            if any(came <= o < len(program.given) for o in owners)
            else Derivative(program, came, numbered)
        )

    def parts(
        self, came: Sequence[Value], ins: Sequence[int], params: tuple[Any, ...]
    ) -> Sequence[Value | None]:
        """A gradient per operand, from the present gradients and all addresses."""
        if self.single:
            values = [*came, launch_one(self.plan, ins, params)]
        elif self.plan is not None:
            values = [*came, *call.launch_at(self.plan, ins, params)]
        elif not self.program.made:
            values = came  # type: ignore[assignment]
        else:
            program = self.program
            values = [*came]
            for slot, storage in zip(program.made, program.make(ins, params), strict=True):
                values.append(call.make_value(program.specs[slot], storage))
        return [
            None if p is None else values[p[0]] if p[2] is None else _view(values[p[0]], p[2], p[1])
            for p in self.picks
        ]


def _view(value: Value, spec: Spec, skip: int) -> Value:
    return call.make_view(value, spec, value._offset + skip)


def recall(node: Node, sums: dict[Any, Any], retain: bool) -> Parts | None:
    """The gradients of a node's operands by a program; None where the rule has to run.

    The present gradients are removed from `sums`, and the saves are freed unless the graph is
    retained. For a pass that records nothing and has nothing special around it.
    """
    programs = node.grad.programs
    if not programs or node.dropped is not None:
        return None
    saved = node.saved  # held until the launch is done, also if another thread's pass frees them
    several = len(node.plan.outs) > 1
    came: Sequence[Any]
    version = 0
    try:
        if several:
            keys = [(node, i) for i in range(len(node.plan.outs))]
            grads = [sums.get(key) for key in keys]
            found = programs.get(key_of(grads))
            came = [g for g in grads if g is not None]
            ins = [g._memory.address + g._offset for g in came]
        else:
            g = sums.get(node)
            if g is None:
                return None
            found = programs.get(g._spec)
            came, ins = (g,), [g._memory.address + g._offset]
        if found is None:
            return None
        for storage in node.outs:
            version += storage.version
            ins.append(storage.address + 0)  # type: ignore[operator]
        for value in saved:  # type: ignore[union-attr]
            storage = value._memory
            version += storage.version
            ins.append(storage.address + value._offset)  # type: ignore[operator]
    except TypeError:  # freed or dropped
        return None
    if version != node.version:
        return None
    if found.alone:
        parts: Any = (launch_one(found.plan, ins, node.params),)
    elif found.as_made:
        parts = call.launch_at(found.plan, ins, node.params)
    else:
        parts = found.parts(came, ins, node.params)
    if several:
        for key in keys:
            sums.pop(key, None)
    else:
        del sums[node]
    if not retain:
        node.saved = None
        node.outs = ()
    return parts, found.fresh


def key_of(grads: Sequence[Value | None]) -> Any:
    """The key of a set of gradients in `Grad.programs`."""
    if len(grads) == 1:
        return grads[0]._spec  # type: ignore[union-attr]
    return tuple([None if g is None else g._spec for g in grads])


def is_judged(node: Node, grads: Sequence[Value | None]) -> bool:
    """Whether the program that ran for these gradients detects anomalies itself."""
    state = STATE.get()
    if state.special or state.grad or not node.grad.programs:
        return False
    found = node.grad.programs.get(key_of(grads))
    return found is not None and found.judged


def one_step(
    plan: Any,
    given: Sequence[Spec],
    results: Sequence[int | None],
    params: tuple[Any, ...] | None = None,
) -> Program:
    """A program of one step over all inputs, or of none without a plan; results by slots."""
    outs = () if plan is None else plan.outs
    steps = [] if plan is None else [Step(plan, params, tuple(range(len(given))), outs)]
    specs = (*given, *outs)
    return Program(
        given,
        steps,
        [None if slot is None else Reference(slot, 0, specs[slot]) for slot in results],
    )
