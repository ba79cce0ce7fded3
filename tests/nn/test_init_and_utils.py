"""Initialisation, gradient clipping, parametrised weights, hooks of modules and of their states."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest

import rushlight as rl
from rushlight import nn
from rushlight.nn.utils import parametrizations, parametrize

# ---- initialisation ----


def test_normal_between_bounds():
    drawn = nn.init.trunc_normal_(rl.empty(20000), 1.0, 2.0, -1.0, 2.0).numpy()
    assert drawn.min() >= -1 and drawn.max() <= 2
    # Of the normal distribution cut to these bounds.
    assert drawn.mean() == pytest.approx(0.5787, abs=0.03)
    half = nn.init.trunc_normal_(rl.empty(1000, dtype=rl.float16))
    assert rl.isfinite(half).all().item()


def test_channels_passed_on():
    weight = nn.init.dirac_(rl.ones(4, 3, 3))
    x = rl.randn(1, 3, 5)
    assert rl.allclose(
        nn.functional.conv1d(x, weight, padding=1), rl.cat([x, rl.zeros(1, 1, 5)], 1)
    )
    grouped = nn.init.dirac_(rl.ones(4, 2, 3, 3), groups=2)
    y = rl.randn(1, 4, 5, 5)
    assert rl.allclose(nn.functional.conv2d(y, grouped, padding=1, groups=2), y)
    with pytest.raises(ValueError, match="2 groups"):
        nn.init.dirac_(rl.ones(3, 2, 3), groups=2)


def test_sparse_and_identity():
    assert (nn.init.sparse_(rl.ones(10, 4), 0.25) == 0).sum(0).tolist() == [3] * 4
    assert nn.init.eye_(rl.ones(2, 3)).tolist() == [[1, 0, 0], [0, 1, 0]]
    assert nn.init._calculate_fan_in_and_fan_out(rl.zeros(4, 3, 5)) == (15, 20)


# ---- gradients ----


def test_clipping():
    p = nn.Parameter(rl.zeros(3))
    p.grad = rl.tensor([3.0, -4.0, 0.5])
    nn.utils.clip_grad_value_([p], 1.0)
    assert p.grad.tolist() == [1, -1, 0.5]
    total = nn.utils.get_total_norm([p.grad])
    assert total.item() == pytest.approx(1.5)
    nn.utils.clip_grads_with_norm_(p, 0.75, total)
    assert p.grad.tolist() == pytest.approx([0.5, -0.5, 0.25], rel=1e-5)


def test_parameters_in_a_line():
    layer = nn.Linear(2, 3)
    line = nn.utils.parameters_to_vector(layer.parameters())
    nn.utils.vector_to_parameters(rl.arange(9.0), layer.parameters())
    assert line.shape == (9,) and layer.bias.tolist() == [6, 7, 8]
    with pytest.raises(ValueError, match="9 elements"):
        nn.utils.vector_to_parameters(rl.zeros(8), layer.parameters())


# ---- parametrised weights ----


class Symmetric(nn.Module):
    def forward(self, x):
        return x.triu() + x.triu(1).transpose(0, 1)

    def right_inverse(self, x):
        return x.triu()


class Halved(nn.Module):
    def forward(self, x):
        return x / 2

    def right_inverse(self, x):
        return x * 2


class Cut(nn.Module):
    def forward(self, x):
        return x[:1]


def test_a_chain_of_functions():
    layer = nn.Linear(3, 3)
    parametrize.register_parametrization(layer, "weight", Symmetric())
    first = layer.weight
    assert rl.equal(first, first.transpose(0, 1)) and type(layer).__name__ == "ParametrizedLinear"
    parametrize.register_parametrization(layer, "weight", Halved())
    assert rl.allclose(layer.weight, first / 2)
    assert sorted(layer.state_dict()) == ["bias", "parametrizations.weight.original"]
    with rl.no_grad():
        layer.weight = rl.eye(3) * 4
    assert rl.equal(layer.weight, rl.eye(3) * 4)
    layer(rl.ones(1, 3)).sum().backward()
    assert layer.parametrizations.weight.original.grad is not None
    with parametrize.cached():
        assert layer.weight is layer.weight
    assert layer.weight is not layer.weight
    twin = copy.deepcopy(layer)
    parametrize.remove_parametrizations(layer, "weight")
    assert type(layer) is nn.Linear and sorted(layer.state_dict()) == ["bias", "weight"]
    assert rl.equal(layer.weight, twin.weight) and parametrize.is_parametrized(twin, "weight")


def test_what_is_no_parametrization():
    with pytest.raises(ValueError, match="no parameter or buffer 'w'"):
        parametrize.register_parametrization(nn.Linear(2, 2), "w", Symmetric())
    layer = nn.Linear(2, 2)
    with pytest.raises(ValueError, match="unsafe=True"):
        parametrize.register_parametrization(layer, "weight", Cut())
    assert not parametrize.is_parametrized(layer)
    parametrize.register_parametrization(layer, "weight", Cut(), unsafe=True)
    assert layer.weight.shape == (1, 2)
    with pytest.raises(RuntimeError, match="right_inverse"):
        layer.weight = rl.zeros(1, 2)


@pytest.mark.parametrize("older", [False, True])
@pytest.mark.parametrize("dim", [0, 1, None])
def test_length_and_direction(older, dim):
    layer = nn.Linear(4, 3)
    weight = layer.weight.detach().numpy().copy()
    (nn.utils if older else parametrizations).weight_norm(layer, dim=dim)
    x = rl.randn(2, 4)
    assert np.allclose(
        layer(x).detach().numpy(), x.numpy() @ weight.T + layer.bias.detach().numpy(), atol=1e-5
    )
    names = (
        ["weight_g", "weight_v"]
        if older
        else [f"parametrizations.weight.original{i}" for i in (0, 1)]
    )
    state = layer.state_dict()
    assert sorted(state) == sorted(["bias", *names])
    axis = {0: 1, 1: 0, None: None}[dim]
    assert np.allclose(
        state[names[0]].numpy().ravel(), np.linalg.norm(weight, axis=axis).ravel(), atol=1e-6
    )
    layer(x).sum().backward()
    assert all(p.grad is not None for p in layer.parameters())
    if older:
        nn.utils.remove_weight_norm(layer)
    else:
        parametrize.remove_parametrizations(layer, "weight")
    assert np.allclose(layer.weight.detach().numpy(), weight, atol=1e-6)


@pytest.mark.parametrize("older", [False, True])
def test_largest_singular_value_is_one(older):
    layer = nn.Conv1d(4, 3, 2)
    # The error of power iteration shrinks by (second / first)^2 per step, so the singular values
    # are set: those of random weights may lie too near to each other for 50 steps.
    left, _, right = np.linalg.svd(layer.weight.detach().flatten(1).numpy(), full_matrices=False)
    weight = (left * np.float32([0.9, 0.6, 0.3])) @ right
    with rl.no_grad():
        layer.weight.copy_(rl.tensor(weight).view(3, 4, 2))
    (nn.utils if older else parametrizations).spectral_norm(layer, n_power_iterations=50)
    layer(rl.randn(1, 4, 5)).sum().backward()
    got = layer.weight.detach().flatten(1).numpy()
    assert np.allclose(got, weight / np.linalg.norm(weight, 2), atol=1e-5)
    assert ("weight_orig" in layer.state_dict()) == older
    layer.eval()
    if older:
        nn.utils.remove_spectral_norm(layer)
        assert sorted(layer.state_dict()) == ["bias", "weight"]
        assert np.allclose(layer.weight.detach().flatten(1).numpy(), got, atol=1e-6)


# ---- hooks ----


def test_backward_hooks():
    layer, met = nn.Linear(3, 2), []
    layer.register_full_backward_hook(
        lambda module, into, out: met.append((into[0].clone(), out[0].clone()))
    )
    x = rl.randn(4, 3).requires_grad_()
    (layer(x) * 3 + x.sum()).sum().backward()
    into, out = met[0]
    assert rl.equal(out, rl.full((4, 2), 3.0))
    assert rl.allclose(into, out @ layer.weight)  # what came through the layer alone
    assert rl.allclose(x.grad, into + 8)


def test_backward_hooks_that_change_gradients():
    layer = nn.Linear(3, 2)
    layer.register_full_backward_pre_hook(lambda module, out: (out[0] * 3,))
    layer.register_full_backward_hook(lambda module, into, out: (into[0] * 2,))
    x = rl.randn(4, 3).requires_grad_()
    layer(x).sum().backward()
    assert rl.allclose(x.grad, 6 * layer.weight.sum(0).expand(4, 3))
    assert layer.bias.grad.tolist() == [12, 12]


def test_backward_hooks_of_several_inputs():
    layer, met = nn.Bilinear(2, 3, 2), []

    def hook(module, into, out):
        met.append([g.shape for g in into])
        return into[0] * 2, into[1] * 3

    layer.register_full_backward_hook(hook)
    x, y = rl.randn(4, 2).requires_grad_(), rl.randn(4, 3).requires_grad_()
    want = rl.autograd.grad(nn.functional.bilinear(x, y, layer.weight, layer.bias).sum(), [x, y])
    layer(x, y).sum().backward()
    assert met == [[(4, 2), (4, 3)]]
    assert rl.allclose(x.grad, want[0] * 2) and rl.allclose(y.grad, want[1] * 3)
    layer.register_full_backward_hook(lambda module, into, out: (into[0],))
    with pytest.raises(RuntimeError, match="1 gradients in place of 2"):
        layer(x, y).sum().backward()


def test_backward_hook_without_gradients_of_inputs():
    layer, met = nn.Linear(3, 2), []
    layer.register_full_backward_hook(lambda module, into, out: met.append(into))
    layer(rl.randn(4, 3)).sum().backward()
    assert met == [(None,)]


def test_forward_hooks_in_order_and_after_errors():
    layer, met = nn.Linear(3, 2), []
    layer.register_forward_hook(lambda *_: met.append("last"), always_call=True)
    layer.register_forward_hook(lambda *_: met.append("first"), prepend=True)
    layer(rl.zeros(1, 3))
    with pytest.raises(RuntimeError):
        layer(rl.zeros(1, 4))
    assert met == ["first", "last", "last"]


class Counted(nn.Module):
    def __init__(self):
        super().__init__()
        self.count = 3
        self.inner = nn.Linear(1, 1)

    def get_extra_state(self):
        return {"count": self.count}

    def set_extra_state(self, state):
        self.count = state["count"]


def test_state_that_is_no_tensor():
    state = nn.Sequential(Counted()).state_dict()
    assert state["0._extra_state"] == {"count": 3}
    state["0._extra_state"] = {"count": 8}
    model = nn.Sequential(Counted())
    model.load_state_dict(state)
    assert model[0].count == 8


def test_hooks_of_states():
    model, met = nn.Sequential(nn.Linear(2, 2)), []
    model[0].register_state_dict_post_hook(
        lambda module, state, prefix, _: met.append((prefix, len(state)))
    )
    model.register_state_dict_pre_hook(lambda module, prefix, keep: met.append(prefix))
    state = model.state_dict()
    assert met == ["", ("0.", 2)]
    model.register_load_state_dict_pre_hook(lambda module, state, *_: state.pop("0.bias"))
    with pytest.raises(RuntimeError, match=r"missing keys: 0\.bias"):
        model.load_state_dict(state)
    model.register_load_state_dict_post_hook(lambda module, keys: keys.missing_keys.clear())
    assert model.load_state_dict(state).missing_keys == [] and "0.bias" in state


def test_parts_by_path_and_new_memory():
    model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.ReLU()))
    model.set_submodule("1.0", nn.Tanh())
    assert isinstance(model.get_submodule("1.0"), nn.Tanh)
    with pytest.raises(AttributeError, match="'2'"):
        model.set_submodule("1.2", nn.Tanh(), strict=True)
    weight = model[0].weight
    model.to_empty(device="cpu").type(rl.float64)
    assert model[0].weight is weight and weight.dtype is rl.float64
    assert math.prod(weight.shape) == 4


def test_norms_of_gradients_of_order_zero() -> None:
    weight = rl.zeros(3, requires_grad=True)
    weight.grad = rl.tensor([0.0, 2.0, 3.0])
    # One tensor whose count is not zero.
    assert nn.utils.get_total_norm([weight.grad], 0).item() == 1.0
    assert nn.utils.clip_grad_norm_(weight, 1.0, norm_type=-float("inf")).item() == 0.0


def test_init_by_its_older_names() -> None:
    with pytest.warns(FutureWarning, match="constant_"):
        assert nn.init.constant(rl.zeros(2), 3.0).tolist() == [3.0, 3.0]
    with pytest.raises(ValueError):
        nn.init.calculate_gain("leaky_relu", True)
