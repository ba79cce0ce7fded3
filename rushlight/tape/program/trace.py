"""A function's calls as a Program.

# Note [Traces]
1. While `State.trace` is a list, every call goes through `call.run`, which notes it there. A pure
   function of tensors and static arguments makes the same calls whenever the specs and the static
   arguments are the same, so its notes are a Program. Autocast is off inside.
2. There is no Program where the notes do not determine the result: an in-place write or a read of
   elements (`impure`), an operand that is neither an input nor the result of a noted call, one
   tensor in two positions, a step in another grad mode than the function's, a view that may reach
   beyond its source, a leaf that was made inside, launch parameters computed from the call's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rushlight.tape.program.program import Program, Reference, Step
from rushlight.tape.record.state import STATE, Changed, Noted
from rushlight.tape.record.value import Leaf, Value


def trace(
    function: Callable[[], Any],
    values: Sequence[Value],
    params: tuple[Any, ...] = (),
    casts: bool = False,
) -> tuple[Any, Program | None]:
    """The result of `function()`, and its program over `values`, or None.

    The result is a value, or a tuple or list of values and None. `params` are launch parameters
    that the function passes on. `casts`: autocast, where it is on, is on inside.
    """
    notes: list[Noted | None] = []
    with Changed(trace=notes, autocast=STATE.get().autocast if casts else None):
        made = function()
    return made, _program(notes, values, made, params)


def _program(
    notes: Sequence[Noted | None], values: Sequence[Value], made: Any, params: tuple[Any, ...]
) -> Program | None:
    slots: dict[int, int] = {id(value): i for i, value in enumerate(values)}
    if len(slots) < len(values):
        return None
    grad = STATE.get().grad
    steps: list[Step] = []
    count = len(values)
    for note in notes:
        if note is None or note[0].beyond:
            return None
        plan, inputs, numbers, results, mode = note
        sources = tuple([slots.get(id(v), -1) for v in inputs])
        own = bool(params) and numbers is params
        if mode is not grad or -1 in sources or (params and numbers and not own):
            return None
        parts = results if results.__class__ is tuple else (results,)
        steps.append(Step(plan, None if own else numbers, sources, tuple([v._spec for v in parts])))
        for value in parts:
            slots[id(value)] = count
            count += 1
    results = []
    for value in made if isinstance(made, (tuple, list)) else (made,):
        if value is None:
            results.append(None)
            continue
        slot = slots.get(id(value), -1) if isinstance(value, Value) else -1
        if slot < 0 or (slot >= len(values) and value._node.__class__ is Leaf):
            return None
        results.append(Reference(slot, 0, value._spec))
    return Program([v._spec for v in values], steps, results)
