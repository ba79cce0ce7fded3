"""Checkpointing: the same bits, each user function once, less memory, recomputation linear in
depth.
"""

from __future__ import annotations

import contextlib
import contextvars
import gc
import threading

import pytest

import rushlight as rl
import rushlight.nn.functional as F
from rushlight import InplaceError, memory
from rushlight.utils.checkpoint import checkpoint, checkpoint_sequential, set_checkpoint_early_stop

WIDTH = 32


def bits(*tensors: rl.Tensor | None) -> list[bytes | None]:
    return [None if t is None else t.detach().numpy(force=True).tobytes() for t in tensors]


def parameters(count: int, device: str = "cpu") -> list[rl.Tensor]:
    rl.manual_seed(7)
    made = []
    for _ in range(count):
        w = rl.randn(WIDTH, WIDTH, device=device) * 0.2
        made.append(w.requires_grad_())
    return made


def plainly(function, *args, **named):
    return function(*args, **named)


def step(function, run, w: list[rl.Tensor], x: rl.Tensor) -> list[bytes | None]:
    """The bits of the loss and of every gradient of `run(function, x)`."""
    rl.manual_seed(3)
    for part in w:
        part.grad = None
    loss = run(function, x).square().mean()
    loss.backward()
    return bits(loss, x.grad, *[part.grad for part in w])


def same_bits(function, w: list[rl.Tensor], device: str = "cpu", needs_grad: bool = True) -> None:
    rl.manual_seed(1)
    x = rl.randn(8, WIDTH, device=device).requires_grad_(needs_grad)
    want = step(function, plainly, w, x)
    x.grad = None
    assert step(function, checkpoint, w, x) == want


# ---- same bits ----


@pytest.mark.parametrize(
    "needs_grad", [True, False], ids=["input needs grad", "only parameters do"]
)
def test_dropout_and_layer_norm(device, needs_grad):
    w = parameters(2, device)

    def block(x):
        h = F.dropout(F.gelu(x @ w[0]), 0.3)
        h = rl.layer_norm(h + x, (WIDTH,))
        return F.dropout(rl.softmax(h @ w[1], -1), 0.5)

    same_bits(block, w, device, needs_grad)


def test_autocast():
    w = parameters(2)

    def block(x):
        with rl.autocast("cpu", dtype=rl.bfloat16):
            return ((x @ w[0]).tanh() @ w[1]).float()

    same_bits(block, w)


def test_autocast_around_the_checkpoint():
    w = parameters(2)

    def block(x):
        return ((x @ w[0]).tanh() @ w[1]).float()

    def run(run_block):
        def inside(function, x):
            with rl.autocast("cpu", dtype=rl.bfloat16):
                return run_block(function, x)

        return inside

    x = rl.randn(8, WIDTH, requires_grad=True)
    want = step(block, run(plainly), w, x)
    x.grad = None
    assert step(block, run(checkpoint), w, x) == want


def test_batch_norm_statistics_move_once(device):
    results = []
    for run in (plainly, checkpoint):
        (w,) = parameters(1, device)
        mean, var = rl.zeros(WIDTH, device=device), rl.ones(WIDTH, device=device)

        def block(x, w=w, mean=mean, var=var):
            return F.relu(F.batch_norm(x @ w, mean, var, training=True)) * 2

        rl.manual_seed(1)
        x = rl.randn(8, WIDTH, device=device, requires_grad=True)
        results.append(step(block, run, [w], x) + bits(mean, var))
    assert results[0] == results[1]
    assert results[0][-2] != bits(rl.zeros(WIDTH))[0]


def test_inplace_inside():
    w = parameters(2)

    def block(x):
        h = (x @ w[0]).relu_() * 2.0
        h[:, :4] = 0.5
        h = (h @ w[1]).mul_(2.0)
        return h.exp_()

    same_bits(block, w)


@pytest.mark.parametrize("part", [slice(0, 0), slice(0, 1), slice(0, 4), 0], ids=repr)
def test_a_first_part_written_inside_is_not_the_whole(part):
    def block(x):
        y = x * 2.0
        seen = y.reshape(-1)
        seen[part] += 3.0
        return (seen * seen).sum(), y.detach().clone()

    gradients = []
    for run in (plainly, checkpoint):
        x = rl.arange(1.0, 6.0).requires_grad_()
        run(block, x)[0].backward()
        gradients.append(x.grad.tolist())
    assert gradients[0] == gradients[1]


def test_views_inside():
    w = parameters(2)

    def block(x):
        a, b = (x @ w[0]).chunk(2, dim=1)
        h = rl.cat([a.exp() * b, b.tanh()], 1)
        return h.reshape(4, 2, WIDTH).transpose(0, 1)[1:].mul(2.0) @ w[1]

    same_bits(block, w)


def test_nesting():
    w = parameters(4)

    def inner(h, part):
        return F.dropout((h @ part).tanh(), 0.2)

    def middle(h, first, second):
        h = checkpoint(inner, h, first) + h
        return checkpoint(inner, h, second) + h

    def block(x):
        h = checkpoint(middle, x, w[0], w[1])
        h = h * h.sigmoid()
        return checkpoint(middle, h, w[2], w[3])

    same_bits(block, w)

    def without(x):
        h = x
        for first, second in ((w[0], w[1]), (w[2], w[3])):
            h = inner(h, first) + h
            h = inner(h, second) + h
            h = h * h.sigmoid() if first is w[0] else h
        return h

    x = rl.randn(8, WIDTH, requires_grad=True)
    want = step(without, plainly, w, x)
    x.grad = None
    assert step(block, checkpoint, w, x) == want


def test_several_outputs_in_a_nest():
    w = parameters(2)

    def block(x, *, scale):
        h = (x["in"] @ w[0]).tanh() * scale
        return {"a": (h, [h.exp() @ w[1]]), "b": None, "c": 3}

    def run(call):
        def inside(function, x):
            out = call(function, {"in": x}, scale=0.5)
            assert (out["b"], out["c"]) == (None, 3)
            return out["a"][0] + out["a"][1][0]

        return inside

    x = rl.randn(8, WIDTH, requires_grad=True)
    want = step(block, run(plainly), w, x)
    x.grad = None
    assert step(block, run(checkpoint), w, x) == want


def test_an_unused_output():
    w = parameters(1)

    def block(x):
        h = (x @ w[0]).tanh()
        return h, h.exp()

    x = rl.randn(8, WIDTH, requires_grad=True)
    want = step(lambda t: block(t)[0], plainly, w, x)
    x.grad = None
    assert step(block, lambda f, t: checkpoint(f, t)[0], w, x) == want


def test_double_backward():
    w = parameters(2)

    def block(x):
        return (F.dropout(x @ w[0], 0.2).tanh() @ w[1]).exp()

    results = []
    for run in (plainly, checkpoint):
        rl.manual_seed(3)
        x = rl.full((4, WIDTH), 0.1, requires_grad=True)
        (g,) = rl.autograd.grad(run(block, x).sum(), x, create_graph=True)
        for part in w:
            part.grad = None
        (g * g).sum().backward()
        results.append(bits(g, x.grad, *[part.grad for part in w]))
    assert results[0] == results[1]


def test_a_retained_graph():
    w = parameters(2)
    x = rl.randn(8, WIDTH, requires_grad=True)
    loss = checkpoint(lambda t: ((t @ w[0]).tanh() @ w[1]).exp(), x).mean()
    loss.backward(retain_graph=True)
    first = bits(x.grad, w[0].grad)
    x.grad = w[0].grad = None
    loss.backward()
    assert bits(x.grad, w[0].grad) == first


def test_backward_under_no_grad():
    w = parameters(2)
    x = rl.randn(8, WIDTH, requires_grad=True)

    def block(t):
        return ((t @ w[0]).tanh() @ w[1]).exp()

    want = step(block, plainly, w, x)
    x.grad = None
    for part in w:
        part.grad = None
    loss = checkpoint(block, x).square().mean()
    with rl.no_grad():
        loss.backward()
    assert bits(loss, x.grad, *[part.grad for part in w]) == want


def test_under_no_grad_nothing_is_recorded_or_kept():
    w = parameters(2)
    x = rl.randn(8, WIDTH)
    start = memory.allocated()
    with rl.no_grad():
        y = checkpoint(lambda t: ((t @ w[0]).tanh() @ w[1]).exp(), x)
    assert not y.requires_grad
    del x
    assert memory.allocated() == start  # y is as large as x was, and keeps nothing else


def test_in_a_thread_with_a_copied_context():
    w = parameters(2)
    x = rl.randn(8, WIDTH, requires_grad=True)

    def block(t):
        return (t @ w[0]).tanh() @ w[1]

    with rl.autocast("cpu", dtype=rl.bfloat16):
        want = step(block, plainly, w, x)
        x.grad = None
        got = []
        context = contextvars.copy_context()
        thread = threading.Thread(
            target=lambda: got.extend(context.run(step, block, checkpoint, w, x))
        )
        thread.start()
        thread.join()
    assert got == want


def test_in_several_threads_at_once():
    results: dict[int, list] = {}

    def work(number):
        w = [rl.full((WIDTH, WIDTH), 0.01 * number, requires_grad=True)]
        x = rl.ones(8, WIDTH)
        for _ in range(10):
            w[0].grad = None
            checkpoint(lambda t: (t @ w[0]).tanh().exp(), x).sum().backward()
        results[number] = bits(w[0].grad)

    threads = [threading.Thread(target=work, args=(n,)) for n in (1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in (1, 2, 3):
        w = rl.full((WIDTH, WIDTH), 0.01 * number, requires_grad=True)
        (rl.ones(8, WIDTH) @ w).tanh().exp().sum().backward()
        assert results[number] == bits(w.grad)


# ---- once ----


def test_the_function_runs_once():
    w = parameters(1)
    calls = []

    def block(x):
        calls.append(1)
        return (x @ w[0]).tanh().exp()

    checkpoint(block, rl.randn(8, WIDTH, requires_grad=True)).sum().backward()
    assert calls == [1]


def residual(w: list[rl.Tensor], x: rl.Tensor, run) -> rl.Tensor:
    for part in w:
        x = x + run(
            lambda t, part=part: (F.dropout((t @ part).tanh().square(), 0.1) @ part).sigmoid(), x
        )
    return x


def test_recomputation_is_linear_in_depth():
    calls = []
    for depth in (4, 8, 16):
        w = parameters(depth)
        x = rl.randn(8, WIDTH, requires_grad=True)
        before = memory.recomputed()["calls"]
        residual(w, x, checkpoint).sum().backward()
        calls.append((memory.recomputed()["calls"] - before) / depth)
    assert calls[0] == calls[1] == calls[2]
    assert calls[0] <= 7


def test_no_call_is_repeated_twice():
    """An unsaved value that leads to many saved ones is rebuilt once for all of them."""

    def block(x):
        h = x
        for _ in range(10):
            h = h + 1.0
        return rl.stack([(h + float(i)).exp() for i in range(10)]).sum()

    before = memory.recomputed()["calls"]
    checkpoint(block, rl.randn(8, WIDTH, requires_grad=True)).backward()
    assert memory.recomputed()["calls"] - before <= 30


@pytest.mark.parametrize("name", ["cpu", "webgpu"])
def test_the_peak_falls(name, require_device):
    device = require_device(name)
    w = parameters(12, device)
    peaks = []
    for run in (plainly, checkpoint):
        x = rl.randn(512, WIDTH, device=device, requires_grad=True)
        memory.reset_peak(device)
        start = memory.allocated(device)
        residual(w, x, run).sum().backward()
        peaks.append(memory.peak(device) - start)
    assert peaks[1] < 0.45 * peaks[0]


def test_a_nested_checkpoint_s_inputs_are_dropped_too():
    """An inner checkpoint does not keep its inputs from the outer one's interior."""

    def inner(h):
        return h.exp().tanh()

    def middle(h):
        return checkpoint(inner, h) * 1.0  # neither of them keeps h

    def outer(x):
        h = x
        for _ in range(8):
            h = checkpoint(middle, h.sin())
        return h.sum()

    x = rl.randn(512, WIDTH, requires_grad=True)
    start = memory.allocated()
    loss = checkpoint(outer, x)
    assert memory.allocated() <= start + 64
    loss.backward()


# ---- memory and errors ----


@pytest.mark.parametrize("backward", [True, False])
def test_reference_counts_free_it(backward):
    w = parameters(3)
    x = rl.randn(64, WIDTH)
    gc.collect()
    gc.disable()
    try:
        start = memory.allocated()
        loss = residual(w, x, checkpoint).sum()
        if backward:
            loss.backward()
            for part in w:
                part.grad = None
        del loss
        assert memory.allocated() == start
    finally:
        gc.enable()


def test_an_error_inside_restores_everything():
    w = parameters(2)
    x = rl.randn(64, WIDTH, requires_grad=True)
    gc.collect()
    gc.disable()
    try:
        start = memory.allocated()

        def fail(t):
            h = (t @ w[0]).tanh().exp()
            with rl.no_grad(), rl.autocast("cpu"):
                h.sum()
                raise ValueError("inside")

        with contextlib.suppress(ValueError):
            checkpoint(fail, x)
        assert memory.allocated() == start
    finally:
        gc.enable()
    assert rl.is_grad_enabled()
    same_bits(lambda t: (t @ w[0]).tanh().exp(), w)


def test_a_parameter_overwritten_before_backward_is_found():
    (w,) = parameters(1)
    loss = checkpoint(lambda t: (t @ w).tanh().exp() @ w, rl.randn(8, WIDTH)).sum()
    with rl.no_grad():
        w.add_(1.0)
    with pytest.raises(InplaceError):
        loss.backward()


def test_an_interior_value_held_by_the_user():
    w = parameters(2)
    held = []

    def block(x):
        held.append((x @ w[0]).tanh())
        return (held[0] @ w[1]).exp()

    x = rl.randn(8, WIDTH, requires_grad=True)
    loss = checkpoint(block, x).sum()
    value = bits(held[0])
    with rl.no_grad():
        held[0].zero_()
    loss.backward()
    got = bits(x.grad)
    x.grad = None
    held.clear()
    block(x).sum().backward()
    assert got == bits(x.grad)
    assert value == bits(held[0])


# ---- checkpoint_sequential ----


@pytest.mark.parametrize("segments", [1, 2, 3, 6])
def test_sequential_keeps_every_gradient(segments):
    w = parameters(6)
    steps = [lambda h, part=part: (h @ part).tanh() for part in w]

    def chain(x):
        for part in steps:
            x = part(x)
        return x

    x = rl.randn(8, WIDTH, requires_grad=True)
    want = step(chain, plainly, w, x)
    x.grad = None
    assert step(steps, lambda f, t: checkpoint_sequential(f, segments, t), w, x) == want


def test_sequential_refuses_no_segments():
    with pytest.raises(ValueError, match="at least one"):
        checkpoint_sequential([lambda x: x], 0, rl.ones(1))


def test_pytorch_s_arguments_are_accepted():
    (w,) = parameters(1)
    x = rl.randn(8, WIDTH)
    y = checkpoint(
        lambda t, scale: (t @ w) * scale,
        x,
        scale=2.0,
        use_reentrant=False,
        preserve_rng_state=False,
    )
    assert y.requires_grad
    checkpoint_sequential([lambda t: t @ w, lambda t: t.exp()], 2, x, use_reentrant=False)


def leaf(*numbers):
    return rl.tensor(list(numbers), dtype=rl.float64, requires_grad=True)


def test_blocks_around_a_checkpoint():
    entered = []

    @contextlib.contextmanager
    def block(name):
        entered.append(name)
        yield

    x = leaf(1, 2)
    with set_checkpoint_early_stop(False):
        y = checkpoint(
            rl.sin,
            x,
            use_reentrant=False,
            context_fn=lambda: (block("run"), block("again")),
            early_stop=False,
        )
    y.sum().backward()
    assert entered == ["run"]
    assert rl.equal(x.grad, x.detach().cos())
