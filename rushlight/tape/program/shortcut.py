"""Composed ops without their Python: what a function called last time for operands like these is called again.

# Note [Shortcuts]
1. A pure function of tensors and static arguments makes the same calls whenever the operands' specs and the static
   arguments are the same. Its first call is watched (`State.watch`): every call of an op goes through `call.run`, which
   notes it. From the notes comes a `Program`; later calls run that and skip the checks and the choosing.
2. A program runs its plans as `call.run` does: the same kernels, the same records, the same recipes in a region.
   Where nothing is recorded it launches them directly.
3. What the notes do not explain is not learned: a write in place or a read of elements (`impure`), an operand that is
   neither an argument nor the result of a noted call, a tensor given as two arguments, a step in another grad mode than
   the call's, a static argument that is no plain number, text, type or tuple of those.
4. Which functions get a shortcut is a list (`ops/surface/shortcuts.py`), not a guess: random ops must not.
5. Autocast chooses by its own state, so under it, as while watching, the function itself runs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from rushlight.core.dtypes import DType, when_default_changes
from rushlight.core.errors import SparseOperandError
from rushlight.tape.program.composed import SMALL, Composition, compose
from rushlight.tape.record import call
from rushlight.tape.record.op import Plan
from rushlight.tape.record.state import STATE, Changed, Noted, State
from rushlight.tape.record.value import Leaf, Value, history_of

MOST = 2048  # programs per function; a program that sees ever new shapes starts over
PLAIN: list[type] = [
    int,
    float,
    bool,
    str,
    type(None),
    DType,
]  # what static arguments may be; `Tensor` adds its device

new = object.__new__


class Program:
    """Steps over slots: the arguments' tensors first, then every step's results."""

    __slots__ = ("composition", "only", "pair", "result", "steps")

    def __init__(
        self, steps: Sequence[tuple[Plan, tuple[Any, ...], tuple[int, ...]]], result: Any
    ) -> None:
        self.steps = tuple(steps)
        self.result = result  # a slot, or a maker and slots
        self.composition: Composition | None = (
            None  # the steps as one record: see Note [Composed records]
        )
        alone = len(steps) == 1 and not steps[0][1] and len(steps[0][0].outs) == 1
        self.only = (
            steps[0][0] if alone and steps[0][2] == (0,) and result == 1 else None
        )  # the one step op(x)
        self.pair = (
            steps[0][0] if alone and steps[0][2] == (0, 1) and result == 2 else None
        )  # the one step op(x, y)


Tables = tuple[dict[Any, Program], dict[Any, Program]]  # without and with gradients
_EVERY: list[Tables] = []


def _new_tables() -> Tables:
    made: Tables = ({}, {})
    _EVERY.append(made)
    return made


def _forget_programs() -> None:
    """Learn everything anew: the default type has changed, which decides what integers become among floats."""
    for tables in _EVERY:
        for table in tables:
            table.clear()


when_default_changes.append(_forget_programs)


NEVER = Program((), 0)  # of a call that the notes did not explain: the function runs


def shortcut(
    function: Callable[..., Any], defaults: Callable[[], Any] | None = None
) -> Callable[..., Any]:
    """`function`, with a program per kind of call; for functions of any tensors.

    `defaults` says on what else than its arguments the result depends.
    """
    tables = _new_tables()
    batched = _new_tables()  # of calls inside `vmap`

    @functools.wraps(function)
    def quick(*args: Any, **named: Any) -> Any:
        state = STATE.get()
        if state.special and not state.regional:
            return (
                in_vmap(function, args, named, batched, defaults)
                if state.batch
                else function(*args, **named)
            )
        values: list[Value] = []
        parts: list[Any] = [] if defaults is None else [defaults()]
        try:
            for a in args:
                if isinstance(a, Value):
                    values.append(a)
                    parts.append(a._spec)
                elif a.__class__ is list or a.__class__ is tuple:
                    for b in a:
                        if isinstance(b, Value):
                            values.append(b)
                            parts.append(b._spec)
                        else:
                            parts.append(
                                (b.__class__, b if b.__class__ is not float or b else str(b))
                            )
                    parts.append((a.__class__, len(a)))  # no bare number, or (2,) would be 2, 1
                else:  # 0, 0.0, -0.0 and False are equal, and not the same
                    parts.append((a.__class__, a if a.__class__ is not float or a else str(a)))
            for name, a in named.items():
                if isinstance(a, Value):
                    values.append(a)
                    a = a._spec
                parts.append((name, a.__class__, a if a.__class__ is not float or a else str(a)))
            key = tuple(parts)
            table = tables[state.grad]
            found = table.get(key)
        except (
            TypeError,
            SparseOperandError,
        ):  # something in it has no hash, or no spec: see Note [Sparse operands]
            return function(*args, **named)
        if state.special:
            return in_region(function, args, named, values, table, key)
        if found is None:
            return learn(function, args, named, values, table, key)
        return function(*args, **named) if found is NEVER else run_program(found, values, state)

    return quick


def shortcut_of_one(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same for functions whose one tensor comes first: views and reductions, where every tenth of a microsecond counts."""
    tables = _new_tables()
    batched = _new_tables()  # of calls inside `vmap`
    get_state = STATE.get

    @functools.wraps(function)
    def quick(input: Any = None, *rest: Any, **named: Any) -> Any:
        state = get_state()
        if state.special:
            args = (
                rest if input is None else (input, *rest)
            )  # the first argument may have come by another name
            if state.regional and isinstance(input, Value) and hasattr(input, "_memory"):
                return in_region(
                    function,
                    args,
                    named,
                    [input],
                    tables[state.grad],
                    _key_of_one(input, rest, named),
                )
            return (
                in_vmap(function, args, named, batched) if state.batch else function(*args, **named)
            )
        table = tables[state.grad]
        try:
            if named or (rest and rest[0].__class__ is not int):
                key = _key_of_one(input, rest, named)
            else:
                key = (input._spec, rest)
            found = table[key]
        except KeyError:
            return learn(function, (input, *rest), named, [input], table, key)
        except (AttributeError, TypeError):  # not a tensor, or something that has no hash
            return function(*(rest if input is None else (input, *rest)), **named)
        plan = found.only
        base = input._base
        if plan is None or (state.grad and _is_stale(input, base)):
            return (
                function(input, *rest, **named)
                if found is NEVER
                else run_program(found, [input], state)
            )
        if plan.launch is None:
            out = new(call.Handle)
            out._spec = plan.out
            out._memory = input._memory
            out._offset = input._offset + plan.offsets[0]
            out._base = input if base is None else base
            out._history = history_of(input)
        else:
            source = input._memory.address
            if source is None:
                return call.run(plan, (input,))
            out = call.launch_at(plan, (source + input._offset,), (), state.birth)
        edge = input._node
        if edge is None or not state.grad or not plan.out.differentiable:
            out._node = None
            return out
        grad = plan.grads.get(1) or plan.grad(1)
        out._node = call.make_node(
            plan, (), (edge,), grad, (input,) if grad.saves_in else (), out._memory
        )
        return out

    return quick


def _key_of_one(input: Any, rest: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """1, 1.0 and True are equal, but not each of them is a dimension: classes are told apart."""
    if not named and (not rest or rest[0].__class__ is int):
        return input._spec, rest
    return (
        input._spec,
        rest,
        rest[0].__class__ if rest else None,
        *[(name, a.__class__, a) for name, a in named.items()],
    )


def shortcut_of_two(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same for functions of two tensors, the first and the last of their positional arguments."""
    tables = _new_tables()
    batched = _new_tables()  # of calls inside `vmap`
    get_state = STATE.get

    @functools.wraps(function)
    def quick(input: Any = None, *rest: Any, **named: Any) -> Any:
        state = get_state()
        if state.special or named:
            args = (
                rest if input is None else (input, *rest)
            )  # the first argument may have come by another name
            if (
                state.regional
                and not named
                and rest
                and all(hasattr(v, "_memory") for v in (input, rest[-1]))
            ):
                key = (input._spec, rest[-1]._spec, rest[:-1])
                return in_region(function, args, named, [input, rest[-1]], tables[state.grad], key)
            return (
                in_vmap(function, args, named, batched) if state.batch else function(*args, **named)
            )
        table = tables[state.grad]
        try:
            y = rest[-1]
            key = (input._spec, y._spec, rest[:-1])
            found = table[key]
        except KeyError:
            return learn(function, (input, *rest), named, [input, y], table, key)
        except (AttributeError, TypeError, IndexError):
            return function(*(rest if input is None else (input, *rest)), **named)
        plan = found.pair
        if plan is None or plan.launch is None or (state.grad and _is_recorded(input, y)):
            return (
                function(input, *rest) if found is NEVER else run_program(found, [input, y], state)
            )
        first, second = input._memory.address, y._memory.address
        if first is None or second is None:
            return call.run(plan, (input, y))
        return call.launch_at(plan, (first + input._offset, second + y._offset), (), state.birth)

    return quick


def _is_recorded(x: Value, y: Value) -> bool:
    return (
        x._node is not None or y._node is not None or _is_stale(x, x._base) or _is_stale(y, y._base)
    )


def _is_stale(x: Value, base: Value | None) -> bool:
    """Whether the base was written to since x was made as a view of it: then x has a record after all, or a new one."""
    return base is not None and history_of(x) != history_of(base)


# ---- running ----


def run_program(program: Program, values: list[Value], state: State) -> Any:
    composition = program.composition
    if composition is not None and composition.alone and program.result.__class__ is int:
        return composition.run_alone(values, state)
    slots: Any = list(values)
    birth = state.birth
    if composition is not None:
        slots = composition.run(values, state)
    elif state.grad and any(v._node is not None or _is_stale(v, v._base) for v in values):
        for plan, params, sources in program.steps:
            _recorded_step(slots, plan, params, sources)
    else:
        for plan, params, sources in program.steps:
            _step(slots, plan, params, sources, birth)
    result = program.result
    if result.__class__ is int:
        return slots[result]
    make, numbers = result
    return make([slots[i] for i in numbers])


def _recorded_step(
    slots: list[Any], plan: Plan, params: tuple[Any, ...], sources: tuple[int, ...]
) -> None:
    inputs = [slots[s] for s in sources]
    if len(plan.outs) > 1:
        slots.extend(call.run(plan, inputs, params))
        return
    before = len(slots)
    _step(slots, plan, params, sources)
    made = slots[before]
    if made._node is None:
        made._node = call.record(plan, inputs, params, (made._memory,))


def _step(
    slots: list[Any], plan: Plan, params: tuple[Any, ...], sources: tuple[int, ...], birth: int = 0
) -> None:
    """One step where nothing is recorded."""
    if plan.launch is None:
        x = slots[sources[0]]
        for spec, skip in zip(plan.outs, plan.offsets, strict=True):
            slots.append(call.make_view(x, spec, x._offset + skip))
        return
    ins = []
    for s in sources:
        value = slots[s]
        address = value._memory.address
        if address is None:  # dropped
            made = call.run(plan, [slots[s] for s in sources], params)
            slots.extend(made if len(plan.outs) > 1 else (made,))
            return
        ins.append(address + value._offset)
    made = call.launch_at(plan, ins, params, birth)
    if len(plan.outs) > 1:
        slots.extend(made)
    else:
        slots.append(made)


# ---- inside a region ----


def in_region(
    function: Callable[..., Any],
    args: Sequence[Any],
    named: dict[str, Any],
    values: list[Value],
    table: dict[Any, Program],
    key: Any,
) -> Any:
    """A call in a checkpoint, a budget or under hooks of saves: composed as it is outside. See Note [Composed records] 4."""
    try:
        found = table.get(key)
    except TypeError:  # something in it has no hash
        return function(*args, **named)
    if found is None and sum(v._spec.nbytes for v in values) <= SMALL:
        if STATE.get().saving is None:
            return learn(function, args, named, values, table, key)
        with Changed(saving=None, region=None):  # the user's hooks see only what is recorded
            learn(function, args, named, values, table, key)
        found = table.get(key)
    if found is None or found.composition is None:
        return function(*args, **named)
    return run_program(found, values, STATE.get())


# ---- inside vmap ----


def in_vmap(
    function: Callable[..., Any],
    args: Sequence[Any],
    named: dict[str, Any],
    tables: Tables,
    defaults: Callable[[], Any] | None = None,
) -> Any:
    """A shortcut of a call that may have batched operands, where nothing but a `vmap` is around. See Note [Batching]."""
    state = STATE.get()
    if any(x is not None for x in (state.region, state.autocast, state.watch, state.saving)):
        return function(*args, **named)
    values: list[Value] = []
    try:
        parts = [None if defaults is None else defaults(), *[_key_part(a, values) for a in args]]
        key = (*parts, *[(name, _key_part(a, values)) for name, a in named.items()])
        found = tables[state.grad].get(key)
    except (TypeError, SparseOperandError):
        return function(*args, **named)
    if found is None:
        return learn(function, args, named, values, tables[state.grad], key)
    if found is NEVER:
        return function(*args, **named)
    slots: list[Any] = list(values)
    for plan, params, sources in found.steps:
        made = call.run(plan, [slots[s] for s in sources], params)
        if made.__class__ is tuple:
            slots.extend(made)
        else:
            slots.append(made)
    result = found.result
    if result.__class__ is int:
        return slots[result]
    make, numbers = result
    return make([slots[i] for i in numbers])


def _key_part(a: Any, values: list[Value]) -> Any:
    if isinstance(a, Value):
        values.append(a)
        return a._spec
    if a.__class__ is list or a.__class__ is tuple:
        return (a.__class__, *[_key_part(b, values) for b in a])
    return (a.__class__, a if a.__class__ is not float or a else str(a))


# ---- learning ----


def learn(
    function: Callable[..., Any],
    args: Sequence[Any],
    named: dict[str, Any],
    values: list[Value],
    table: dict[Any, Program],
    key: Any,
) -> Any:
    """Call the function, and keep a program of it where its calls explain its result."""
    handles = values
    twins: dict[int, Value] = {}
    if len(values) > 1 and len({id(v) for v in values}) < len(values):
        if any(
            v._spec.hidden for v in values
        ):  # a batch is more than its memory: it has no second handle
            return function(*args, **named)
        args, named, handles, twins = _apart(args, named)
    notes: list[Noted | None] = []
    with Changed(watch=notes):
        result = function(*args, **named)
    count = _count_values(args, named.values())
    if count is not None and count == len(values):
        program = _program(notes, handles, result, STATE.get().grad)
        if program is not None:
            numbers = (program.result,) if program.result.__class__ is int else program.result[1]
            name = getattr(function, "__name__", "composed")
            program.composition = compose(name, program.steps, [v._spec for v in values], numbers)
            _keep(table, key, program)
            made = result if isinstance(result, (tuple, list)) else (result,)
            if twins or (
                program.composition is not None and any(v._node is not None for v in made)
            ):
                del notes, result, made
                return run_program(program, values, STATE.get())
        else:
            _keep(table, key, NEVER)
    if twins:
        return _without(twins, result)
    return result


def _keep(table: dict[Any, Program], key: Any, program: Program) -> None:
    if len(table) >= MOST:
        table.clear()
    table[key] = program


def _apart(
    args: Sequence[Any], named: dict[str, Any]
) -> tuple[Any, Any, list[Value], dict[int, Value]]:
    """The arguments with a handle of its own for every place of a tensor given twice: which was used for what can be told.

    Also all tensors in order, and the given ones by the handles' identities."""
    seen: set[int] = set()
    values: list[Value] = []
    twins: dict[int, Value] = {}

    def apart(a: Any) -> Any:
        if a.__class__ is list or a.__class__ is tuple:
            return a.__class__([apart(b) for b in a])
        if isinstance(a, Value):
            if id(a) in seen:
                twin = call.make_value(a._spec, a._memory, a._offset, a._node)
                twin._base, twin._history = a._base, history_of(a)
                twins[id(twin)] = a
                a = twin
            seen.add(id(a))
            values.append(a)
        return a

    return [apart(a) for a in args], {name: apart(a) for name, a in named.items()}, values, twins


def _without(twins: dict[int, Value], result: Any) -> Any:
    """A result with the given tensors in place of their twins."""
    if isinstance(result, (tuple, list)) and any(id(v) in twins for v in result):
        maker: Any = getattr(type(result), "_make", type(result))
        return maker([twins.get(id(v), v) for v in result])
    return twins.get(id(result), result)


def noted_program(
    rule: Callable[[], Any], values: list[Value]
) -> tuple[Any, Program | None, list[int]]:
    """What `rule()` gives, a list of values and None; a program for the values among it, if its calls explain them, and
    their places. For Note [Derived programs]."""
    notes: list[Noted | None] = []
    with Changed(watch=notes):
        parts = rule()
    places = [i for i, part in enumerate(parts) if part is not None]
    program = None
    if len({id(v) for v in values}) == len(values):
        program = _program(notes, values, tuple([parts[i] for i in places]), STATE.get().grad)
    return parts, program, places


def _count_values(*arguments: Any) -> int | None:
    """How many tensors are among arguments, if all others are plain.

    More of them than the key has specs of (a tensor in an int's place) are not learned: the key would keep them alive."""
    count = 0
    for several in arguments:
        for a in several:
            if isinstance(a, (list, tuple)):
                inside = _count_values(a)
                if inside is None:
                    return None
                count += inside
            elif isinstance(a, Value):
                count += 1
            elif a.__class__ not in PLAIN:
                return None
    return count


def _program(
    notes: list[Noted | None], values: list[Value], result: Any, grad: bool
) -> Program | None:
    slot_of: dict[int, int] = {}
    for i, value in enumerate(values):
        slot_of.setdefault(id(value), i)
    steps = []
    count = len(values)
    for note in notes:
        if (
            note is None or note[0].beyond
        ):  # whether a view beyond its input is allowed depends on the storage
            return None
        plan, inputs, params, made, mode = note
        sources = tuple([slot_of.get(id(v), -1) for v in inputs])
        if mode is not grad or -1 in sources:
            return None
        steps.append((plan, params, sources))
        for value in made if isinstance(made, tuple) else (made,):
            slot_of[id(value)] = count
            count += 1
    if isinstance(result, Value):
        place = slot_of.get(id(result), -1)
        made_a_leaf = place >= len(values) and type(result._node) is Leaf
        return None if place < 0 or made_a_leaf else Program(steps, place)
    if not isinstance(result, (tuple, list)) or not all(isinstance(v, Value) for v in result):
        return None
    places = [slot_of.get(id(v), -1) for v in result]
    maker: Any = getattr(type(result), "_make", type(result))
    return None if -1 in places else Program(steps, (maker, tuple(places)))
