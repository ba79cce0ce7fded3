"""Modules as functions of their parameters: functional_call, stacked models."""

from __future__ import annotations

from typing import Any

import pytest

import rushlight as rl
from rushlight import RushlightError, nn
from rushlight.func import (
    functional_call,
    grad,
    jvp,
    replace_all_batch_norm_modules_,
    stack_module_state,
)


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(2, 2, bias=False)
        self.weight = self.inner.weight  # one tensor under two names
        self.register_buffer("scale", rl.tensor(1.0))
        self.register_buffer("steps", rl.tensor(0))

    def forward(self, x, times=1.0):
        self.steps = self.steps + 1
        return self.inner(x) @ self.weight.T * self.scale * times


def test_parameters_and_buffers_take_the_places_of_a_modules_own(device):
    model = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1)).to(device)
    own = dict(model.named_parameters())
    x = rl.randn(4, 2).to(device)
    before = model(x)
    zeros = {name: rl.zeros_like(p) for name, p in own.items()}
    assert functional_call(model, zeros, (x,)).tolist() == [[0.0]] * 4
    assert functional_call(model, zeros, x).tolist() == [[0.0]] * 4  # one argument needs no tuple
    assert model(x).tolist() == before.tolist()
    assert all(dict(model.named_parameters())[name] is p for name, p in own.items())
    part = functional_call(model, {"2.bias": own["2.bias"] + 1}, (x,))
    assert rl.allclose(part, before + 1, atol=1e-6)


def test_gradients_of_parameters_match_backward(device):
    rl.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2)).to(device)
    x, y = rl.randn(8, 3).to(device), rl.randn(8, 2).to(device)
    nn.functional.mse_loss(model(x), y).backward()
    params = {name: p.detach() for name, p in model.named_parameters()}
    buffers = {name: b.clone() for name, b in model.named_buffers()}

    def loss(params):
        return nn.functional.mse_loss(functional_call(model, (params, buffers), (x,)), y)

    got = grad(loss)(params)
    assert list(got) == list(params)
    for name, p in model.named_parameters():
        assert rl.equal(got[name], p.grad), name
    assert not got["0.weight"].requires_grad


def test_running_statistics_go_to_the_given_buffers():
    norm = nn.BatchNorm1d(2)
    x = rl.tensor([[1.0, 2.0], [3.0, 6.0]])
    buffers = {name: b.clone() for name, b in norm.named_buffers()}
    functional_call(norm, buffers, (x,))
    assert norm.running_mean.tolist() == [0.0, 0.0] and norm.num_batches_tracked.item() == 0
    assert rl.allclose(buffers["running_mean"], rl.tensor([0.2, 0.4]))
    assert buffers["num_batches_tracked"].item() == 1


def test_a_buffer_that_is_assigned_is_found_in_the_dict():
    model, x = Tied(), rl.ones(1, 2)
    state = {"steps": rl.tensor(5)}
    functional_call(model, state, (x,))
    assert state["steps"].item() == 6 and model.steps.item() == 0


def test_tied_weights_stay_one():
    model, x = Tied(), rl.ones(1, 2)
    w = rl.tensor([[2.0, 0.0], [0.0, 3.0]])
    for name in ("weight", "inner.weight"):
        assert functional_call(model, {name: w}, (x,)).tolist() == [[4.0, 9.0]]
    assert functional_call(
        model, {"weight": w, "inner.weight": w}, (x,), {"times": 2.0}
    ).tolist() == [[8.0, 18.0]]
    with pytest.raises(ValueError, match="one tensor in the module"):
        functional_call(model, {"weight": w, "inner.weight": w + 1}, (x,))
    apart = functional_call(
        model, {"weight": w, "inner.weight": rl.eye(2)}, (x,), tie_weights=False
    )
    assert apart.tolist() == [[2.0, 3.0]]
    g = grad(lambda w: functional_call(model, {"weight": w}, (x,)).sum())(w)
    assert rl.equal(g, grad(lambda w: (x @ w.T @ w.T).sum())(w))


def test_names_are_checked():
    model, x = nn.Linear(2, 2), rl.ones(1, 2)
    with pytest.raises(AttributeError, match=r"no module 'layer' for 'layer\.weight'"):
        functional_call(model, {"layer.weight": model.weight}, (x,))
    with pytest.raises(RuntimeError, match="'extra'"):
        functional_call(
            model, {"extra": x, "weight": model.weight, "bias": model.bias}, (x,), strict=True
        )
    with pytest.raises(RuntimeError, match="'bias' is missing"):
        functional_call(model, {"weight": model.weight}, (x,), strict=True)
    with pytest.raises(ValueError, match="more than one dict: weight"):
        functional_call(model, ({"weight": x}, {"weight": x}), (x,))
    with pytest.raises(TypeError, match="'weight' must be a tensor or None, got float"):
        functional_call(model, {"weight": 1.0}, (x,))
    with pytest.raises(ValueError, match="a dict or a sequence of dicts"):
        functional_call(model, 3, (x,))
    with pytest.raises(TypeError, match="a Module is needed"):
        functional_call(lambda x: x, {}, (x,))


def test_an_attribute_that_is_no_member():
    model = Tied()
    model.offset = rl.zeros(1)
    model.forward = lambda x: x + model.offset + getattr(model, "more", 0)
    x = rl.ones(2)
    assert functional_call(model, {"offset": rl.ones(1), "more": rl.ones(1)}, (x,)).tolist() == [
        3.0,
        3.0,
    ]
    assert model(x).tolist() == [1.0, 1.0] and not hasattr(model, "more")
    assert functional_call(nn.Linear(2, 2), {"bias": None, "weight": rl.eye(2)}, (x,)).tolist() == [
        1.0,
        1.0,
    ]


def test_members_come_back_after_an_error():
    class Fails(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(rl.ones(1))

        def forward(self, x):
            raise ZeroDivisionError

    model = Fails()
    own = model.w
    with pytest.raises(ZeroDivisionError):
        functional_call(model, {"w": rl.zeros(1)}, (own,))
    assert model.w is own and list(model.parameters()) == [own]


def test_a_learned_program_keeps_no_parameters():
    model = nn.Sequential(nn.Linear(2, 2), nn.GELU(), nn.LayerNorm(2), nn.Linear(2, 2))
    x = rl.ones(1, 2)
    scaled = [{n: p.detach() * k for n, p in model.named_parameters()} for k in (1.0, 2.0, 0.5)]
    for _ in range(3):  # the first calls are traced, the later ones run programs
        for state in scaled:
            want = rl.nn.functional.linear(x, state["0.weight"], state["0.bias"])
            want = nn.functional.layer_norm(
                nn.functional.gelu(want), (2,), state["2.weight"], state["2.bias"]
            )
            want = nn.functional.linear(want, state["3.weight"], state["3.bias"])
            assert rl.equal(functional_call(model, state, (x,)), want)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers_use_the_given_weights(kind):
    layer, x = kind(2, 3), rl.ones(4, 1, 2)
    zeros = {name: rl.zeros_like(p) for name, p in layer.named_parameters()}
    assert functional_call(layer, zeros, (x,))[0].abs().sum().item() == 0
    assert layer(x)[0].abs().sum().item() > 0
    g = grad(lambda p: functional_call(layer, p, (x,))[0].sum())(
        {n: p.detach() for n, p in layer.named_parameters()}
    )
    layer(x)[0].sum().backward()
    for name, p in layer.named_parameters():
        assert rl.allclose(g[name], p.grad, atol=1e-6), name


def test_parametrized_weights():
    layer = nn.utils.parametrizations.weight_norm(nn.Linear(2, 2))
    x = rl.ones(1, 2)
    state = {name: p.detach() * 2 for name, p in layer.named_parameters()}
    got = functional_call(layer, state, (x,))
    assert rl.allclose(got, 2 * layer(x), atol=1e-6)


def test_jvp_through_a_module():
    model, x = nn.Linear(2, 2), rl.ones(1, 2)
    params = {n: p.detach() for n, p in model.named_parameters()}
    tangents = {n: rl.ones_like(p) for n, p in params.items()}
    out, push = jvp(lambda p: functional_call(model, p, (x,)), (params,), (tangents,))
    assert rl.equal(out, model(x).detach()) and push.tolist() == [[3.0, 3.0]]


def test_stacked_models():
    models = [nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)) for _ in range(3)]
    params, buffers = stack_module_state(models)
    assert (
        params["0.weight"].shape == (3, 2, 2)
        and params["0.weight"].requires_grad
        and params["0.weight"].is_leaf
    )
    assert rl.equal(params["0.weight"][1], models[1][0].weight.detach())
    assert buffers["1.running_mean"].shape == (3, 2) and not buffers["1.running_mean"].requires_grad
    with pytest.raises(RushlightError, match="at least one"):
        stack_module_state([])
    with pytest.raises(RushlightError, match="one class"):
        stack_module_state([nn.Linear(1, 1), nn.Tanh()])
    with pytest.raises(RushlightError, match="training"):
        stack_module_state([nn.Linear(1, 1), nn.Linear(1, 1).eval()])
    frozen = nn.Linear(1, 1)
    frozen.weight.requires_grad_(False)
    with pytest.raises(RushlightError, match="weight requires gradients"):
        stack_module_state([nn.Linear(1, 1), frozen])


def test_batch_norms_without_statistics():
    model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.BatchNorm1d(2)))
    assert replace_all_batch_norm_modules_(model) is model
    assert list(model.buffers()) == [] and model.eval()(rl.randn(3, 2)).shape == (3, 2)


def test_the_older_name():
    layer = nn.Linear(2, 2)
    zeros = {n: rl.zeros_like(p) for n, p in layer.named_parameters()}
    assert nn.utils.stateless.functional_call(layer, zeros, rl.ones(1, 2)).tolist() == [[0.0, 0.0]]


def test_tied_members_count_as_given() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(1, 1)
            self.same = self.inner.bias
            self.note = 0.0

        def forward(self, x: Any) -> Any:
            return self.inner(x) + self.same

    net = Tied()
    given = {"inner.weight": rl.full((1, 1), 2.0), "inner.bias": rl.full((1,), 5.0)}
    x = rl.ones(1, 1)
    made = rl.func.functional_call(net, given, x, tie_weights=True, strict=True)
    assert made.item() == 12.0
    with pytest.raises(TypeError, match="note"):
        rl.func.functional_call(net, {**given, "note": rl.ones(1)}, x)
