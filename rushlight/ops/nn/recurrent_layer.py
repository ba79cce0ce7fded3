"""One direction of a recurrent layer over all steps, as one op.

The op saves its operands, the states before each chunk, and, where there is room, the gates of all
steps (Note [Recurrent chunks]). With `create_graph`, under `vmap`, for operands of several dtypes
(a GRU under `autocast` on the CPU) and of operands without elements the layer is a loop of ordinary
calls instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight.core.dtypes import FLOAT
from rushlight.core.shapes import Spec, numel
from rushlight.devices.shared.allocator import room_for
from rushlight.ops.family.build import check_device_dtype
from rushlight.ops.nn.recurrent import States, Weights, loop
from rushlight.ops.nn.recurrent_cells import has_cells, scratch_of
from rushlight.ops.nn.recurrent_gradient import PART, Backward
from rushlight.ops.nn.recurrent_launches import Forward, Launches
from rushlight.ops.nn.recurrent_sizes import GATES, Layer
from rushlight.ops.view import views
from rushlight.tape.memory.pass_ahead import gradient_bytes
from rushlight.tape.memory.requirement import leaves_to_come
from rushlight.tape.record import call
from rushlight.tape.record.needed import is_followed
from rushlight.tape.record.op import Grad, Op, Plan, Static, check_devices
from rushlight.tape.record.state import STATE, Changed
from rushlight.tape.record.value import Leaf, Value
from rushlight.tape.walk import roots

NAME = "recurrent_layer"
_COST_OF_PRODUCT = 0.02  # see matmul


def _layer(ins: Sequence[Spec], static: Static) -> Layer:
    """The layer of operands, where `static` begins with mode, counts, reverse, bias and keeps."""
    mode, counts, reverse, bias, keeps = static[:5]
    w_ih, w_hh = ins[3 if mode == "LSTM" else 2 :][:2]
    hidden = w_hh.shape[0] // GATES[mode]
    return Layer(mode, counts, reverse, w_ih.shape[1], hidden, w_hh.shape[1], bias, keeps)


def _cost(layer: Layer) -> float:
    return _products(layer) * _COST_OF_PRODUCT + layer.rows * layer.gates * 3


def _products(layer: Layer) -> int:
    return layer.rows * layer.gates * (layer.width + layer.shown)


class Recurrent(Op):
    """All steps of a layer: output and final states, then saves. See `Layer` for the names.

    `static` is (mode, counts, reverse, bias, keeps).
    """

    __slots__ = ()

    def make_plan(self, ins: Sequence[Spec], static: Static) -> Plan:
        pool = check_devices(NAME, ins)
        dtype = ins[0].dtype
        check_device_dtype(NAME, pool, dtype)
        layer = _layer(ins, static)
        names = (*layer.results, *layer.saves)
        outs = [Spec.of(pool, dtype, layer.shape(name, dtype)) for name in names]
        launches = Launches(pool, layer, dtype)
        launch = Forward(launches)
        cost, products = _cost(layer), _products(layer)
        plan = Plan(self, ins, outs, launch, static, cost=cost, products=products)
        plan.roomy = layer.keeps > 0
        return plan

    def make_grad(self, plan: Plan, needs: int) -> Grad:
        layer, n = _layer(plan.ins, plan.static), len(plan.ins)
        count = len(layer.results)
        asked = tuple(name for i, name in enumerate(layer.operands) if needs >> i & 1)
        # Saved: the starts and what is kept; the output is the first result.
        saved = (*range(count, len(plan.outs)), *((0,) if layer.keeps > 0 else ()))

        def rule(grads: list[Any], values: list[Any], params: tuple[Any, ...]) -> list[Any]:
            came = grads[:count]
            recorded = STATE.get().grad or layer.keeps < 0
            if recorded or any(g is not None and g._spec.hidden for g in came):
                return _by_steps(came, values[:n], plan.static, needs)
            names = tuple(r for r, g in zip(layer.results, came, strict=True) if g is not None)
            outs = values[n:]
            starts = count + len(layer.states)
            given = [*[g for g in came if g is not None], *values[:n], *outs[count:starts]]
            given += [outs[0], *outs[starts:]] if layer.keeps else []
            static = (*plan.static, asked, names)
            made = call.call(_gradient, [views.contiguous(v) for v in given], static)
            parts = dict(zip(asked, made if isinstance(made, tuple) else (made,), strict=True))
            return [parts.get(name) for name in layer.operands]

        grad = Grad(needs, tuple(range(n)), tuple(sorted(saved)), rule)
        grad.dense = True
        return grad


class RecurrentGradient(Op):
    """The gradients of the operands that are asked for.

    `static` is (mode, counts, reverse, bias, keeps, asked, came): see `Backward`.
    """

    __slots__ = ()

    def make_plan(self, ins: Sequence[Spec], static: Static) -> Plan:
        asked, came = static[5:]
        pool: Any = ins[0].device
        dtype = ins[0].dtype
        layer = _layer(ins[len(came) :], static)
        outs = [Spec.of(pool, dtype, layer.shape(name, dtype)) for name in asked]
        launches = Launches(pool, layer, dtype)
        again = 1 - layer.keeps / len(launches.chunks)
        launch = Backward(launches, asked, came)
        cost, products = _cost(layer) * (2 + again), _products(layer) * 2
        plan = Plan(self, ins, outs, launch, static, cost=cost, products=products)
        plan.over = [(asked.index("rows"), len(came))] if "rows" in asked else ()
        plan.roomy = layer.keeps > 0
        return plan


_recurrent = Recurrent(NAME, "All steps of one direction of a recurrent layer.")
_gradient = RecurrentGradient(f"{NAME}_grad", "Derivative of a recurrent layer.")


def _by_steps(
    grads: Sequence[Any], operands: Sequence[Value], static: Static, needs: int
) -> list[Any]:
    """The gradients by ordinary calls, recorded where the pass is."""
    mode, counts, reverse = static[:3]
    recorded = STATE.get().grad
    own = [_own(v, recorded) for v in operands]
    with Changed(grad=True):
        results = _loop(mode, own, counts, reverse)
    pairs = [(r, g) for r, g in zip(results, grads, strict=True) if g is not None]
    sought = [v for i, v in enumerate(own) if needs >> i & 1]
    parts = iter(
        roots.grad(
            [r for r, _ in pairs],
            sought,
            [g for _, g in pairs],
            create_graph=recorded,
            allow_unused=True,
        )
    )
    return [next(parts) if needs >> i & 1 else None for i in range(len(own))]


def _own(v: Value, recorded: bool) -> Value:
    """An operand with a record of its own: it may be given twice."""
    if recorded and v._node is not None:
        return call.call(views.same_view, (v,), (v._spec.shape,))
    made = call.detached(v)
    made._node = Leaf(made)
    return made


def _loop(mode: str, operands: Sequence[Value], counts: Sequence[int], reverse: bool) -> States:
    """Output and final states of a layer by ordinary calls."""
    count = 2 if mode == "LSTM" else 1
    rows, states, weights = operands[0], operands[1 : 1 + count], list(operands[1 + count :])
    if len(weights) == 3:
        weights[2:] = [None, None, weights[2]]  # type: ignore[list-item]
    out, final = loop(mode, rows, counts, tuple(states), Weights(*weights), reverse)
    return (out, *final)


def _scratch_bytes(layer: Layer, most: int, states: int, size: int) -> int:
    """What the derivative takes beside its operands and results, in chunks of at most these rows.

    A bound of `Backward.counts`, with the blocks of chunks that are run again or without.
    """
    rows, gates, hidden, shown = most + layer.batch, layer.gates, layer.hidden, layer.shown
    largest = gates * max(layer.width, shown)
    part = max(gates, min(PART // size, largest))
    counts = [
        rows * states * (1 if layer.is_even else 2),
        layer.batch * gates,
        max(most * gates, largest),
        *([most * gates] if layer.mode == "GRU" else ()),  # the slopes of the states' part of n
        max(0, part - most * hidden) if layer.is_lstm else part,
        *([rows * (hidden + shown)] if layer.projects else ()),
    ]
    return sum(room_for(count * size) for count in counts) + _ROUNDING


_ROUNDING = 1 << 15  # of a call's other blocks, some sixteen, which are whole pages


def _keeps(layer: Layer, operands: Sequence[Value], later: int) -> int:
    """The number of chunks of which all is saved: see `Layer.keeps`.

    Inside a budget they are as many as leave room for the backward passes of this layer and of
    `later` ones like it: the states of each, the gradients of all leaves that have none, and, of
    one layer, the output and its gradient and what a chunk takes. The rows are in use now, and
    their gradient is written over them.
    """
    if not any(map(is_followed, operands)):
        return -1
    spec = operands[0]._spec
    pool: Any = spec.device
    chunks = layer.chunks(spec.dtype)
    if pool.limit is None:
        return len(chunks)

    size, most = spec.dtype.itemsize, max(chunk.rows for chunk in chunks)

    def nbytes(*names: str) -> int:
        return sum(numel(layer.shape(name, spec.dtype)) for name in names) * size

    states = layer.shown + (layer.hidden if layer.is_lstm else 0)
    scratch = _scratch_bytes(layer, most, states, size)
    if has_cells(pool, layer, spec.dtype):
        scratch += sum(room_for(count * size) for count in scratch_of(layer))
    needed = nbytes("out", "out") + (1 + later) * nbytes(*layer.starts)
    room = pool.limit - pool.live - needed - scratch - gradient_bytes(leaves_to_come(pool))
    each = (layer.gates + layer.hidden) * size
    if layer.is_simple or room >= layer.rows * each:
        return len(chunks) if room >= 0 else 0
    return max(0, (room - most * states * size) // (most * each))


def layer(
    mode: str,
    rows: Value,
    counts: Sequence[int],
    states: States,
    weights: Weights,
    reverse: bool,
    later: int = 0,
) -> tuple[Value, States]:
    """The states h after each step, as rows, and those after each sequence's last.

    `later` counts the layers that follow. See Note [Recurrent layers].
    """
    given = (rows, *states, *weights.given())
    autocast = STATE.get().autocast
    by_steps = False
    if autocast is not None and autocast.is_on(rows):
        by_steps = mode == "GRU" and rows._spec.device.device.name == "cpu"  # as in PyTorch
        if not by_steps:
            given = autocast.operands({"cpu": "lower", "gpu": "lower"}, given)
            rows, states = given[0], tuple(given[1 : 1 + len(states)])
            weights = weights.replaced(given[1 + len(states) :])
    specs = [v._spec for v in given]
    if (
        by_steps
        or any(spec.hidden or not spec.numel for spec in specs)
        or len({spec.dtype for spec in specs}) > 1
        or specs[0].dtype not in FLOAT
    ):
        return loop(mode, rows, counts, states, weights, reverse)
    static = (mode, tuple(counts), reverse, weights.b_ih is not None)
    operands = [views.contiguous(v) for v in given]
    sizes = _layer([v._spec for v in operands], (*static, -1))
    out, *rest = call.call(_recurrent, operands, (*static, _keeps(sizes, operands, later)))
    return out, tuple(rest[: len(states)])
