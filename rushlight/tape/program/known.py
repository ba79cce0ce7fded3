"""Known kinds of calls: their programs, as one plan where they are one. See Note [Memo]."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rushlight.core.cache import Cache
from rushlight.core.dtypes import DType
from rushlight.core.errors import SparseOperandError
from rushlight.core.shapes import Spec
from rushlight.tape.program.calling import calls_of, choosing
from rushlight.tape.program.program import Program, ProgramOp, Step
from rushlight.tape.program.trace import trace
from rushlight.tape.record import call
from rushlight.tape.record.needed import edge_of
from rushlight.tape.record.op import Plan
from rushlight.tape.record.state import STATE, Changed, State
from rushlight.tape.record.value import Value, history_of

SMALL = 4 << 20  # bytes of all operands and results of the steps, together
# The classes of static arguments; `Tensor` adds its device.
WHEN_REPEATED: list[Callable[[], None]] = []  # called before a traced call is repeated
PLAIN: list[type] = [int, float, bool, str, type(None), DType]


# ---- one kind of call ----


class Known:
    """A kind of call: its program, as one plan where possible, and the views after it.

    `run(known, values, state)` is generated code where the results are those of one plan.
    """

    __slots__ = (
        "calls",
        "core",
        "differentiable",
        "followed",
        "is_one",
        "lone",
        "make",
        "op",
        "plans",
        "program",
        "run",
        "shows",
        "view",
        "views",
    )

    def __init__(self, name: str, program: Program, make: Callable[..., Any] | None) -> None:
        self.program = program
        self.make = make  # combines several results
        self.core, self.views = _composed(program)
        # One step, of whose results the first is returned: the plan and the launch parameters.
        self.lone = program.lone if make is None and self.core is None else None
        self.plans: dict[int, Plan] = {}  # by the operands that need gradients
        # The code of a call, by the same: outside of a region, and in one.
        self.calls: dict[int, Callable[..., Any]] = {}
        self.followed: dict[int, Callable[..., Any]] = {}
        self.differentiable = False
        if self.core is not None:
            first = self.core.results[0]
            self.differentiable = first is not None and bool(first.spec.differentiable)
            self.op = ProgramOp(name, self.core)
        elif self.lone is not None:
            self.differentiable = bool(self.lone[0].out.differentiable)
        only = None if self.core is None else self.core.only  # the one plan for all operands
        hidden = any(spec.hidden for spec in program.given)  # batched operands have no addresses
        self.is_one = (
            self.core is not None
            and make is None
            and not self.views
            and len(self.core.results) == 1
        )
        is_view = only is not None and only.launch is None
        self.view = only if is_view and self.is_one and not hidden else None
        self.shows = self.view is not None and _only_shows(self.view)
        coded = not (hidden or is_view) and (self.lone is not None or self._shown() is not None)
        self.run = choosing(len(program.given)) if coded else Known.run_slowly

    def _shown(self) -> list[int] | None:
        """The core's result that each result is; None where one is not whole."""
        if self.core is None or self.views:
            return None
        slots = [r.slot for r in self.core.results if r is not None]
        wanted = [None if r is None else r.slot for r in self.program.results]
        if any(slot not in slots for slot in wanted):
            return None
        return [slots.index(slot) for slot in wanted if slot is not None]

    def make_calls(self, needs: int) -> None:
        """Make the code of calls whose operands in the bit mask have a record."""
        if not self.differentiable and needs:
            if 0 not in self.calls:
                self.make_calls(0)
            made = self.calls[0], self.followed[0]
        elif self.lone is not None:
            made = calls_of(*self.lone, needs, (0,), None)
        else:
            shown = self._shown()
            assert shown is not None
            made = calls_of(self.plans.get(needs) or self._plan(needs), (), needs, shown, self.make)
        self.calls[needs], self.followed[needs] = made

    def run_slowly(self, values: Sequence[Value], state: State) -> Any:
        """The call with something special around it, of views, or of steps one by one."""
        if self.lone is not None:
            return _first(call.run(self.lone[0], values, self.lone[1]))
        if self.is_one:
            return self._core_results(values, state)[0]
        results = self.program.call(values) if self.core is None else self._by_core(values, state)
        return results[0] if self.make is None else self.make(results)

    def _plan(self, needs: int) -> Plan:
        assert self.core is not None
        plan = self.plans[needs] = self.core.as_plan(self.op, needs)
        return plan

    def _core_results(self, values: Sequence[Value], state: State) -> Sequence[Value]:
        needs = 0
        if state.grad and self.differentiable:
            needs = sum(1 << i for i, value in enumerate(values) if edge_of(value) is not None)
        made = call.run(self.plans.get(needs) or self._plan(needs), values)
        return made if made.__class__ is tuple else (made,)

    def _by_core(self, values: Sequence[Value], state: State) -> list[Any]:
        """The program's results by its one plan, and the views after it."""
        assert self.core is not None
        slots: dict[int, Any] = dict(enumerate(values))
        made = self._core_results(values, state)
        slots.update(zip([r.slot for r in self.core.results if r is not None], made, strict=False))
        for first, (plan, params, sources, _) in self.views:
            shown = call.run(plan, [slots[s] for s in sources], params or ())
            slots.update(enumerate(shown if shown.__class__ is tuple else (shown,), first))
        results = [None if r is None else slots[r.slot] for r in self.program.results]
        self.program.release(results)
        return results


def _first(made: Any) -> Any:
    """The first result of a call, which may have one."""
    return made[0] if made.__class__ is tuple else made


def _only_shows(plan: Plan) -> bool:
    """Whether a plan of one operand is a view whose derivative needs no saves."""
    if plan.launch is not None or len(plan.ins) != 1:
        return False
    grad = plan.grad(1) if plan.out.differentiable else None
    return grad is None or not (grad.saves_in or grad.saves_out)


def _composed(program: Program) -> tuple[Program | None, tuple[tuple[int, Step], ...]]:
    """The program up to its final views, if it may be one record, and those views.

    Each view comes with the slot of its first result. None where the steps stay single calls: see
    Note [Memo] 4.
    """
    given, steps = program.given, program.steps
    if any(spec.hidden for spec in program.specs):  # its plans stand for others: Note [Batching]
        return None, ()
    if program.only is not None:
        return program, ()
    if len(steps) < 2:
        return None, ()
    owned = [spec for i, spec in enumerate(program.specs) if program.roots[i][0] == i]
    if sum(spec.nbytes for spec in owned) > SMALL:
        return None, ()
    end = len(steps)
    while end and steps[end - 1].is_view:
        end -= 1
    # A final view of a whole result is that result in another shape; it is recognised by its
    # extent.
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
    """Whether every operand that can have a gradient gets one from the results.

    One that is used only through integers has no record.
    """
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


class Kinds:
    """The kinds of calls of one function."""

    __slots__ = ("casts", "depends", "function", "public", "tables")

    def __init__(self, function: Callable[..., Any], depends: Callable[[], Any] | None) -> None:
        self.function = function
        self.public: Any = None  # the function
        self.depends = depends  # returns further state that the result depends on
        self.casts = getattr(function, "casts", None)  # see Note [Autocast]
        self.tables = Cache(), Cache()  # without and with gradients

    def call(
        self, args: Sequence[Any], named: dict[str, Any], values: Sequence[Value], key: Any
    ) -> Any:
        """A call that is not known, or has something special around it."""
        state = STATE.get()
        if state.autocast is not None and self.casts is not None:
            return state.autocast.call(self.casts, self.public, args, named)
        if not _may_recall(state):
            return self.function(*args, **named)
        table = self.tables[state.grad]
        try:
            found = table.get(key, table)
        except TypeError:  # an argument is not hashable
            found = None
        if found is table:
            found = None
            chooses = state.region is not None and state.region.chooses
            if state.saving is None and not chooses:
                return self.learn(args, named, values, table, key)
            if sum(v._spec.nbytes for v in values) <= SMALL:
                # The user's hooks and policies get only recorded calls.
                region = state.region.unasked() if chooses else None
                with Changed(saving=None, region=region):
                    self.learn(args, named, values, table, key)
                found = table.get(key)
        if found is None:
            return self.function(*args, **named)
        return found.run(found, values, state)

    def call_any(self, args: Sequence[Any], named: dict[str, Any]) -> Any:
        """A call whose arguments the generated key does not cover."""
        state = STATE.get()
        if state.autocast is not None and self.casts is not None:
            return state.autocast.call(self.casts, self.public, args, named)
        if not _may_recall(state):
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
        """Call the function, and keep a program of it where its calls determine its result."""
        handles: Sequence[Value] = values
        twins: dict[int, Value] = {}
        function = self.function
        if len(values) > 1 and len({id(v) for v in values}) < len(values):
            # A batch is more than its memory: it has no second handle.
            if any(v._spec.hidden for v in values):
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
                program.release(made)
                if twins or (
                    len(program.steps) > 1
                    and known.core is not None
                    and any(_has_record(v) for v in made)
                ):
                    del result, made
                    for repeated in WHEN_REPEATED:
                        repeated()
                    return known.run(known, values, STATE.get())
        return _without(twins, result) if twins else result


def _may_recall(state: State) -> bool:
    """Whether programs may run: see Note [Memo] 3."""
    if state.trace is not None or state.dual is not None:
        return False
    return not state.batch or (state.region is None and state.saving is None)


def _has_record(value: Any) -> bool:
    return value is not None and not value._spec.hidden and value._node is not None


def _apart(
    args: Sequence[Any], named: dict[str, Any]
) -> tuple[Any, Any, list[Value], dict[int, Value]]:
    """The arguments, with a separate handle for each position of a tensor given twice.

    So the trace distinguishes the positions. Also all tensors in order, and the given ones by the
    handles' identities.
    """
    values: list[Value] = []
    twins: dict[int, Value] = {}
    placed = [_each_apart(a, values, twins) for a in args]
    by_name = {name: _each_apart(a, values, twins) for name, a in named.items()}
    return placed, by_name, values, twins


def _each_apart(a: Any, values: list[Value], twins: dict[int, Value]) -> Any:
    if a.__class__ is list or a.__class__ is tuple:
        return a.__class__([_each_apart(b, values, twins) for b in a])
    if isinstance(a, Value):
        if any(v is a for v in values):
            twin = call.make_value(a._spec, a._memory, a._offset, a._node)
            twin._base, twin._history = a._base, history_of(a)
            twins[id(twin)] = a
            a = twin
        values.append(a)
    return a


def _without(twins: dict[int, Value], result: Any) -> Any:
    """A result with the given tensors in place of their second handles."""
    if isinstance(result, (tuple, list)) and any(id(v) in twins for v in result):
        maker: Any = getattr(type(result), "_make", type(result))
        return maker([twins.get(id(v), v) for v in result])
    return twins.get(id(result), result)


def _count_values(*arguments: Any) -> int | None:
    """The number of tensors among arguments, if all others are plain.

    Calls with more tensors than specs in the key (a tensor for an int) are not kept: the key would
    hold them.
    """
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
    """An argument's entry in a key; its tensors are added to `values`."""
    if isinstance(a, Value):
        values.append(a)
        return a._spec
    if a.__class__ is list or a.__class__ is tuple:
        entries: list[Any] = [a.__class__]
        for b in a:
            if b.__class__ is int:
                entries.append(b)
            elif isinstance(b, Value):
                values.append(b)
                entries.append(b._spec)
            else:
                entries.append(part(b, values))
        return tuple(entries)
    return (a.__class__, a if a.__class__ is not float or a else str(a))
