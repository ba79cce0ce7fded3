"""Checkpoints: the cost of recomputation, random state, captured parameters, nesting, threads,
errors.
"""

from __future__ import annotations

import contextvars
import gc
import threading

import numpy as np
import pytest

import rushlight as rl
import rushlight.nn.functional as F
from rushlight import RushlightError, memory
from rushlight.devices.shared.registry import pool_of
from rushlight.utils.checkpoint import checkpoint, checkpoint_sequential, is_checkpointing
from tests.devices.services import got, put, sample

WIDTH = 16


def weights(count: int, device: str) -> list[rl.Tensor]:
    rl.manual_seed(7)
    return [(rl.randn(WIDTH, WIDTH, device=device) * 0.3).requires_grad_() for _ in range(count)]


def plainly(function, *args, **named):
    return function(*args, **named)


def bits(*tensors: rl.Tensor | None) -> list[bytes | None]:
    return [None if t is None else got(t).tobytes() for t in tensors]


def crossed(device: str) -> int:
    """Bytes copied from devices to the host so far."""
    pool_of(device).device.synchronize()
    return memory.transfers()["bytes_to_host"]


def residual(w: list[rl.Tensor], x: rl.Tensor, run) -> rl.Tensor:
    for part in w:
        x = x + run(lambda t, part=part: (t @ part).tanh().exp() @ part, x)
    return x


def test_a_residual_net_of_L_blocks_costs_recomputes_linear_in_L(device):
    """A walk of the whole graph above each block would cost 2^L - 1 recomputations."""
    per_block = []
    for depth in (3, 6, 12):
        before = memory.recomputed()["calls"]
        residual(
            weights(depth, device), rl.ones(4, WIDTH, device=device), checkpoint
        ).sum().backward()
        per_block.append((memory.recomputed()["calls"] - before) / depth)
    assert per_block[0] == per_block[1] == per_block[2]
    # The first product, tanh, exp; the block's result is not needed again.
    assert 2 <= per_block[0] <= 4


def test_a_plain_chain_saves_memory(device):
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


def masked_step(run, inputs: list[rl.Tensor], block) -> list[bytes | None]:
    rl.manual_seed(5)
    for x in inputs:
        x.grad = None
    loss = run(block, *inputs)
    loss.backward()
    return bits(loss, *[x.grad for x in inputs])


def test_the_random_state_is_the_same_in_the_recompute(device):
    x = rl.ones(8, WIDTH, device=device, requires_grad=True)

    def block(t):
        return (F.dropout(t, 0.4).exp() * rl.rand(8, WIDTH, device=device)).exp().sum()

    assert masked_step(checkpoint, [x], block) == masked_step(plainly, [x], block)


def test_an_error_of_a_random_op_is_not_swallowed(device):
    x = rl.ones(8, WIDTH, device=device, requires_grad=True)
    with pytest.raises((RushlightError, ValueError), match="dropout"):
        checkpoint(lambda t: F.dropout(F.dropout(t, 0.5), 1.5), x)
    assert masked_step(checkpoint, [x], lambda t: F.dropout(t, 0.4).exp().sum())[1] is not None


@pytest.mark.parametrize("other", ["webgpu", "cuda"])
def test_every_input_s_device_is_considered(other, require_device):
    require_device(other)
    inputs = [rl.ones(8, WIDTH, device=name, requires_grad=True) for name in ("cpu", other)]

    def block(x, y):
        return F.dropout(x, 0.4).exp().sum() + F.dropout(y, 0.4).exp().sum().to("cpu")

    assert masked_step(checkpoint, inputs, block) == masked_step(plainly, inputs, block)


def test_parameters_captured_by_the_closure_get_gradients(device):
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


def test_backward_under_no_grad_through_a_checkpoint(device):
    x = rl.ones(4, WIDTH, device=device, requires_grad=True)
    loss = checkpoint(lambda t: t.exp().sin().exp().sum(), x)
    with rl.no_grad():
        loss.backward()
    want = np.exp(np.sin(np.e)) * np.cos(np.e) * np.e
    np.testing.assert_allclose(got(x.grad), want, rtol=1e-5)


def test_the_output_is_not_copied_through_the_host(device):
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
    results = []
    for run in (plainly, checkpoint):
        x = put(sample(4, WIDTH), device, grad=True)
        (g,) = rl.autograd.grad(run(lambda t: t.sin().exp(), x).sum(), x, create_graph=True)
        (g * g).sum().backward()
        results.append(bits(g, x.grad))
    assert results[0] == results[1]


def test_a_checkpoint_drops_and_recomputes(device):
    x = rl.ones(256, WIDTH, device=device, requires_grad=True)
    start = memory.allocated(device)
    loss = checkpoint(lambda t: t.exp().sin().exp().sin().sum(), x)
    assert memory.allocated(device) <= start + 64
    calls = memory.recomputed()["calls"]
    loss.backward()
    assert memory.recomputed()["calls"] > calls


def test_checkpoint_sequential_keeps_every_segment_s_gradients(device):
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


def nested(x: dict, w: list[rl.Tensor], run) -> tuple:
    """Any nesting of inputs and outputs, a checkpoint in a checkpoint, masks, autocast, captured
    parameters.
    """

    def inner(t):
        return F.dropout((t @ w[0]).tanh(), 0.3)

    def outer(given, *, scale):
        with rl.autocast(given["x"].device.type, dtype=rl.float16):
            h = run(inner, given["x"] * scale)
        return [h.float().exp()], {"sum": (h.float() @ w[1]).sum()}

    return run(outer, x, scale=0.5)


def step(device: str, run) -> list[bytes | None]:
    rl.manual_seed(2)
    w = [(rl.randn(WIDTH, WIDTH, device=device) * 0.3).requires_grad_() for _ in range(2)]
    x = rl.randn(4, WIDTH, device=device, requires_grad=True)
    (h,), rest = nested({"x": x}, w, run)
    loss = h.sum() + rest["sum"]
    (g,) = rl.autograd.grad(loss, x, create_graph=True)
    (loss + (g * g).sum()).backward()
    return bits(loss, g, x.grad, *[part.grad for part in w])


def test_checkpoint_nested_masked_cast_captured_and_twice_differentiated(device):
    assert step(device, checkpoint) == step(device, plainly)


def test_checkpoint_in_threads_with_the_caller_s_state():
    want = step("cpu", plainly)
    found: list[list] = []
    threads = []
    for _ in range(3):
        context = contextvars.copy_context()
        threads.append(
            threading.Thread(target=lambda c=context: found.append(c.run(step, "cpu", checkpoint)))
        )
    for thread in threads:
        thread.start()
        thread.join()
    assert found == [want] * 3


def test_checkpoint_records_nothing_when_nothing_needs_a_gradient(device):
    out = checkpoint(lambda t: t.exp().sin(), rl.ones(3, device=device))
    assert not out.requires_grad
    assert out._node is None


def test_checkpoint_undoes_its_state_on_error(device):
    x = rl.ones(64, WIDTH, device=device, requires_grad=True)
    gc.collect()
    start = memory.allocated(device)

    def fail(t):
        t.exp().sin()
        with rl.autocast(device), rl.no_grad():
            raise KeyError("inside")

    with pytest.raises(KeyError, match="inside"):
        checkpoint(fail, x)
    gc.collect()
    assert memory.allocated(device) == start
    assert rl.is_grad_enabled()
    assert not is_checkpointing()


def test_is_checkpointing_and_sequential(device):
    seen = []

    def part(t):
        seen.append(is_checkpointing())
        return t.exp().sin()

    assert not is_checkpointing()
    checkpoint_sequential(
        [part, part], 2, rl.ones(3, device=device, requires_grad=True)
    ).sum().backward()
    assert seen == [True, False]  # the last segment is kept
