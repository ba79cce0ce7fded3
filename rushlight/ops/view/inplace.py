"""Writing into existing tensors.

# Note [In-place writes]
1. A write is its pure op, whose result replaces the old bits: the record shows the pure op, the
   storage's version is incremented, and records that saved the old bits raise when they need them.
2. A write to a view also writes its base: the base's record becomes
   `write_view(old base, new view)` and its `history` is incremented, so that other views of it are
   recorded again at their next use.
3. A leaf that requires gradients is written to only where nothing is recorded.
4. Old bits that the record of a write saves are copied first. A recorded write to a view is the
   pure op followed by an assignment, which saves nothing.
5. Where nothing is recorded and nothing has a recipe, the plan of an earlier write of the same kind
   runs directly (`_at_once`): small tensors are written to often.
6. A write to plain memory makes the storages that were made from it plain first; a write in a
   region to memory with a recipe leaves the recipe of the next version (Note [Recipes]).
7. All that can fail comes before the bits change: checks, plans, copies of old bits, records. A
   `Write` is a write at that point. Several that belong together are made by `finish_all`, which
   allocates all memory before the first one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from rushlight.core.cache import Cache
from rushlight.core.dtypes import DType, bool_, castable, compute_type, int64, scalar_dtype
from rushlight.core.errors import AnomalyError, DTypeError, InplaceError, ShapeError
from rushlight.core.interrupts import Uninterrupted
from rushlight.core.shapes import Spec, broadcast_shapes
from rushlight.devices.shared.allocator import Storage
from rushlight.ops.create.creation import check_holds, fill_plan, full_spec
from rushlight.ops.family.declare import (
    apply,
    as_operand,
    brought,
    promoted,
    type_of_number,
)
from rushlight.ops.family.map import Elementwise, Formula, MapOp, map_plan
from rushlight.ops.family.saved_names import name_operands
from rushlight.ops.pointwise import arithmetic as e
from rushlight.ops.view import complex_parts, lanes
from rushlight.ops.view.versions import write_into
from rushlight.scalar import build as s
from rushlight.scalar.ir import Expr, arg, param
from rushlight.tape.anomaly.blame import Mode
from rushlight.tape.memory import replay
from rushlight.tape.memory.recipe import is_read, no_recipes
from rushlight.tape.record import call
from rushlight.tape.record.needed import Needed, edge_of
from rushlight.tape.record.op import Plan, Static, check_devices
from rushlight.tape.record.state import STATE, Changed, impure, is_inference
from rushlight.tape.record.value import Leaf, Node, Value, history_of
from rushlight.tape.record.written import (
    MARKED,
    hide_write,
    is_hidden,
    mark_summed,
    mark_written,
)
from rushlight.tape.walk.hooks import follow


def check_writable(target: Value, op: str) -> None:
    check_record(target, op)
    spec = target._spec
    if spec.numel and any(
        st == 0 and n > 1 for n, st in zip(spec.shape, spec.strides, strict=True)
    ):
        raise InplaceError(
            f"{op}: {spec!r} is an expanded view whose elements share memory; .clone() it first"
        )


def check_record(target: Value, op: str) -> None:
    """Refuse a write to a value that may not change."""
    base = target if target._base is None else target._base
    if Leaf in (type(target._node), type(base._node)) and STATE.get().grad:
        raise InplaceError(
            f"{op}: a leaf that requires gradients ({base._spec!r}), or a view of it, is written "
            "to in place; do it under no_grad(), or use the op without the underscore"
        )
    if (
        base is not target
        and edge_of(target) is None
        and edge_of(base) is not None
        and STATE.get().grad
    ):
        raise InplaceError(
            f"{op}: {target._spec!r} is a view that was made under no_grad() or inference_mode(), "
            f"of {base._spec!r}, which requires gradients; make the view and write to it under the "
            "same mode"
        )
    spec = target._spec
    if is_inference(target._memory) and not STATE.get().inference:
        raise InplaceError(
            f"{op}: {spec!r} was made in inference_mode() and is written to in place outside it; "
            ".clone() it first"
        )


def apply_inplace(op: Elementwise, target: Value, *others: Any) -> Value:
    """target = op(target, *others), into target's own memory."""
    if _at_once(op, target, (target, *others)):
        return target
    home = target._spec.device
    others = tuple(
        brought(v, home) if isinstance(v, Value) and not v._spec.shape else v for v in others
    )
    if _is_batch(target, *others):
        return _apply_batch(op, target, others)
    made = prepare_apply(op, target, *others)
    tensors = made.inputs
    is_part = target._base is not None or target._offset
    if (is_part and STATE.get().grad and any(edge_of(t) is not None for t in tensors)) or _any_dual(
        tensors
    ):
        old = e.clone(target)
        return copy_(
            target, apply(op, *[old if other is target else other for other in (target, *others)])
        )
    made = prepare_write(target, made.plan, tensors, made.params)
    made.finish()
    if op.refuse is None or target._spec.differentiable:
        _remember(op, made.plan, target, (target, *others))
    return target


def prepare_apply(op: Elementwise, target: Value, *others: Any) -> Write:
    """target = op(target, *others), as a prepared write without a record."""
    name = f"{op.name}_"
    check_writable(target, name)
    if op.name == "abs" and target._spec.dtype.kind == "c":
        raise DTypeError(
            f"abs_: sizes of complex numbers are real and do not fit into {target._spec!r}; use "
            ".abs()"
        )
    pattern: list[DType | None] = [None]
    tensors, numbers = [target], []
    for other in map(as_operand, others):
        if isinstance(other, Value):
            pattern.append(None)
            tensors.append(_without_overlap(other, target))
        else:
            pattern.append(type_of_number(name, other))
            numbers.append(other)
    if op.refuse is not None:
        op.refuse(tensors, (target, *others))
    plan = _plan_onto(op, tensors, tuple(pattern), target._spec, name)
    return Write((target,), plan, tensors, tuple(numbers))


def _any_dual(values: Sequence[Value]) -> bool:
    dual = STATE.get().dual
    return dual is not None and any(dual.tangent_of(v) is not None for v in values)


def _is_batch(*operands: Any) -> bool:
    return bool(STATE.get().batch) and any(
        isinstance(v, Value) and v._spec.hidden for v in operands
    )


def _apply_batch(op: Elementwise, target: Value, others: Sequence[Any]) -> Value:
    """The write for every example at once. See Note [Batching]."""
    operands = [target, *map(as_operand, others)]
    pattern = tuple([None if isinstance(v, Value) else scalar_dtype(v) for v in operands])
    tensors = iter(promoted(op, [v for v in operands if isinstance(v, Value)], pattern))
    given = [next(tensors) if isinstance(v, Value) else v for v in operands]
    whole, ready = lanes.written(f"{op.name}_", target, given[1:])
    apply_inplace(op, whole, *ready)
    return target


_KNOWN = Cache()
_NUMBERS = (float, int, bool)


def _key(op: MapOp, target: Value, inputs: Sequence[Any]) -> tuple[Any, ...]:
    """The key of a write's plan: specs, and the types of numbers."""
    return (op, target._spec, *[x._spec if isinstance(x, Value) else x.__class__ for x in inputs])


def _at_once(op: MapOp, target: Value, inputs: Sequence[Any]) -> bool:
    """Run the plan of an earlier write, or return False. See Note [In-place writes] 5."""
    plan = _KNOWN.get(_key(op, target, inputs))
    return plan is not None and launched(plan, target, inputs)


def launched(plan: Plan, target: Value, inputs: Sequence[Any], more: tuple[Any, ...] = ()) -> bool:
    """Run a write's plan where nothing is recorded and nothing has a recipe, or return False.

    `inputs` are values and numbers, `more` numbers only.
    """
    state = STATE.get()
    if state.special or not no_recipes():
        return False
    storage, base = target._memory, target._base
    if (
        state.grad and not (target._node is None and (base is None or base._node is None))
    ) or storage.version < 0:
        return False
    ins, numbers = [], []
    try:
        for x in inputs:
            if not isinstance(x, Value):
                numbers.append(x)
                continue
            if x is not target and (
                x._memory is storage
                or (state.grad and (x._node is not None or x._base is not None))
            ):
                return False
            ins.append(x._memory.address + x._offset)  # type: ignore[operator]
        at = storage.address + target._offset  # type: ignore[operator]
        plan.launch(at, *ins, *plan.tail, *numbers, *more)  # type: ignore[misc]
    except TypeError:  # freed memory: the general path raises
        return False
    except AnomalyError:  # it was written all the same
        mark_written(storage)
        raise
    mark_written(storage)
    if MARKED and is_hidden(target):
        hide_write(target)
    return True


def _remember(op: MapOp, plan: Plan, target: Value, inputs: Sequence[Any]) -> None:
    for x in inputs:
        if (
            x._memory is target._memory and x is not target
            if isinstance(x, Value)
            else x.__class__ not in _NUMBERS
        ):
            return  # it was copied first, or converted to another number
    _KNOWN.keep(_key(op, target, inputs), plan)


def _without_overlap(other: Value, target: Value) -> Value:
    """A copy of an input that overlaps the target without being it."""
    if other._memory is not target._memory:
        return other
    same = other._offset == target._offset and other._spec is target._spec
    return other if same else e.clone(other)


def holds(target: DType, made: DType) -> bool:
    """Whether a result dtype may be stored in place in another: its category must not be lost."""
    return castable(made, target)


def _plan_onto(op: MapOp, tensors: Sequence[Value], static: Static, out: Spec, name: str) -> Plan:
    """A plan for `op` whose result has the target's own layout and dtype."""
    specs = [t._spec for t in tensors]
    key = ("onto", out, static, *specs)
    plan = op.plans.get(key)
    if plan is None:
        check_devices(name, [out, *specs])
        shape = broadcast_shapes([out.shape, *(spec.shape for spec in specs)], name, [out, *specs])
        if shape != out.shape:
            raise ShapeError(
                f"{name}: a result of shape {list(shape)} does not fit into {out!r} in place"
            )
        formula = op.formula(specs, static)
        made = formula.outputs[0]
        if made is not out.dtype:
            if not holds(out.dtype, made):
                raise DTypeError(
                    f"{name}: a {made.name} result cannot be stored in {out!r}; cast the operands"
                )
            body = (s.cast(formula.body[0], compute_type(out.dtype)),)
            formula = Formula(formula.inputs, formula.params, (out.dtype,), body)
        plan = op.plans.keep(key, map_plan(op, formula, specs, (out,), static))
    return plan


class Write:
    """A prepared write, which `finish` makes without failing. See Note [In-place writes] 7."""

    __slots__ = (
        "announced",
        "base_node",
        "had_record",
        "inputs",
        "node",
        "old",
        "params",
        "plan",
        "tangent",
        "targets",
    )

    def __init__(
        self, targets: Sequence[Value], plan: Plan, inputs: Sequence[Value], params: tuple[Any, ...]
    ) -> None:
        self.targets = targets
        self.plan = plan
        self.inputs = inputs
        self.params = params
        self.node: Node | None = None  # the record of the new bits
        self.base_node: Node | None = None  # that of the base of the target
        self.had_record = False
        self.tangent: Value | None = None
        self.announced = False  # whether the record's saves have been packed
        self.old: tuple[Any, ...] | None = None  # restores the old bits

    def finish(self) -> None:
        state, target, node = STATE.get(), self.targets[0], self.node
        if self.tangent is not None:
            state.dual.store(target, self.tangent)
            state = replace(state, dual=None)
        write_into(self.targets, self.plan, self.inputs, self.params)
        if node is None and not self.had_record:
            if is_hidden(target):
                hide_write(target)
            return
        before = _record_of(target)
        _rebased(target, node, self.base_node)
        if node is None or not state.special or self.announced:
            return
        try:
            call.announce(node, state)
        except BaseException:  # a user's pack hook
            if self.old is not None:
                write_into((target,), *self.old)
                _put_record(target, before)
            raise


def prepare_write(
    target: Value, plan: Plan, inputs: Sequence[Value], params: tuple[Any, ...]
) -> Write:
    """A write by `plan` into target's memory, and target's new record, before bits change."""
    made = Write((target,), plan, inputs, params)
    state = STATE.get()
    if state.dual is not None and _any_dual((target, *inputs)):
        found = state.dual.pushed(plan, inputs, params, None)  # before the bits change
        made.tangent = found[0] if found else Needed.full(target._spec, 0.0)
    if not state.grad:
        return made
    made.had_record = edge_of(target) is not None
    # The old value gets a new handle: a record must not refer to the handle that receives it.
    node = made.node = call.record(
        plan, [_old(v) if v is target else v for v in inputs], params, (target._memory,)
    )
    if node is not None:
        _save_old_bits(node, target)
    if node is not None or made.had_record:
        made.base_node = _record_base(target, node)
    if node is not None and state.saving is not None:
        if node.outs:  # packed saves exist only after the write
            with Changed(grad=False, saving=None):
                copy = e.clone(target)
            made.old = (
                _plan_onto(_assign, (copy,), (target._spec.dtype,), target._spec, "copy_"),
                (copy,),
                (),
            )
        else:
            call.announce(node, state if made.tangent is None else replace(state, dual=None))
            made.announced = True
    return made


def finish_all(
    writes: Sequence[Write],
    then: Iterable[tuple[Any, ...]] = (),
    written: Sequence[Storage] = (),
) -> None:
    """Make writes that belong together, then call each of `then`, (function, *args).

    All is done or, after an error, nothing. `written` are plain storages that `then` writes to.
    """
    if not STATE.get().special and no_recipes():
        _finish_all(writes, then)
        return
    storages = [*written, *(target._memory for write in writes for target in write.targets)]
    inputs = [value for write in writes for value in write.inputs]
    saving = STATE.get().saving
    if saving is not None:
        saving.before_write(storages)
    with replay.LOCK, replay.Pins() as pins:
        replay.before_write(*storages)
        replay.bring([*(target for write in writes for target in write.targets), *inputs], pins)
        _finish_all(writes, then)


def _finish_all(writes: Sequence[Write], then: Iterable[tuple[Any, ...]]) -> None:
    kept = _old_bits(writes) if Mode.on else []
    with Uninterrupted():
        try:
            for write in writes:
                write.finish()
        except AnomalyError:  # found in the written bits
            for target, plan, copy in kept:
                at = target._memory.present_address + target._offset  # type: ignore[operator]
                plan.plain(at, copy._memory.address, *plan.tail)  # type: ignore[misc]
            raise
        for function, *args in then:
            function(*args)


def _old_bits(writes: Sequence[Write]) -> list[tuple[Value, Plan, Value]]:
    """Copies of all targets, and calls that restore them: anomaly checks come after a write."""
    kept = []
    for write in writes:
        for target in write.targets:
            with Changed(grad=False, region=None):
                copy = e.clone(target)
            kept.append(
                (
                    target,
                    _plan_onto(_assign, (copy,), (target._spec.dtype,), target._spec, "copy_"),
                    copy,
                )
            )
    return kept


def write(target: Value, plan: Plan, inputs: Sequence[Value], params: tuple[Any, ...]) -> None:
    """Run `plan` into target's memory and replace target's record. See Note [In-place writes]."""
    prepare_write(target, plan, inputs, params).finish()


def _save_old_bits(node: Node, target: Value) -> None:
    """Copy the record's saves of memory that is about to be written."""
    assert node.saved is not None
    saved = list(node.saved)
    for i, value in enumerate(saved):
        if value._memory is target._memory:
            with Changed(grad=False):
                copy = e.clone(value)
            saved[i] = call.make_value(copy._spec, copy._memory, copy._offset, value._node)
    node.saved = tuple(saved)
    # Saved results are the new bits, whose version the write increments.
    node.version = sum(v._memory.version for v in saved) + sum(s.version + 1 for s in node.outs)


def _old(target: Value) -> Value:
    old = call.make_value(target._spec, target._memory, target._offset, target._node)
    old._base = target._base
    if target._base is not None:
        old._history = history_of(target)
    return old


def rebase(target: Value, node: Any) -> None:
    """Give the target, and its base, the record of the new bits."""
    _rebased(target, node, _record_base(target, node))


def _record_base(target: Value, node: Any) -> Node | None:
    """The record of the target's base, when the target has the record `node`."""
    base, spec = target._base, target._spec
    if base is None:
        return None
    old_base = call.make_value(base._spec, base._memory, base._offset, base._node)
    new_view = call.make_value(spec, target._memory, target._offset, node)
    return complex_parts.record_write(old_base, new_view, spec, target._offset - base._offset)


def _rebased(target: Value, node: Any, base_node: Node | None) -> None:
    base = target._base
    target._node = node
    follow(target)
    if base is None:
        target._history = history_of(target) + 1
        return
    base._node = base_node
    base._history = history_of(base) + 1
    follow(base)
    # After the record: its next use goes through the base, which others may read; unless that can
    # have no such record.
    target._history = base._history - (base._node is not None)


def _record_of(target: Value) -> list[tuple[Value, Any, int]]:
    """The changes of a write beside bits, of the target and of its base."""
    return [(v, v._node, history_of(v)) for v in (target, target._base) if v is not None]


def _put_record(target: Value, record: list[tuple[Value, Any, int]]) -> None:
    for value, node, history in record:
        value._node, value._history = node, history
        follow(value)


class Assign(MapOp):
    """A value in another dtype, as `copy_` and item assignment store it; `static` is the dtype."""

    __slots__ = ()

    def formula(self, ins: Sequence[Spec], static: Static) -> Formula:
        (dtype,) = static
        source = ins[0].dtype
        body = s.cast(arg(0, compute_type(source)), compute_type(dtype))
        return Formula((source,), (), (dtype,), (body,))


_assign = Assign("assign", "A value stored in another's place.")
name_operands(_assign.name, "self", "source")


def copied_at_once(target: Value, source: Any) -> bool:
    """Whether the source is stored now, by the plan of an earlier `copy_`."""
    kind = source._spec if isinstance(source, Value) else source.__class__
    plan = _KNOWN.get((_assign, target._spec, kind))
    return plan is not None and launched(plan, target, (source,))


def copy_(target: Value, source: Any) -> Value:
    """Store a tensor or a number in the target, broadcast and cast as needed."""
    if copied_at_once(target, source):
        return target
    if isinstance(source, Value):
        source = brought(source, target._spec.device)
    given = (source,)
    if _is_batch(target, source):
        whole, (ready,) = lanes.written("copy_", target, given)
        copy_(whole, ready)
        return target
    made = prepare_copy(target, source)
    made.finish()
    if made.plan.op is not _assign:
        return target
    if isinstance(given[0], Value):
        _remember(_assign, made.plan, target, given)
    elif target._spec.dtype.kind == "f" or (
        target._spec.dtype is int64 and given[0].__class__ is int
    ):
        _remember(_assign, fill_plan(target._spec), target, given)
    return target


def prepare_copy(target: Value, source: Any) -> Write:
    """The write of `copy_`; not for examples of a batch."""
    check_writable(target, "copy_")
    if not isinstance(source, Value):
        check_holds("copy_", source, source, target._spec.dtype)
        source = full_spec(Spec.of(target._spec.device, target._spec.dtype, ()), source)
    source = _without_overlap(source, target)
    if STATE.get().grad and edge_of(target) is not None:
        return _overwrite(target, source)
    # Assignment casts freely, as in PyTorch; `_plan_onto` would refuse a float result for an
    # integer target.
    plan = _plan_onto(_assign, (source,), (target._spec.dtype,), target._spec, "copy_")
    return prepare_write(target, plan, (source,), ())


def _overwrite(target: Value, source: Value) -> Write:
    """Store a value over one with a record: the old one's gradient is zero, not absent."""
    op: Elementwise = e.select.op  # type: ignore[attr-defined]
    never = full_spec(Spec.of(target._spec.device, bool_, ()), 0)
    inputs = (never, target, e.cast(source, target._spec.dtype))
    plan = _plan_onto(op, inputs, (None, None, None), target._spec, "copy_")
    return prepare_write(target, plan, inputs, ())


def constant_in(value: Value, x: Value) -> Value:
    """The value, recorded as a function of x whose derivative is zero."""
    never = full_spec(Spec.of(x._spec.device, bool_, ()), 0)
    return e.select(never, x, value)


_ADD_INTO = Cache()


def plan_sum(target: Value, value: Value) -> Plan:
    """Adds a value to another in place."""
    plan = _ADD_INTO.get((target._spec, value._spec))
    if plan is None:
        op: Elementwise = e.add.op  # type: ignore[attr-defined]
        plan = _plan_onto(op, (target, value), (None, None), target._spec, "add_")
        _ADD_INTO.keep((target._spec, value._spec), plan)
    return plan


def _is_alone(storage: Storage) -> bool:
    """Whether a sum in a plain storage is told to nobody: no recipe reads it, no region listens."""
    region = STATE.get().region
    return region is None or not (region.listens or is_read(storage))


def add_into(target: Value, value: Value, last: bool = False) -> None:
    """target += value, outside the record: the sum of gradients.

    `last`: target = value + target, of one spec. The bits of a NaN are those of the first.
    """
    plan = plan_sum(target, value)
    impure()
    storage, other = target._memory, value._memory
    if storage.recipe is None and other.recipe is None and _is_alone(storage):
        at = storage.address + target._offset  # type: ignore[operator]
        by = other.address + value._offset  # type: ignore[operator]
        plan.launch(at, by if last else at, at if last else by, *plan.tail)  # type: ignore[misc]
        mark_summed(storage)
    else:
        write_into([target], plan, (value, target) if last else (target, value), ())
        storage.written = None  # no source line, as in `mark_summed`


def copy_into(target: Value, value: Value) -> None:
    """target's bits = value's, of the same dtype and shape, outside the record."""
    plan = _plan_onto(_assign, (value,), (target._spec.dtype,), target._spec, "copy_")
    write_into([target], plan, (value,), ())


class Update(MapOp):
    """A fused in-place update of several tensors of one shape, e.g. an optimiser's step.

    `body(*inputs, *params)` gives the new value of each target; the targets are the first inputs.
    """

    __slots__ = ("body", "n_params", "targets")

    def __init__(
        self,
        name: str,
        body: Callable[..., tuple[Expr, ...]],
        targets: int,
        n_params: int,
        doc: str,
    ) -> None:
        super().__init__(name, doc)
        self.body = body
        self.targets = targets
        self.n_params = n_params

    def formula(self, ins: Sequence[Spec], static: Static) -> Formula:
        # One compute type for all, that of the first target: parameters in half precision update in
        # float32.
        compute = compute_type(ins[0].dtype)
        leaves = [s.cast(arg(i, compute_type(spec.dtype)), compute) for i, spec in enumerate(ins)]
        params = [param(i, compute) for i in range(self.n_params)]
        results = self.body(*leaves, *params)
        outputs = tuple(spec.dtype for spec in ins[: self.targets])
        body = tuple(s.cast(r, compute_type(d)) for r, d in zip(results, outputs, strict=True))
        return Formula(tuple(spec.dtype for spec in ins), (compute,) * self.n_params, outputs, body)

    def __call__(self, inputs: Sequence[Value], params: tuple[float, ...]) -> None:
        """Write the new values into the first inputs; nothing is recorded.

        Complex numbers are updated as real and imaginary parts.
        """
        write = self.prepared(inputs, params)
        write_into(write.targets, write.plan, write.inputs, params)

    def prepared(self, inputs: Sequence[Value], params: tuple[float, ...]) -> Write:
        """The write of a call."""
        if STATE.get().dual is not None:
            STATE.get().dual.refuse(self.name, "step outside of the level", *inputs[: self.targets])
        if inputs[0]._spec.dtype.kind == "c":
            with Changed(grad=False):
                inputs = [
                    complex_parts.split(v) if v._spec.dtype.kind == "c" else v for v in inputs
                ]
        specs = tuple(v._spec for v in inputs)
        if any(spec.hidden for spec in specs):
            raise InplaceError(
                f"{self.name}: written in place for one example of a batch; do it outside of vmap"
            )
        plan = self.plans.get(specs)
        if plan is None:
            check_devices(self.name, specs)
            if any(spec.shape != specs[0].shape for spec in specs[: self.targets]):
                raise ShapeError(
                    f"{self.name}: operands {', '.join(map(repr, specs))} must have one shape"
                )
            outs = specs[: self.targets]
            plan = self.plans.keep(specs, map_plan(self, self.formula(specs, ()), specs, outs, ()))
        return Write(inputs[: self.targets], plan, inputs, params)
