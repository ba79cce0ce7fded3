"""Edges that a comparison with PyTorch over its own op samples (op_db) brought to light, op by op."""

from __future__ import annotations

import math

import pytest

import rushlight as rl
import rushlight.nn.functional as F

NAN = math.nan


def _gradients(function, *values):
    leaves = [rl.tensor(v, requires_grad=True) for v in values]
    function(*leaves).sum().backward()
    return [leaf.grad.tolist() for leaf in leaves]


LEFT = [NAN, 1.0, NAN, 2.0, 0.0, 3.0]
RIGHT = [1.0, NAN, NAN, 2.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("name", "left", "right"),
    [
        ("clamp_min", [0, 0, 0, 1, 0, 1], [0, 0, 0, 0, 1, 0]),
        ("clamp_max", [0, 0, 0, 1, 1, 0], [0, 0, 0, 0, 0, 1]),
        ("maximum", [1, 1, 1, 0.5, 0, 1], [1, 1, 1, 0.5, 1, 0]),
        ("minimum", [1, 1, 1, 0.5, 1, 0], [1, 1, 1, 0.5, 0, 1]),
    ],
)
def test_gradients_of_extremes_at_nan(name, left, right):
    assert _gradients(getattr(rl, name), LEFT, RIGHT) == [left, right]


def test_gradient_of_clamp_between_bounds_that_are_nan_or_crossed():
    high = [2.0, 4.0, NAN, 2.0, -1.0, NAN]
    x, low, top = _gradients(rl.clamp, LEFT, RIGHT, high)
    assert (x, low, top) == ([0, 0, 0, 1, 0, 0], [0] * 6, [0, 0, 0, 0, 1, 0])


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: rl.sum([1.0, 2.0]),
        lambda: rl.softmax([1.0, 2.0], 0),
        lambda: rl.clamp_min(2, rl.tensor([1, 2])),
        lambda: rl.max(2, 3),
        lambda: rl.isclose(rl.tensor([1, 2]), 2),
        lambda: rl.polar(2, rl.tensor([1.0])),
        lambda: F.linear([1.0], rl.ones(1, 1)),
        lambda: F.mse_loss([1.0], rl.ones(1)),
    ],
)
def test_what_is_no_tensor_is_a_type_error(wrong):
    with pytest.raises(TypeError, match="tensor"):
        wrong()


def test_an_attribute_that_a_tensor_does_not_have_stays_an_attribute_error():
    with pytest.raises(AttributeError, match="nonsense"):
        rl.ones(2).nonsense  # noqa: B018


@pytest.mark.parametrize("kind", [RuntimeError, IndexError])
def test_an_index_out_of_range_is_both_of_pytorchs_errors(kind):
    x = rl.ones(2, 2)
    for wrong in (
        lambda: rl.gather(x, 1, rl.tensor([[0, 23]])),
        lambda: x.scatter(0, rl.tensor([[34, 1]]), x),
        lambda: x[rl.tensor([5])],
        lambda: rl.amax(rl.ones(5, 0, 5)),
    ):
        with pytest.raises(kind):
            wrong()


def test_narrow_and_roll_and_item_and_arange_refuse_as_pytorch():
    x = rl.ones(4, 5)
    for wrong in (
        lambda: rl.ones(()).narrow(0, 0, 1),
        lambda: x.narrow(1, 0, 6),
        lambda: x.narrow(0, rl.tensor([1, 2]), 1),
        lambda: x.narrow(0, rl.tensor(True), 1),
        x.item,
        lambda: rl.arange(0, math.inf, 2),
        lambda: F.gelu(x, approximate="no"),
    ):
        with pytest.raises(RuntimeError):
            wrong()
    for wrong in (lambda: x.narrow(0, 7, 1), lambda: rl.ones(()).roll(0, 0)):
        with pytest.raises(IndexError):
            wrong()
    assert x.narrow(0, rl.tensor(-1), 1).shape == (1, 5)


def test_adaptive_pools_of_nothing_keep_the_gradient():
    for pool, shape, size in ((F.adaptive_avg_pool1d, (0, 8, 8), 5), (F.adaptive_max_pool2d, (0, 8, 8, 8), 5)):
        x = rl.zeros(shape, requires_grad=True)
        out = pool(x, size)
        assert out.requires_grad
        out.sum().backward()
        assert x.grad.shape == shape


def test_margin_ranking_loss_of_integers_is_a_float():
    x = rl.tensor([1, 2, 3])
    assert F.margin_ranking_loss(x, x + 1, rl.ones(3, dtype=rl.int64), reduction="none").dtype is rl.float32


def test_functions_of_the_library_that_take_out():
    x = rl.linspace(-2, 2, 12).reshape(3, 4)
    out = rl.empty(3, 4)
    for function in (F.gelu, F.hardshrink, F.softplus, F.softshrink, F.logsigmoid):
        assert function(x, out=out) is out
        assert rl.equal(out, function(x))
    out = rl.empty(3, 3)
    assert F.linear(x, x, out=out) is out
    assert rl.equal(out, x @ x.T)
