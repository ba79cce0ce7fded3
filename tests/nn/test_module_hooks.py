"""Hooks of every module, and what backward hooks of modules may give."""

from __future__ import annotations

from typing import Any

import pytest

import rushlight as rl
from rushlight import nn
from rushlight.nn.modules import module as every


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(rl.full((2,), 3.0))
        self.register_buffer("b", rl.zeros(2))

    def forward(self, x, y=None):
        return x * self.w, x + self.b


def numbers(tensors):
    return [None if t is None else t.tolist() for t in tensors]


def test_hooks_of_every_module_run_before_the_module_s_own():
    log = []
    handles = [
        every.register_module_forward_pre_hook(
            lambda m, args: log.append(("every before", type(m).__name__, len(args)))
        ),
        every.register_module_forward_hook(
            lambda m, args, result: log.append(("every after", len(result)))
        ),
        every.register_module_full_backward_pre_hook(
            lambda m, out: log.append(("every back", numbers(out)))
        ),
        every.register_module_full_backward_hook(
            lambda m, i, o: log.append(("every done", numbers(i), numbers(o)))
        ),
    ]
    layer = Pair()
    layer.register_forward_pre_hook(lambda m, args: log.append("before"))
    layer.register_forward_hook(lambda m, args, result: log.append("after"))
    layer.register_full_backward_pre_hook(lambda m, out: log.append("back"))
    layer.register_full_backward_hook(lambda m, i, o: log.append("done"))
    x = rl.ones(2, requires_grad=True)
    layer(x, 3)[0].sum().backward()
    assert log == [
        ("every before", "Pair", 2),
        "before",
        ("every after", 2),
        "after",
        ("every back", [[1, 1], None]),
        "back",
        ("every done", [[3, 3], None], [[1, 1], None]),
        "done",
    ]
    for handle in handles:
        handle.remove()
    log.clear()
    layer(x)[1].sum().backward()
    assert log == ["before", "after", "back", "done"]


def test_hooks_of_every_module_may_replace():
    x = rl.ones(2, requires_grad=True)
    with (
        every.register_module_forward_pre_hook(lambda m, args: (args[0] * 2,)),
        every.register_module_forward_hook(
            lambda m, args, named, result: result + 1, with_kwargs=True
        ),
        every.register_module_full_backward_hook(lambda m, i, o: (i[0] * 10,)),
    ):
        y = nn.Identity()(x)
        y.sum().backward()
    assert y.tolist() == [3, 3]
    assert x.grad.tolist() == [20, 20]
    assert nn.Identity()(x) is x


def test_hooks_of_members():
    seen = []
    with (
        every.register_module_parameter_registration_hook(
            lambda m, name, value: seen.append(("parameter", name))
        ),
        every.register_module_buffer_registration_hook(lambda m, name, value: value + 1),
        every.register_module_module_registration_hook(
            lambda m, name, value: seen.append(("module", name))
        ),
    ):
        layer = Pair()
        outer = nn.Sequential(layer)
        outer.inner = nn.Identity()
        layer.register_parameter("v", None)
    assert seen == [("parameter", "w"), ("module", "0"), ("module", "inner")]
    assert layer.b.tolist() == [1, 1]
    layer.w = nn.Parameter(rl.ones(2))
    assert len(seen) == 3


def test_what_a_backward_hook_of_a_module_gives_is_checked():
    x = rl.ones(2, requires_grad=True)
    for hook, error in [
        (lambda m, i, o: (i[0][:1],), rl.ShapeError),
        (lambda m, i, o: (i[0].double(),), rl.DTypeError),
        (lambda m, i, o: (3,), TypeError),
        (lambda m, i, o: (i[0], i[0]), rl.RushlightError),
    ]:
        layer = nn.Softplus()
        layer.register_full_backward_hook(hook)
        with pytest.raises(error, match="a backward hook of Softplus"):
            layer(x).sum().backward()
    assert x.grad is None


def test_a_hook_of_a_module_that_raises_leaves_the_graph_usable():
    layer = nn.Softplus()
    x = rl.ones(2, requires_grad=True)

    def fail(m, i, o):
        raise ZeroDivisionError

    handle = layer.register_full_backward_hook(fail)
    y = layer(x).sum()
    with pytest.raises(ZeroDivisionError):
        y.backward(retain_graph=True)
    handle.remove()
    y.backward()
    assert x.grad.tolist() == pytest.approx([0.7310586] * 2, rel=1e-6)


def test_load_hooks_by_their_older_name():
    layer = Pair()
    seen = []
    layer._register_load_state_dict_pre_hook(lambda state, prefix, *_: seen.append(sorted(state)))
    layer._register_load_state_dict_pre_hook(
        lambda module, *_: seen.append(module), with_module=True
    )
    layer.load_state_dict(Pair().state_dict())
    assert seen == [["b", "w"], layer]


@pytest.mark.parametrize("given", [None, (None,), (None, None)])
def test_a_backward_hook_gives_no_gradients_where_no_input_requires_any(given):
    module = rl.nn.Linear(2, 2)
    seen = []
    module.register_full_backward_hook(lambda part, inputs, outputs: seen.append(inputs) or given)
    module(rl.ones(3, 2)).sum().backward()
    assert seen == [(None,)]
    assert module.weight.grad is not None
    module.register_full_backward_hook(lambda *_: (rl.ones(3, 2),))
    with pytest.raises(RuntimeError, match="none of which requires any"):
        module(rl.ones(3, 2)).sum().backward()


def test_a_backward_hook_takes_the_gradient_of_an_input_away():
    x = rl.ones(3, 2, requires_grad=True)
    module = rl.nn.Linear(2, 2)
    module.register_full_backward_hook(lambda *_: (None,))
    module(x).sum().backward()
    assert x.grad is None
    assert module.weight.grad is not None


def test_module_hooks_hear_of_first_derivatives_alone() -> None:
    seen = []
    loss = nn.MSELoss()
    loss.register_full_backward_hook(lambda *given: seen.append(1))
    x = rl.rand(1, requires_grad=True)
    (slope,) = rl.autograd.grad(loss(x, rl.rand(1)), x, create_graph=True)
    rl.autograd.grad(slope, x)
    assert seen == [1]


def test_backward_hooks_see_results_in_a_dict() -> None:
    class Named(nn.Module):
        def forward(self, x: Any) -> Any:
            return {"double": x * 2, "name": "x"}

    seen = []
    net = Named()
    net.register_full_backward_hook(lambda module, below, above: seen.append(above[0].item()))
    net(rl.tensor(3.0, requires_grad=True))["double"].backward()
    assert seen == [1.0]


def test_a_hook_cannot_give_gradients_that_nobody_takes() -> None:
    net = nn.Linear(1, 1)
    net.register_full_backward_hook(lambda module, below, above: (rl.ones(1, 1),))
    with pytest.raises(RuntimeError, match="none of which"):
        net(rl.ones(1, 1)).sum().backward()


def test_backward_hooks_keep_no_activations():
    """The records of a result that is still held have none of the tensors that passed the hooks."""
    layers = nn.Sequential(*[nn.Sequential(nn.Linear(64, 64), nn.ReLU()) for _ in range(4)])
    for layer in layers:
        layer.register_full_backward_hook(lambda m, i, o: None)
    x = rl.randn(32, 64)
    y = layers(x)
    y.sum().backward()
    layers.zero_grad()
    before = rl.memory.allocated()
    size = y.nbytes
    del y
    assert before - rl.memory.allocated() < 2 * size
