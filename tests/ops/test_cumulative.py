"""Running folds as ops: places of extremes, types, infinities, and derivatives of higher order."""

from __future__ import annotations

import math

import numpy as np
import pytest

import rushlight as rl

INF, NAN = math.inf, math.nan


@pytest.mark.parametrize("device", ["cpu", "reference"])
def test_the_last_place_that_holds_the_extreme(device):
    x = rl.tensor([1.0, 3.0, 3.0, 2.0, NAN, 5.0, NAN, 1.0], device=device)
    values, places = rl.cummax(x, 0)
    np.testing.assert_array_equal(values.cpu().numpy(), [1, 3, 3, 3, NAN, NAN, NAN, NAN])
    assert places.tolist() == [0, 1, 2, 2, 4, 4, 6, 6]
    values, places = rl.cummin(x, 0)
    np.testing.assert_array_equal(values.cpu().numpy(), [1, 1, 1, 1, NAN, NAN, NAN, NAN])
    assert places.tolist() == [0, 0, 0, 0, 4, 4, 6, 6]
    flags = rl.cummax(rl.tensor([False, True, False], device=device), 0)
    assert flags.values.tolist() == [False, True, True] and flags.indices.tolist() == [0, 1, 1]


def test_the_gradient_of_an_extreme_goes_to_its_last_place():
    x = rl.tensor([1.0, 3.0, 3.0, 2.0], requires_grad=True)
    (rl.cummax(x, 0).values * rl.tensor([1.0, 2.0, 3.0, 4.0])).sum().backward()
    assert x.grad.tolist() == [1, 2, 7, 0]


def test_types():
    assert rl.cumsum(rl.tensor([True, True, False]), 0).tolist() == [1, 2, 2]
    assert rl.cumsum(rl.tensor([1, 2], dtype=rl.int32), 0).dtype is rl.int64
    assert rl.cumprod(rl.tensor([2, 3], dtype=rl.int32), -1).dtype is rl.int64
    assert rl.cumsum(rl.tensor([1.5, 2.0]), 0, dtype=rl.int32).dtype is rl.int32
    assert rl.cumsum(rl.tensor([1.5, 2.0]), 0, dtype=rl.float64).tolist() == [1.5, 3.5]
    many = rl.ones(400, dtype=rl.bfloat16)
    assert rl.cumsum(many, 0)[-1].item() == 400  # in bfloat16, 256 + 1 is 256


def test_errors():
    with pytest.raises(IndexError, match="cumsum"):
        rl.cumsum(rl.ones(3), 1)
    with pytest.raises(TypeError, match=r"logcumsumexp.*float"):
        rl.logcumsumexp(rl.tensor([1, 2]), 0)
    with pytest.raises(TypeError, match="cumprod"):
        rl.cumprod(rl.ones(3), 0, dtype=rl.bool)


def test_in_place():
    x = rl.tensor([1, 2, 3], dtype=rl.int32)
    assert x.cumsum_(0) is x and x.tolist() == [1, 3, 6] and x.dtype is rl.int32
    base = rl.ones(2, 3)
    base[:, 1].cumprod_(0)
    assert base.tolist() == [[1] * 3] * 2


def test_infinities_have_a_gradient_where_there_is_one():
    x = rl.tensor([-INF, -INF, 1.0, 2.0, -INF], requires_grad=True)
    rl.logcumsumexp(x, 0).sum().backward()
    share = 1 / (1 + math.e)
    np.testing.assert_allclose(x.grad.numpy(), [0, 0, 1 + 2 * share, 2 * (1 - share), 0], rtol=1e-5)
    x = rl.tensor([1.0, INF, 2.0], requires_grad=True)
    rl.logcumsumexp(x, 0)[0].backward()
    assert x.grad[0].item() == 1 and x.grad[2].item() == 0


def test_large_numbers_do_not_overflow():
    x = rl.tensor([1000.0, 1000.0, -1000.0, 0.0], dtype=rl.float64, requires_grad=True)
    out = rl.logcumsumexp(x, 0)
    np.testing.assert_allclose(out.detach().numpy(), 1000 + np.log([1, 2, 2, 2]))
    out.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), [2.5, 1.5, 0, 0])


def derivative(function, order, x, weights):
    """The gradient of the weighted sum of the gradient of ... of `function`."""
    x = rl.tensor(x, dtype=rl.float64, requires_grad=True)
    value = function(x)
    for k in range(order):
        (value,) = rl.autograd.grad((value * rl.tensor(weights[k])).sum(), x, create_graph=True)
    return value.detach().numpy()


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("zeros", [0, 1, 3])
@pytest.mark.parametrize("name", ["cumsum", "cumprod", "logcumsumexp"])
def test_every_order_is_the_difference_of_the_one_before(name, zeros, order):
    rng = np.random.default_rng(zeros)
    x = rng.standard_normal((2, 6))
    x[0, rng.permutation(6)[:zeros]] = 0
    weights = [rng.standard_normal(x.shape) for _ in range(order)]

    def function(v):
        return getattr(rl, name)(v * v * v + v if name == "cumsum" else v, 1)

    want, step = np.zeros_like(x), 1e-5
    for place in np.ndindex(x.shape):
        moved = np.zeros_like(x)
        moved[place] = step
        high, low = (derivative(function, order - 1, x + d, weights) for d in (moved, -moved))
        want[place] = ((high - low) / (2 * step) * weights[order - 1]).sum()
    np.testing.assert_allclose(derivative(function, order, x, weights), want, rtol=1e-6, atol=1e-6)


def test_gradients_go_through_layouts():
    x = rl.arange(24.0).reshape(2, 3, 4).permute(2, 0, 1).requires_grad_()
    rl.cumsum(x, 1)[::2].sum().backward()
    want = np.zeros((4, 2, 3))
    want[::2] = [[2], [1]]
    np.testing.assert_array_equal(x.grad.numpy(), want)
