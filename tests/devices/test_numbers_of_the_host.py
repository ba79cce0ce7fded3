"""0-dim tensors and index tensors of the host beside a device's tensors, as in PyTorch."""

from __future__ import annotations

import operator

import pytest

import rushlight as rl
from rushlight.core.errors import DeviceError
from rushlight.utils.checkpoint import checkpoint


@pytest.fixture
def x(require_device):
    require_device("webgpu")
    return rl.arange(6.0, device="webgpu").reshape(2, 3)


def found(value):
    assert value.device.type == "webgpu"
    return value.cpu().tolist()


@pytest.mark.parametrize("op", [operator.add, operator.mul, operator.gt, rl.maximum, rl.pow])
def test_a_number_of_the_host_is_an_operand(x, op):
    s = rl.tensor(2.0)
    assert found(op(x, s)) == op(x.cpu(), s).tolist() and found(op(s, x)) == op(s, x.cpu()).tolist()
    assert found(op(s, x.sum())) == op(s, x.cpu().sum()).tolist()
    assert found(op(x, s)) == op(x.cpu(), s).tolist()  # again


def test_calls_of_three_operands_and_writes(x):
    s, here = rl.tensor(2.0), x.cpu()
    assert found(rl.where(x > 2, x, s)) == rl.where(here > 2, here, s).tolist()
    assert found(rl.addcmul(x, x, s)) == rl.addcmul(here, here, s).tolist()
    assert found(x.masked_fill(x > 2, s)) == here.masked_fill(here > 2, s).tolist()
    y, z = x.clone(), here.clone()
    for each in (y, z):
        for _ in range(2):
            each.mul_(s).add_(s)
        each[0] = s
        each[1, 1:] = rl.tensor([7.0, 8.0])
    assert found(y) == z.tolist()
    assert found(x.clone().fill_(s)) == [[2.0] * 3] * 2
    first = rl.tensor([0])
    assert found(x.index_fill(0, first.to("webgpu"), s)) == here.index_fill(0, first, s).tolist()
    assert found(x.index_put((first,), s)) == here.index_put((first,), s).tolist()


def test_indices_of_the_host(x):
    here = x.cpu()
    keys = [
        rl.tensor([1, 0]),
        (slice(None), rl.tensor([2, 0])),
        (rl.tensor([1, 0]), rl.tensor([0, 2])),
        rl.tensor([True, False]),
        here > 2,
        (rl.tensor([1, 0]), rl.tensor([0, 2], device="webgpu")),
    ]
    for key in keys:
        host = (
            tuple(k.cpu() if isinstance(k, rl.Tensor) else k for k in key)
            if (isinstance(key, tuple))
            else key
        )
        assert found(x[key]) == here[host].tolist()
        y, z = x.clone(), here.clone()
        y[key], z[host] = 9.0, 9.0
        assert found(y) == z.tolist()


def test_gradients_go_back_to_the_host(x):
    s = rl.tensor(2.0, requires_grad=True)
    y = x.clone().requires_grad_()
    (y * s).sum().backward()
    assert (
        s.grad.device.type == "cpu" and s.grad.item() == 15.0 and found(y.grad) == [[2.0] * 3] * 2
    )
    s.grad = None
    checkpoint(lambda v: (v * s).square() * rl.tensor(0.5), y, use_reentrant=False).sum().backward()
    assert s.grad.item() == 110.0
    total = rl.tensor(0.0)
    for _ in range(3):
        total = total + x.mean()
    assert found(total) == 7.5


def test_what_else_is_on_two_devices_is_refused(x):
    for call in (
        lambda: x + rl.ones(3),
        lambda: rl.ones(3) + x.sum(),
        lambda: rl.tensor(1.0).add_(x.sum()),
        lambda: x @ rl.ones(3, 1),
        lambda: rl.ones(2)[rl.tensor([0], device="webgpu")],
    ):
        with pytest.raises(DeviceError, match="operands are on"):
            call()
