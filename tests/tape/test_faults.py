"""The faults of the systems Rushlight grew from, each as a test: `seeds.md`, "Faults in them", in its order and words.

The parallel walk's faults are in test_parallel_errors.py; the table of the five systems is in test_faults_systems.py.
"""

from __future__ import annotations

import gc
import threading
import weakref

import numpy as np
import pytest

import rushlight as rl
import rushlight.nn.functional as F
from rushlight import RushlightError, ShapeError, memory
from rushlight.devices.registry import pool_of
from rushlight.utils.checkpoint import checkpoint, checkpoint_sequential
from tests.devices.services import NEEDS_FLOAT64, SERVICES, got, put, sample
from tests.ops.gradient_rules import RULES, first_and_second, loss

WIDTH = 16


def weights(count: int, device: str) -> list[rl.Tensor]:
    rl.manual_seed(7)
    return [(rl.randn(WIDTH, WIDTH, device=device) * 0.3).requires_grad_() for _ in range(count)]


def plainly(function, *args):
    return function(*args)


def bits(*tensors: rl.Tensor | None) -> list[bytes | None]:
    return [None if t is None else got(t).tobytes() for t in tensors]


def crossed(device: str) -> int:
    """Bytes that have come from devices to the host so far."""
    pool_of(device).device.synchronize()
    return memory.transfers()["bytes_to_host"]


@pytest.fixture
def no_collector():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


# ---- Checkpointing a non-leaf input walks the whole upstream graph again ----


def residual(w: list[rl.Tensor], x: rl.Tensor, run) -> rl.Tensor:
    for part in w:
        x = x + run(lambda t, part=part: (t @ part).tanh().exp() @ part, x)
    return x


def test_a_residual_net_of_L_blocks_costs_recomputes_linear_in_L(device):
    """A residual net of L blocks costs 2^L - 1 recomputes. Here: recomputes are linear in L."""
    per_block = []
    for depth in (3, 6, 12):
        before = memory.recomputed()["calls"]
        residual(weights(depth, device), rl.ones(4, WIDTH, device=device), checkpoint).sum().backward()
        per_block.append((memory.recomputed()["calls"] - before) / depth)
    assert per_block[0] == per_block[1] == per_block[2]
    assert 2 <= per_block[0] <= 4  # the first product, tanh, exp; the block's result is not needed again


def test_a_plain_chain_saves_memory(device):
    """A plain chain saves no memory. Here: the peak falls."""
    w = weights(12, device)
    peaks = []
    for run in (plainly, checkpoint):
        x = rl.ones(128, WIDTH, device=device)
        start = memory.allocated(device)
        memory.reset_peak(device)
        for part in w:
            x = run(lambda t, part=part: (t @ part).tanh().exp().sin().sigmoid(), x)
        x.sum().backward()
        peaks.append(memory.peak(device) - start)
        for part in w:
            part.grad = None
    assert peaks[1] < 0.6 * peaks[0]


# ---- CPU random state is not restored ----


def masked_step(run, inputs: list[rl.Tensor], block) -> list[bytes | None]:
    rl.manual_seed(5)
    for x in inputs:
        x.grad = None
    loss = run(block, *inputs)
    loss.backward()
    return bits(loss, *[x.grad for x in inputs])


def test_the_random_state_is_the_same_in_the_recompute(device):
    """CPU random state is not restored."""
    x = rl.ones(8, WIDTH, device=device, requires_grad=True)

    def block(t):
        return (F.dropout(t, 0.4).exp() * rl.rand(8, WIDTH, device=device)).exp().sum()

    assert masked_step(checkpoint, [x], block) == masked_step(plainly, [x], block)


def test_an_error_of_a_random_op_is_not_swallowed(device):
    """Errors while saving the random state are swallowed."""
    x = rl.ones(8, WIDTH, device=device, requires_grad=True)
    with pytest.raises((RushlightError, ValueError), match="dropout"):
        checkpoint(lambda t: F.dropout(F.dropout(t, 0.5), 1.5), x)
    assert masked_step(checkpoint, [x], lambda t: F.dropout(t, 0.4).exp().sum())[1] is not None


@pytest.mark.parametrize("other", ["webgpu", "cuda"])
def test_every_input_s_device_is_considered(other, require_device):
    """Only the first input's device is considered."""
    require_device(other)
    inputs = [rl.ones(8, WIDTH, device=name, requires_grad=True) for name in ("cpu", other)]

    def block(x, y):
        return F.dropout(x, 0.4).exp().sum() + F.dropout(y, 0.4).exp().sum().to("cpu")

    assert masked_step(checkpoint, inputs, block) == masked_step(plainly, inputs, block)


# ---- Parameters captured by the checkpointed closure ----


def test_parameters_captured_by_the_closure_get_gradients(device):
    """Parameters captured by the checkpointed closure get no gradient when no input needs one."""
    w = weights(2, device)
    x = rl.ones(4, WIDTH, device=device)
    assert not x.requires_grad
    checkpoint(lambda t: (t @ w[0]).tanh() @ w[1], x).sum().backward()
    first = bits(*[part.grad for part in w])
    for part in w:
        part.grad = None
    ((x @ w[0]).tanh() @ w[1]).sum().backward()
    assert first == bits(*[part.grad for part in w])
    assert None not in first


# ---- Backward under no_grad, the host, outputs, double backward ----


def test_backward_under_no_grad_through_a_checkpoint(device):
    """Backward called under `no_grad` yields nothing from a checkpoint."""
    x = rl.ones(4, WIDTH, device=device, requires_grad=True)
    loss = checkpoint(lambda t: t.exp().sin().exp().sum(), x)
    with rl.no_grad():
        loss.backward()
    want = np.exp(np.sin(np.e)) * np.cos(np.e) * np.e
    np.testing.assert_allclose(got(x.grad), want, rtol=1e-5)


def test_the_output_is_not_copied_through_the_host(device):
    """The output is copied through the host."""
    x = rl.ones(64, WIDTH, device=device, requires_grad=True)
    before = crossed(device)
    made = []

    def block(t):
        made.append(t.exp().tanh())
        return made[0]

    out = checkpoint(block, x)
    assert out.data_ptr() == made[0].data_ptr()
    out.sum().backward()
    assert crossed(device) == before


def test_a_checkpoint_has_several_outputs(device):
    """One output only."""
    x = rl.ones(4, WIDTH, device=device, requires_grad=True)

    def block(t):
        h = t.exp()
        return h.sin(), {"b": [h.cos().exp()]}

    found = []
    for run in (plainly, checkpoint):
        x.grad = None
        a, rest = run(block, x)
        (a.sum() + 2 * rest["b"][0].sum()).backward()
        found += bits(x.grad)
    assert found[0] == found[1]


def test_double_backward_through_a_checkpoint(device):
    """No double backward."""
    results = []
    for run in (plainly, checkpoint):
        x = put(sample(4, WIDTH), device, grad=True)
        (g,) = rl.autograd.grad(run(lambda t: t.sin().exp(), x).sum(), x, create_graph=True)
        (g * g).sum().backward()
        results.append(bits(g, x.grad))
    assert results[0] == results[1]


# ---- Hooks, leaves, seeds ----


def test_hooks_run_once_on_the_sum(device):
    """Hooks run per edge on partial gradients; they must run once, on the sum."""
    x = put(np.array([2.0], np.float32), device, grad=True)
    y = x * 3
    seen: dict[str, list[float]] = {"leaf": [], "inner": [], "after": []}
    x.register_hook(lambda g: seen["leaf"].append(g.item()))
    y.register_hook(lambda g: seen["inner"].append(g.item()))
    x.register_post_accumulate_grad_hook(lambda leaf: seen["after"].append(leaf.grad.item()))
    (y * y + y + x * x).sum().backward()  # y gets 2 * 6 + 1; x gets 3 * 13 + 2 * 2
    assert seen == {"leaf": [43.0], "inner": [13.0], "after": [43.0]}


def test_backward_on_a_leaf(device):
    """`backward()` on a leaf does nothing."""
    x = put(np.array([5.0], np.float32), device, grad=True)
    x.backward()
    assert x.grad.tolist() == [1.0]
    x.backward(rl.full((1,), 2.0, device=device))
    assert x.grad.tolist() == [3.0]


@pytest.mark.parametrize("shape", [(1, 1), (1,), ()])
def test_the_seed_gradient_has_the_root_s_shape(device, shape):
    """The seed gradient of a `[1,1]` root has shape `[]`."""
    x = rl.full(shape, 3.0, device=device, requires_grad=True)
    y = x * x
    seen = []
    y.register_hook(lambda g: seen.append(g.shape))
    y.backward()
    assert seen == [shape]
    assert x.grad.shape == shape


# ---- Deep graphs ----


def deep(link: str, x: rl.Tensor, depth: int) -> rl.Tensor:
    y = x
    one = rl.ones(1)
    for _ in range(depth):
        y = y + one if link == "add" else y * one if link == "mul" else y.tanh()
    return y


@pytest.mark.parametrize("link", ["add", "mul", "tanh"])
def test_deep_graphs_do_not_overflow_the_stack_when_walked(link, no_collector):
    """Deep graphs overflow the stack when walked. (A million nodes: test_record_size.py.)"""
    x = rl.ones(1, requires_grad=True)
    deep(link, x, 100_000).backward()
    assert (x.grad.item() == 1.0) is (link != "tanh")


@pytest.mark.parametrize("link", ["add", "mul", "tanh"])
def test_deep_graphs_do_not_overflow_the_stack_when_destroyed(link, no_collector):
    """Deep graphs overflow the stack when destroyed: on this thread, and on one with a small stack."""
    x = rl.ones(1, requires_grad=True)
    start = memory.allocated()
    held = [deep(link, x, 100_000)]
    before = threading.stack_size(256 * 1024)
    thread = threading.Thread(target=held.clear)
    threading.stack_size(before)
    thread.start()
    thread.join()
    assert memory.allocated() == start


def test_deep_graphs_are_replayed_without_overflow(no_collector):
    """Deep graphs overflow the stack: a checkpoint's recipes are walked without recursion too."""
    x = rl.ones(1, requires_grad=True)
    start = memory.allocated()
    y = checkpoint(lambda t: deep("tanh", t, 20_000), x)
    y.backward()
    x.grad = None
    del y
    assert memory.allocated() == start


def test_the_graph_is_freed(device, no_collector):
    """The graph is never freed."""
    (w,) = weights(1, device)
    x = rl.ones(64, WIDTH, device=device)
    start = memory.allocated(device)
    h = (x @ w).tanh()
    loss = (h * h).sum()
    node = weakref.ref(h.node)
    del h
    loss.backward()
    w.grad = None
    assert memory.allocated(device) <= start + 64  # what was saved went with the walk, while the loss is there
    del loss
    assert node() is None
    assert memory.allocated(device) == start


# ---- Backend services ----


@pytest.mark.parametrize("name", list(SERVICES))
def test_every_service_runs(name, device):
    """32 of 75 backend services only fail at run time."""
    if name in NEEDS_FLOAT64 and rl.float64 not in pool_of(device).device.limits.dtypes:
        pytest.skip("limit: no float64")
    SERVICES[name](device)


def test_there_are_75_services():
    assert len(SERVICES) == 75


def test_half_precision_matmul_is_half_precision(device):
    """Half-precision matmul silently runs in float32: its operands must be halves, its sums float32."""
    x = rl.full((2, 4096), 1 + 2.0**-12, device=device, requires_grad=True)  # a half rounds it to 1
    y = rl.ones(4096, 3, device=device)
    with rl.autocast(device, dtype=rl.float16):
        product = x @ y
    assert product.dtype == rl.float16
    assert got(product).tolist() == [[4096.0] * 3] * 2  # sums in float16 would stop at 2048; in float32 of x: 4097
    product.sum().backward()
    assert x.grad.dtype == rl.float32
    assert got(x.half() @ y.half()).tolist() == [[4096.0] * 3] * 2
    large = rl.full((1, 2), 300.0, device=device).half()
    assert got(large @ large.t()).tolist() == [[np.inf]]  # 180000 is no half


def test_dropout_returns_another_mask_on_every_call(device):
    """The default dropout returns the same mask on every call."""
    x = rl.ones(500, device=device)
    masks = {bits(F.dropout(x, 0.5))[0] for _ in range(4)} | {bits(rl.nn.Dropout(0.5)(x))[0] for _ in range(4)}
    assert len(masks) == 8


def test_indices_above_2_to_the_24_are_exact(device):
    """Indices travel as float32 and go wrong above 2^24."""
    place = 2**24 + 1  # a float32 has 2^24 and 2^24 + 2 next to it
    x = rl.zeros(2**24 + 4, dtype=rl.uint8, device=device)
    x[place] = 7
    index = rl.tensor([place - 1, place, place + 1], device=device)
    assert got(x[index]).tolist() == [0, 7, 0]
    assert got(x.index_select(0, index)).tolist() == [0, 7, 0]
    assert got(x.gather(0, index)).tolist() == [0, 7, 0]
    assert x.argmax().item() == place
    assert got(x.nonzero()).tolist() == [[place]]
    assert got(index + 1).tolist() == [place, place + 1, place + 2]


def test_the_inf_nan_check_does_not_download_the_buffer(device):
    """Inf/nan check downloads the buffer."""
    p = rl.ones(1 << 16, device=device, requires_grad=True)
    optimizer = rl.optim.SGD([p], lr=0.1)
    scaler = rl.amp.GradScaler(device, init_scale=4.0)
    before = crossed(device)
    assert not bool((p / 0.0).isfinite().all())
    assert bool(p.isfinite().all())
    scaler.scale((p * rl.inf).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert crossed(device) - before <= 64
    assert got(p).tolist() == [1.0] * (1 << 16)  # the step was left out


# ---- shrew ----


def test_checkpoint_does_something(device):
    """shrew's `checkpoint` does nothing."""
    x = rl.ones(256, WIDTH, device=device, requires_grad=True)
    start = memory.allocated(device)
    loss = checkpoint(lambda t: t.exp().sin().exp().sin().sum(), x)
    assert memory.allocated(device) <= start + 64
    calls = memory.recomputed()["calls"]
    loss.backward()
    assert memory.recomputed()["calls"] > calls


def test_checkpoint_sequential_keeps_every_segment_s_gradients(device):
    """Its `checkpoint_sequential` detaches every segment."""
    w = weights(6, device)
    steps = [lambda h, part=part: (h @ part).tanh() for part in w]
    want = None
    for segments in (1, 2, 3, 6):
        x = rl.ones(4, WIDTH, device=device, requires_grad=True)
        checkpoint_sequential(steps, segments, x).sum().backward()
        found = bits(x.grad, *[part.grad for part in w])
        assert None not in found
        want = want or found
        assert found == want
        for part in w:
            part.grad = None


SILENT = {
    "casts": (lambda x: x.half().float() * 2, [2, 2, 2, 2]),
    "expand": (lambda x: x.expand(3, 4) * 2, [6, 6, 6, 6]),
    "cumsum": (lambda x: x.cumsum(0), [4, 3, 2, 1]),
    "sort": (lambda x: x.sort().values * rl.arange(4.0, device=x.device), [3, 0, 2, 1]),
}


@pytest.mark.parametrize("name", list(SILENT))
def test_nothing_detaches_in_silence(name, device):
    """Casts, expand, cumsum and sort detach in silence."""
    function, want = SILENT[name]
    x = put(np.array([4.0, 1.0, 3.0, 2.0], np.float32), device, grad=True)
    function(x).sum().backward()
    assert got(x.grad).tolist() == want


@pytest.mark.parametrize("name", list(RULES))
def test_rules_do_not_go_through_the_host(name, device):
    """Most rules go through host float64."""
    inputs = [put(x, device, grad=True) for x in RULES[name][1]]
    before = crossed(device)
    first, second = first_and_second(name, inputs)
    assert crossed(device) == before
    wide = [rl.tensor(x, dtype=rl.float64, requires_grad=True) for x in RULES[name][1]]
    for found, want in zip((*first, *second), sum(first_and_second(name, wide), ()), strict=True):
        assert found.dtype == rl.float32
        np.testing.assert_allclose(got(found), got(want), rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("name", list(RULES))
def test_second_derivatives_are_not_cut(name):
    """... which also cuts second derivatives: both orders against differences of the order below."""
    arrays = [x.astype(np.float64) for x in RULES[name][1]]
    step = 1e-3 if name == "to_dtype" else 1e-6
    ways = [np.random.default_rng(8).standard_normal(x.shape) for x in arrays]

    def at(shift):
        return [rl.tensor(x + shift * way, requires_grad=True) for x, way in zip(arrays, ways, strict=True)]

    first, second = first_and_second(name, at(0.0))
    low, high = at(-step), at(step)
    slope = (loss(name, high) - loss(name, low)).item() / (2 * step)
    bend = 0.0
    for i, (a, b) in enumerate(zip(first_and_second(name, low)[0], first_and_second(name, high)[0], strict=True)):
        bend += (i + 1.5) * (b - a).sum().item() / (2 * step)
    along = [sum((got(g) * way).sum() for g, way in zip(order, ways, strict=True)) for order in (first, second)]
    np.testing.assert_allclose(along, [slope, bend], rtol=5e-3 if name == "to_dtype" else 1e-5, atol=1e-6)
    assert bool(along[1]) is (name not in ("floor", "ceil", "round"))


def test_batched_matmul_with_broadcast_batch_dims(device):
    """Batched matmul with broadcast batch dims panics."""
    a, b = sample(2, 1, 3, 4), sample(5, 4, 6, seed=1)
    g = sample(2, 5, 3, 6, seed=2)
    x, y = put(a, device, grad=True), put(b, device, grad=True)
    product = x @ y
    np.testing.assert_allclose(got(product), a @ b, rtol=1e-5, atol=1e-5)
    product.backward(put(g, device))
    np.testing.assert_allclose(got(x.grad), (g @ b.swapaxes(-1, -2)).sum(1, keepdims=True), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(got(y.grad), (a.swapaxes(-1, -2) @ g).sum(0), rtol=1e-4, atol=1e-5)


def test_where_backward_with_broadcast_operands(device):
    """Where-backward fails on broadcast operands."""
    condition = rl.tensor([[True], [False], [True]], device=device)
    x = rl.ones(4, device=device, requires_grad=True)
    y = rl.ones(1, 1, device=device, requires_grad=True)
    rl.where(condition, x, y).sum().backward()
    assert got(x.grad).tolist() == [2.0] * 4
    assert got(y.grad).tolist() == [[4.0]]


def test_clamp_passes_the_gradient_at_the_bounds(device):
    """Clamp gives 0 at the bounds (PyTorch passes the gradient)."""
    x = put(np.array([-2, -1, 0, 1, 2], np.float32), device, grad=True)
    x.clamp(-1, 1).sum().backward()
    assert got(x.grad).tolist() == [0, 1, 1, 1, 0]


def test_the_power_0_at_0(device):
    """`powf(0)` at 0 gives NaN."""
    for exponent in (0, 0.0, rl.zeros(2, device=device)):
        x = put(np.array([0.0, 2.0], np.float32), device, grad=True)
        y = x**exponent
        assert got(y).tolist() == [1.0, 1.0]
        (g,) = rl.autograd.grad(y.sum(), x, create_graph=True)
        assert got(g).tolist() == [0.0, 0.0]
        g.sum().backward()
        assert got(x.grad).tolist() == [0.0, 0.0]


def test_frozen_tensors_get_no_gradient(device):
    """Frozen tensors get gradients anyway."""
    x, frozen = rl.ones(3, device=device, requires_grad=True), rl.ones(3, device=device)
    y = x * frozen
    y.sum().backward()
    assert frozen.grad is None
    assert y.node.edges[1] is None  # nor is one computed
    assert got(x.grad).tolist() == [1.0] * 3


# ---- any-gpu ----


def test_mse_backward_uses_the_incoming_gradient(device):
    """any-gpu's MSE backward ignores the incoming gradient."""
    x = put(np.array([1.0, 3.0], np.float32), device, grad=True)
    target = rl.zeros(2, device=device)
    (F.mse_loss(x, target) * 10).backward()
    assert got(x.grad).tolist() == [10.0, 30.0]
    x.grad = None
    F.mse_loss(x, target, reduction="none").backward(put(np.array([1.0, -2.0], np.float32), device))
    assert got(x.grad).tolist() == [2.0, -12.0]


@pytest.mark.parametrize("size", [7, 8, 9])
def test_strided_conv_gives_an_input_gradient_of_the_input_s_size(size, device):
    """Strided conv gives an input gradient of the wrong size."""
    x = rl.ones(1, 1, size, size, device=device, requires_grad=True)
    w = rl.ones(1, 1, 3, 3, device=device, requires_grad=True)
    F.conv2d(x, w, stride=2).sum().backward()
    want = np.zeros((size, size), np.float32)
    for i in range(0, size - 2, 2):
        for j in range(0, size - 2, 2):
            want[i : i + 3, j : j + 3] += 1
    assert got(x.grad)[0, 0].tolist() == want.tolist()


def test_a_second_backward_does_not_compound(device):
    """A second backward compounds."""
    x = rl.full((3,), 2.0, device=device, requires_grad=True)
    h = x * x
    loss = (h * h).sum()  # 4 x^3 = 32
    for count in (1, 2, 3):
        loss.backward(retain_graph=True)
        assert got(x.grad).tolist() == [32.0 * count] * 3


def test_only_what_asks_for_a_gradient_gets_one(device):
    """Every tensor gets a gradient."""
    x = rl.ones(3, device=device, requires_grad=True)
    constant = rl.ones(3, device=device)
    h = x * constant
    kept = h.exp()
    kept.retain_grad()
    loss = kept.sum()
    loss.backward()
    assert x.grad is not None
    assert kept.grad is not None
    assert h.grad is None
    assert constant.grad is None


@pytest.mark.parametrize("padding", [0, 1])
def test_a_kernel_larger_than_the_padded_input_is_a_clear_error(padding, device):
    """A kernel larger than the padded input underflows."""
    x = rl.ones(1, 1, 4, 4, device=device)
    with pytest.raises(ShapeError, match=r"(?s)conv2d.*7"):
        F.conv2d(x, rl.ones(1, 1, 7, 7, device=device), padding=padding)
    with pytest.raises(ShapeError, match=r"(?s)max_pool2d.*7"):
        F.max_pool2d(x, 7)
