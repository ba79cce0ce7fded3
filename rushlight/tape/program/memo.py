"""Functions of tensors that skip their Python once their calls are known.

# Note [Memo]
1. `memo(function)` keeps a program (Note [Programs]) for each kind of call of a pure function. The first call is traced; later
   ones run the program. The function must draw no random numbers, read no elements, write to nothing, and depend on nothing that
   can be set but the default type, and what `depends` gives.
2. A kind of call is the specs of the tensors, the other arguments and their classes (1, 1.0 and True are equal but not the same, as
   are 0.0 and -0.0), and the grad mode. Code that makes this key is generated from the function's parameters at its first call:
   a test per argument costs a tenth of a loop. A call that a trace does not explain is kept as unknown and runs the function.
3. Autocast, dual levels and traces choose by their own state: there the function runs. In a region, under hooks of saves and inside
   `vmap` programs run as calls (`call.run`).
4. A program of one step is that step's plan. One whose operands and results are small together (`SMALL`) runs as one plan and is one
   record (`Program.as_plan`): each step's record would cost more than its work. Any other runs step by step.
5. Sums of gradients have another order in one record than along single ones. So whether a call is one record follows from the
   specs and the static arguments alone: the traced call is done again where it was recorded, and calls in a checkpoint, in a
   budget or under hooks of saves are composed like any others.
6. Views at the end of a program stay views of their own; those that show a whole launch's result in another shape are that
   result's shape.
"""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections.abc import Callable, Iterable, Sequence
from textwrap import indent
from typing import Any

from rushlight.core.dtypes import DType
from rushlight.core.errors import SparseOperandError
from rushlight.core.shapes import Spec
from rushlight.tape.program.program import Program, ProgramOp, Step
from rushlight.tape.program.trace import trace
from rushlight.tape.record import call
from rushlight.tape.record.cache import Cache
from rushlight.tape.record.needed import edge_of
from rushlight.tape.record.op import Plan
from rushlight.tape.record.place import OURS
from rushlight.tape.record.state import STATE, Changed, State
from rushlight.tape.record.value import Output, Value, history_of

SMALL = 4 << 20  # bytes of all operands and results of the steps, together
PLAIN: list[type] = [
    int,
    float,
    bool,
    str,
    type(None),
    DType,
]  # what static arguments may be; `Tensor` adds its device


# ---- one kind of call ----


class Known:
    """A kind of call: its program, as one plan where it is one, and the views behind it."""

    __slots__ = (
        "alone",
        "core",
        "differentiable",
        "make",
        "op",
        "plan",
        "plans",
        "program",
        "views",
    )

    def __init__(self, name: str, program: Program, make: Callable[..., Any] | None) -> None:
        self.program = program
        self.make = make  # what puts several results together
        self.core, self.views = _composed(program)
        self.alone = (
            self.core is not None
            and make is None
            and not self.views
            and len(self.core.results) == 1
        )
        self.plan = (
            self.core.only if self.alone and self.core is not None else None
        )  # where one plan does for all operands
        self.plans: dict[int, Plan] = {}  # by the operands that need gradients
        if self.core is not None:
            first = self.core.results[0]
            self.differentiable = first is not None and bool(first.spec.differentiable)
            self.op = ProgramOp(name, self.core)

    def run(self, values: Sequence[Value], state: State) -> Any:
        if self.alone:
            return self._run_alone(values, state)
        if self.core is None:
            results = self.program.call(values)
        else:
            results = self._by_core(values, state)
        return results[0] if self.make is None else self.make(results)

    def _run_alone(self, values: Sequence[Value], state: State) -> Value:
        """The one result of one plan."""
        if state.special:
            return self._core_results(values, state)[0]
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
            return self._core_results(values, state)[0]
        plan = self.plan or self.plans.get(needs) or self._plan(needs)
        if plan.launch is None:
            return call.run(plan, values)
        if not needs:
            return call.launch_one(plan, ins, (), state.birth)
        if len(plan.outs) == 1:
            made = call.launch_one(plan, ins, (), 0)
            made._node = call.record(plan, values, (), (made._memory,))
            return made
        storages = [call.make_storage(plan.pool, room) for room in plan.rooms]
        plan.launch(*[s.address for s in storages], *ins, *plan.tail)
        node: Any = call.record(plan, values, (), storages)
        return call.make_value(plan.out, storages[0], 0, Output(node, 0))

    def _plan(self, needs: int) -> Plan:
        assert self.core is not None
        plan = self.plans[needs] = self.core.as_plan(self.op, needs)
        return plan

    def _core_results(self, values: Sequence[Value], state: State) -> Sequence[Value]:
        needs = 0
        if state.grad and self.differentiable:
            needs = sum(1 << i for i, value in enumerate(values) if edge_of(value) is not None)
        made = call.run(self.plan or self.plans.get(needs) or self._plan(needs), values)
        return made if made.__class__ is tuple else (made,)

    def _by_core(self, values: Sequence[Value], state: State) -> list[Any]:
        """The program's results by its one plan, and the views behind it."""
        assert self.core is not None
        slots: dict[int, Any] = dict(enumerate(values))
        made = self._core_results(values, state)
        slots.update(zip([r.slot for r in self.core.results if r is not None], made, strict=False))
        for first, (plan, params, sources, _) in self.views:
            shown = call.run(plan, [slots[s] for s in sources], params or ())
            slots.update(enumerate(shown if shown.__class__ is tuple else (shown,), first))
        return [None if r is None else slots[r.slot] for r in self.program.results]


def _composed(program: Program) -> tuple[Program | None, tuple[tuple[int, Step], ...]]:
    """The steps up to the views at the end as a program that may be one record, and those views, each with the slot of its first
    result; None where the steps are to stay as they are. See Note [Memo] 4."""
    if program.only is not None:
        return program, ()
    given, steps = program.given, program.steps
    if len(steps) < 2 or any(spec.hidden for spec in program.specs):
        return None, ()
    owned = [spec for i, spec in enumerate(program.specs) if program.roots[i][0] == i]
    if sum(spec.nbytes for spec in owned) > SMALL:
        return None, ()
    end = len(steps)
    while end and steps[end - 1].is_view:
        end -= 1
    # A view at the end that shows a whole result is that result's shape; it is told from others by what it shows.
    while end < len(steps) and all(
        program.shows_whole(program.firsts[end] + j) for j in range(len(steps[end].outs))
    ):
        end += 1
    core, views = steps[:end], steps[end:]
    made = program.firsts[end] if views else len(program.specs)
    if len(core) < 2 or all(step.is_view for step in core):
        return None, ()
    wanted = [s for step in views for s in step.sources] + [
        r.slot for r in program.results if r is not None
    ]
    shown = sorted({s for s in wanted if len(given) <= s < made})
    roots = [program.roots[s][0] for s in shown]
    if not shown or len(set(roots)) < len(roots) or not all(map(program.shows_whole, shown)):
        return None, ()
    pools = {id(step.plan.pool) for step in core} | {id(spec.device) for spec in given}
    flags = [program.specs[s].differentiable for s in shown]
    if len(pools) > 1 or (any(flags) and not flags[0]):
        return None, ()
    if any(flags) and not _all_followed(core, given, shown):
        return None, ()
    behind = tuple(zip(program.firsts[end:], views, strict=True))
    return Program(given, core, [program.whole(s) for s in shown]), behind


def _all_followed(steps: Sequence[Step], given: Sequence[Spec], results: Sequence[int]) -> bool:
    """Whether gradients of the results can come from every operand that has any: one seen only through integers has no record."""
    masks = [1 << i if spec.differentiable else 0 for i, spec in enumerate(given)]
    every, followed = sum(masks), 0
    for step in steps:
        mask = 0
        for source in step.sources:
            mask |= masks[source]
        masks += [mask if spec.differentiable else 0 for spec in step.outs]
    for result in results:
        followed |= masks[result]
    return followed == every


# ---- calls ----


class Memo:
    """What `memo` knows of one function."""

    __slots__ = ("depends", "function", "public", "tables")

    def __init__(self, function: Callable[..., Any], depends: Callable[[], Any] | None) -> None:
        self.function = function
        self.public: Any = None  # what is called
        self.depends = depends  # gives what else than its arguments the result depends on
        self.tables = Cache(), Cache()  # without and with gradients

    def specialised(self) -> Callable[..., Any]:
        """The public function, with code for its own parameters from here on."""
        code, count, by_name = _code(self.function, self.depends is not None)
        public = self.public
        # In this order another thread, which may be calling it, meets either the old code or all of the new.
        public.__defaults__ = (ABSENT,) * count
        public.__kwdefaults__ = dict.fromkeys(by_name, ABSENT)
        public.__code__ = code
        return self.public

    def call(
        self, args: Sequence[Any], named: dict[str, Any], values: Sequence[Value], key: Any
    ) -> Any:
        """A call that is not known, or has something special around it."""
        state = STATE.get()
        if not _may_recall(state):
            return self.function(*args, **named)
        table = self.tables[state.grad]
        try:
            found = table.get(key, table)
        except TypeError:  # something in it has no hash
            found = None
        if found is table:
            found = None
            if not state.regional:
                return self.learn(args, named, values, table, key)
            if sum(v._spec.nbytes for v in values) <= SMALL:
                if state.saving is None:
                    return self.learn(args, named, values, table, key)
                with Changed(
                    saving=None, region=None
                ):  # the user's hooks see only what is recorded
                    self.learn(args, named, values, table, key)
                found = table.get(key)
        if found is None or (state.regional and found.core is None):
            return self.function(*args, **named)
        return found.run(values, state)

    def call_any(self, args: Sequence[Any], named: dict[str, Any]) -> Any:
        """A call whose arguments have no place of their own in the key."""
        if not _may_recall(STATE.get()):
            return self.function(*args, **named)
        values: list[Value] = []
        try:
            key = (
                *[part(a, values) for a in args],
                *[(name, part(a, values)) for name, a in named.items()],
            )
        except (
            AttributeError,
            SparseOperandError,
        ):  # no tensor, or one without a spec: see Note [Sparse operands]
            return self.function(*args, **named)
        return self.call(
            args, named, values, key if self.depends is None else (self.depends(), *key)
        )

    def learn(
        self,
        args: Sequence[Any],
        named: dict[str, Any],
        values: Sequence[Value],
        table: Cache,
        key: Any,
    ) -> Any:
        """Call the function, and keep a program of it where its calls explain its result."""
        handles: Sequence[Value] = values
        twins: dict[int, Value] = {}
        function = self.function
        if len(values) > 1 and len({id(v) for v in values}) < len(values):
            if any(
                v._spec.hidden for v in values
            ):  # a batch is more than its memory: it has no second handle
                return function(*args, **named)
            args, named, handles, twins = _apart(args, named)
        result, program = trace(lambda: function(*args, **named), handles)
        count = _count_values(args, named.values())
        if count is not None and count == len(values):
            if program is None:
                table.keep(key, None)
            else:
                maker = (
                    getattr(type(result), "_make", type(result))
                    if isinstance(result, (tuple, list))
                    else None
                )
                known = table.keep(
                    key, Known(getattr(function, "__name__", "composed"), program, maker)
                )
                made = result if isinstance(result, (tuple, list)) else (result,)
                if twins or (
                    len(program.steps) > 1
                    and known.core is not None
                    and any(_has_record(v) for v in made)
                ):
                    del result, made
                    return known.run(values, STATE.get())
        return _without(twins, result) if twins else result


def _may_recall(state: State) -> bool:
    """Whether programs may run: see Note [Memo] 3."""
    if state.autocast is not None or state.trace is not None or state.dual is not None:
        return False
    return not state.batch or (state.region is None and state.saving is None)


def _has_record(value: Any) -> bool:
    return value is not None and not value._spec.hidden and value._node is not None


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


def part(a: Any, values: list[Value]) -> Any:
    """An argument's part of a key; `values` gets the tensors in it."""
    if isinstance(a, Value):
        values.append(a)
        return a._spec
    if a.__class__ is list or a.__class__ is tuple:
        return (a.__class__, *[part(b, values) for b in a])
    return (a.__class__, a if a.__class__ is not float or a else str(a))


# ---- the code of a memo ----


class Absent:
    """In a parameter's place: the call does not give it."""

    __slots__ = ()


ABSENT = Absent()
SURE = frozenset(
    [int, type(None), Absent]
)  # classes of which no two have equal members: those need no class in a key
new = object.__new__
get_state = STATE.get
launch_one, make_node = call.launch_one, call.make_node


def memo(
    function: Callable[..., Any], depends: Callable[[], Any] | None = None
) -> Callable[..., Any]:
    """The function, which runs the program of calls that are known. See Note [Memo].

    `depends` says on what else than its arguments the result depends.
    """
    _memo = Memo(function, depends)

    @functools.wraps(function)
    def quick(*args: Any, **named: Any) -> Any:
        return _memo.specialised()(*args, **named)

    _memo.public = quick
    return quick


def static_part(a: Any) -> Any:
    """The part of a key of an argument that is no tensor."""
    if isinstance(a, Value):
        raise TypeError  # it is read, so the call is no kind of its own
    if a.__class__ is list or a.__class__ is tuple:
        return (a.__class__, *map(static_part, a))
    return (a.__class__, a if a.__class__ is not float or a else str(a))


def given(
    names: Sequence[str],
    values: Sequence[Any],
    count: int,
    rest: Sequence[Any],
    named: dict[str, Any],
) -> tuple[list[Any], dict[str, Any]]:
    """A call as it was made, but for what was given by name and could be given by place: `count` parameters could."""
    args: list[Any] = []
    for value in values[:count]:
        if value is ABSENT:
            break
        args.append(value)
    begun = len(args)
    more = {n: v for n, v in zip(names[begun:], values[begun:], strict=True) if v is not ABSENT}
    return [*args, *rest], {**more, **named}


def _kind(hint: Any) -> str:
    """How a parameter comes into a key, by its annotation."""
    flat = list(_members(hint))
    if flat == [Value]:
        return "tensor"
    if all(m in (bool, str, type(None), DType) for m in flat):
        return "plain"
    if all(m in (int, bool, str, type(None), DType) or _is_ints(m) for m in flat):
        return "whole"
    return "number" if all(m in (float, int, type(None)) for m in flat) else "any"


def _members(hint: Any) -> Iterable[Any]:
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        for member in typing.get_args(hint):
            yield from _members(member)
    else:
        yield hint


def _is_ints(hint: Any) -> bool:
    inner = typing.get_args(hint)
    return bool(inner) and all(m in (int, type(None), Ellipsis) for i in inner for m in _members(i))


def _code(function: Callable[..., Any], depends: bool) -> tuple[types.CodeType, int, list[str]]:
    """The code of a memo's function; how many parameters can be given by place, and the names of those that cannot."""
    inner = inspect.unwrap(function)
    parameters = list(inspect.signature(inner).parameters.values())
    try:
        hints = typing.get_type_hints(inner)
    except (NameError, TypeError):
        hints = {}
    kinds = {p.name: _kind(hints.get(p.name, Any)) for p in parameters}
    by_place = [
        p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    by_name = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
    rest = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), None)
    names = [*by_place, *by_name]
    collects = any(kinds[n] == "any" for n in (*names, *([rest] if rest else [])))
    looks, key = [], ["_memo.depends()"] if depends else []
    for name in (*by_place, *([rest] if rest else []), *by_name):
        look, entry = _key_entry(name, kinds[name], name == rest, collects)
        looks += look
        key.append(entry)
    tensors = [n for n in names if kinds[n] == "tensor"]
    values = "_values" if collects else f"({''.join(f'{n}, ' for n in tensors)})"
    text = _TEXT.format(
        taken=", ".join(
            [
                *[f"{n}=None" for n in by_place],
                f"*{rest or '_rest'}",
                *[f"{n}=None" for n in by_name],
                "**_named",
            ]
        ),
        asked="_named" if rest else "_named or _rest",
        call=f"given({tuple(names)!r}, ({''.join(f'{n}, ' for n in names)}), {len(by_place)}, {rest or '_rest'}, _named)",
        looks=indent(
            "\n".join(["_values = []", *looks] if collects else looks) or "pass", " " * 12
        ),
        key="".join(f"{entry}, " for entry in key),
        values=values,
        run=indent(_RUN_ONE.format(x=tensors[0]), " " * 8)
        if len(tensors) == 1 and not collects
        else "",
    )
    file = f"<memo of {getattr(function, '__name__', 'a function')}>"
    OURS[file] = True  # see Note [Places] 2
    made: dict[str, Any] = {}
    exec(compile(text, file, "exec", dont_inherit=True), made)
    return made["bind"](None).__code__, len(by_place), by_name


def _key_entry(name: str, kind: str, is_rest: bool, collects: bool) -> tuple[list[str], str]:
    """Lines before the key, and a parameter's entry in it."""
    if is_rest and kind == "any":
        return [], f"part({name}, _values)"
    if is_rest:
        return [
            f"_key_{name} = {name}",
            f"for _each in {name}:",
            "    if _each.__class__ is not int:",
            f"        _key_{name} = static_part({name})",
            "        break",
        ], f"_key_{name}"
    if kind == "tensor":
        return [f"_values.append({name})"] if collects else [], f"{name}._spec"
    if kind == "plain":
        return [], name
    if kind == "whole":
        return [], f"{name} if {name}.__class__ in SURE else static_part({name})"
    if kind == "number":
        return [], f"{name} if {name}.__class__ is float and {name} else static_part({name})"
    return [
        f"_key_{name} = {name}",
        f"if {name}.__class__ in SURE:",
        "    pass",
        f"elif isinstance({name}, Value):",
        f"    _values.append({name})",
        f"    _key_{name} = {name}._spec",
        "else:",
        f"    _key_{name} = part({name}, _values)",
    ], f"_key_{name}"


_TEXT = """\
def bind(_memo):
    def called({taken}):
        if {asked}:
            return _memo.call_any(*{call})
        _state = get_state()
        try:
{looks}
            _key = ({key})
            _found = None if _state.special else _memo.tables[_state.grad].get(_key)
        except (AttributeError, TypeError):  # no tensor, one without a spec, or something that has no hash
            _args, _named = {call}
            return _memo.function(*_args, **_named)
        if _found is None:
            return _memo.call(*{call}, {values}, _key)
{run}
        return _found.run({values}, _state)
    return called
"""

# A function of one tensor, most often a view or a reduction: `Known.run` for a program of one step, written out.
_RUN_ONE = """\
_plan = _found.plan
_base = {x}._base
if _plan is not None and (_base is None or not _state.grad or history_of({x}) == history_of(_base)):
    if _plan.launch is None:
        _out = new(call.Handle)
        _out._spec = _plan.out
        _out._memory = {x}._memory
        _out._offset = {x}._offset + _plan.offsets[0]
        _out._base = {x} if _base is None else _base
        _out._history = history_of({x})
    else:
        _address = {x}._memory.address
        if _address is None:
            return call.run(_plan, ({x},))
        _out = launch_one(_plan, (_address + {x}._offset,), (), _state.birth)
    _edge = {x}._node
    if _edge is None or not _state.grad or not _plan.out.differentiable:
        _out._node = None
        return _out
    _grad = _plan.grads.get(1) or _plan.grad(1)
    _out._node = make_node(_plan, (), (_edge,), _grad, ({x},) if _grad.saves_in else (), _out._memory)
    return _out
"""
