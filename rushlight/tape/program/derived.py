"""Derivatives without their Python: what a rule called last time for gradients and saves like these is called again.

# Note [Derived programs]
1. A rule is a pure function of gradients, saved values and what its plan fixes, so the second pass with the same specs is
   watched like a shortcut's first call (Note [Shortcuts]), and later ones run the calls that were noted.
2. Only where nothing is recorded and nothing special is set, and for rules without launch parameters. What the notes do
   not explain is never learned, and such a rule runs as it is.
3. Views are folded into the addresses of the calls that read them; an intermediate result goes with its last reader.
4. Which buffers are nobody else's is known when the program is made. Where all gradients come from launches, `quick_parts`
   does without values for the saves as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any

from rushlight.tape.program.shortcut import Program, noted_program
from rushlight.tape.record import call
from rushlight.tape.record.op import Grad, Plan
from rushlight.tape.record.state import STATE
from rushlight.tape.record.value import Value

MOST = 256  # programs per derivative; with ever new layouts it starts over

SEEN = object()  # run once with such operands
NEVER = object()  # not to be learned

Source = tuple[int, int]  # a slot, and bytes from where its value begins


class Derived:
    """A rule as launches over slots: the gradients and saves first, then every launch's results."""

    __slots__ = ("fresh", "launched", "parts", "steps")

    def __init__(self, program: Program, given: int, places: Sequence[int], count: int) -> None:
        where: list[Source] = [
            (i, 0) for i in range(given)
        ]  # of every slot of the program: in which of ours it lies
        specs: list[Any] = [None] * given  # of slots that are views
        steps: list[tuple[Plan, tuple[Any, ...], tuple[Source, ...]]] = []
        made = given
        for plan, params, sources in program.steps:
            if plan.launch is None:
                slot, offset = where[sources[0]]
                for spec, skip in zip(plan.outs, plan.offsets, strict=True):
                    where.append((slot, offset + skip))
                    specs.append(spec)
                continue
            steps.append((plan, params, tuple([where[s] for s in sources])))
            for _ in plan.outs:
                where.append((made, 0))
                specs.append(None)
                made += 1
        assert program.result.__class__ is not int
        self.parts: list[Any] = [None] * count
        for place, slot in zip(places, program.result[1], strict=True):
            self.parts[place] = (*where[slot], specs[slot])
        self.steps = _with_ends(steps, given, {part[0] for part in self.parts if part is not None})
        slots = [None if part is None else part[0] for part in self.parts]
        self.fresh = tuple(
            [
                p is not None and p[0] >= given and p[2] is None and slots.count(p[0]) == 1
                for p in self.parts
            ]
        )
        # Whether every gradient is a launch's whole result, in which case it is here which; else None.
        whole = all(p is None or (p[0] >= given and p[2] is None) for p in self.parts)
        self.launched = (
            tuple([None if p is None else p[0] - given for p in self.parts]) if whole else None
        )

    def launch(self, addresses: list[int]) -> list[Any]:
        """Every launch's results, from the addresses of what is given; None for those that nobody reads any more."""
        made: list[Any] = []
        given = len(addresses)
        for plan, params, sources, ends, take in self.steps:
            ins = [addresses[s] + skip for s, skip in sources] if take is None else take(addresses)
            if len(plan.outs) == 1:
                value = call.launch_one(plan, ins, params)
                made.append(value)
                addresses.append(value._memory.address)  # type: ignore[arg-type]
            else:
                for value in call.launch_at(plan, ins, params):
                    made.append(value)
                    addresses.append(value._memory.address)
            for slot in ends:
                made[slot - given] = None
        return made

    def run(self, values: Sequence[Value]) -> list[Value | None] | None:
        """A gradient per input; None where something is not as usual."""
        slots: list[Any] = list(values)
        addresses: list[int] = []
        for value in values:
            address = value._memory.address
            if address is None:  # dropped
                return None
            addresses.append(address + value._offset)
        slots += self.launch(addresses)
        return [
            None if part is None else _seen(slots[part[0]], part[1], part[2]) for part in self.parts
        ]


def _with_ends(steps: Sequence[Any], given: int, kept: set[int]) -> list[Any]:
    """The steps, each with the results that nobody reads after it, and what takes its operands' addresses."""
    last: dict[int, int] = {}
    made = given
    for number, (plan, _, sources) in enumerate(steps):
        for slot, _ in sources:
            last[slot] = number
        for _ in plan.outs:
            last[made] = number
            made += 1
    ends: list[list[int]] = [[] for _ in steps]
    for slot, number in last.items():
        if slot >= given and slot not in kept:
            ends[number].append(slot)
    return [(*step, tuple(end), _taker(step[2])) for step, end in zip(steps, ends, strict=True)]


def _taker(sources: Sequence[Source]) -> Any:
    """What takes the addresses of several sources at once, where each is a whole slot; else None."""
    whole = len(sources) > 1 and not any(skip for _, skip in sources)
    return itemgetter(*[slot for slot, _ in sources]) if whole else None


def _seen(value: Value, skip: int, spec: Any) -> Value:
    return value if spec is None else call.make_view(value, spec, value._offset + skip)


def quick_parts(
    node: Any, grads: Sequence[Value | None]
) -> tuple[list[Value | None], tuple[bool, ...]] | None:
    """What `parts_of` gives, and which of it is a buffer of its own; None where something is not as usual.

    For a walk that records nothing and has nothing special around it, of a node without hooks.
    """
    saved, grad = (
        node.saved,
        node.grad,
    )  # the saves are held here, whatever another thread's backward gives back
    programs = grad.programs
    if not programs or saved is None or node.dropped is not None or node.params:
        return None
    key: list[Any] = []
    addresses: list[int] = []
    given: list[Value] = []
    for g in grads:
        if g is not None:
            given.append(g)
        key.append(g is not None)
    version = 0
    try:
        for g in given:
            key.append(g._spec)
            addresses.append(g._memory.address + g._offset)  # type: ignore[operator]
        outs = node.outs
        if outs:
            specs = node.plan.outs
            for j, storage in zip(grad.saves_out, outs, strict=True):
                key.append(specs[j])
                version += storage.version
                addresses.append(storage.address + 0)
        for value in saved:
            storage = value._memory
            key.append(value._spec)
            version += storage.version
            addresses.append(storage.address + value._offset)
    except TypeError:  # dropped
        return None
    found = programs.get(tuple(key))
    if found.__class__ is not Derived or found.launched is None or version != node.version:
        return None
    made = found.launch(addresses)
    return [None if slot is None else made[slot] for slot in found.launched], found.fresh


def parts_of(
    grad: Grad, grads: list[Value | None], outs: Sequence[Value], saved: Sequence[Value], rule: Any
) -> Any:
    """What `rule()` gives: a gradient per input, or None; by a program where there is one."""
    programs = grad.programs
    state = STATE.get()
    if programs is None or state.special or state.grad:
        return rule()
    values = [*[g for g in grads if g is not None], *outs, *saved]
    key = (*[g is not None for g in grads], *[v._spec for v in values])
    found = programs.get(key)
    if found.__class__ is Derived:
        parts = found.run(values)
        return rule() if parts is None else parts
    if found is NEVER:
        return rule()
    if found is None:
        if len(programs) >= MOST:
            programs.clear()
        programs[key] = SEEN
        return rule()
    parts, program, places = noted_program(rule, values)
    programs[key] = NEVER if program is None else Derived(program, len(values), places, len(parts))
    return parts
