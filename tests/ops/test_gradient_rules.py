"""Every rule of `gradient_rules.py` to second order on every device, without transfers.

Gradients of single ops.
"""

from __future__ import annotations

import numpy as np
import pytest

import rushlight as rl
import rushlight.nn.functional as F
from rushlight import ShapeError, memory
from rushlight.devices.shared.registry import pool_of
from tests.devices.services import got, put, sample
from tests.ops.gradient_rules import RULES, first_and_second, loss


def crossed(device: str) -> int:
    """Bytes copied from devices to the host so far."""
    pool_of(device).device.synchronize()
    return memory.transfers()["bytes_to_host"]


SILENT = {
    "casts": (lambda x: x.half().float() * 2, [2, 2, 2, 2]),
    "expand": (lambda x: x.expand(3, 4) * 2, [6, 6, 6, 6]),
    "cumsum": (lambda x: x.cumsum(0), [4, 3, 2, 1]),
    "sort": (lambda x: x.sort().values * rl.arange(4.0, device=x.device), [3, 0, 2, 1]),
}


@pytest.mark.parametrize("name", list(SILENT))
def test_nothing_detaches_in_silence(name, device):
    function, want = SILENT[name]
    x = put(np.array([4.0, 1.0, 3.0, 2.0], np.float32), device, grad=True)
    function(x).sum().backward()
    assert got(x.grad).tolist() == want


@pytest.mark.parametrize("name", list(RULES))
def test_rules_do_not_go_through_the_host(name, device):
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
    """Both orders against differences of the order below."""
    arrays = [x.astype(np.float64) for x in RULES[name][1]]
    step = 1e-3 if name == "to_dtype" else 1e-6
    ways = [np.random.default_rng(8).standard_normal(x.shape) for x in arrays]

    def at(shift):
        return [
            rl.tensor(x + shift * way, requires_grad=True)
            for x, way in zip(arrays, ways, strict=True)
        ]

    first, second = first_and_second(name, at(0.0))
    low, high = at(-step), at(step)
    slope = (loss(name, high) - loss(name, low)).item() / (2 * step)
    bend = 0.0
    for i, (a, b) in enumerate(
        zip(first_and_second(name, low)[0], first_and_second(name, high)[0], strict=True)
    ):
        bend += (i + 1.5) * (b - a).sum().item() / (2 * step)
    along = [
        sum((got(g) * way).sum() for g, way in zip(order, ways, strict=True))
        for order in (first, second)
    ]
    np.testing.assert_allclose(
        along, [slope, bend], rtol=5e-3 if name == "to_dtype" else 1e-5, atol=1e-6
    )
    assert bool(along[1]) is (name not in ("floor", "ceil", "round"))


def test_batched_matmul_with_broadcast_batch_dims(device):
    a, b = sample(2, 1, 3, 4), sample(5, 4, 6, seed=1)
    g = sample(2, 5, 3, 6, seed=2)
    x, y = put(a, device, grad=True), put(b, device, grad=True)
    product = x @ y
    np.testing.assert_allclose(got(product), a @ b, rtol=1e-5, atol=1e-5)
    product.backward(put(g, device))
    np.testing.assert_allclose(
        got(x.grad), (g @ b.swapaxes(-1, -2)).sum(1, keepdims=True), rtol=1e-4, atol=1e-5
    )
    np.testing.assert_allclose(got(y.grad), (a.swapaxes(-1, -2) @ g).sum(0), rtol=1e-4, atol=1e-5)


def test_where_backward_with_broadcast_operands(device):
    condition = rl.tensor([[True], [False], [True]], device=device)
    x = rl.ones(4, device=device, requires_grad=True)
    y = rl.ones(1, 1, device=device, requires_grad=True)
    rl.where(condition, x, y).sum().backward()
    assert got(x.grad).tolist() == [2.0] * 4
    assert got(y.grad).tolist() == [[4.0]]


def test_clamp_passes_the_gradient_at_the_bounds(device):
    x = put(np.array([-2, -1, 0, 1, 2], np.float32), device, grad=True)
    x.clamp(-1, 1).sum().backward()
    assert got(x.grad).tolist() == [0, 1, 1, 1, 0]


def test_the_power_0_at_0(device):
    for exponent in (0, 0.0, rl.zeros(2, device=device)):
        x = put(np.array([0.0, 2.0], np.float32), device, grad=True)
        y = x**exponent
        assert got(y).tolist() == [1.0, 1.0]
        (g,) = rl.autograd.grad(y.sum(), x, create_graph=True)
        assert got(g).tolist() == [0.0, 0.0]
        g.sum().backward()
        assert got(x.grad).tolist() == [0.0, 0.0]


def test_mse_backward_uses_the_incoming_gradient(device):
    x = put(np.array([1.0, 3.0], np.float32), device, grad=True)
    target = rl.zeros(2, device=device)
    (F.mse_loss(x, target) * 10).backward()
    assert got(x.grad).tolist() == [10.0, 30.0]
    x.grad = None
    F.mse_loss(x, target, reduction="none").backward(put(np.array([1.0, -2.0], np.float32), device))
    assert got(x.grad).tolist() == [2.0, -12.0]


@pytest.mark.parametrize("size", [7, 8, 9])
def test_strided_conv_gives_an_input_gradient_of_the_input_s_size(size, device):
    x = rl.ones(1, 1, size, size, device=device, requires_grad=True)
    w = rl.ones(1, 1, 3, 3, device=device, requires_grad=True)
    F.conv2d(x, w, stride=2).sum().backward()
    want = np.zeros((size, size), np.float32)
    for i in range(0, size - 2, 2):
        for j in range(0, size - 2, 2):
            want[i : i + 3, j : j + 3] += 1
    assert got(x.grad)[0, 0].tolist() == want.tolist()


@pytest.mark.parametrize("padding", [0, 1])
def test_a_kernel_larger_than_the_padded_input_is_a_clear_error(padding, device):
    x = rl.ones(1, 1, 4, 4, device=device)
    with pytest.raises(ShapeError, match=r"(?s)conv2d.*7"):
        F.conv2d(x, rl.ones(1, 1, 7, 7, device=device), padding=padding)
    with pytest.raises(ShapeError, match=r"(?s)max_pool2d.*7"):
        F.max_pool2d(x, 7)


LISTED = (
    "add sub mul div neg abs exp log sqrt square relu sigmoid tanh gelu silu sin cos floor ceil "
    "round sum mean max min matmul "
    "reshape transpose narrow affine conv1d conv2d maxpool avgpool cat powf clamp where gather pad "
    "index_select to_dtype"
)


def test_every_rule_is_listed():
    """The tests above run every entry of RULES."""
    assert sorted(RULES) == sorted(LISTED.split())


@pytest.mark.parametrize("name", ["amax", "amin", "max", "min"])
@pytest.mark.parametrize("dims", [(0,), (1,), (0, 1)])
def test_ties_share_the_gradient(name, dims, device):
    if name in ("max", "min") and dims != (0, 1):
        pytest.skip(
            "limit: with one dimension max and min give an index, and the gradient to its place, "
            "as PyTorch"
        )
    x = rl.zeros(2, 3, device=device, requires_grad=True)
    (getattr(x, name)() if name in ("max", "min") else getattr(x, name)(dims)).sum().backward()
    count = np.prod([x.shape[d] for d in dims])
    np.testing.assert_allclose(got(x.grad), np.full((2, 3), 1 / count), rtol=1e-6)


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
def test_results_and_gradients_on_every_device(name, device):
    """Results and gradients against the same in float64."""
    function, shapes = TAPE[name]
    arrays = [sample(*shape, seed=i) for i, shape in enumerate(shapes)]

    def run(leaves):
        out = function(*leaves)
        out.backward(rl.tensor(sample(*out.shape, seed=9), device=out.device).to(out.dtype))
        return [out, *[leaf.grad for leaf in leaves]]

    want = run([rl.tensor(x, dtype=rl.float64, requires_grad=True) for x in arrays])
    for ours, theirs in zip(run([put(x, device, grad=True) for x in arrays]), want, strict=True):
        np.testing.assert_allclose(got(ours), got(theirs), rtol=1e-4, atol=1e-4)
