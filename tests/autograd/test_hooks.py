"""Hooks: kinds, arguments, order, what they may change, and the state after an error."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

import rushlight as rl
from rushlight import DeviceError, RushlightError
from rushlight.autograd import Function, grad


def leaf(*numbers: float, device: str = "cpu") -> rl.Tensor:
    return rl.tensor(list(numbers) or [1.0, 2.0], requires_grad=True, device=device)


class Pair(Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x * y, x + y

    @staticmethod
    def backward(ctx, a, b):
        x, y = ctx.saved_tensors
        return a * y + b, a * x + b


# ---- order ----


def test_the_order_of_all_kinds(device):
    x = leaf(device=device)
    h = x * 2
    seen = []
    h.grad_fn.register_prehook(lambda outs: seen.append(("before", [g.tolist() for g in outs])))
    h.register_hook(lambda g: seen.append("first"))
    h.grad_fn.register_hook(
        lambda ins, outs: seen.append(
            ("after", [g if g is None else g.tolist() for g in ins], outs[0].tolist())
        )
    )
    h.retain_grad()
    h.register_hook(lambda g: g * 3)
    h.sum().backward()
    assert seen == ["first", ("before", [[3, 3]]), ("after", [[6, 6]], [3, 3])]
    assert h.grad.tolist() == [3, 3]  # after the hooks, though they were registered later
    assert x.grad.tolist() == [6, 6]


def test_each_kind_runs_in_the_order_of_registration():
    x = leaf()
    h = x * 2
    seen = []
    for i in range(3):
        h.register_hook(lambda g, i=i: seen.append(("value", i)))
        h.grad_fn.register_prehook(lambda outs, i=i: seen.append(("before", i)))
        h.grad_fn.register_hook(lambda ins, outs, i=i: seen.append(("after", i)))
        x.register_hook(lambda g, i=i: seen.append(("leaf", i)))
        x.register_post_accumulate_grad_hook(lambda t, i=i: seen.append(("added", i)))
    h.sum().backward()
    assert seen == [
        (kind, i) for kind in ("value", "before", "after", "leaf", "added") for i in range(3)
    ]


# ---- node hooks ----


def test_node_hooks_see_the_sum_once():
    x = leaf()
    h = x * 2
    seen = []
    h.grad_fn.register_prehook(lambda outs: seen.append(outs[0].tolist()))
    h.grad_fn.register_hook(lambda ins, outs: seen.append(ins[0].tolist()))
    (h + h * 3).sum().backward()
    assert seen == [[4, 4], [8, 8]]


def test_node_hooks_may_replace(device):
    x = leaf(device=device)
    h = x * 2
    h.grad_fn.register_prehook(lambda outs: (outs[0] * 5,))
    h.grad_fn.register_hook(lambda ins, outs: (ins[0] + outs[0],))
    h.sum().backward()
    assert x.grad.tolist() == [15, 15]


def test_node_hooks_of_several_results_and_inputs():
    x, y = leaf(), leaf(3.0, 4.0)
    a = Pair.apply(x, y)[0]
    seen = []
    a.grad_fn.register_prehook(lambda outs: seen.append([g is None for g in outs]))
    a.grad_fn.register_hook(lambda ins, outs: seen.append([g.tolist() for g in ins]))
    a.sum().backward()
    assert seen == [[False, True], [[3, 4], [1, 2]]]
    assert len(a.grad_fn.next_functions) == 2


def test_the_node_of_a_leaf():
    x = leaf()
    (node, index), _ = (x * rl.ones(2)).grad_fn.next_functions
    assert node.variable is x
    assert (index, node.name(), node.next_functions) == (0, "torch::autograd::AccumulateGrad", ())
    seen = []
    before = node.register_prehook(lambda outs: (outs[0] * 2,))
    after = node.register_hook(
        lambda ins, outs: seen.append((ins, outs[0].tolist(), x.grad.tolist()))
    )
    (x * 3).sum().backward()
    assert seen == [((), [6, 6], [6, 6])]
    grad((x * 3).sum(), x)  # nothing is added to the leaf
    assert len(seen) == 1
    before.remove()
    after.remove()
    (x * 3).sum().backward()
    assert len(seen) == 1
    assert x.grad.tolist() == [9, 9]
    assert not x._node.hooks
    assert not x._node.post_hooks


def test_a_node_hook_that_gives_the_wrong_thing():
    x = leaf()
    for hook in (lambda outs: outs[0], lambda outs: 3):
        h = x * 2
        h.grad_fn.register_prehook(hook)
        with pytest.raises(TypeError, match=r"mul.*tuple"):
            h.sum().backward()
    h = x * 2
    h.grad_fn.register_hook(lambda ins, outs: ins * 3)
    with pytest.raises(RushlightError, match=r"mul.*3 gradients in place of 1"):
        h.sum().backward()
    h = x * 2
    h.grad_fn.register_prehook(lambda outs: (outs[0][:1],))
    with pytest.raises(rl.ShapeError, match="mul"):
        h.sum().backward()
    with pytest.raises(TypeError, match="tuple of one"):
        node = (x * 2).grad_fn.next_functions[0][0]
        with node.register_prehook(lambda outs: outs[0]):
            (x * 2).sum().backward()
    assert x.grad is None


# ---- what a hook returns ----


@pytest.mark.parametrize("inner", [False, True])
def test_a_hook_that_changes_shape_type_or_device(inner, require_device):
    require_device("webgpu")
    cases = [
        (lambda g: g[:1], rl.ShapeError),
        (lambda g: g.expand(3, 2), rl.ShapeError),
        (lambda g: g.double(), rl.DTypeError),
        (lambda g: g.to("webgpu"), DeviceError),
        (lambda g: 3, TypeError),
    ]
    for hook, error in cases:
        x = leaf()
        h = x * 2
        (h if inner else x).register_hook(hook)
        with pytest.raises(error, match="mul, called at .*test_hooks.py" if inner else "a leaf"):
            h.sum().backward()
        assert x.grad is None


def test_replacing_the_gradient_of_one_of_several_results():
    x, y = leaf(), leaf(3.0, 4.0)
    a, b = Pair.apply(x, y)
    b.register_hook(lambda g: g * 10)
    (a + b).sum().backward()
    assert x.grad.tolist() == [13, 14]


def test_a_hook_on_a_value_that_is_used_again_with_create_graph():
    x = leaf()
    h = x * x
    h.register_hook(lambda g: g * h)
    (first,) = grad(h.sum(), x, create_graph=True)
    assert first.tolist() == [2, 16]  # 2 x^3
    (second,) = grad(first.sum(), x)
    assert second.tolist() == [6, 72]  # the hook runs in the second pass too: PyTorch's numbers


# ---- handles ----


def test_handles_end_with_a_block():
    x = leaf()
    seen = []
    h = x * 2
    with h.register_hook(lambda g: seen.append(1)) as handle:
        h.sum().backward(retain_graph=True)
    h.sum().backward(retain_graph=True)
    assert seen == [1]
    handle.remove()  # a second removal does nothing
    with (
        h.grad_fn.register_hook(lambda i, o: seen.append(2)),
        h.grad_fn.register_prehook(lambda o: seen.append(3)),
    ):
        h.sum().backward(retain_graph=True)
    h.sum().backward()
    assert seen == [1, 3, 2]


def test_a_hook_that_takes_itself_off():
    x = leaf()
    seen = []

    def once(g):
        seen.append(g)
        handle.remove()

    handle = x.register_hook(once)
    x.register_hook(lambda g: seen.append(g))
    (x * 2).sum().backward()
    (x * 2).sum().backward()
    assert len(seen) == 3


# ---- retain_grad ----


def test_retained_gradients_are_their_own():
    x = leaf()
    a = x + 0
    b = a + 0  # the same gradient passes through both
    a.retain_grad()
    b.retain_grad()
    (b * 2).sum().backward()
    b.grad.zero_()
    assert a.grad.tolist() == [2, 2]
    assert x.grad.tolist() == [2, 2]
    x.grad.zero_()
    assert a.grad.tolist() == [2, 2]


def test_a_retained_gradient_is_not_added_to_later():
    x = leaf()
    h = x * 2
    h.retain_grad()
    h.sum().backward(retain_graph=True)
    first = h.grad
    h.sum().backward()
    assert first.tolist() == [1, 1]
    assert h.grad.tolist() == [2, 2]


def test_retains_grad_and_twice():
    x = leaf()
    h = x * 2
    assert not h.retains_grad
    h.retain_grad()
    h.retain_grad()
    x.retain_grad()  # a leaf keeps its gradient anyway
    assert h.retains_grad
    assert not x.retains_grad
    h.sum().backward()
    assert h.grad.tolist() == [1, 1]


def test_retain_grad_follows_a_write_in_place():
    x = leaf()
    h = x * 2
    h.retain_grad()
    seen = []
    h.register_hook(lambda g: seen.append(g.tolist()))  # of the value before the write
    h.mul_(3)
    h.sum().backward()
    assert h.grad.tolist() == [1, 1]
    assert seen == [[3, 3]]
    assert x.grad.tolist() == [6, 6]


def test_retain_grad_follows_a_write_to_a_view():
    x = leaf()
    h = x * 2
    h.retain_grad()
    h[0].mul_(3)
    (h * h).sum().backward()
    assert h.grad.tolist() == [12, 8]
    assert x.grad.tolist() == [72, 16]


def test_retain_grad_of_a_view_follows_a_write_to_its_base():
    x = leaf()
    h = x * 2
    v = h[0]
    v.retain_grad()
    h.mul_(3)
    (v * 5).backward()
    assert v.grad.item() == 5
    assert x.grad.tolist() == [30, 0]


def test_a_retained_gradient_keeps_nothing_of_a_budget():
    x = rl.ones(1 << 12, requires_grad=True)
    with rl.memory.budget("64MiB"):
        h = x * 2
        h.retain_grad()
        (h.exp() * 3).sum().backward()
    assert h.grad._memory.recipe is None


def test_nothing_is_kept_for_a_tensor_that_is_gone():
    x = leaf()
    h = x * 2
    h.retain_grad()
    y = h.sum()
    kept = weakref.ref(h.kept_grad)
    del h
    gc.collect()
    assert kept() is None
    y.backward()
    assert x.grad.tolist() == [2, 2]


# ---- errors ----


@pytest.mark.parametrize("kind", ["value", "leaf", "before", "after", "added"])
def test_after_a_hook_that_raises_the_same_pass_can_be_made_again(kind, device):
    x = leaf(device=device)
    h = x * x
    y = (h * 3 + h.exp()).sum()
    want = grad(y, x, retain_graph=True)[0].tolist()

    def fail(*_):
        raise ZeroDivisionError

    handle = {
        "value": lambda: h.register_hook(fail),
        "leaf": lambda: x.register_hook(fail),
        "before": lambda: h.grad_fn.register_prehook(fail),
        "after": lambda: h.grad_fn.register_hook(fail),
        "added": lambda: x.register_post_accumulate_grad_hook(fail),
    }[kind]()
    with pytest.raises(ZeroDivisionError):
        y.backward(retain_graph=True)
    assert rl.is_grad_enabled()
    assert x.grad is None
    handle.remove()
    x.grad = None
    y.backward()
    assert x.grad.tolist() == want


def test_hooks_of_what_is_not_asked_for_do_not_run():
    x, y = leaf(), leaf()
    seen = []
    x.register_hook(lambda g: seen.append("x"))
    y.register_hook(lambda g: seen.append("y"))
    h = y * 2
    h.register_hook(lambda g: seen.append("h"))
    grad((x * h).sum(), x, retain_graph=True)
    assert seen == ["x"]
    (x * h).sum().backward(inputs=[x])
    assert seen == ["x", "x"]
    assert y.grad is None


def test_a_backward_pass_inside_a_hook():
    x, z = leaf(), leaf(5.0)
    h = x * 2

    def hook(g):
        assert not rl.is_grad_enabled()
        with rl.enable_grad():
            (z * z).sum().backward()

    h.register_hook(hook)
    h.sum().backward()
    assert x.grad.tolist() == [2, 2]
    assert z.grad.tolist() == [10]


def test_a_hook_after_the_gradient_was_added_returns_nothing():
    x = leaf(1.0, 2.0)
    handle = x.register_post_accumulate_grad_hook(lambda t: t.grad * 2)
    with pytest.raises(RushlightError, match="must return None"):
        x.sum().backward()
    handle.remove()
    assert x.grad is None  # a pass that failed changes none
    x.register_post_accumulate_grad_hook(lambda t: None)
    x.sum().backward()
    assert x.grad.tolist() == [1, 1]


def test_prehooks_of_a_leaf_s_node_are_of_what_is_added():
    x = leaf(1.0)
    seen = []
    node = (x * 1).grad_fn.next_functions[0][0]
    node.register_prehook(lambda g: seen.append("before"))
    node.register_hook(lambda ins, outs: seen.append("after"))
    grad(x * 2, x)
    assert seen == []
    (x * 2).backward()
    assert seen == ["before", "after"]


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
