"""Parametrised weights: identity, refusals, pickles, spectral norms, orthogonal ones."""

from __future__ import annotations

import copy
import itertools
import pickle
from typing import Any

import pytest

import rushlight as rl
from rushlight import nn
from rushlight.nn.utils import parametrizations, parametrize


class Doubled(nn.Module):
    def forward(self, x: Any) -> Any:
        return x * 2

    def right_inverse(self, x: Any) -> Any:
        return x / 2


def test_the_parameter_stays_the_same_object() -> None:
    net = nn.Linear(2, 2)
    weight = net.weight
    before = weight.detach().clone()
    parametrize.register_parametrization(net, "weight", Doubled())
    assert net.parametrizations.weight.original is weight
    assert rl.allclose(net.weight, before) and rl.allclose(weight, before / 2)
    parametrize.remove_parametrizations(net, "weight")
    assert net.weight is weight and rl.allclose(weight, before)


def test_what_right_inverse_must_give() -> None:
    class Nothing(Doubled):
        def right_inverse(self, x: Any) -> Any:
            return None

    class Truth(Doubled):
        def right_inverse(self, x: Any) -> Any:
            return x.bool()

    class Shorter(Doubled):
        def right_inverse(self, x: Any) -> Any:
            return x[:-1]

    for wrong in (Nothing, Truth):
        net = nn.Linear(2, 2)
        with pytest.raises(ValueError, match="right_inverse"):
            parametrize.register_parametrization(net, "weight", wrong())
        assert not parametrize.is_parametrized(net)
    parametrize.register_parametrization(net, "weight", Doubled())
    for wrong in (Nothing, Truth, Shorter):
        with pytest.raises(ValueError, match="right_inverse"):
            parametrize.register_parametrization(net, "weight", wrong())
    assert len(net.parametrizations.weight) == 1


def test_copies_but_no_pickles() -> None:
    net = nn.Linear(2, 2)
    parametrize.register_parametrization(net, "weight", Doubled())
    again = copy.deepcopy(net)
    assert rl.equal(again.weight, net.weight) and again.parametrizations is not net.parametrizations
    with pytest.raises(RuntimeError, match="state_dict"):
        pickle.dumps(net)


def test_parametrizations_go_to_another_module() -> None:
    first, second = nn.Linear(2, 2), nn.Linear(2, 2)
    parametrize.register_parametrization(first, "weight", Doubled())
    parametrize.transfer_parametrizations_and_params(first, second)
    assert rl.equal(first.weight, second.weight) and parametrize.is_parametrized(second, "weight")


def test_weight_norm_reads_older_states() -> None:
    old = nn.utils.weight_norm(nn.Linear(3, 2))
    new = parametrizations.weight_norm(nn.Linear(3, 2))
    new.load_state_dict(old.state_dict())
    x = rl.rand(4, 3)
    assert rl.allclose(new(x), old(x))


def test_spectral_norm_of_complex_matrices() -> None:
    net = nn.Linear(2, 2, dtype=rl.complex64)
    with rl.no_grad():
        x = rl.tensor([0.5 + 0.1j, -0.2 + 0.3j])
        net.weight = nn.Parameter(rl.diag(x))
        parametrizations.spectral_norm(net)
        assert rl.allclose(net.weight, rl.diag(x / x.abs().max()), atol=1e-4)


@pytest.mark.parametrize(
    ("shape", "kind", "based"),
    list(
        itertools.product(
            [(3, 3), (5, 2), (2, 4)], ["matrix_exp", "cayley", "householder"], [True, False]
        )
    ),
)
def test_orthogonal_weights_stay_orthogonal(shape: tuple[int, int], kind: str, based: bool) -> None:
    net = nn.Linear(shape[1], shape[0], bias=False, dtype=rl.float64)
    wanted = nn.init.orthogonal_(rl.empty(*shape, dtype=rl.float64))
    parametrizations.orthogonal(net, "weight", kind, use_trivialization=based)

    def off(weight: Any) -> float:
        w = weight if weight.shape[0] >= weight.shape[1] else weight.mT
        return (w.mT @ w - rl.eye(w.shape[1], dtype=rl.float64)).abs().max().item()

    assert off(net.weight) < 1e-10
    if based or kind == "householder":
        net.weight = wanted
        assert rl.allclose(net.weight, wanted)
    net(rl.ones(1, shape[1], dtype=rl.float64)).sum().backward()
    with rl.no_grad():
        for p in net.parameters():
            assert p.grad is not None
            p -= 0.1 * p.grad
    assert off(net.weight) < 1e-10
    with pytest.raises(ValueError, match="matrix"):
        parametrizations.orthogonal(nn.Linear(2, 2), "bias")
