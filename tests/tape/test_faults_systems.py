"""The five systems Rushlight grew from, a section each: `seeds.md`, first table. What a row lists is here and works.

What they did wrong is in test_faults.py.
"""

from __future__ import annotations

import contextvars
import gc
import threading

import numpy as np
import pytest

import rushlight as rl
import rushlight.nn.functional as F
from rushlight import GraphFreedError, RushlightError, ShapeError, memory
from rushlight.devices.registry import pool_of
from rushlight.utils.checkpoint import checkpoint, checkpoint_sequential, is_checkpointing
from tests.devices.services import SERVICES, got, put, sample
from tests.ops.gradient_rules import RULES

WIDTH = 16


def bits(*tensors: rl.Tensor | None) -> list[bytes | None]:
    return [None if t is None else got(t).tobytes() for t in tensors]


# ---- seed 000: ferrotorch's checkpoint ----


def nested(x: dict, w: list[rl.Tensor], run) -> tuple:
    """Any nesting of inputs and outputs, a checkpoint in a checkpoint, masks, autocast, captured parameters."""

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


def plainly(function, *args, **named):
    return function(*args, **named)


def test_checkpoint_nested_masked_cast_captured_and_twice_differentiated(device):
    assert step(device, checkpoint) == step(device, plainly)


def test_checkpoint_in_threads_with_the_caller_s_state():
    want = step("cpu", plainly)
    found: list[list] = []
    threads = []
    for _ in range(3):
        context = contextvars.copy_context()
        threads.append(threading.Thread(target=lambda c=context: found.append(c.run(step, "cpu", checkpoint))))
    for thread in threads:
        thread.start()
        thread.join()
    assert found == [want] * 3


def test_checkpoint_records_nothing_when_nothing_needs_a_gradient(device):
    out = checkpoint(lambda t: t.exp().sin(), rl.ones(3, device=device))
    assert not out.requires_grad
    assert out.node is None


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


# ---- seed 001: shrew's backprop ----

LISTED = (
    "add sub mul div neg abs exp log sqrt square relu sigmoid tanh gelu silu sin cos floor ceil round sum mean max min matmul "
    "reshape transpose narrow affine conv1d conv2d maxpool avgpool cat powf clamp where gather pad index_select to_dtype"
)


def test_every_rule_is_listed():
    """test_faults.py has both orders of each, on every device."""
    assert sorted(RULES) == sorted(LISTED.split())


@pytest.mark.parametrize("name", ["amax", "amin", "max", "min"])
@pytest.mark.parametrize("dims", [(0,), (1,), (0, 1)])
def test_ties_share_the_gradient(name, dims, device):
    if name in ("max", "min") and dims != (0, 1):
        pytest.skip("limit: with one dimension max and min give an index, and the gradient to its place, as PyTorch")
    x = rl.zeros(2, 3, device=device, requires_grad=True)
    (getattr(x, name)() if name in ("max", "min") else getattr(x, name)(dims)).sum().backward()
    count = np.prod([x.shape[d] for d in dims])
    np.testing.assert_allclose(got(x.grad), np.full((2, 3), 1 / count), rtol=1e-6)


def test_a_functional_gradient_result(device):
    """Its `GradStore`: the gradient of any value, `.grad` untouched."""
    x = rl.full((3,), 2.0, device=device, requires_grad=True)
    h = x * x
    found = rl.autograd.gradients((h * h).sum())
    assert found[h].tolist() == [8.0] * 3
    assert found[x].tolist() == [32.0] * 3
    assert x.grad is None


def test_is_checkpointing_and_sequential(device):
    seen = []

    def part(t):
        seen.append(is_checkpointing())
        return t.exp().sin()

    assert not is_checkpointing()
    checkpoint_sequential([part, part], 2, rl.ones(3, device=device, requires_grad=True)).sum().backward()
    assert seen == [True, False]  # the last segment is kept


# ---- seed 002: ferrotorch's graph ----


def test_kahn_order_without_recursion(device):
    """A node waits for every gradient: with 2^60 paths each is still visited once."""
    x = rl.ones(1, device=device, requires_grad=True)
    y = x
    for _ in range(60):
        y = y + y
    y.backward()
    assert x.grad.item() == 2.0**60


def test_an_external_gradient_for_a_root_of_many_elements(device):
    x = rl.ones(3, device=device, requires_grad=True)
    with pytest.raises(RushlightError, match="gradient must be given"):
        (x * 2).backward()
    (x * 2).backward(rl.tensor([1.0, 2.0, 3.0], device=device))
    assert x.grad.tolist() == [2.0, 4.0, 6.0]


def test_gradient_and_post_accumulate_hooks(device):
    x = rl.ones(1, device=device, requires_grad=True)
    seen = []
    handle = x.register_hook(lambda g: g * 10)
    x.register_post_accumulate_grad_hook(lambda leaf: seen.append(leaf.grad.item()))
    (x * 3).backward()
    handle.remove()
    (x * 3).backward()
    assert seen == [30.0, 33.0]


def test_accumulation_in_place_is_safe(device):
    """A gradient that somebody else sees is not written to."""
    x, y = rl.ones(2, device=device, requires_grad=True), rl.ones(2, device=device, requires_grad=True)
    seed = rl.ones(2, device=device)
    (x + y + x).backward(seed)
    assert (x.grad.tolist(), y.grad.tolist(), seed.tolist()) == ([2.0, 2.0], [1.0, 1.0], [1.0, 1.0])


class Wrong(rl.autograd.Function):
    @staticmethod
    def forward(ctx, x, y, what):
        ctx.what = what
        return x + y

    @staticmethod
    def backward(ctx, g):
        return {"count": (g,), "shape": (g.reshape(3, 2)[:2], g, None)}[ctx.what]


@pytest.mark.parametrize("what", ["count", "shape"])
def test_a_wrong_count_or_shape_of_gradients_is_an_error(what, device):
    x, y = rl.ones(2, 3, device=device, requires_grad=True), rl.ones(2, 3, device=device, requires_grad=True)
    with pytest.raises((RushlightError, ShapeError), match="Wrong"):
        Wrong.apply(x, y, what).sum().backward()
    assert x.grad is None


@pytest.mark.parametrize("workers", [2, 4])
def test_several_threads_give_the_same_bits(workers, device):
    """Its faults are in test_parallel_errors.py."""

    def run(count):
        x = put(sample(64), device, grad=True)
        rl.stack([(x * float(10**i)).sin() for i in range(-3, 4)]).sum().backward(workers=count)
        return bits(x.grad)

    assert run(workers) == run(1)


def test_a_freed_graph_says_so(device):
    x = rl.ones(2, device=device, requires_grad=True)
    loss = x.exp().sum()
    loss.backward()
    with pytest.raises(GraphFreedError, match="retain_graph"):
        loss.backward()


# ---- seed 003: ferrotorch's gpu_dispatch ----


@pytest.mark.parametrize("other", ["webgpu", "cuda"])
def test_several_devices_in_one_process(other, require_device):
    """Its one registered backend is one of several here; test_faults.py runs the 75 services on each."""
    require_device(other)
    assert len(SERVICES) == 75
    x = rl.ones(4, requires_grad=True)
    y = (x * 2).to(other)
    (y * rl.full((4,), 3.0, device=other)).sum().backward()
    assert x.grad.device == rl.device("cpu")
    assert x.grad.tolist() == [6.0] * 4


def test_every_dtype(device):
    for dtype in pool_of(device).device.limits.dtypes:
        x = rl.ones(3, dtype=dtype, device=device)
        assert (
            got((x + x if dtype is not rl.bool else x | x).to(rl.float32)).tolist()
            == [1.0 if dtype is rl.bool else 2.0] * 3
        )


# ---- seed 004: any-gpu's autograd ----

CONVOLUTIONS = {
    "plain": {},
    "stride": {"stride": 2},
    "padding": {"padding": (1, 2)},
    "dilation": {"dilation": 2},
    "groups": {"groups": 2},
    "all": {"stride": (2, 1), "padding": 1, "dilation": (1, 2), "groups": 2},
}
TAPE = {
    "add": (lambda x, y: x + y, ((3, 4), (3, 4))),
    "sub": (lambda x, y: x - y, ((3, 4), (3, 4))),
    "mul": (lambda x, y: x * y, ((3, 4), (3, 4))),
    "scale": (lambda x: x * 2.5, ((3, 4),)),
    "relu": (rl.relu, ((3, 4),)),
    "sigmoid": (rl.sigmoid, ((3, 4),)),
    "swish": (F.silu, ((3, 4),)),
    "tanh": (rl.tanh, ((3, 4),)),
    "matmul": (rl.matmul, ((3, 4), (4, 5))),
    "mse": (F.mse_loss, ((3, 4), (3, 4))),
    **{
        f"conv2d {name}": (
            lambda x, w, b, options=options: F.conv2d(x, w, b, **options),
            ((2, 4, 8, 9), (6, 4 // options.get("groups", 1), 3, 3), (6,)),
        )
        for name, options in CONVOLUTIONS.items()
    },
}


@pytest.mark.parametrize("name", list(TAPE))
def test_the_tape_on_every_device(name, device):
    """leaf, read, read_grad and each op of the tape, against the same in float64."""
    function, shapes = TAPE[name]
    arrays = [sample(*shape, seed=i) for i, shape in enumerate(shapes)]

    def run(leaves):
        out = function(*leaves)
        out.backward(rl.tensor(sample(*out.shape, seed=9), device=out.device).to(out.dtype))
        return [out, *[leaf.grad for leaf in leaves]]

    want = run([rl.tensor(x, dtype=rl.float64, requires_grad=True) for x in arrays])
    for ours, theirs in zip(run([put(x, device, grad=True) for x in arrays]), want, strict=True):
        np.testing.assert_allclose(got(ours), got(theirs), rtol=1e-4, atol=1e-4)
