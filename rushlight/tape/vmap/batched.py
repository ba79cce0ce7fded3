"""Batched values: the handles of a function under `vmap`, and its calls on the whole batch.

# Note [Batching]
1. Under `vmap` a value is batched at one or more levels, one per `vmap` around it. Its handle has a
   `BatchSpec`: shape and strides of one example, as the function sees them, and the physical spec
   behind it, whose leading dimensions are the batch, outer levels first. The handle holds the
   physical value, an ordinary one.
2. No plan is made for a batched spec. `call.plan_for` returns a `BatchPlan` instead, which finds
   the batching rule of the op's family (`ops/batching`) and runs it: ordinary calls on physical
   values. So the number of calls does not grow with the size of the batch.
3. The tape records physical values only. An op's record, its saves and its derivative are those of
   the physical call: a gradient in a function under `vmap` and a gradient through `vmap` are both
   one ordinary backward pass.
4. A gradient is computed per example where the input is batched. `lift` makes it batched, without a
   copy; `roots.grad` passes physical values to the walk and returns batched ones.
5. Composite ops work on the shape of one example, so they need no rule. An op without a rule
   refuses a batched operand by name.
6. A level ends with its `vmap`. A value that outlives it raises when it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rushlight.core.errors import RushlightError
from rushlight.core.shapes import InternedRef, Shape, Size, Spec, interned, numel, reach
from rushlight.tape.program.program import Program
from rushlight.tape.program.trace import trace
from rushlight.tape.record import call
from rushlight.tape.record.needed import Needed, provide
from rushlight.tape.record.op import Op, Plan, Static
from rushlight.tape.record.state import STATE, Changed
from rushlight.tape.record.value import Value, history_of

new = object.__new__


class Level:
    """One running `vmap`: its depth, the size of its batch, its mode of randomness."""

    __slots__ = ("alive", "depth", "randomness", "size")

    def __init__(self, depth: int, size: int, randomness: str) -> None:
        self.depth = depth
        self.size = size
        self.randomness = randomness
        self.alive = True

    def __repr__(self) -> str:
        return f"vmap level {self.depth} of size {self.size}"


Levels = tuple[Level, ...]


class BatchSpec(Spec):
    """The layout of one example, and of the whole batch.

    Interned by the latter and the levels' depths.
    """

    __slots__ = ("hidden", "physical")

    # The depths of its levels, ascending: as many leading dimensions of `physical`.
    hidden: tuple[int, ...]
    physical: Spec

    @staticmethod
    def batched(physical: Spec, hidden: tuple[int, ...]) -> BatchSpec:
        key = (physical, hidden)
        known = _SPECS.get(key)
        spec = None if known is None else known()
        if spec is None:
            spec = BatchSpec()
            spec.physical, spec.hidden = key
            lead = len(hidden)
            spec.device, spec.dtype = physical.device, physical.dtype
            spec.shape, spec.strides = physical.shape[lead:], physical.strides[lead:]
            spec.size = Size(spec.shape)
            spec.numel = numel(spec.shape)
            spec.nbytes = spec.numel * spec.dtype.itemsize
            # One example's.
            spec.low, spec.high = reach(spec.shape, spec.strides, spec.dtype.itemsize)
            spec.differentiable = physical.differentiable
            spec.contiguous = physical.contiguous
            spec.dense = physical.dense
            spec = interned(_SPECS, key, spec)
        return spec


_SPECS: dict[Any, InternedRef] = {}


class Batched(Value):
    """The interface of a batched handle; `func/batched.py` has the class itself, a Tensor."""

    __slots__ = ()

    physical: Value
    levels: Levels


_handle: list[Any] = []


def set_handle(kind: Any) -> None:
    _handle[:] = [kind]


def wrap(physical: Value, levels: Levels) -> Value:
    """The value as one example; its leading dimensions are the levels'."""
    if not levels:
        return physical
    value = new(_handle[0])
    value._spec = BatchSpec.batched(physical._spec, tuple([level.depth for level in levels]))
    value.physical = physical
    value.levels = levels
    return value


def levels_of(value: Value) -> Levels:
    """The levels a value is batched at, which must be running."""
    if not value._spec.hidden:
        return ()
    levels: Levels = value.levels  # type: ignore[attr-defined]
    if not levels[-1].alive or not levels[0].alive:
        raise RushlightError(
            f"vmap: {value._spec!r} was made inside a vmap that has ended, and has no meaning "
            "outside of it; return it from the function instead"
        )
    return levels


def physical_of(value: Value) -> Value:
    """The whole batch, as an ordinary value; a value that is not batched is returned."""
    return value.physical if levels_of(value) else value  # type: ignore[attr-defined]


def joint_levels(values: Sequence[Value]) -> Levels:
    """All levels at which any of the values is batched, outer ones first."""
    found: Levels = ()
    for value in values:
        if value._spec.hidden:
            own = levels_of(value)
            if own is not found:
                found = own if not found else _merged(found, own)
    return found


def _merged(first: Levels, second: Levels) -> Levels:
    if first == second:
        return first
    together = {level.depth: level for level in (*first, *second)}
    if any(together[level.depth] is not level for level in (*first, *second)):
        raise RushlightError(
            "vmap: values of two different vmaps meet at one level; one of them outlived its own"
        )
    return tuple([together[depth] for depth in sorted(together)])


def active() -> Levels:
    """The levels of every `vmap` around this call, outer ones first."""
    return STATE.get().batch


def drawn_levels(op: str) -> Levels:
    """The levels at which a random op draws other numbers for each example.

    It raises where one forbids it.
    """
    levels = active()
    for level in levels:
        if level.randomness == "error":
            raise RushlightError(
                f"{op}: called random operation while in randomness error mode; pass "
                "randomness='different' or 'same' to vmap, or draw the numbers outside"
            )
    return tuple([level for level in levels if level.randomness == "different"])


def lift(value: Value) -> Value:
    """The value batched at every level around this call, for a gradient per example.

    Nothing is copied.
    """
    levels = active()
    if not levels or len(value._spec.hidden) == len(levels):
        return value
    return wrap(Needed.spread(value, levels), levels)


def batched_like(x: Value, made: Value) -> Value:
    """A value with separate memory for each example of x; `made` itself where x is not batched."""
    levels = levels_of(x)
    return wrap(Needed.clone(Needed.spread(made, levels)), levels) if levels else made


def peel(value: Value, levels: Levels) -> Value:
    """The value with these levels' dimensions as the first of its own.

    It stays batched at its other levels.
    """
    if not levels:
        return value
    joint = _merged(levels, levels_of(value)) if value._spec.hidden else levels
    whole = Needed.spread(value, joint)
    rest = tuple([level for level in joint if level not in levels])
    if rest:
        order = [joint.index(level) for level in (*rest, *levels)]
        whole = Needed.permute(whole, (*order, *range(len(joint), len(whole._spec.shape))))
    return wrap(whole, rest)


def unpeel(value: Value, levels: Levels) -> Value:
    """The inverse of `peel`: the first dimensions of the value are these levels'."""
    if not levels:
        return value
    rest = levels_of(value)
    if not rest:
        return wrap(value, levels)
    joint = _merged(levels, rest)
    order = [(*rest, *levels).index(level) for level in joint]
    whole = physical_of(value)
    return wrap(Needed.permute(whole, (*order, *range(len(joint), len(whole._spec.shape)))), joint)


# ---- calls ----

Rule = Callable[["BatchPlan", Sequence[Value], tuple[Any, ...]], Any]


class _NoShape:
    shape = None


class BatchPlan:
    """The plan of a call some of whose operands have batched specs.

    The rule runs once and is traced; its physical calls, which depend on nothing but the specs,
    become a program (Note [Programs]), which runs in later calls. A rule with `looks` reads more
    than specs and runs every time.
    """

    __slots__ = (
        "hidden",
        "is_traced",
        "lead",
        "only",
        "op",
        "program",
        "rule",
        "several",
        "sizes",
        "specs",
        "static",
    )

    launch = None
    outs = ()
    offsets = ()
    stride = 0
    first = second = object()  # matches no operands
    beyond = False  # the physical calls of the rule check their own
    out = _NoShape()

    def __init__(self, op: Op, specs: Sequence[Spec], static: Static) -> None:
        self.op = op
        self.static = static
        sizes: dict[int, int] = {}
        for spec in specs:
            if isinstance(spec, BatchSpec):
                for depth, size in zip(spec.hidden, spec.physical.shape, strict=False):
                    sizes[depth] = size
        self.hidden = tuple(sorted(sizes))
        self.sizes: Shape = tuple([sizes[depth] for depth in self.hidden])
        self.rule: Rule = Needed.batch_rule(op)
        self.lead = next((i for i, spec in enumerate(specs) if spec.hidden == self.hidden), -1)
        self.is_traced = hasattr(self.rule, "looks")
        self.program: Program | None = None
        self.only: Plan | None = None  # the plan that the program is, with one result
        self.several = False  # whether there are several results
        self.specs: list[BatchSpec] = []

    def run(self, inputs: Sequence[Value], params: tuple[Any, ...]) -> Any:
        state = STATE.get()
        if state.trace is not None:  # this call is traced, not its physical calls
            with Changed(trace=None):
                made = self.run(inputs, params)
            state.trace.append((self, inputs, params, made, state.grad))
            return made
        levels = self._levels(inputs)
        program = self.program
        if program is None:
            return self._by_rule(inputs, params, levels)
        whole: list[Any] = [v.physical if v._spec.hidden else v for v in inputs]  # type: ignore[attr-defined]
        if self.only is not None:
            ins = _addresses(self.only, whole, state)
            made = (
                call.run(self.only, whole, params)
                if ins is None
                else call.launch_one(self.only, ins, params)
            )
            return _handle_of(made, self.specs[0], levels)
        parts = [
            _handle_of(v, s, levels)
            for v, s in zip(program.call(whole, params), self.specs, strict=True)
        ]
        return tuple(parts) if self.several else parts[0]

    def _levels(self, inputs: Sequence[Value]) -> Levels:
        if self.lead < 0:
            return joint_levels(inputs)
        levels: Levels = inputs[self.lead].levels  # type: ignore[attr-defined]
        for value in inputs:
            if value._spec.hidden and value.levels is not levels:  # type: ignore[attr-defined]
                return joint_levels(inputs)
        return levels if levels[-1].alive else levels_of(inputs[self.lead])

    def _by_rule(self, inputs: Sequence[Value], params: tuple[Any, ...], levels: Levels) -> Any:
        if self.is_traced:
            made = self.rule(self, inputs, params)
        else:
            self.is_traced = True
            inputs = _told_apart(inputs)
            whole = [physical_of(v) for v in inputs]
            made, program = trace(lambda: self.rule(self, inputs, params), whole, params)
            self._keep(program, made)
        if made.__class__ is tuple or made.__class__ is list:
            return tuple([wrap(part, levels) for part in made])
        return wrap(made, levels)

    def _keep(self, program: Program | None, made: Any) -> None:
        if program is None or any(
            r is None or r.slot < len(program.given) for r in program.results
        ):
            return
        self.specs = [
            BatchSpec.batched(r.spec, self.hidden) for r in program.results if r is not None
        ]
        self.several = isinstance(made, (tuple, list))
        only = program.only
        self.only = only if only is not None and len(only.outs) == 1 and not self.several else None
        self.program = program

    @property
    def blocks(self) -> Any:
        """Called outside of any `vmap` only."""
        raise RushlightError(
            f"{self.op.name}: an operand was made inside a vmap that has ended; return it from the "
            "function instead"
        )

    pool = blocks


def _told_apart(values: Sequence[Value]) -> Sequence[Value]:
    """The values, with a second handle for one that occurs twice, to tell its positions."""
    seen: set[int] = set()
    found = []
    for value in values:
        if id(physical_of(value)) in seen:
            whole = physical_of(value)
            alias = new(whole.__class__)
            for name in ("_spec", "_memory", "_offset", "_node", "_base"):
                setattr(alias, name, getattr(whole, name))
            alias._history = history_of(whole)
            value = wrap(alias, levels_of(value))
        seen.add(id(physical_of(value)))
        found.append(value)
    return found


def _addresses(plan: Plan, values: Sequence[Value], state: Any) -> list[int] | None:
    """The operands' addresses, if nothing is recorded, dropped or traced."""
    if plan.launch is None or state.region is not None or state.birth or state.dual is not None:
        return None
    ins = []
    for value in values:
        address = value._memory.address
        if address is None or (state.grad and (value._node is not None or value._base is not None)):
            return None
        ins.append(address + value._offset)
    return ins


def _handle_of(physical: Value, spec: BatchSpec, levels: Levels) -> Value:
    value = new(_handle[0])
    value._spec = spec
    value.physical = physical
    value.levels = levels
    return value


def _detached(value: Value) -> Value:
    return wrap(call.detached(physical_of(value)), levels_of(value))


provide(batch_plan=BatchPlan, detach_batch=_detached)
