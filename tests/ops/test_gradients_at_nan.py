"""Gradients of extremes, clamps, activations and quotients where an operand is NaN.

The numbers are PyTorch 2.13's.
"""

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
    ("function", "wanted"),
    [
        (F.relu, 1.0),
        (F.elu, 1.0),
        (F.celu, 1.0),
        (F.relu6, 0.0),
        (F.hardtanh, 0.0),
        (F.hardshrink, 0.0),
        (F.softshrink, 0.0),
    ],
)
def test_gradients_of_activations_at_nan(function, wanted):
    assert _gradients(function, [NAN, 0.75, -9.0])[0][0] == wanted
    assert _gradients(function, [NAN, 0.75, -9.0])[0][1] == 1.0


def test_gradients_where_a_quotient_has_no_value():
    assert _gradients(rl.atan2, [0.0, -0.0, 1.0], [0.0, 0.0, 0.0]) == [
        [0.0, 0.0, 0.0],
        [0.0, 0.0, -1.0],
    ]
    (slope,) = _gradients(rl.logit, [0.0, 1.0, 0.5, -1.0, 2.0])
    assert slope[:3] == [math.inf, math.inf, 4.0]
    assert all(math.isnan(v) for v in slope[3:])
    (slope,) = _gradients(rl.special.entr, [1.0, -1.0])
    assert slope[0] == -1.0
    assert math.isnan(slope[1])


@pytest.mark.parametrize(
    "loss",
    [lambda x, y: (x - y).abs(), lambda x, y: F.l1_loss(x, y, reduction="none")],
    ids=["abs", "l1_loss"],
)
def test_targets_that_are_masked_give_no_nan(loss):
    """As programs mask missing targets: the loss of a NaN is not selected."""
    y = rl.tensor([1.0, NAN, -2.0])
    masked = lambda x: rl.where(y.isnan(), 0.0, loss(x, y))  # noqa: E731
    assert _gradients(masked, [3.0, 2.0, -5.0]) == [[1.0, 0.0, -1.0]]


@pytest.mark.parametrize(
    ("product", "outside"), [(rl.xlogy, 0.0), (rl.special.xlog1py, -1.0)], ids=["xlogy", "xlog1py"]
)
def test_products_with_logarithms_that_are_masked_give_no_nan(product, outside):
    """A gradient of 0 stays 0 where the logarithm is not finite."""
    y = rl.tensor([outside, outside - 2, 2.0])
    masked = lambda x: rl.where(y > outside, product(x, y), 0.0)  # noqa: E731
    (found,) = _gradients(masked, [1.0, 2.0, 3.0])
    assert found[:2] == [0.0, 0.0] and found[2] == pytest.approx(math.log(2 - outside))
