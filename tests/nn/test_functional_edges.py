"""nn.functional, samplers and distributions where PyTorch refuses, warns or defines an edge."""

from __future__ import annotations

import numpy as np
import pytest

import rushlight as rl
import rushlight.nn.functional as F


def _attention(q, k, v, scale):
    z = q @ k.T * scale
    z = np.where(np.tril(np.ones(z.shape, bool)), z, -np.inf)
    p = np.exp(z - z.max(1, keepdims=True))
    return p / p.sum(1, keepdims=True) @ v


@pytest.mark.parametrize("scale", [0.0, -1.0, 0.3])
def test_causal_attention_with_any_scale(device, require_device, scale):
    require_device(device)
    draw = np.random.default_rng(0)
    arrays = [draw.standard_normal(shape).astype(np.float32) for shape in ((4, 8), (5, 8), (5, 6))]
    leaves = [rl.tensor(a, device=device, requires_grad=True) for a in arrays]
    out = F.scaled_dot_product_attention(*leaves, is_causal=True, scale=scale)
    np.testing.assert_allclose(out.detach().cpu().numpy(), _attention(*arrays, scale), rtol=2e-5, atol=2e-6)
    out.sum().backward()
    for leaf in leaves:
        assert leaf.grad.isfinite().all().item()


def test_weights_of_the_huber_loss_do_not_divide_it():
    x, y, w = rl.tensor([0.0, 3.0]), rl.tensor([0.5, 0.0]), rl.tensor([2.0, 4.0])
    each = np.array([0.125, 2.5]) * [2, 4]
    assert F.huber_loss(x, y, weight=w).item() == pytest.approx(each.mean())
    assert F.huber_loss(x, y, weight=w, reduction="sum").item() == pytest.approx(each.sum())
    assert F.mse_loss(x, y, weight=w).item() == pytest.approx((0.25 * 2 + 9 * 4) / 6)


@pytest.mark.parametrize(
    ("error", "wrong"),
    [
        (RuntimeError, lambda: F.one_hot(rl.tensor([0, 2]), 2)),
        (RuntimeError, lambda: F.one_hot(rl.tensor([-1]), 2)),
        (RuntimeError, lambda: F.cross_entropy(rl.ones(2, 3), rl.tensor([0, 1]), label_smoothing=1.5)),
        (ValueError, lambda: F.gaussian_nll_loss(rl.ones(2), rl.ones(2), rl.tensor([1.0, -1.0]))),
        (ValueError, lambda: F.group_norm(rl.ones(1, 4), 4)),
        (ValueError, lambda: rl.distributions.Bernoulli()),
        (ValueError, lambda: rl.distributions.Geometric()),
        (NotImplementedError, lambda: rl.zeros(3, dtype=rl.int64).uniform_()),
        (NotImplementedError, lambda: rl.bernoulli(rl.tensor([1, 0]))),
        (RuntimeError, lambda: rl.randperm(300, dtype=rl.uint8)),
    ],
)
def test_what_is_refused(error, wrong):
    with pytest.raises(error):
        wrong()


def test_linear_with_a_vector_for_weight():
    x = rl.arange(6.0).reshape(2, 3)
    assert F.linear(x, rl.ones(3)).tolist() == [3, 12]


def test_interpolate_takes_a_tensor_for_size():
    assert F.interpolate(rl.ones(1, 1, 4), size=rl.tensor(6)).shape == (1, 1, 6)


def test_an_unseeded_generator_begins_at_pytorchs_seed():
    a, b = (rl.rand(3, generator=rl.Generator()).tolist() for _ in range(2))
    assert a == b and rl.Generator().initial_seed() == 67280421310721


@pytest.mark.parametrize(
    "layer",
    [
        rl.nn.BatchNorm1d(4, bias=False),
        rl.nn.GroupNorm(2, 4, bias=False),
        rl.nn.InstanceNorm1d(4, affine=True, bias=False),
        rl.nn.LayerNorm(3, bias=False),
    ],
)
def test_norms_without_shifts(layer):
    assert layer.bias is None and layer.weight is not None and "bias=False" in repr(layer)
    x = rl.randn(5, 4, 3)
    y = layer(x)
    assert y.shape == x.shape and "bias" not in layer.state_dict()
    layer.reset_parameters()


def test_a_distribution_shows_numbers_and_shapes():
    assert repr(rl.distributions.Normal(0.0, 1.0)) == "Normal(loc: 0.0, scale: 1.0)"
    assert repr(rl.distributions.Categorical(rl.ones(3))) == "Categorical(probs: rushlight.Size([3]))"
