"""Orthogonal parametrisations: the weights are orthogonal, and PyTorch's numbers."""

import math

import pytest

import rushlight as rl
from rushlight import nn
from rushlight.nn.utils import parametrizations


def values(*shape):
    made = [math.sin(1.7 * i + 0.3) for i in range(math.prod(shape))]
    return rl.tensor(made, dtype=rl.float64).reshape(*shape)


def layer_of(shape):
    layer = nn.Linear(shape[1], shape[0], dtype=rl.float64)
    with rl.no_grad():
        layer.weight.copy_(values(*shape))
    return layer


def assert_orthogonal(w):
    gram = w @ w.mT if w.shape[0] <= w.shape[1] else w.mT @ w
    rl.testing.assert_close(gram, rl.eye(min(w.shape), dtype=w.dtype), atol=1e-10, rtol=0)


@pytest.mark.parametrize("shape", [(3, 3), (4, 2), (2, 4)])
@pytest.mark.parametrize("kind", ["matrix_exp", "cayley", "householder"])
@pytest.mark.parametrize("based", [True, False])
def test_orthogonal_weights_stay_orthogonal(shape, kind, based):
    layer = parametrizations.orthogonal(
        layer_of(shape), orthogonal_map=kind, use_trivialization=based
    )
    assert_orthogonal(layer.weight)
    layer(values(2, shape[1])).square().sum().backward()
    original = layer.parametrizations.weight.original
    assert original.grad.isfinite().all()
    with rl.no_grad():
        original -= 0.1 * original.grad
    assert_orthogonal(layer.weight)
    wanted = rl.eye(*shape, dtype=rl.float64)
    if based:
        layer.weight = wanted
        rl.testing.assert_close(layer.weight.detach(), wanted)
    elif kind != "householder":
        with pytest.raises(NotImplementedError, match="use_trivialization"):
            layer.weight = wanted


def test_orthogonal_weights_are_pytorch_s():
    nearest = [
        0.244712,
        0.742451,
        0.623605,
        -0.639904,
        0.606868,
        -0.471417,
        -0.72845,
        -0.283686,
        0.623605,
    ]
    layer = parametrizations.orthogonal(layer_of((3, 3)))
    assert layer.weight.flatten().tolist() == pytest.approx(nearest, abs=1e-6)
    layer.parametrizations.weight.original.data = values(3, 3) * 0.3
    assert layer.weight.flatten().tolist()[:3] == pytest.approx(
        [-0.102122, 0.686132, 0.720274], abs=1e-6
    )
    layer = parametrizations.orthogonal(
        layer_of((4, 2)), orthogonal_map="cayley", use_trivialization=False
    )
    assert layer.weight.flatten().tolist()[:4] == pytest.approx(
        [0.472362, 0.104785, -0.593229, 0.747308], abs=1e-6
    )
    layer = parametrizations.orthogonal(layer_of((2, 4)), use_trivialization=False)
    assert layer.weight.flatten().tolist()[:4] == pytest.approx(
        [0.220756, 0.679253, -0.395792, -0.577262], abs=1e-6
    )


def test_orthogonal_refuses():
    with pytest.raises(ValueError, match="one of"):
        parametrizations.orthogonal(nn.Linear(2, 2), orthogonal_map="qr")
    with pytest.raises(ValueError, match="matrix"):
        parametrizations.orthogonal(nn.Linear(2, 2), "bias")
    with pytest.raises(ValueError, match="no parameter"):
        parametrizations.orthogonal(nn.Linear(2, 2), "scale")
