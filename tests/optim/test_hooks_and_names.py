"""Optimisers: hooks, parameter names, and state beside the parameters."""

from __future__ import annotations

from typing import Any

import pytest

import rushlight as rl
from rushlight import nn
from rushlight.optim import SGD, Optimizer
from rushlight.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)


def parameter() -> Any:
    p = nn.Parameter(rl.ones(2))
    p.grad = rl.ones(2)
    return p


def test_hooks_of_every_optimiser_stand_around_its_own() -> None:
    seen: list[str] = []
    own = SGD([parameter()], lr=0.1)
    own.register_step_pre_hook(lambda *_: seen.append("own before"))
    own.register_step_post_hook(lambda *_: seen.append("own after"))
    with (
        register_optimizer_step_pre_hook(lambda *_: seen.append("before")),
        register_optimizer_step_post_hook(lambda *_: seen.append("after")),
    ):
        own.step()
    assert seen == ["before", "own before", "own after", "after"]
    own.step()
    assert seen[4:] == ["own before", "own after"]


def test_steps_of_subclasses_run_hooks_once() -> None:
    class Mine(SGD):
        def step(self, closure: Any = None) -> Any:
            return super().step(closure)

    seen = []
    mine = Mine([parameter()], lr=0.5)
    mine.register_step_post_hook(lambda *_: seen.append(1))
    mine.step()
    assert seen == [1] and mine.param_groups[0]["params"][0].tolist() == [0.5, 0.5]
    mine.register_step_pre_hook(lambda *_: 5)
    with pytest.raises(RuntimeError, match="hook"):
        mine.step()


def test_parameters_come_with_names() -> None:
    net = nn.Linear(1, 1)
    named = SGD(net.named_parameters(), lr=0.1)
    assert named.param_groups[0]["param_names"] == ["weight", "bias"]
    plain = SGD(net.parameters(), lr=0.2)
    plain.load_state_dict(named.state_dict())
    assert plain.param_groups[0]["param_names"] == ["weight", "bias"]
    named.load_state_dict(SGD(net.parameters(), lr=0.3).state_dict())
    assert (
        named.param_groups[0]["param_names"] == ["weight", "bias"]
        and named.param_groups[0]["lr"] == 0.3
    )
    with pytest.raises(ValueError, match="names"):
        SGD([("a", net.weight), net.bias], lr=0.1)
    with pytest.raises(ValueError, match="names"):
        named.add_param_group({"params": [nn.Parameter(rl.ones(1))]})


def test_what_is_noted_beside_the_parameters_is_state() -> None:
    p = parameter()
    first = SGD([p], lr=0.1)
    first.state["round"] = 3  # type: ignore[index, assignment]
    state = first.state_dict()
    assert state["state"]["round"] == 3
    second = SGD([p], lr=0.1)
    second.load_state_dict(state)
    assert second.state["round"] == 3  # type: ignore[index, comparison-overlap]


def test_hooks_can_be_put_first() -> None:
    optim = SGD([parameter()], lr=0.1)

    def rate(value: float) -> Any:
        def hook(_: Optimizer, state: Any) -> None:
            state["param_groups"][0]["lr"] = value

        return hook

    optim.register_load_state_dict_pre_hook(rate(0.2))
    optim.register_load_state_dict_pre_hook(rate(0.3), prepend=True)
    optim.load_state_dict(optim.state_dict())
    assert optim.param_groups[0]["lr"] == 0.2


def test_a_parameter_twice_in_a_group_is_said() -> None:
    p = parameter()
    with pytest.warns(UserWarning, match="twice"):
        SGD([p, p], lr=0.1)
    y = parameter() * 1
    y.retain_grad()
    assert SGD([y], lr=0.1).param_groups[0]["params"][0] is y


def test_complex_numbers_are_minimised() -> None:
    x = rl.tensor([1.0 + 2j, -3 + 0.5j], requires_grad=True)
    optim = rl.optim.LBFGS([x], line_search_fn="strong_wolfe")

    def closure() -> Any:
        optim.zero_grad()
        loss = ((x - 2).abs() ** 2).sum()
        loss.backward()
        return loss

    optim.step(closure)
    assert (x - 2).abs().max().item() < 1e-3
