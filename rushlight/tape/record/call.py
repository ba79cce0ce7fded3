"""The hot path: one call of an op, from handles to handles.

# Note [Hot path]
1. A plan is found by the identity of the operands' specs; everything that depends on them alone is
   in the plan.
2. Results are made without `__init__`, slot by slot: a Python call costs as much as the rest of a
   small op. An elementwise op's function is generated code (Note [Call template]).
3. A storage that is dropped, or may be, has address None, which a kernel refuses with TypeError
   before anything runs; then the storage is made plain, rebuilt if necessary, and the kernel called
   again. So the path has no test for it, and no address that it reads can become another's. A value
   without a base has offset 0.
4. In a region (`state.region`) calls go through `tape.memory.replay`, which pins and leaves
   recipes. `state.special` is true where anything besides the grad mode is set; then calls take the
   general path.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import CodeType
from typing import Any

from rushlight.core.errors import RushlightError, ShapeError
from rushlight.core.shapes import Spec
from rushlight.devices.shared.allocator import Storage
from rushlight.tape.memory import replay
from rushlight.tape.record import needed, template
from rushlight.tape.record.op import Op, Plan, Static
from rushlight.tape.record.source_line import CALLED, OURS, find_place
from rushlight.tape.record.state import STATE, is_inference, without_autocast
from rushlight.tape.record.value import Node, Output, Value, history_of

new = object.__new__
get_frame = sys._getframe
get_state = STATE.get
is_ours = OURS.get
get_called = CALLED.get
users_last: CodeType | None = None  # the last user code object: most calls come from the same one
Handle: type[Value] = Value  # becomes Tensor when the package is imported


def set_handle(kind: type[Value]) -> None:
    global Handle
    Handle = kind


def plan_for(op: Op, inputs: Sequence[Value], static: Static) -> Plan:
    if len(inputs) == 1:
        key: Any = (static, inputs[0]._spec)
    else:
        key = (static, *[v._spec for v in inputs])
    plan = op.plans.get(key)
    if plan is None:
        plan = make_plan(op, [v._spec for v in inputs], static)
        if not _holds_value(static):  # the key would keep its memory
            op.plans.keep(key, plan)
    return plan


def _holds_value(static: Any) -> bool:
    return any(
        isinstance(s, Value) or (isinstance(s, (tuple, list)) and _holds_value(s)) for s in static
    )


def make_plan(op: Op, specs: Sequence[Spec], static: Static) -> Plan:
    """A plan, or a BatchPlan where an operand is batched."""
    for spec in specs:
        if spec.hidden:
            return needed.Needed.batch_plan(op, specs, static)
    return op.make_plan(specs, static)


def make_value(spec: Any, storage: Storage, offset: int = 0, node: Any = None) -> Value:
    value = new(Handle)
    value._spec = spec
    value._memory = storage
    value._offset = offset
    value._node = node
    value._base = None
    return value


def lay(spec: Any, storage: Storage, offset: int = 0, node: Any = None) -> Value:
    """`make_value` for a layout that no plan made: checked against the storage.

    See Note [Reach].
    """
    check_reach(spec, storage, offset)
    return make_value(spec, storage, offset, node)


def check_reach(spec: Any, storage: Storage, offset: int) -> None:
    if spec.numel and (offset + spec.low < 0 or offset + spec.high > storage.room):
        raise ShapeError(
            f"sizes {list(spec.shape)} of {spec.dtype.name} with strides {list(spec.strides)} from "
            f"byte {offset} on reach outside of a storage of {storage.room} bytes"
        )


def detached(value: Value) -> Value:
    """The same memory without a record, also after writes to its base."""
    if value._spec.hidden:
        return needed.Needed.detach_batch(value)
    return rooted(make_value(value._spec, value._memory, value._offset))


def rooted(value: Value) -> Value:
    """A value without a base at an offset or with gaps becomes a view of all it spans.

    So a value without a base is dense and at offset 0. The hot path relies on it, and so do writes
    to views. See Note [Layouts of results].
    """
    spec = value._spec
    if value._offset or not spec.dense:
        span = (value._offset + spec.high) // spec.dtype.itemsize if spec.numel else 0
        value._base = lay(type(spec).of(spec.device, spec.dtype, (span,)), value._memory)
    return value


# The caller of the function that calls `run`: a depth for `record`, called by `run` itself.
_CALLED_BY = 4


def call(op: Op, inputs: Sequence[Value], static: Static = (), params: tuple[Any, ...] = ()) -> Any:
    """Run `op` and record it; one value, or a tuple where the op has several results."""
    return run(plan_for(op, inputs, static), inputs, params)


def run(plan: Any, inputs: Sequence[Value], params: tuple[Any, ...] = ()) -> Any:
    state = STATE.get()
    if state.special:
        region = state.region
        if region is not None and state.regional and len(plan.outs) == 1:
            if plan.launch:
                return _run_one(plan, inputs, params, state, region)
            if len(inputs) == 1 and not (plan.beyond or region.chooses):
                skip = plan.skip(params) if plan.stride else plan.offsets[0]
                out = run_view(plan, inputs[0], params, skip, state)
                if out._node is not None and (out._node.saved or out._node.outs):
                    announce(out._node, state)
                return out
        return _run_slowly(plan, inputs, params, state)
    if plan.launch is None:
        if len(plan.outs) != 1 or len(inputs) != 1 or plan.beyond:
            return _run_slowly(plan, inputs, params, state)
        skip = plan.skip(params) if plan.stride else plan.offsets[0]
        return run_view(plan, inputs[0], params, skip, state)
    try:
        ins = [v._memory.address + v._offset for v in inputs]  # type: ignore[operator]
    except TypeError:
        ins = replay.addresses(inputs)
    if len(plan.outs) == 1:
        out = launch_one(plan, ins, params, state.birth)
        if state.grad:
            out._node = record(plan, inputs, params, (out._memory,), _CALLED_BY)
        return out
    made = launch_at(plan, ins, params, state.birth)
    if state.grad:
        node = record(plan, inputs, params, [value._memory for value in made], _CALLED_BY)
        if node is not None:
            give_outputs(node, made)
    return tuple(made)


def run_view(plan: Plan, x: Value, params: tuple[Any, ...], skip: int, state: Any) -> Value:
    """One view of a value, at a byte offset inside of it, where nothing special is set."""
    node = None
    base = x._base
    if state.grad:
        if base is not None and is_stale(x, base):
            node = record(plan, (x,), params, (x._memory,))  # which may give x another base
            base = x._base
        elif x._node is not None and plan.out.differentiable:
            grad = plan.grads.get(1) or plan.grad(1)
            saved = (x,) if grad.saves_in else ()
            node = make_node(plan, params, (x._node,), grad, saved, ())
    out = new(Handle)
    out._spec = plan.out
    out._memory = x._memory
    out._offset = x._offset + skip
    out._node = node
    out._base = x if base is None else base
    out._history = history_of(x)
    return out


def is_stale(x: Value, base: Value) -> bool:
    """Whether the base was written to since the view x was made."""
    return history_of(x) != history_of(base)


def _run_slowly(plan: Any, inputs: Sequence[Value], params: tuple[Any, ...], state: Any) -> Any:
    """A view, or a call with something special around it."""
    region = state.region
    offset = 0
    if plan.launch is None:
        if not plan.outs:  # a BatchPlan: see Note [Batching]
            return plan.run(inputs, params)
        storages = [inputs[0]._memory]
        offset = inputs[0]._offset
    elif region is None:
        storages = [make_storage(plan.pool, room, state.birth) for room in plan.rooms]
        launch_plan(plan, storages, inputs, params)
    else:
        storages = replay.run_in_region(plan, inputs, params, region)
        for storage in storages:
            storage.version = state.birth
    node = record(plan, inputs, params, storages, 1 + _CALLED_BY) if state.grad else None
    if node is not None and state.special:
        announce(node, state)
    if plan.stride:
        offset += plan.skip(params)
    result = wrap(plan, inputs, storages, offset, node)
    if region is not None and region.chooses:
        region.choose(plan, inputs, result)
    if state.special:
        if state.trace is not None:
            state.trace.append((plan, inputs, params, result, state.grad))
        if state.dual is not None:
            state.dual.follow(plan, inputs, params, result)
    return result


def _run_one(
    plan: Any, inputs: Sequence[Value], params: tuple[Any, ...], state: Any, region: Any
) -> Value:
    """A call with one result, in a region, which another thread may take from the state."""
    (storage,) = replay.run_in_region(plan, inputs, params, region)
    storage.version = state.birth
    out = new(Handle)
    out._spec = plan.out
    out._memory = storage
    out._offset = 0
    out._base = None
    node = record(plan, inputs, params, (storage,), 1 + _CALLED_BY) if state.grad else None
    out._node = node
    if node is not None:
        announce(node, state)
    if region.chooses:
        region.choose(plan, inputs, out)
    return out


def announce(node: Node, state: Any) -> None:
    """Announce a new record to the region and the hooks of saves, which may drop its saves."""
    region = state.region
    if region is not None:
        foresight = region.foresight
        if foresight is None or not foresight.followed or region.tells:
            region.note(node)
    if state.saving is not None:
        if state.dual is not None and node.saved:
            state.dual.refuse(
                "packing a save", "use no saved tensor hooks inside a dual level", *node.saved
            )
        state.saving.pack_saves(node)


def launch_plan(
    plan: Plan, storages: Sequence[Storage], inputs: Sequence[Value], params: tuple[Any, ...]
) -> None:
    assert plan.launch is not None
    try:
        ins = [v._memory.address + v._offset for v in inputs]  # type: ignore[operator]
    except TypeError:
        ins = replay.addresses(inputs)
    plan.launch(*[s.address for s in storages], *ins, *plan.tail, *params)


def wrap(
    plan: Plan, inputs: Sequence[Value], storages: Sequence[Storage], offset: int, node: Node | None
) -> Any:
    if plan.launch is None:
        if plan.beyond:
            check_reach(plan.out, inputs[0]._memory, offset + plan.offsets[0])
        values = [
            make_view(inputs[0], spec, offset + step)
            for spec, step in zip(plan.outs, plan.offsets, strict=True)
        ]
    else:
        values = [make_value(spec, s) for spec, s in zip(plan.outs, storages, strict=True)]
    if len(values) == 1:
        values[0]._node = node
        return values[0]
    if node is not None:
        give_outputs(node, values)
    return tuple(values)


def give_outputs(node: Node, values: Sequence[Value]) -> None:
    """Give each of several results its Output of the record."""
    for i, value in enumerate(values):
        if value._spec.differentiable:
            value._node = Output(node, i)


def make_view(source: Value, spec: Any, offset: int) -> Value:
    value = make_value(spec, source._memory, offset)
    base = source._base
    value._base = source if base is None else base
    value._history = history_of(source)
    return value


def record(
    plan: Plan,
    inputs: Sequence[Value],
    params: tuple[Any, ...],
    storages: Sequence[Storage],
    depth: int = 2,
) -> Node | None:
    """The call's node, or None when no input needs a gradient.

    The frames up to `depth`, counted from `mark`, are this package's.
    """
    needs = 0
    bit = 1
    edges = []
    for value in inputs:
        if value._base is not None and history_of(value) != history_of(value._base):
            needed.refresh_view(value)
        edge = value._node
        if edge is not None:
            needs |= bit
        edges.append(edge)
        bit <<= 1
    if not needs or not plan.out.differentiable:
        return None
    grad = plan.grads.get(needs) or plan.grad(needs)
    node = new(Node)
    node.plan = plan
    node.params = params
    node.edges = tuple(edges)
    node.grad = grad
    version = 0
    saved = []
    for i in grad.saves_in:
        value = inputs[i]
        version += value._memory.version
        saved.append(value)
    node.saved = tuple(saved)
    node.outs = outs = tuple([storages[j] for j in grad.saves_out])
    for storage in outs:
        version += storage.version
    if version < 0:
        refuse_save(plan.op.name, saved)
    node.version = version
    node.hooks = node.dropped = None
    mark(node, depth)
    return node


def refuse_save(name: str, saved: Sequence[Value]) -> None:
    """See Note [Inference tensors] 3."""
    made = ", ".join(repr(v._spec) for v in saved if is_inference(v._memory))
    raise RushlightError(
        f"{name}: its backward would need {made}, made in inference_mode(), which keeps no account "
        "of writes; .clone() it first, or make it under no_grad()"
    )


def mark(node: Node, depth: int) -> None:
    """Note the source line of the call. See Note [Source lines]."""
    node.chain = chain = get_called()
    if chain is not None and chain[2]:
        node.code, node.at = chain[2]
        return
    try:
        frame = get_frame(depth)
    except ValueError:  # a callback of the interpreter has no caller
        frame = get_frame(1)
    node.code, node.at = find_place(frame, chain)


def call_map(op: Op, inputs: Sequence[Value], params: tuple[Any, ...]) -> Any:
    """`call` for ops without static parameters: for derivatives in the hot path."""
    return run(map_plan_for(op, tuple([v._spec for v in inputs])), inputs, params)


def map_plan_for(op: Op, specs: tuple[Spec, ...]) -> Plan:
    """`plan_for` of an op without static parameters."""
    plan = op.plans.get(specs)
    return op.plans.keep(specs, make_plan(op, specs, ())) if plan is None else plan


def launch_at(plan: Plan, ins: Sequence[int], params: tuple[Any, ...], birth: int = 0) -> Any:
    """Run a plan on input addresses, outside regions, without a record; one value, or several."""
    count = len(plan.outs)
    if count == 1:
        return launch_one(plan, ins, params, birth)
    pool = plan.pool
    storages = [make_storage(pool, room, birth) for room in plan.rooms]
    plan.launch(*[s.address for s in storages], *ins, *plan.tail, *params)  # type: ignore[misc]
    if count == 2:
        return make_value(plan.out, storages[0]), make_value(plan.outs[1], storages[1])
    return [make_value(spec, s) for spec, s in zip(plan.outs, storages, strict=True)]


def defined(code: CodeType, name: str) -> Callable[..., Any]:
    """The functions that generated code defines, over the names of this file."""
    made: dict[str, Any] = {}
    exec(code, globals(), made)
    return made[name]


# A new storage of a pool: make_storage(pool, room, birth=0).
make_storage = replay.make_storage
following = replay.following
# `launch_at` for one result.
launch_one: Callable[..., Value] = defined(template.launching(), "launch_one")


def make_node(
    plan: Plan,
    params: tuple[Any, ...],
    edges: tuple[Any, ...],
    grad: Any,
    saved: tuple[Any, ...],
    outs: tuple[Storage, ...],
    depth: int = 2,
) -> Node:
    """The record of a call with new results, of which `outs` are saved: their version is 0.

    The caller of the op is `depth` frames above. See Note [Source lines] for the last lines.
    """
    global users_last
    node = new(Node)
    node.plan = plan
    node.params = params
    node.edges = edges
    node.grad = grad
    node.saved = saved
    version = 0
    for value in saved:
        version += value._memory.version
    if version < 0:
        refuse_save(plan.op.name, saved)
    node.version = version
    node.outs = outs
    node.hooks = node.dropped = None
    node.chain = chain = get_called()
    if chain is not None and chain[2]:
        node.code, node.at = chain[2]
        return node
    try:
        frame = get_frame(depth)
    except ValueError:  # a callback of the interpreter has no caller
        frame = get_frame(1)
    code = frame.f_code
    if code is not users_last:
        if is_ours(code.co_filename, True):
            node.code, node.at = find_place(frame, chain)
            return node
        users_last = code
    node.code = code
    node.at = frame.f_lasti
    return node


def make_call(
    op: Op,
    fallback: Callable[..., Any],
    arity: int,
    second: str = "other",
    is_operator: bool = False,
) -> Callable[..., Any]:
    """The function of an elementwise op with so many operands. See Note [Call template]."""
    numbers = {}
    casts = op.casts is not None
    if arity == 2:
        bind = defined(template.calling_number(casts), "bind")
        numbers = {kind: bind(table, fallback, {}) for kind, table in op.number_plans.items()}
    code = template.calling(arity, second, is_operator, casts)
    return defined(code, "bind")(op.plans, fallback, numbers)


def stored(fallback: Callable[..., Any], operands: tuple[Any, ...], out: Any) -> Any:
    """A call with `out=`, or with an operand too many. See Note [Out arguments]."""
    if out is None:
        return fallback(*operands)  # which counts its operands
    result = without_autocast(fallback, operands, {})
    return needed.Needed.store_out(fallback.__name__, out, result)


class _NoPlan:
    """The initial content of a call site's cache: it matches no operands."""

    first = second = object()


NO_PLAN = _NoPlan()
