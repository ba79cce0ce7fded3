"""The way of one program over parts: which placements each step reads and gives.

# Note [Calls on parts]
1. A function of distributed tensors is traced once on tensors of the whole shapes on the device
   `null`, which computes nothing: its Program has a step for each op, with numbers that belong to
   the whole (the count of a mean, the position of random numbers).
2. A route chooses placements for each step by the rules of its op's family (Note [Rules of
   families]). It depends on the program, the layouts of the operands and on which of them need
   gradients, so it is the same on every rank, and is kept.
3. A call walks the route: it moves operands to the placements that the step reads, and runs the
   step's op on this rank's parts. All of it is recorded as usual.
4. A function that has no program (it reads elements, or writes) runs on whole tensors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from rushlight.core.shapes import Shape, Spec
from rushlight.distributed.tensor.layout import Layout, Placements
from rushlight.distributed.tensor.placements import REPLICATE, Shard
from rushlight.distributed.tensor.rules import Asked, Choice, cheapest, choices, seen_by
from rushlight.ops.family.view import View, Views
from rushlight.tape.program.program import Program, Step


class Leg(NamedTuple):
    """One step: placements read and given, operands whose gradients are summed, ways of running."""

    step: Step
    reads: tuple[Placements, ...]
    gives: tuple[Layout, ...]
    enters: tuple[tuple[int, ...], ...]  # per operand: dimensions of the mesh
    runs: tuple[str, ...]  # per dimension of the mesh


class Route(NamedTuple):
    """All steps of a program. See Note [Calls on parts] 2."""

    legs: tuple[Leg, ...]
    results: tuple[tuple[int, Layout] | None, ...]  # slots


def find_route(
    program: Program,
    given: Sequence[Layout],
    recorded: Sequence[bool],
    like: Layout | None = None,
) -> Route:
    """Placements for each step, from those of the operands; `like`: of the only result."""
    layouts, grads = list(given), list(recorded)
    legs = []
    for step in program.steps:
        ins = [layouts[slot] for slot in step.sources]
        wants = [grads[slot] for slot in step.sources]
        leg = _leg(step, ins, wants, given[0])
        if like is not None:
            leg = leg._replace(gives=(like,))
        legs.append(leg)
        layouts.extend(leg.gives)
        grads.extend(any(wants) and spec.differentiable for spec in step.outs)
    results = tuple(None if r is None else (r.slot, layouts[r.slot]) for r in program.results)
    return Route(tuple(legs), results)


def _leg(step: Step, ins: Sequence[Layout], wants: Sequence[bool], like: Layout) -> Leg:
    mesh = like.mesh
    made: list[Choice] = []
    for n in range(mesh.ndim):
        now = tuple(layout.placements[n] for layout in ins)
        asked = Asked(step, now, any(wants), mesh.numel())
        best = cheapest(asked, mesh.shape[n])
        made.append(best if _is_static(step, best, n, made, mesh) else choices(asked)[0])
    reads = tuple(tuple(choice.ins[i] for choice in made) for i in range(len(ins)))
    gives = tuple(
        Layout(mesh, tuple(choice.outs[k] for choice in made), tuple(spec.shape))
        for k, spec in enumerate(step.outs)
    )
    enters = tuple(
        tuple(n for n, choice in enumerate(made) if _varies(choice) and choice.ins[i] == REPLICATE)
        if wants[i]
        else ()
        for i in range(len(ins))
    )
    return Leg(step, reads, gives, enters, tuple(choice.run for choice in made))


def _varies(choice: Choice) -> bool:
    """Whether ranks compute different things. See Note [Gradients of placements] 3."""
    return any(not p.is_replicate() for p in (*choice.ins, *choice.outs))


def _is_static(
    step: Step, choice: Choice, mesh_dim: int, made: Sequence[Choice], mesh: Any
) -> bool:
    """Whether a view of parts is a part of the view: asked of the first rank, on every rank."""
    taken = choice.ins[0] if choice.ins else None
    if not isinstance(step.plan.op, (View, Views)) or not isinstance(taken, Shard):
        return True
    rest = (REPLICATE,) * (mesh.ndim - mesh_dim - 1)
    chosen = [*made, choice]
    source = Layout(mesh, (*(c.ins[0] for c in chosen), *rest), tuple(step.plan.ins[0].shape))
    shown = [
        Layout(mesh, (*(c.outs[k] for c in chosen), *rest), tuple(spec.shape))
        for k, spec in enumerate(step.outs)
    ]
    size = step.plan.ins[0].shape[taken.dim]
    ranks = math.prod(mesh.shape[n] for n, c in enumerate(chosen) if c.ins[0] == taken)
    for placement, spec in zip(choice.outs, step.outs, strict=True):
        seen = spec.shape[placement.dim] if isinstance(placement, Shard) else size
        if seen != size and min(seen, size) % ranks:  # pieces of one are no pieces of the other
            return False
    first = [0] * mesh.ndim
    shapes = [tuple(p.length for p in layout.pieces(first)) for layout in (source, *shown)]
    return view_static(step, shapes[0], shapes[1:]) is not None


def view_static(step: Step, source: Shape, shown: Sequence[Shape]) -> tuple[Any, ...] | None:
    """The static arguments with which a view of parts shows these shapes; None: there are none."""
    op, static = step.plan.op, step.plan.static
    whole = tuple(step.outs[0].shape)
    for tried in (static, tuple(shown[0] if one == whole else one for one in static)):
        try:
            found = [shape for shape, _ in seen_by(op, source, tried)]
        except Exception:  # what the op says of sizes that do not fit
            continue
        if found == list(shown):
            return tried
    return None


def local_static(leg: Leg, source: Sequence[Shape], pool: Any) -> tuple[Any, ...]:
    """A step's static arguments for parts on a device."""
    step = leg.step
    static = step.plan.static
    shown = [layout.local_shape for layout in leg.gives]
    if isinstance(step.plan.op, (View, Views)):
        found = view_static(step, source[0], shown)
        assert found is not None, step.plan.op
        return found
    whole = tuple(step.outs[0].shape)
    return tuple(
        Spec.of(pool, one.dtype, shown[0])
        if isinstance(one, Spec)
        else shown[0]
        if isinstance(one, tuple) and one == whole
        else one
        for one in static
    )
