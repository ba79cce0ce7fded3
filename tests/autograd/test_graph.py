"""The graph as users see it: nodes, their names and neighbours, printing, one hook on several
tensors.
"""

from __future__ import annotations

import gc
import threading

import pytest

import rushlight as rl
from rushlight import InplaceError, NotDifferentiable, autograd
from rushlight.autograd import Function, grad, graph


def leaf(*numbers: float, device: str = "cpu") -> rl.Tensor:
    return rl.tensor(list(numbers) or [1.0, 2.0], requires_grad=True, device=device)


class Pair(Function):
    @staticmethod
    def forward(ctx, x, number, y):
        ctx.save_for_backward(x, y)
        return x * y, x + y

    @staticmethod
    def backward(ctx, a, b):
        x, y = ctx.saved_tensors
        return a * y + b, None, a * x + b


# ---- nodes ----


def test_nodes_are_named_and_linked():
    x = leaf()
    y = (x * 2).exp()
    node = y.grad_fn
    assert node.name() == "ExpBackward0"
    assert repr(node) == "<ExpBackward0>"
    assert isinstance(node, graph.Node)
    ((inner, index),) = node.next_functions
    assert (inner.name(), index) == ("MulBackward0", 0)
    ((end, _),) = inner.next_functions
    assert end.variable is x
    assert isinstance(end, graph.Node)
    assert "AccumulateGrad" in repr(end)
    assert x.grad_fn is None


def test_inputs_without_gradient_have_none():
    x = leaf()
    assert (x * rl.ones(2)).grad_fn.next_functions[1] == (None, 0)


def test_results_of_one_call_share_their_node():
    first, second = Pair.apply(leaf(), 0, leaf())
    assert first.grad_fn is second.grad_fn
    assert (first.output_nr, second.output_nr) == (0, 1)
    assert (second * 3).grad_fn.next_functions == ((first.grad_fn, 1),)


def test_nodes_of_functions():
    x, y = leaf(), leaf()
    a = Pair.apply(x, 3, y)[0]
    assert a.grad_fn.name() == "PairBackward"
    assert [
        node.variable is t for (node, _), t in zip(a.grad_fn.next_functions, (x, y), strict=True)
    ] == [True, True]


def test_notes_on_nodes():
    x = leaf()
    h = x * 2
    assert h.grad_fn.metadata == {}
    h.grad_fn.metadata["why"] = "because"
    assert h.grad_fn.metadata == {"why": "because"}
    assert (x * 2).grad_fn.metadata == {}
    x._node.metadata["x"] = 1
    assert (x * 2).grad_fn.next_functions[0][0].metadata == {"x": 1}


def test_the_whole_graph_can_be_walked():
    x, y = leaf(), leaf()
    root = Pair.apply(x, 0, (x + y).exp())[1].softmax(0).sum()
    names, stack = set(), [root.grad_fn]
    while stack:
        node = stack.pop()
        names.add(node.name())
        stack.extend(n for n, _ in node.next_functions if n is not None)
    leaves = "torch::autograd::AccumulateGrad"
    assert {leaves, "PairBackward", "ExpBackward0", "AddBackward0"} <= names


def test_printing():
    x = leaf()
    assert repr(x) == "tensor([1., 2.], requires_grad=True)"
    assert repr(x * 2) == "tensor([2., 4.], grad_fn=<MulBackward0>)"
    assert repr(x.detach()) == "tensor([1., 2.])"


def test_older_and_longer_names():
    x = autograd.Variable(rl.ones(2), requires_grad=True)
    assert isinstance(x, autograd.Variable)
    assert isinstance(x, rl.Tensor)
    (x * 2).sum().backward()
    assert x.grad.tolist() == [2, 2]
    assert autograd.function.Function is Function
    with autograd.grad_mode.no_grad():
        assert not rl.is_grad_enabled()
    assert isinstance(x.register_hook(print), rl.utils.hooks.RemovableHandle)


# ---- versions ----


def test_increment_version():
    x = leaf()
    h = x * 2
    y = h * h
    z = h + 1
    graph.increment_version(h)
    with pytest.raises(InplaceError):
        y.sum().backward()
    z.sum().backward()
    a, b = rl.ones(1), rl.ones(1)
    graph.increment_version([a, b])
    assert (a._version, b._version) == (1, 1)


# ---- one hook on several tensors ----


def test_all_gradients_at_once(device):
    x, y, z = (leaf(device=device) for _ in range(3))
    h = x * 2
    seen = []
    handle = graph.register_multi_grad_hook(
        (x, h, z), lambda parts: seen.append([p if p is None else p.tolist() for p in parts])
    )
    (h * y).sum().backward()
    assert seen == [[[2, 4], [1, 2], None]]
    (x * z).sum().backward()
    assert seen[1:] == [[[1, 2], None, [1, 2]]]
    handle.remove()
    (x * z).sum().backward()
    assert len(seen) == 2


def test_only_what_the_pass_reaches_counts():
    x, y = leaf(), leaf()
    seen = []
    graph.register_multi_grad_hook((x, y), lambda parts: seen.append([p is None for p in parts]))
    grad((x * y).sum(), x)
    assert seen == [[False, True]]
    (x * y).sum().backward(inputs=[y])
    assert seen[1:] == [[True, False]]


def test_results_of_one_node_in_a_hook_on_several():
    first, second = Pair.apply(leaf(), 0, leaf())
    seen = []
    graph.register_multi_grad_hook(
        (first, second), lambda parts: seen.append([p.tolist() for p in parts])
    )
    (first * 3 + second * 5).sum().backward()
    assert seen == [[[3, 3], [5, 5]]]


def test_tensors_to_which_no_gradient_comes_are_not_waited_for():
    class Closed(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1, x * 2

        @staticmethod
        def backward(ctx, a, b):
            return None

    x = leaf()
    h = x * 3
    a, b = Closed.apply(h)
    seen, plain = [], []
    graph.register_multi_grad_hook(
        (a, b, h, x), lambda parts: seen.append([p is None for p in parts])
    )
    for tensor in (b, h, x):
        tensor.register_hook(plain.append)
    a.sum().backward()
    assert seen == [[False, True, True, True]]
    assert plain == []


def test_the_first_gradient():
    x, y = leaf(), leaf()
    seen = []
    with graph.register_multi_grad_hook((x, y), seen.append, mode="any"):
        for _ in range(2):
            (x * 2 + y * 2).sum().backward()
    (x * 2 + y * 2).sum().backward()
    assert [g.tolist() for g in seen] == [[2, 2], [2, 2]]


def test_a_hook_on_several_that_raises_starts_afresh():
    x, y = leaf(), leaf()
    calls = []

    def fail_once(parts):
        calls.append(len(parts))
        if len(calls) == 1:
            raise ZeroDivisionError

    graph.register_multi_grad_hook((x, y), fail_once)
    root = (x * y).sum()
    with pytest.raises(ZeroDivisionError):
        root.backward(retain_graph=True)
    root.backward()
    assert calls == [2, 2]


def test_a_hook_on_several_in_threads():
    x, y = leaf(), leaf()
    seen = []
    graph.register_multi_grad_hook((x, y), lambda parts: seen.append([p.tolist() for p in parts]))

    def work(factor: float) -> None:
        for _ in range(20):
            grad((x * y * factor).sum(), [x, y])

    threads = [threading.Thread(target=work, args=(float(i),)) for i in range(1, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 60
    assert all(a == b for a, b in seen)


def test_a_hook_on_several_does_not_keep_the_graph():
    x = leaf()
    h = x * 2
    graph.register_multi_grad_hook((x, h), lambda parts: None)
    gc.collect()
    gc.disable()
    try:
        before = rl.memory.allocated("cpu")
        big = (h * rl.ones(2)).exp()
        graph.register_multi_grad_hook((big,), lambda parts: None)
        del big
        assert rl.memory.allocated("cpu") == before
    finally:
        gc.enable()


def test_bad_arguments():
    x = leaf()
    with pytest.raises(ValueError, match="mode"):
        graph.register_multi_grad_hook((x,), print, mode="some")
    with pytest.raises(NotDifferentiable):
        graph.register_multi_grad_hook((x, rl.ones(2)), print)
