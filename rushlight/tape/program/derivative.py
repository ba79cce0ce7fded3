"""Programs of derivatives, as a backward pass runs them.

# Note [Derivatives]
1. A rule is a pure function of gradients, saved values and constants of its plan. `Grad.programs`
   keeps a program of it for each set of present gradients, by their specs; the specs of the saves
   follow from the plan. The program ends with the gradients fitted to the operands' shapes and
   dtypes.
2. The first pass traces the rule (Note [Traces]), or calls `Grad.fused`: an elementwise call's
   derivative is one kernel, or none where the gradient is passed through, and is made without a
   trace. None is kept where there is no program.
3. Programs run where nothing is recorded and nothing special but a region is set, from addresses
   alone; the rule runs otherwise, and where a save was dropped, packed, freed or written to.
4. `Derivative.run` is generated code (`_RUN`) for the program's counts of gradients, saves and
   results: loops over them would cost as much as a small launch. Equal text is compiled once.
5. Which gradients are fresh buffers, shared with nothing, is known when the program is made.
   Passed through, the only gradient is fresh where it was fresh before (`inherited`).
6. In a region a program runs too (`run_in_region`), and its steps leave a recipe each. One of
   several launches runs only where it takes no room from other values: its inputs are present, and
   what it allocates fits under the limit. Else the rule runs: values can be dropped between its
   calls.
7. `mine` tells that the only gradient is a fresh buffer, which ends with the call. One kernel then
   writes a result of the same layout over it (`over`, Note [Kernel arguments]): no block is taken.
   A gradient that a hook or a user may hold is not `mine`. In a region a gradient without a recipe
   is not written over where the result gets one, which would read it.
8. In a quiet step (Note [Foresight] 6) `Derivative.held` runs, without recipes: it is `run` for
   saves that have a recipe, whose bytes are in a block, and that the caller has pinned.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from textwrap import indent
from typing import Any

from rushlight.core.errors import BudgetError
from rushlight.core.shapes import Spec
from rushlight.devices.shared.allocator import Storage
from rushlight.tape.memory import refusal, replay
from rushlight.tape.memory.foresight import FORESIGHT
from rushlight.tape.memory.pins import COUNTERS, LOCK, Pins
from rushlight.tape.memory.recipe import Recipe
from rushlight.tape.program.launching import bound, launch_code
from rushlight.tape.program.program import Program, Reference, Step
from rushlight.tape.record import call, template
from rushlight.tape.record.op import Grad, Plan, writes_over
from rushlight.tape.record.state import STATE
from rushlight.tape.record.value import Node, Value

# A gradient per operand, and whether it is a fresh buffer.
Parts = tuple[Sequence[Value | None], Sequence[bool]]

# The code of `Derivative.run`. The saves are held until the launch is done, also if a pass of
# another thread frees them. For `x * w`, where x alone needs a gradient, its body is
#     try:  # `mine` tells whether g0 may be written to
#         s0, = node.saved
#         ms0 = s0._memory
#         a0 = g0._memory.address + g0._offset
#         a1 = ms0.address + s0._offset
#         version = ms0.version
#     except (TypeError, ValueError):
#         return None
#     if version != node.version:
#         return None
#     if mine:
#         address0 = a0
#         out0 = g0
#     else:
#         ...  # storage0, with address0, and its handle out0
#     plan.launch(address0, a0, a1, n0)
#     return (out0, None,), fresh
_RUN = """\
def bind({constants}):
    def run(node, mine, {gradients}):
{read}
{launch}
        return ({parts},), {fresh}
    return run
"""

_OVER = """\
if mine:
    address{i} = a0
    out{i} = g0
else:
{taken}
"""

_READ = """\
try:
{lines}
except (TypeError, ValueError):  # dropped or freed
    return None
"""

_CHECK = """\
if version != node.version:
    return None
"""


class Derivative:
    """A program over the present gradients, then the saved results, then the saved operands.

    `run(node, mine, *gradients)` returns `Parts`, or None where the rule has to run. `mine` and
    `over`, an index of the kernel's results or None, are those of Note [Derivatives] 7.
    """

    __slots__ = (
        *("_held", "first", "fresh", "judged", "kernel", "need", "over", "places", "program"),
        *("run", "shape"),
    )

    def __init__(self, program: Program, grad: Grad, came: int, params: int) -> None:
        self.program = program
        self.first = program.launches[0].plan if program.launches else None
        kernel = program.kernel
        # A node's parameters follow its numbers only where the step passes them on.
        fixed = kernel is not None and program.launches[0].numbers != kernel.tail
        fixed = fixed or (params > 0 and any(step.params is not None for step in program.steps))
        plan = None if fixed else kernel  # of the one kernel that the program is
        self.kernel = plan
        self.over = _result_over(program, plan) if came == 1 else None
        self.need = program.peak()
        self.places = [None if r is None else _place(program, r) for r in program.results]
        # Whether no launch excuses bad saves, so that anomalies are found as they are made: see
        # Note [Anomaly checks] 4.
        self.judged = not program.launches or (plan is not None and plan.op.causes is not None)
        self.shape = len(grad.saves_out), len(grad.saves_in), came, params
        self.fresh: tuple[bool, ...] = ()
        self.run = self._compiled("{}.address")
        self._held: Callable[..., Parts | None] | None = None

    @property
    def held(self) -> Callable[..., Parts | None]:
        """`run` for saves with recipes: Note [Derivatives] 8."""
        if self._held is None:
            self._held = self._compiled("({0}.address if {0}.recipe is None else {0}.block)")
        return self._held

    def _compiled(self, address: str) -> Callable[..., Parts | None]:
        """The code of `run`; `address` is the text that reads the address of a storage."""
        program, plan, (outs, ins, came, params) = self.program, self.kernel, self.shape
        constants: dict[str, Any] = {}  # by their names in the code
        if not program.made:  # every gradient is passed through
            launch = ""
        elif plan is None:
            launch = _run_program(program, constants)
        else:
            launch = _run_plan(plan, params, self.over, constants)
        parts = _parts(program, came, self.over if plan is not None else None, constants)
        self.fresh = constants["fresh"]
        text = _RUN.format(
            constants=", ".join(constants),
            gradients=", ".join(_names("g", came)),
            read=indent(_read(outs, ins, came, bool(program.made), address), " " * 8),
            launch=indent(launch, " " * 8),
            parts=", ".join(parts),
            fresh="inherited if mine else fresh" if "inherited" in constants else "fresh",
        )
        return bound(text, "derivative", constants)

    @staticmethod
    def of(program: Program | None, grad: Grad, came: int, params: int) -> Derivative | None:
        """None where there is no program, it returns a save, or its own call places a view.

        `came` and `params` count the present gradients and the node's launch parameters.
        """
        if program is None or any(step.moves for step in program.steps):
            return None
        owners = [program.rooted(r).slot for r in program.results if r is not None]
        returned = any(came <= o < len(program.given) for o in owners)
        return None if returned else Derivative(program, grad, came, params)

    def run_in_region(
        self, node: Node, mine: bool, values: Sequence[Value], region: Any
    ) -> Parts | None:
        """What `run` gives, with recipes; None where the rule has to run: Note [Derivatives] 6."""
        program = self.program
        storages: Sequence[Storage] = ()
        if self.kernel is not None and program.made:
            recipe, run = values[0]._memory.recipe, (self.kernel, values, node.params, region)
            may_end = FORESIGHT.is_plain if recipe is None else not recipe.is_settled
            if self.over is not None and mine and may_end:
                storages = replay.run_over(*run, self.over)
            else:
                storages = replay.run_in_region(*run)
        elif program.made:
            pool = values[0]._memory.pool
            limit = pool.limit
            if limit is not None and pool.live + self.need > limit:
                return None
            try:
                ran = _run_steps(program, values, node.params, region)
            except BudgetError:  # it takes scratch
                return None
            if ran is None:
                return None
            storages = ran
        every = list(values)
        for slot, storage in zip(program.made, storages, strict=True):
            every.append(call.make_value(program.specs[slot], storage))
        parts: list[Value | None] = []
        for place in self.places:
            if place is None:
                parts.append(None)
                continue
            number, skip, spec = place
            value = every[number]
            if spec is not None and self.fresh[len(parts)]:
                value = call.make_value(spec, value._memory)
            elif spec is not None:
                value = call.make_view(value, spec, value._offset + skip)
            parts.append(value)
        return parts, self.fresh

    def run_quietly(self, node: Node, mine: bool, *gradients: Value) -> Parts | None:
        """`held`, with its operands pinned; None where it has no room: Note [Derivatives] 8."""
        held, plan, running = self._held or self.held, self.first, Pins.running
        if plan is None:  # it launches nothing
            return held(node, mine, *gradients)
        need = self.need
        if mine and self.over is not None:
            need -= plan.rooms[self.over]
        if need:
            pool = plan.pool
            if pool.live + need > pool.held:
                limit = pool.limit
                if limit is not None and pool.live + need > limit:
                    return None  # a result may replace an input: Note [Replay] 8
        with LOCK:
            if mine and gradients[0]._memory.recipe is not None:
                mine = replay.give_up(gradients[0]._memory)
            # No call between `append` and `try` or in `finally`: see `template.following`.
            try:
                running.append((None, node, gradients, None))
                made = held(node, mine, *gradients)
            except BudgetError:  # it takes scratch, or other threads do
                return None
            finally:
                del running[-1]
            COUNTERS.tick += 1
        return made

    def recall_in_region(self, node: Node, mine: bool, g: Value, region: Any) -> Parts | None:
        """`run_in_region` for a node's saves; None also where one is missing or overwritten."""
        if node.saved is None:
            return None
        plan, values, version = node.plan, [g], 0
        for j, storage in zip(node.grad.saves_out, node.outs, strict=True):
            version += storage.version
            values.append(call.make_value(plan.outs[j], storage))
        for value in node.saved:
            version += value._memory.version
            values.append(value)
        if version != node.version or replay.present(values) is None:
            return None
        return self.run_in_region(node, mine, values, region)


def _run_steps(
    program: Program, values: Sequence[Value], params: tuple[Any, ...], region: Any
) -> list[Storage] | None:
    """The storages of a program that runs in a region; None where a value is dropped."""
    with replay.LOCK:
        ins = replay.present(values)
        if ins is None:
            return None
        with replay.Pins(v._memory for v in values):
            storages = program.make(ins, params)
        given = replay.note_call(program.launches[0].plan, values, region)
        made = dict(zip(program.made, storages, strict=True))
        recipes: dict[int, tuple[Recipe, int]] = {}  # by slot: what makes it
        for step, first in zip(program.steps, program.firsts, strict=True):
            if step.is_view:
                continue
            sources = []
            for slot in step.sources:
                root, skip = program.roots[slot]
                known = root < len(values)
                origin, index, at = given[root] if known else (*recipes[root], 0)
                sources.append((origin, index, at + skip))
            numbers = params if step.params is None else step.params
            recipe = Recipe(step.plan, numbers, tuple(sources), region.mark)
            slots = range(first, first + len(step.outs))
            recipes.update({slot: (recipe, i) for i, slot in enumerate(slots)})
            kept = region.rebuilds(step.plan)
            replay.adopt_all(recipe, [made.get(s) if kept else None for s in slots], region)
    return storages


refusal.EXPLAINED.update((_run_steps.__code__, Derivative.run_quietly.__code__))


def _place(program: Program, result: Reference) -> tuple[int, int, Spec | None]:
    """A result among the inputs and the made storages; the bytes into it, and a view's spec."""
    slot, skip, spec = program.rooted(result)
    count = len(program.given)
    number = slot if slot < count else count + program.made.index(slot)
    return number, skip, None if spec is program.specs[slot] and not skip else spec


def _names(letter: str, count: int) -> list[str]:
    return [f"{letter}{i}" for i in range(count)]


def _read(saves_out: int, saves_in: int, came: int, launches: bool, address: str) -> str:
    """Read the saves, test their versions, and take the addresses of all inputs as a0, a1, ..."""
    outs, ins = _names("r", saves_out), _names("s", saves_in)
    lines = [f"{', '.join(outs)}, = node.outs"] if outs else []
    lines += [f"{', '.join(ins)}, = node.saved"] if ins else []
    lines += [f"m{s} = {s}._memory" for s in ins]
    addresses = [
        *[f"{address.format(f'{g}._memory')} + {g}._offset" for g in _names("g", came)],
        *[f"{address.format(r)} + 0" for r in outs],
        *[f"{address.format(f'm{s}')} + {s}._offset" for s in ins],
    ]
    if launches:
        lines += [f"a{i} = {at}" for i, at in enumerate(addresses)]
    storages = [*outs, *[f"m{s}" for s in ins]]
    for i, storage in enumerate(storages):
        lines.append(f"version {'+=' if i else '='} {storage}.version")
    text = _READ.format(lines=indent("\n".join(lines), " " * 4)) if lines else ""
    return text + (_CHECK if storages else "")


def _result_over(program: Program, plan: Plan | None) -> int | None:
    """A result of the only kernel that may be written over the first input, or None.

    No result shows that input.
    """
    if plan is None or program.given[0] is not plan.ins[0]:
        return None
    if any(r is not None and program.roots[r.slot][0] == 0 for r in program.results):
        return None
    return next((i for i in range(len(plan.outs)) if writes_over(plan, i, 0)), None)


def _run_plan(plan: Plan, params: int, over: int | None, constants: dict[str, Any]) -> str:
    """Launch the one kernel; its results are out0, out1, ..."""
    outs = range(len(plan.outs))
    blocks = [plan.pool.blocks(room) for room in plan.rooms]
    constants |= {"plan": plan, "home": plan.pool}
    for letter, values in (
        ("blocks", blocks),
        ("room", plan.rooms),
        ("spec", plan.outs),
        ("n", plan.tail),
    ):
        constants |= zip(_names(letter, len(values)), values, strict=True)
    arguments = [
        *_names("address", len(outs)),
        *_names("a", len(plan.ins)),
        *_names("n", len(plan.tail)),
        *_names("p", params),
    ]
    taken = [template.take("0", i, "home", f"blocks{i}", f"room{i}") for i in outs]
    handles = [template.handle(i, f"spec{i}") + f"out{i}._node = None\n" for i in outs]
    if over is not None:
        taken[over] = _OVER.format(i=over, taken=indent(taken[over] + handles[over], " " * 4))
        handles[over] = ""
    return "".join(
        [
            f"{', '.join(_names('p', params))}, = node.params\n" if params else "",
            *taken,
            f"plan.launch({', '.join(arguments)})\n",
            *handles,
        ]
    )


def _run_program(program: Program, constants: dict[str, Any]) -> str:
    """Run all launches; the results are out0, out1, ..."""
    count = len(program.made)
    text = launch_code(program.launches, count, len(program.given), constants, "0", "node.params")
    for i, slot in enumerate(program.made):
        constants[f"spec{i}"] = program.specs[slot]
        text += template.handle(i, f"spec{i}") + f"out{i}._node = None\n"
    return text


def _parts(program: Program, came: int, over: int | None, constants: dict[str, Any]) -> list[str]:
    """An expression per operand: None, a present gradient, a result, or a view of one of them.

    A result of which one operand gets all, in its shape, has that shape from the start: its handle
    is made with it, and no view. Not so the result `over` which a gradient may be written.
    """
    places = [None if r is None else program.rooted(r) for r in program.results]
    owners = [None if p is None else p.slot for p in places]
    fresh: list[bool] = []
    inherited: list[bool] = []
    parts: list[str] = []
    for i, place in enumerate(places):
        if place is None:
            parts.append("None")
            fresh.append(False)
            inherited.append(False)
            continue
        slot, skip, spec = place
        number = program.made.index(slot) if slot >= came else -1
        name = f"g{slot}" if number < 0 else f"out{number}"
        whole = spec is program.specs[slot] and not skip
        lone = owners.count(slot) == 1
        if lone and number >= 0 and number != over and _is_reshape(program.specs[slot], place):
            whole, constants[f"spec{number}"] = True, spec
        alone = whole and lone
        fresh.append(alone and slot >= came)
        inherited.append(alone)
        if not whole:
            constants |= {f"view{i}": spec, f"skip{i}": skip}
            name = f"make_view({name}, view{i}, {name}._offset + skip{i})"
        parts.append(name)
    constants["fresh"] = tuple(fresh)
    if came == 1 and inherited != fresh:
        constants["inherited"] = tuple(inherited)
    return parts


def _is_reshape(made: Spec, place: Reference) -> bool:
    """Whether a place is all of what was made, in another shape."""
    whole = not place.offset and place.spec.numel == made.numel
    return whole and place.spec.contiguous and made.contiguous


def recall(
    node: Node, sums: dict[Any, Any], owned: Collection[Any], retain: bool, region: Any = None
) -> Parts | None:
    """The gradients of a node's operands by a program; None where the rule has to run.

    The present gradients are removed from `sums`, and the saves are freed unless the graph is
    retained. `owned` has the keys of `sums` whose gradient nobody else holds. For a pass that
    records nothing and has nothing special around it but a region.
    """
    quiet = region is not None and FORESIGHT.is_quiet and not region.listens
    g = sums.pop(node, None)
    if g is None:
        return _recall_several(node, sums, retain, quiet) if region is None or quiet else None
    programs = node.grad.programs
    if programs and node.dropped is None:
        found = programs.get(g._spec)
        if found is not None:
            mine = node in owned
            made: Parts | None
            if region is None:
                made = found.run(node, mine, g)
            elif quiet:
                made = found.run_quietly(node, mine, g)
            else:
                made = found.recall_in_region(node, mine, g, region)
            if made is not None:
                if not retain:
                    node.saved = None
                    node.outs = ()
                return made
    sums[node] = g
    return None


def _recall_several(node: Node, sums: dict[Any, Any], retain: bool, quiet: bool) -> Parts | None:
    """`recall` for a node with several results."""
    keys = [(node, i) for i in range(len(node.plan.outs))]
    grads = [sums.get(key) for key in keys]
    made = None if node.dropped is not None else by_program(node, grads, retain, quiet)
    if made is not None:
        for key in keys:
            sums.pop(key, None)
    return made


def by_program(
    node: Node, grads: Sequence[Value | None], retain: bool, quiet: bool = False
) -> Parts | None:
    """`recall` for a gradient, or None, per result of a node of which no save was dropped."""
    came = [g for g in grads if g is not None]
    if not came or not node.grad.programs:
        return None
    found = node.grad.programs.get(key_of(grads))
    made: Parts | None = None
    if found is not None:
        made = (found.run_quietly if quiet else found.run)(node, False, *came)
    if made is not None and not retain:
        node.saved = None
        node.outs = ()
    return made


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
