"""A recurrent layer as one op: against the loop of its steps, in chunks, in little memory."""

from __future__ import annotations

import gc

import pytest

import rushlight as rl
from rushlight import memory, nn
from rushlight.autograd import gradcheck, gradgradcheck
from rushlight.core.cache import forget
from rushlight.ops.create.creation import resolve_pool
from rushlight.ops.nn import recurrent_layer, recurrent_steps
from rushlight.ops.nn.recurrent import Weights, loop
from rushlight.ops.nn.recurrent_gradient import Backward
from rushlight.ops.nn.recurrent_launches import Launches
from rushlight.ops.nn.recurrent_sizes import Layer

GATES = {"RNN_TANH": 1, "RNN_RELU": 1, "LSTM": 4, "GRU": 3}
COUNTS = {"equal": (3, 3, 3, 3, 3), "packed": (3, 3, 2, 2, 1), "one": (2,)}


@pytest.fixture
def chunks(monkeypatch):
    """Sets the bytes of a chunk's gates."""

    def of(nbytes):
        monkeypatch.setattr(recurrent_steps, "CHUNK", nbytes)
        forget()

    yield of
    forget()


@pytest.fixture
def small_chunks(chunks):
    """Chunks of one to a few steps."""
    chunks(6 * 16 * 8)


def operands(mode, counts, bias=True, shown=4, width=5, dtype=rl.float64, device="cpu", hidden=4):
    rl.manual_seed(3)
    rows = sum(counts)
    shapes = [(rows, width), (max(counts), shown)]
    shapes += [(max(counts), hidden)] if mode == "LSTM" else []
    gates = GATES[mode] * hidden
    shapes += [(gates, width), (gates, shown)] + ([(gates,), (gates,)] if bias else [])
    shapes += [(shown, hidden)] if shown != hidden else []
    return [rl.randn(*s, dtype=dtype).to(device).requires_grad_() for s in shapes]


def run(how, mode, given, counts, reverse=False):
    """Output and final states."""
    split = 3 if mode == "LSTM" else 2
    weights = given[split:]
    if len(weights) == 3:
        weights = [*weights[:2], None, None, weights[2]]
    out, final = how(mode, given[0], counts, tuple(given[1:split]), Weights(*weights), reverse)
    return [out, *final]


def gradients(results, given):
    loss = sum((r * r.cos()).sum() * (i + 1) for i, r in enumerate(results))
    return rl.autograd.grad(loss, given)


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("mode", GATES)
@pytest.mark.parametrize("counts", COUNTS)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_is_the_loop_of_its_steps(mode, counts, reverse, bias, monkeypatch):
    for shown in (4, 3) if mode == "LSTM" else (4,):
        given, steps = operands(mode, COUNTS[counts], bias, shown), COUNTS[counts]
        want = run(loop, mode, given, steps, reverse)
        want += gradients(want, given)
        made = run(recurrent_layer.layer, mode, given, steps, reverse)
        made += gradients(made, given)
        for a, b in zip(made, want, strict=True):
            rl.testing.assert_close(a, b, rtol=1e-11, atol=1e-11)
        for keeps in (0, 1):  # all chunks but so many are run again: the same bits
            with monkeypatch.context() as patched:
                patched.setattr(recurrent_layer, "_keeps", lambda *_, keeps=keeps: keeps)
                again = run(recurrent_layer.layer, mode, given, steps, reverse)
                again += gradients(again, given)
            assert all(map(rl.equal, again, made))
        with rl.no_grad():
            alone = run(recurrent_layer.layer, mode, given, steps, reverse)
        assert all(map(rl.equal, alone, made))


@pytest.mark.parametrize("mode", ["LSTM", "GRU"])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("hidden", [20, 32])
def test_a_layer_of_many_rows(mode, reverse, bias, hidden, chunks, monkeypatch):
    """Steps are one kernel where the device has it: the same bits on every way of running."""
    chunks(1 << 13)
    counts = (9,) * 6 + (5,) * 5
    for shown in (hidden, 12) if mode == "LSTM" else (hidden,):
        given = operands(mode, counts, bias, shown, 24, rl.float32, hidden=hidden)
        given = [(v.detach() / 5).requires_grad_() for v in given]  # or errors would grow
        wide = [v.detach().double().requires_grad_() for v in given]
        want = run(loop, mode, wide, counts, reverse)
        want += gradients(want, wide)
        made = run(recurrent_layer.layer, mode, given, counts, reverse)
        made += gradients(made, given)
        for a, b in zip(made, want, strict=True):
            rl.testing.assert_close(a.double(), b, rtol=1e-4, atol=2e-4)
        for keeps in (0, 1):
            with monkeypatch.context() as patched:
                patched.setattr(recurrent_layer, "_keeps", lambda *_, keeps=keeps: keeps)
                again = run(recurrent_layer.layer, mode, given, counts, reverse)
                again += gradients(again, given)
            assert all(map(rl.equal, again, made))
        with rl.no_grad():
            alone = run(recurrent_layer.layer, mode, given, counts, reverse)
        assert all(map(rl.equal, alone, made))


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("mode", GATES)
def test_devices_agree(mode, device):
    found = []
    for place in ("cpu", device):
        given = operands(mode, COUNTS["packed"], dtype=rl.float32, device=place)
        made = run(recurrent_layer.layer, mode, given, COUNTS["packed"], True)
        found.append([v.cpu() for v in (*made, *gradients(made, given))])
    for a, b in zip(*found, strict=True):
        rl.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("mode", ["RNN_TANH", "LSTM", "GRU"])
def test_derivatives_of_both_orders(mode):
    given = operands(mode, (2, 2, 1), width=2)
    assert gradcheck(lambda *v: tuple(run(recurrent_layer.layer, mode, v, (2, 2, 1))), given)
    assert gradgradcheck(lambda *v: run(recurrent_layer.layer, mode, v, (2, 2, 1))[0], given)


def test_each_gradient_alone():
    given, steps = operands("LSTM", (2, 2, 2)), (2, 2, 2)
    whole = run(recurrent_layer.layer, "LSTM", given, steps)
    for i, result in enumerate(whole):
        want = rl.autograd.grad(result.sum(), given, retain_graph=True)
        for k, v in enumerate(given):
            others = [w if j == k else w.detach() for j, w in enumerate(given)]
            part = run(recurrent_layer.layer, "LSTM", others, steps)[i]
            assert rl.equal(rl.autograd.grad(part.sum(), v)[0], want[k])


def test_a_weight_given_twice():
    given = operands("RNN_TANH", (2, 2), width=4)
    given[3] = given[2]  # w_ih is w_hh
    out = run(recurrent_layer.layer, "RNN_TANH", given, (2, 2))[0]
    (first,) = rl.autograd.grad(out.sum(), given[2], retain_graph=True)
    (recorded,) = rl.autograd.grad(out.sum(), given[2], create_graph=True)
    rl.testing.assert_close(first, recorded)


@pytest.mark.parametrize("mode", ["RNN_RELU", "LSTM", "GRU"])
def test_batches_of_gradients_and_tangents(mode):
    given, steps = operands(mode, (2, 2)), (2, 2)
    out = run(recurrent_layer.layer, mode, given, steps)[0]
    ways = rl.randn(3, *out.shape, dtype=rl.float64)
    found = rl.autograd.grad(out, given, ways, is_grads_batched=True, retain_graph=True)
    for i, way in enumerate(ways):
        each = rl.autograd.grad(out, given, way, retain_graph=True)
        for several, one in zip(found, each, strict=True):
            rl.testing.assert_close(several[i], one)
    way = rl.randn(*given[0].shape, dtype=rl.float64)
    with rl.autograd.forward_ad.dual_level():
        dual = rl.autograd.forward_ad.make_dual(given[0].detach(), way)
        moved = run(recurrent_layer.layer, mode, [dual, *given[1:]], steps)[0]
        tangent = rl.autograd.forward_ad.unpack_dual(moved).tangent
    slope = rl.autograd.grad(out, given[0], ways[0])[0]
    rl.testing.assert_close((tangent * ways[0]).sum(), (slope * way).sum())


def records(value):
    """The names of all records that lead to a value."""
    found, stack = [], [value.grad_fn]
    while stack:
        node = stack.pop()
        if node is not None and node not in found:
            found.append(node)
            stack += [edge for edge, _ in node.next_functions]
    return [node.name() for node in found if "AccumulateGrad" not in node.name()]


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_a_layer_is_one_record(kind):
    layer = getattr(nn, kind)(3, 4, num_layers=2, bidirectional=True)
    names = records(layer(rl.randn(9, 2, 3))[0])
    assert sum("recurrent_layer" in name.lower() or "Recurrent" in name for name in names) == 4
    assert len(names) <= 8


def test_saves_are_few_and_may_be_packed():
    layer, x = nn.LSTM(3, 4), rl.randn(9, 2, 3)
    want = rl.autograd.grad(layer(x)[0].sum(), list(layer.parameters()))
    packed = []

    def pack(v):
        packed.append(v.shape)
        return v.numpy().copy()

    with rl.autograd.graph.saved_tensors_hooks(pack, rl.tensor):
        out = layer(x)[0].sum()
    made = rl.autograd.grad(out, list(layer.parameters()))
    assert all(map(rl.equal, made, want)) and len(packed) <= 14


@pytest.mark.parametrize(("kind", "part"), [("LSTM", 0.4), ("GRU", 0.5), ("RNN", 0.8)])
def test_same_bits_in_little_memory(kind, part, chunks):
    chunks(1 << 16)
    rl.manual_seed(0)
    layer, x = getattr(nn, kind)(64, 64, 2), rl.randn(128, 16, 64)

    def step():
        for p in layer.parameters():
            p.grad = None
        layer(x)[0].sum().backward()
        return [p.grad for p in layer.parameters()]

    want = [g.clone() for g in step()]
    for p in layer.parameters():
        p.grad = None
    memory.empty_cache()
    base = memory.allocated()
    memory.reset_peak()
    step()
    limit = int((memory.peak() - base) * part)
    for p in layer.parameters():
        p.grad = None
    memory.empty_cache()
    memory.reset_peak()
    with memory.budget(base + limit):
        made = step()
        assert all(map(rl.equal, made, want))
        assert memory.peak() - base <= limit


def test_what_a_layer_keeps_leaves_room_for_the_gradients_to_come():
    """A larger limit, in which more gates are kept, is no worse than a smaller one."""
    rl.manual_seed(0)
    words, layer, head = nn.Embedding(256, 128), nn.LSTM(128, 256, 2), nn.Linear(256, 256)
    x, parts = rl.randint(0, 256, (64, 32)), nn.ModuleList([words, layer, head])

    def step():
        for p in parts.parameters():
            p.grad = None
        head(layer(words(x))[0]).logsumexp(2).sum().backward()
        return [p.grad for p in parts.parameters()]

    memory.empty_cache()
    base = memory.allocated()
    memory.reset_peak()
    want = [g.clone() for g in step()]
    whole = memory.peak() - base
    made = sum(g.nbytes for g in want)
    for share in range(36, 60, 3):
        for p in parts.parameters():
            p.grad = None
        memory.empty_cache()
        with memory.budget(base + made + whole * share // 100):
            assert all(map(rl.equal, step(), want)), share


def test_the_gradient_of_the_rows_is_written_over_them(chunks):
    chunks(1 << 17)
    rl.manual_seed(0)
    layer, x = nn.LSTM(64, 64), rl.randn(256, 16, 64).requires_grad_()
    seed = rl.randn(256, 16, 64)

    def step():
        x.grad = None
        (out,) = rl.autograd.grad(layer(x * 1.5)[0], x, seed)
        return out

    want, block = step().clone(), x.nbytes
    gc.collect()  # or garbage of other tests makes room
    memory.empty_cache()
    # Rows or their gradient, states and scratch; the seed is outside.
    with memory.budget(memory.allocated() + int(2.5 * block)):
        assert rl.equal(step(), want)


@pytest.mark.parametrize("reverse", [False, True])
def test_chunks_that_run_again_hold_their_states_once(chunks, reverse):
    """The states before and after the steps are one block; sums of weights lie over memories."""
    chunks(1 << 18)
    batch, width = 8, 64
    counts = (batch,) * 64
    layer = Layer("LSTM", counts, reverse, width, width, width, True, 0)
    launches = Launches(resolve_pool("cpu"), layer, rl.float32)
    back = Backward(launches, ("rows", *layer.weights), ("out",))
    most = max(chunk.rows for chunk in launches.chunks)
    assert len(launches.chunks) > 1 and most > batch
    states = 2 * (most + batch) * width
    steps = batch * (layer.gates + 2 * width)  # the states' part of gates, gradients of states
    if launches.cells:  # no such part, but weights in panels and sums of biases
        steps += layer.gates * (width + 1 - batch)
    assert sum(back.counts) <= most * layer.gates + states + steps


def test_autocast_runs_step_by_step():
    layer, x = nn.LSTM(3, 4), rl.randn(5, 2, 3)
    with rl.autocast("cpu", dtype=rl.bfloat16):
        out = layer(x)[0]
    rl.testing.assert_close(out.float(), layer(x)[0], rtol=5e-2, atol=5e-2)
