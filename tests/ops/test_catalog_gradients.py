"""Gradients of every differentiable op: against differences to second order, and between
devices.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

import rushlight
from rushlight.core.dtypes import FLOAT, float32
from rushlight.core.errors import NotDifferentiable
from rushlight.devices.shared.registry import pool_of
from rushlight.nn import functional as F
from rushlight.ops.registry import REGISTRY
from tests.catalog.gradients import (
    SINGLE_TOLERANCE,
    float_arrays,
    projection_problems,
    single_errors,
    smooth_samples,
)
from tests.catalog.rows import ROWS
from tests.catalog.run import call, samples_of, to_array, to_tensor

pytestmark = pytest.mark.usefixtures("float32_convolutions")

SMOOTH = [row for row in ROWS if row.differentiable]
FLAT = [row for row in ROWS if not row.differentiable and not row.makes and not row.random]


@pytest.mark.parametrize("row", SMOOTH, ids=repr)
@pytest.mark.parametrize("device", ["cpu", "reference"])
def test_gradient_is_the_difference(row, device):
    assert smooth_samples(row), f"{row.name} has no sample to check a gradient at"
    problems = projection_problems(row, device)
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("row", SMOOTH, ids=repr)
@pytest.mark.parametrize("device", ["webgpu", "cuda"])
def test_gradient_is_the_cpus(row, device, require_device):
    require_device(device)
    bad = [
        f"{where}: {error:.3g}"
        for where, error in single_errors(row, device)
        if not error <= SINGLE_TOLERANCE
    ]
    assert not bad, f"allowed {SINGLE_TOLERANCE}: " + "\n".join(bad)


# Floats that are constants, as in PyTorch: new numbers, counts, and the statistics beside a norm.
CONSTANT = {"zeros_like", "ones_like", "full_like", "empty_like", "histc", "native_layer_norm"}


@pytest.mark.parametrize("row", FLAT, ids=repr)
def test_what_is_not_smooth_says_so(row):
    """Integers and bools need no gradient.

    a float without one raises in backward, and is not detached.
    """
    for dtype in row.dtypes:
        leaves = []
        sample = next(
            (s for s in samples_of(row, dtype) if float_arrays(s)), samples_of(row, dtype)[0]
        )
        for out in call(row, sample, dtype, "cpu", leaves=leaves):
            if out.dtype.kind not in "fc" or not leaves or row.name in CONSTANT:
                assert not out.requires_grad, f"{row.name} of {dtype.name}"
            else:
                assert out.requires_grad, f"{row.name} of {dtype.name} is detached in silence"
                with pytest.raises(NotDifferentiable):
                    rushlight.autograd.grad(out.sum(), leaves, allow_unused=True, retain_graph=True)


# ---- at the kinks ----


def gradient(function, *numbers, device, g=None):
    """The gradients of a function of leaves made from lists."""
    leaves = [
        rushlight.tensor(n, dtype=float32, device=device, requires_grad=True) for n in numbers
    ]
    out = function(*leaves)
    found = rushlight.autograd.grad(out, leaves, rushlight.ones_like(out) if g is None else g)
    return [to_array(part).tolist() for part in found]


def test_ties_share(device):
    third = float(np.float32(1 / 3))
    rows = [[1.0, 2.0, 2.0], [3.0, 3.0, 3.0]]
    assert gradient(lambda x: x.amax(1), rows, device=device) == [[[0, 0.5, 0.5], [third] * 3]]
    assert gradient(lambda x: x.amin(1), rows, device=device) == [[[1, 0, 0], [third] * 3]]
    assert gradient(lambda x: x.amax(), [[1.0, 2.0], [2.0, 0.0]], device=device) == [
        [[0, 0.5], [0.5, 0]]
    ]
    x, y = [1.0, 2.0, 3.0], [1.0, 5.0, 0.0]
    assert gradient(rushlight.maximum, x, y, device=device) == [[0.5, 0, 1], [0.5, 1, 0]]
    assert gradient(rushlight.minimum, x, y, device=device) == [[0.5, 1, 0], [0.5, 0, 1]]


def test_a_pool_takes_the_first_of_equals(device):
    image = [[[[4.0, 4.0], [4.0, 4.0]]]]
    assert gradient(lambda x: rushlight.max_pool2d(x, 2), image, device=device) == [
        [[[[1, 0], [0, 0]]]]
    ]


def test_clamp_passes_at_its_bounds(device):
    assert gradient(lambda x: x.clamp(-1, 1), [-2.0, -1.0, 0.0, 1.0, 2.0], device=device) == [
        [0, 1, 1, 1, 0]
    ]


def test_at_zero(device):
    zero = [0.0, -0.0, 1.0, -1.0]
    assert gradient(lambda x: x**0, zero, device=device) == [[0, 0, 0, 0]]
    assert gradient(lambda x: x**0.0, zero, device=device) == [[0, 0, 0, 0]]
    assert gradient(lambda x: x**1, zero, device=device) == [[1, 1, 1, 1]]
    assert gradient(lambda x: x**2, zero, device=device) == [[0, 0, 2, -2]]
    assert gradient(rushlight.relu, zero, device=device) == [[0, 0, 1, 0]]
    assert gradient(rushlight.abs, zero, device=device) == [[0, 0, 1, -1]]
    assert gradient(rushlight.sign, zero, device=device) == [[0, 0, 0, 0]]
    assert gradient(lambda x: REGISTRY["leaky_relu"].function(x, 0.5), zero, device=device) == [
        [0.5, 0.5, 1, 0.5]
    ]
    base, exponent = gradient(rushlight.pow, [0.0, 0.0, 0.0], [0.0, 1.0, 2.0], device=device)
    assert base == [0, 1, 0]
    assert exponent == [0, 0, 0]


def test_products_with_zeros(device):
    rows = [[0.0, 2.0, 3.0], [0.0, 0.0, 3.0], [4.0, 2.0, 3.0]]
    assert gradient(lambda x: x.prod(1), rows, device=device) == [
        [[6, 0, 0], [0, 0, 0], [6, 12, 8]]
    ]


def test_masked_rows_have_no_gradient(device):
    """A row of -inf but one: softmax, and what is built on it, must not give NaN."""
    for name in ("softmax", "log_softmax"):
        (found,) = gradient(
            lambda x, f=REGISTRY[name].function: f(x, -1)[0], [0.5, -math.inf], device=device
        )
        assert not any(map(math.isnan, found)), name
    (found,) = gradient(lambda x: rushlight.logsumexp(x, 0), [-math.inf, -math.inf], device=device)
    # PyTorch: NaN; either is a choice, Inf is not.
    assert found == [0, 0] or all(map(math.isnan, found))


def test_padding_row_gets_none(device):
    index = rushlight.tensor([0, 2, 2, 1], device=device)
    embedding = REGISTRY["embedding"].function
    table = [[1.0], [2.0], [3.0]]
    assert gradient(lambda w: embedding(index, w), table, device=device) == [[[1], [1], [2]]]
    assert gradient(lambda w: embedding(index, w, padding_idx=2), table, device=device) == [
        [[1], [1], [0]]
    ]


def test_dropout_passes_what_it_kept(device):
    x = rushlight.ones(200, device=device, requires_grad=True)
    out = REGISTRY["dropout"].function(x, 0.5)
    (g,) = rushlight.autograd.grad(out.sum(), x)
    assert np.array_equal(to_array(g), to_array(out))


def test_running_statistics_take_no_gradient(device):
    x = rushlight.ones(4, 2, device=device, requires_grad=True)
    mean, var = rushlight.zeros(2, device=device), rushlight.ones(2, device=device)
    out = F.batch_norm(x * 2, mean, var, training=True)
    assert out.requires_grad
    assert not mean.requires_grad
    assert not var.requires_grad


def test_gradients_keep_the_type_of_their_input(device):
    for dtype in (d for d in FLOAT if d in pool_of(device).device.limits.dtypes):
        x = to_tensor(np.array([[1.0, 2.0]]), dtype, device).requires_grad_()
        y = rushlight.ones(3, 1, device=device, requires_grad=True)
        gx, gy = rushlight.autograd.grad((x * y).sum(), (x, y))
        assert (gx.dtype, gx.shape, gy.dtype, gy.shape) == (dtype, (1, 2), float32, (3, 1))
        assert to_array(gx).tolist() == [[3, 3]]
        assert to_array(gy).tolist() == [[3]] * 3


def test_gradient_through_layouts(device):
    """A transposed and a strided view of one leaf: the gradient has the leaf's own layout."""
    leaf = rushlight.tensor(
        np.arange(12.0).reshape(3, 4), dtype=float32, device=device, requires_grad=True
    )
    out = (leaf.T[1:, ::2] * leaf[::2, 1:].T).sum()
    (g,) = rushlight.autograd.grad(out, leaf)
    want = np.zeros((3, 4))
    want[::2, 1:] = 2 * np.arange(12.0).reshape(3, 4)[::2, 1:]
    assert np.array_equal(to_array(g), want)
