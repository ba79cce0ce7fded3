"""Gradients where PyTorch's own tests found them lacking: the order of hooks, second derivatives under them, refusals."""

from __future__ import annotations

from typing import Any

import pytest

import rushlight as rl
from rushlight import nn


def test_hooks_of_a_leaf_run_before_those_of_its_node() -> None:
    seen: list[int] = []

    def of_tensor(g: Any) -> Any:
        seen.append(1)
        return g * 3

    def of_node(grads: Any) -> Any:
        seen.append(2)
        return tuple(g * 2 for g in grads)

    x = rl.tensor(1.0, requires_grad=True)
    y = x.clone()
    node = y.grad_fn.next_functions[0][0]
    x.register_hook(of_tensor)
    node.register_prehook(of_node)
    node.register_hook(lambda below, above: seen.append(int(above[0].item()) if above else 0))
    x.register_hook(of_tensor)
    y.backward()
    assert seen[:3] == [1, 1, 2] and x.grad.item() == 18.0


def test_module_hooks_hear_of_first_derivatives_alone() -> None:
    seen = []
    loss = nn.MSELoss()
    loss.register_full_backward_hook(lambda *given: seen.append(1))
    x = rl.rand(1, requires_grad=True)
    (slope,) = rl.autograd.grad(loss(x, rl.rand(1)), x, create_graph=True)
    rl.autograd.grad(slope, x)
    assert seen == [1]


def test_what_is_refused_and_what_is_not() -> None:
    x = rl.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="empty"):
        rl.autograd.grad((x * 2).sum(), [])
    with pytest.raises(RuntimeError):
        x.numpy()
    with rl.no_grad():
        assert x.numpy().tolist() == [1.0, 1.0]
    assert issubclass(rl.NotDifferentiable, NotImplementedError)  # PyTorch's class for an op without a derivative


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
