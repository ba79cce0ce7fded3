"""Every record has the user's line and its module; errors say so. See Note [Source lines]."""

from __future__ import annotations

import contextlib
import gc
import inspect
import weakref

import pytest

import rushlight as rl
from rushlight import memory, nn
from rushlight.core.errors import GraphFreedError, InplaceError
from rushlight.nn import functional as F
from rushlight.tape.record.source_line import here


def line() -> int:
    """The caller's line."""
    return inspect.currentframe().f_back.f_lineno


def node_of(t):
    """The record of a result, also where its op has several."""
    return getattr(t._node, "node", t._node)


CALLS = {
    "operator": lambda x: x * x,
    "number": lambda x: 2 * x,
    "function": lambda x: rl.tanh(x),
    "method": lambda x: x.sum(),
    "view": lambda x: x.reshape(-1),
    "composed": lambda x: F.cross_entropy(x, rl.zeros(3, dtype=rl.int64)),
    "remembered": lambda x: F.linear(x, x),
    "index": lambda x: x[1:, 0],
    "several results": lambda x: x.max(dim=1)[0],
    "in place": lambda x: x.clone().mul_(x),
    "assignment": lambda x: rl.zeros(3, 4).copy_(x),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_record_knows_the_line_that_made_it(name):
    function = CALLS[name]
    x = rl.rand(3, 4, requires_grad=True)
    for _ in range(3):  # the first call, the traced call and the cached call
        place = node_of(function(x)).place
        assert place.file == __file__
        assert place.line == function.__code__.co_firstlineno
        assert place.module == ""


def test_lines_of_one_function_are_told_apart():
    x = rl.rand(3, requires_grad=True)
    a, first = x * 2, line()
    b = (
        a + x.sin()  # in the middle of an expression
    )
    second = line() - 2
    c, third = rl.exp(b), line()
    assert [t._node.place.line for t in (a, b, c)] == [first, second, third]
    assert a._node.place.function.endswith("test_lines_of_one_function_are_told_apart")


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(4)
        self.mlp = nn.Sequential(nn.Linear(4, 4), nn.GELU())

    def forward(self, x):
        return x + self.mlp(self.norm(x))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([Block(), Block()])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x * 3


def paths(root):
    """The module path of every record below a result."""
    seen, stack = {}, [root._node]
    while stack:
        node = stack.pop()
        if node is None or node in seen or not hasattr(node, "edges"):
            continue
        seen[node] = node.place.module
        stack.extend(getattr(e, "node", e) for e in node.edges)
    return set(seen.values())


def test_module_paths_are_those_of_named_modules():
    model = Model()
    found = paths(model(rl.rand(2, 4)).sum())
    assert found == {
        "",  # sum, outside the model
        "Model",
        *(f"layers.{i}{part}" for i in (0, 1) for part in ("", ".norm", ".mlp.0", ".mlp.1")),
    }
    assert found - {"", "Model"} <= {name for name, _ in model.named_modules()}


def test_lines_in_a_module_are_those_of_the_users_forward():
    made = Model()(rl.rand(2, 4))
    forward = inspect.getsourcelines(Model.forward)
    assert made._node.place.line == forward[1] + len(forward[0]) - 1
    assert made._node.place.function == "Model.forward"


def test_the_module_is_left_after_an_error_and_with_hooks():
    class Failing(nn.Module):
        def forward(self, x):
            raise ValueError("no")

    failing = Failing()
    failing.register_forward_hook(lambda *_: None)
    with pytest.raises(ValueError, match="no"):
        failing(rl.rand(2))
    assert here().module == ""


def test_a_kept_record_does_not_keep_the_model():
    model = Model()
    made = model(rl.rand(2, 4))
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None
    assert made._node.place.module == "a module that is gone"


def test_an_in_place_error_names_both_lines():
    x = rl.rand(3, requires_grad=True)
    y = x.exp()
    z, saved = y.sin(), line()
    y.mul_(2)
    written = line() - 1
    with pytest.raises(InplaceError) as caught:
        z.sum().backward()
    assert f"saved at {__file__}:{saved} in" in str(caught.value)
    assert f"overwritten in place at {__file__}:{written} in" in str(caught.value)


def test_an_optimisers_step_is_named_as_the_write():
    w = rl.rand(3, requires_grad=True)
    optimiser = rl.optim.SGD([w], lr=0.1)
    loss = (w * w).sum()
    loss.backward(retain_graph=True)
    optimiser.step()
    written = line() - 1
    with pytest.raises(InplaceError, match=f"overwritten in place at {__file__}:{written} in"):
        loss.backward()


@pytest.mark.parametrize("limited", [False, True])
@pytest.mark.parametrize("hooked", [False, True])
def test_a_gradient_summed_meanwhile_is_named_as_such(limited, hooked):
    x = rl.rand(3, requires_grad=True)
    x.sum().backward()
    made = (x.grad.requires_grad_() * x.grad).sum()
    with rl.no_grad():
        x.grad.add_(1)  # a line of the program
    if hooked:  # the sum is made at once, and not with all others at the end
        x.register_post_accumulate_grad_hook(lambda _: None)
    with memory.budget("1GiB") if limited else contextlib.nullcontext():
        x.sum().backward()  # then a backward pass
    with pytest.raises(InplaceError, match="by a backward pass that added up gradients"):
        made.backward()


def test_a_second_backward_names_the_call():
    x = rl.rand(3, requires_grad=True)
    y, called = (x * x).sum(), line()
    y.backward()
    with pytest.raises(GraphFreedError, match=f"{__file__}:{called} in"):
        y.backward()


def test_an_error_in_a_users_backward_names_the_call():
    class Failing(rl.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            raise ValueError("no")

    x = rl.rand(3, requires_grad=True)
    y, called = Failing.apply(x), line()
    with pytest.raises(ValueError, match="no") as caught:
        y.sum().backward()
    assert any(
        f"the backward of Failing, called at {__file__}:{called} in" in n
        for n in caught.value.__notes__
    )


def test_a_pack_hook_inside_a_layer_has_its_own_lines():
    """The layer keeps the line of its first record for the others, not for the user's code."""
    lines = []

    def pack(t):
        with rl.enable_grad():
            lines.append(node_of(t.detach().requires_grad_() * 2.0).place.line == line())
        return t

    layer, x = nn.Bilinear(4, 4, 3), rl.ones(2, 4, requires_grad=True)
    for _ in range(3):
        with rl.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            assert node_of(layer(x, x)).place.line == line()
    assert lines and all(lines)
