"""Random numbers under `vmap`: the same for all examples, of parameters that differ."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rushlight as rl
import rushlight.nn.functional as F
from rushlight import vmap

SAMPLERS = {
    "gamma": lambda a: rl._standard_gamma(a),
    "dirichlet": lambda a: rl._sample_dirichlet(a),
    "poisson": lambda a: rl.poisson(a * 9),
    "binomial": lambda a: rl.binomial((a * 30).floor(), a / 4),
    "bernoulli": lambda a: rl.bernoulli(a / 4),
    "multinomial": lambda a: rl.multinomial(a, 5, replacement=True),
    "multinomial once": lambda a: rl.multinomial(a, 5),
    "dropout": lambda a: F.dropout(a, 0.4),
}


def weights(*shape: int) -> Any:
    return rl.tensor(np.random.default_rng(5).uniform(0.2, 3.5, shape).astype("float32"))


def seeded(function: Any, *args: Any) -> Any:
    rl.manual_seed(11)
    return function(*args)


@pytest.mark.parametrize("name", SAMPLERS)
def test_every_example_draws_what_it_would_alone(name: str) -> None:
    f, x = SAMPLERS[name], weights(4, 20)
    together = seeded(vmap(f, randomness="same"), x)
    after = rl.rand(1).item()
    for i in range(4):
        alone = seeded(f, x[i])
        np.testing.assert_array_equal(together[i].numpy(), alone.numpy())
        assert rl.rand(1).item() == after  # as many numbers were taken


@pytest.mark.parametrize("name", ["gamma", "binomial"])
def test_on_devices(name: str, device: str) -> None:
    f, x = SAMPLERS[name], weights(3, 8).to(device)
    together = seeded(vmap(f, randomness="same"), x)
    for i in range(3):
        np.testing.assert_allclose(
            together[i].cpu().numpy(), seeded(f, x[i]).cpu().numpy(), rtol=2e-5
        )


@pytest.mark.parametrize("outer", ["same", "different"])
@pytest.mark.parametrize("inner", ["same", "different"])
def test_nested_levels(outer: str, inner: str) -> None:
    x = rl.full((3, 2, 6), 2.5)
    found = seeded(vmap(vmap(rl._standard_gamma, randomness=inner), randomness=outer), x).numpy()
    if inner == "same":
        np.testing.assert_array_equal(found[:, 0], found[:, 1])
    else:
        assert not (found[:, 0] == found[:, 1]).any()
    if outer == "same":
        np.testing.assert_array_equal(found[0], found[1])
    else:
        assert not (found[0] == found[1]).any()
    for row in (x[:, 0], x[0]):  # parameters that only one of the levels maps
        dims = (0, None) if row.shape[0] == 3 else (None, 0)
        if dims[0] is None:
            g = vmap(
                vmap(lambda a, b: rl._standard_gamma(a) + b * 0, (0, None), randomness=inner),
                (None, 0),
                randomness=outer,
            )
            part = seeded(g, row, rl.zeros(3)).numpy()
        else:
            g = vmap(
                vmap(lambda a, b: rl._standard_gamma(a) + b * 0, (None, 0), randomness=inner),
                (0, None),
                randomness=outer,
            )
            part = seeded(g, row, rl.zeros(2)).numpy()
        np.testing.assert_array_equal(part, found)


def test_gradients_of_draws() -> None:
    x = weights(4, 7).double()

    def f(a: Any) -> Any:
        return rl._standard_gamma(a).sum()

    together = seeded(vmap(rl.func.grad(f), randomness="same"), x)
    for i in range(4):
        np.testing.assert_allclose(
            together[i].numpy(), seeded(rl.func.grad(f), x[i]).numpy(), rtol=1e-12
        )


def test_attention() -> None:
    q, k, v = weights(3, 2, 4, 8), weights(3, 2, 5, 8), weights(3, 2, 5, 6)

    def f(q: Any, k: Any, v: Any) -> Any:
        return F.scaled_dot_product_attention(q, k, v, dropout_p=0.5)

    together = seeded(vmap(f, randomness="same"), q, k, v)
    for i in range(3):
        np.testing.assert_allclose(
            together[i].numpy(), seeded(f, q[i], k[i], v[i]).numpy(), rtol=1e-4, atol=1e-6
        )
    apart = seeded(vmap(f, randomness="different"), q, k, v)
    np.testing.assert_allclose(apart[0].numpy(), together[0].numpy(), rtol=1e-4, atol=1e-6)
    assert not np.allclose(apart[1].numpy(), together[1].numpy())


def test_an_empty_batch() -> None:
    assert vmap(rl._standard_gamma, randomness="same")(rl.ones(0, 3)).shape == (0, 3)
