"""The hot path: one call of an op, from handles to handles.

# Note [Hot path]
1. A plan is found by the identity of the operands' specs; everything that can be known from them is in the plan.
2. Results are made without `__init__`, slot by slot: a Python call costs as much as the rest of a small op.
3. A dropped storage has address None; adding the offset to it raises TypeError before anything runs, and the call starts again
   after the storage is rebuilt. So the path has no test for it.
4. In a region (`state.region`) the longer way through `tape.replay` is taken, which pins and leaves recipes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rushlight.devices.allocator import Storage
from rushlight.tape import needed, replay
from rushlight.tape.op import Op, Plan, Static
from rushlight.tape.state import STATE
from rushlight.tape.value import Node, Output, Value

new = object.__new__
Handle: type[Value] = Value  # becomes Tensor when the package is imported


def set_handle(kind: type[Value]) -> None:
    global Handle
    Handle = kind


def plan_for(op: Op, inputs: Sequence[Value], static: Static) -> Plan:
    key = (static, *[v.spec for v in inputs])
    plan = op.plans.get(key)
    if plan is None:
        plan = op.plans[key] = op.make_plan([v.spec for v in inputs], static)
    return plan


def make_storage(pool: Any, room: int) -> Storage:
    """A new storage; the same as Storage(pool, room), written out for speed in `call_*`."""
    blocks = pool.free.get(room)
    address = blocks.pop() if blocks else pool.fresh(room)
    live = pool.live = pool.live + room
    if live > pool.peak:
        pool.peak = live
    storage = new(Storage)
    storage.address = address
    storage.pool = pool
    storage.room = room
    storage.version = 0
    return storage


def make_value(spec: Any, storage: Storage, offset: int = 0, node: Any = None) -> Value:
    value = new(Handle)
    value.spec = spec
    value.storage = storage
    value.offset = offset
    value.node = node
    value.base = None
    return value


def detached(value: Value) -> Value:
    """The same memory without a record."""
    return make_view(value, value.spec, value.offset)


def call(op: Op, inputs: Sequence[Value], static: Static = (), params: tuple[Any, ...] = ()) -> Any:
    """Run `op` and record it; one value, or a tuple where the op has several results."""
    return run(plan_for(op, inputs, static), inputs, params)


def run(plan: Plan, inputs: Sequence[Value], params: tuple[Any, ...] = ()) -> Any:
    state = STATE.get()
    region = state.region
    offset = 0
    if plan.launch is None:
        storages = [inputs[0].storage]
        offset = inputs[0].offset
    elif region is None:
        storages = [make_storage(plan.pool, room) for room in plan.rooms]
        launch_plan(plan, storages, inputs, params)
    else:
        storages = replay.run_in_region(plan, inputs, params, region)
    node = record(plan, inputs, params, storages) if state.grad else None
    if region is not None and node is not None:
        region.note(node)
    return wrap(plan, inputs, storages, offset, node)


def launch_plan(plan: Plan, storages: Sequence[Storage], inputs: Sequence[Value], params: tuple[Any, ...]) -> None:
    assert plan.launch is not None
    try:
        ins = [v.storage.address + v.offset for v in inputs]  # type: ignore[operator]
    except TypeError:
        ins = replay.addresses(inputs)
    plan.launch(*[s.address for s in storages], *ins, *plan.tail, *params)


def wrap(plan: Plan, inputs: Sequence[Value], storages: Sequence[Storage], offset: int, node: Node | None) -> Any:
    if plan.launch is None:
        values = [
            make_view(inputs[0], spec, offset + step) for spec, step in zip(plan.outs, plan.offsets, strict=True)
        ]
    else:
        values = [make_value(spec, s) for spec, s in zip(plan.outs, storages, strict=True)]
    if len(values) == 1:
        values[0].node = node
        return values[0]
    if node is not None:
        for i, value in enumerate(values):
            if value.spec.dtype.kind == "f":
                value.node = Output(node, i)
    return tuple(values)


def make_view(source: Value, spec: Any, offset: int) -> Value:
    value = make_value(spec, source.storage, offset)
    base = source.base
    value.base = source if base is None else base
    value.history = source.history
    return value


def record(plan: Plan, inputs: Sequence[Value], params: tuple[Any, ...], storages: Sequence[Storage]) -> Node | None:
    """The call's node, or None when no input needs a gradient."""
    needs = 0
    bit = 1
    edges = []
    for value in inputs:
        if value.base is not None and value.history != value.base.history:
            needed.refresh_view(value)
        edge = value.node
        if edge is not None:
            needs |= bit
        edges.append(edge)
        bit <<= 1
    if not needs or plan.outs[0].dtype.kind != "f":
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
        version += value.storage.version
        saved.append(value)
    node.saved = tuple(saved)
    node.outs = outs = tuple([storages[j] for j in grad.saves_out])
    for storage in outs:
        version += storage.version
    node.version = version
    return node


def call_map(op: Op, inputs: Sequence[Value], params: tuple[Any, ...]) -> Any:
    """`call` for ops without static parameters: a derivative's way into the hot path."""
    plan = op.plans.get(tuple([v.spec for v in inputs]))
    if plan is None:
        specs = tuple([v.spec for v in inputs])
        plan = op.plans[specs] = op.make_plan(specs, ())
    if len(plan.outs) > 1 or STATE.get().region is not None or STATE.get().grad:
        return run(plan, inputs, params)
    storage = make_storage(plan.pool, plan.rooms[0])
    launch_plan(plan, (storage,), inputs, params)
    return make_value(plan.outs[0], storage)


def make_unary(op: Op, fallback: Callable[..., Any]) -> Callable[[Any], Any]:
    """`op(x)` for one tensor, the steps of `run` and `record` written out. See Note [Hot path]."""
    plans = op.plans
    get_state = STATE.get

    def function(x: Any) -> Any:
        try:
            plan = plans[x.spec]
        except (KeyError, AttributeError):
            return fallback(x)
        state = get_state()
        if state.region is not None or x.base is not None:
            return run(plan, (x,))
        pool = plan.pool
        room = plan.rooms[0]
        blocks = pool.free.get(room)
        storage = new(Storage)
        storage.address = None
        storage.address = address = blocks.pop() if blocks else pool.fresh(room)
        storage.pool = pool
        storage.room = room
        storage.version = 0
        live = pool.live = pool.live + room
        if live > pool.peak:
            pool.peak = live
        source = x.storage
        try:
            plan.launch(address, source.address + x.offset, *plan.tail)
        except TypeError:
            launch_plan(plan, (storage,), (x,), ())
        out = new(Handle)
        out.spec = plan.outs[0]
        out.storage = storage
        out.offset = 0
        out.base = None
        edge = x.node
        if edge is None or not state.grad:
            out.node = None
            return out
        grad = plan.grads.get(1) or plan.grad(1)
        out.node = node = new(Node)
        node.plan = plan
        node.params = ()
        node.edges = (edge,)
        node.grad = grad
        if grad.saves_in:
            node.saved = (x,)
            node.version = source.version
        else:
            node.saved = ()
            node.version = 0
        node.outs = (storage,) if grad.saves_out else ()
        return out

    return function


def make_binary(op: Op, fallback: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    """`op(x, y)` for two tensors, written out as in `make_unary`; other operands go to `fallback`."""
    plans = op.plans
    get_state = STATE.get

    def function(x: Any, y: Any) -> Any:
        kind = y.__class__
        if kind is float or kind is int:
            return fallback(x, y)
        try:
            plan = plans[x.spec, y.spec]
        except (KeyError, AttributeError):
            return fallback(x, y)
        state = get_state()
        if state.region is not None or x.base is not None or y.base is not None:
            return run(plan, (x, y))
        pool = plan.pool
        room = plan.rooms[0]
        blocks = pool.free.get(room)
        storage = new(Storage)
        storage.address = None
        storage.address = address = blocks.pop() if blocks else pool.fresh(room)
        storage.pool = pool
        storage.room = room
        storage.version = 0
        live = pool.live = pool.live + room
        if live > pool.peak:
            pool.peak = live
        try:
            plan.launch(address, x.storage.address + x.offset, y.storage.address + y.offset, *plan.tail)
        except TypeError:
            launch_plan(plan, (storage,), (x, y), ())
        out = new(Handle)
        out.spec = plan.outs[0]
        out.storage = storage
        out.offset = 0
        out.base = None
        first = x.node
        second = y.node
        if (first is None and second is None) or not state.grad:
            out.node = None
            return out
        out.node = record(plan, (x, y), (), (storage,))
        return out

    return function
