"""Backward: order, sums, hooks, modes, freed graphs.

Memory and depth are in test_graph_memory.py.
"""

from __future__ import annotations

import numpy as np
import pytest

import rushlight as rl
from rushlight import GraphFreedError, NotDifferentiable, RushlightError, ShapeError


def leaf(*numbers: float, device: str = "cpu") -> rl.Tensor:
    return rl.tensor(list(numbers), device=device, requires_grad=True)


# ---- sums ----


def test_paths_of_a_diamond_add_up(device):
    x = leaf(2.0, 3.0, device=device)
    a = x * x
    (a * 2 + a * x).sum().backward()
    assert x.grad.tolist() == [2 * 2 * 2 + 3 * 4, 2 * 2 * 3 + 3 * 9]


def test_diamonds_in_a_row_cost_one_visit_each():
    x = leaf(1.0)
    y = x
    for _ in range(60):  # 2^60 paths
        y = y + y
    y.backward()
    assert x.grad.item() == 2.0**60


def test_a_root_above_another_root():
    x = leaf(3.0)
    a = x * x
    b = a * a
    rl.autograd.backward([a, b], [rl.tensor([1.0]), rl.tensor([1.0])])
    assert x.grad.item() == 2 * 3 + 4 * 27


def test_the_same_root_twice():
    x = leaf(3.0)
    y = x * x
    rl.autograd.backward([y, y], [rl.tensor([1.0]), rl.tensor([10.0])])
    assert x.grad.item() == 66


def test_leaf_gradients_accumulate_over_calls(device):
    x = leaf(1.0, 2.0, device=device)
    for _ in range(3):
        (x * x).sum().backward()
    assert x.grad.tolist() == [6.0, 12.0]


def test_gradients_are_unbroadcast_and_cast():
    x = rl.ones(3, 1, requires_grad=True)
    y = rl.ones(4, dtype=rl.float64, requires_grad=True)
    (x * y).sum().backward()
    assert (x.grad.shape, x.grad.dtype) == ((3, 1), rl.float32)
    assert (y.grad.shape, y.grad.dtype) == ((4,), rl.float64)
    assert x.grad.flatten().tolist() == [4.0] * 3
    assert y.grad.tolist() == [3.0] * 4


# ---- memory ownership of gradients ----


@pytest.mark.parametrize("create_graph", [False, True])
def test_two_leaves_never_share_a_gradient(create_graph):
    x, y = leaf(1.0), leaf(2.0)
    (x + y).backward(create_graph=create_graph)
    with rl.no_grad():
        x.grad.add_(5.0)
    assert y.grad.item() == 1.0


def test_two_leaves_given_as_inputs_never_share_a_gradient():
    x, y = leaf(1.0), leaf(2.0)
    (x + y).backward(inputs=[x, y])
    x.grad.add_(5.0)
    assert y.grad.item() == 1.0


def test_the_given_gradient_is_not_kept():
    x = leaf(1.0, 2.0)
    seed = rl.ones(2)
    (x + 1).backward(seed)
    (x + 1).backward(seed)
    assert seed.tolist() == [1.0, 1.0]
    x.backward(seed)
    x.grad.zero_()
    assert seed.tolist() == [1.0, 1.0]


def test_a_gradient_caught_by_a_hook_does_not_change_later():
    x = leaf(1.0, 2.0)
    caught = []
    x.register_hook(lambda g: caught.append(g))
    (x * 3).sum().backward()
    (x * 3).sum().backward()
    assert caught[0].tolist() == [3.0, 3.0]
    assert x.grad.tolist() == [6.0, 6.0]


def test_a_gradient_given_by_a_hook_does_not_change_later():
    x = leaf(1.0)
    given = rl.tensor([10.0])
    y = x + 0.0
    z = y + 0.0
    z.register_hook(lambda g: given)
    (z + y * 2).backward()
    assert given.item() == 10.0
    assert x.grad.item() == 12.0


# ---- hooks ----


def test_a_hook_sees_the_sum_once():
    x = leaf(2.0)
    y = x * 3
    seen = []
    y.register_hook(lambda g: seen.append(g.item()))
    (y * y + y).backward()
    assert seen == [2 * 6 + 1]


def test_a_leaf_hook_sees_the_sum_once_and_may_replace_it():
    x = leaf(2.0)
    seen = []
    x.register_hook(lambda g: seen.append(g.item()))
    x.register_hook(lambda g: g * 10)
    (x * x + x).backward()
    assert seen == [5.0]
    assert x.grad.item() == 50.0


def test_a_hook_on_an_inner_value_may_replace_its_gradient():
    x = leaf(2.0)
    y = x * 3
    y.register_hook(lambda g: rl.zeros(1))
    (y + x).backward()
    assert x.grad.item() == 1.0


def test_hooks_can_be_removed():
    x = leaf(2.0)
    seen = []
    handle = x.register_hook(seen.append)
    handle.remove()
    handle.remove()
    (x * 2).backward()
    assert not seen


def test_hooks_on_one_of_several_results():
    x = rl.tensor([[1.0, 2.0, 4.0]], requires_grad=True)
    first, second = x.split([1, 2], dim=1)
    seen = []
    second.register_hook(lambda g: seen.append(g.tolist()))
    (first.sum() + (second * second).sum()).backward()
    assert seen == [[[4.0, 8.0]]]
    assert x.grad.tolist() == [[1.0, 4.0, 8.0]]


def test_a_hook_that_raises_leaves_the_engine_usable():
    x = leaf(2.0)
    y = x * x

    def fail(g):
        raise ValueError("from the hook")

    handle = y.register_hook(fail)
    with pytest.raises(ValueError, match="from the hook"):
        (y * 2).backward()
    assert rl.is_grad_enabled()
    handle.remove()
    (x * x).backward()
    assert x.grad.item() == 4.0


def test_post_accumulate_hooks_get_the_leaf():
    x = leaf(2.0)
    seen = []
    x.register_post_accumulate_grad_hook(lambda t: seen.append((t is x, t.grad.item())))
    (x * x).backward()
    (x * x).backward()
    assert seen == [(True, 4.0), (True, 8.0)]


def test_retain_grad_keeps_and_accumulates():
    x = leaf(2.0)
    y = x * 3
    y.retain_grad()
    z = y * y
    z.backward(retain_graph=True)
    assert y.grad.item() == 12.0
    z.backward()
    assert y.grad.item() == 24.0


def test_hooks_need_a_gradient():
    with pytest.raises(RushlightError, match="register_hook"):
        rl.ones(2).register_hook(print)
    with pytest.raises(RushlightError, match="retain_grad"):
        rl.ones(2).retain_grad()


# ---- roots ----


def test_backward_on_a_leaf():
    x = leaf(2.0)
    x.backward()
    x.backward(rl.tensor([3.0]))
    assert x.grad.item() == 4.0


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_the_seed_has_the_root_s_shape(shape):
    x = rl.full(shape, 2.0, requires_grad=True)
    seen = []
    y = x * x
    y.register_hook(lambda g: seen.append(g.shape))
    y.backward()
    assert seen == [shape]
    assert x.grad.shape == shape


def test_a_root_of_many_elements_needs_a_gradient():
    x = leaf(1.0, 2.0)
    with pytest.raises(RushlightError, match="gradient must be given"):
        (x * x).backward()
    with pytest.raises(ShapeError, match="does not fit"):
        (x * x).backward(rl.ones(3))


def test_a_gradient_of_another_type_is_cast():
    x = leaf(1.0, 2.0)
    (x * x).backward(rl.ones(2, dtype=rl.float64))
    assert x.grad.dtype is rl.float32
    assert x.grad.tolist() == [2.0, 4.0]


def test_a_root_without_record_is_an_error():
    with pytest.raises(NotDifferentiable, match="does not require gradients"):
        rl.ones(1).backward()


# ---- freed graphs ----


def test_a_second_backward_over_a_freed_graph():
    x = leaf(2.0)
    y = (x * x).exp()
    y.backward()
    with pytest.raises(GraphFreedError, match="retain_graph=True"):
        y.backward()
    assert x.grad.item() == pytest.approx(4 * np.exp(4))


def test_a_second_backward_where_nothing_was_saved():
    """As in PyTorch: a reshape or a sum saves nothing, so nothing is missing the second time."""
    x = rl.ones(2, 3, requires_grad=True)
    shared = x.reshape(6) + 1
    for _ in range(2):
        (shared * 2).sum().backward()
    assert x.grad.flatten().tolist() == [4.0] * 6


def test_retain_graph():
    x = leaf(2.0)
    y = (x * x).exp()
    y.backward(retain_graph=True)
    y.backward()
    assert x.grad.item() == pytest.approx(8 * np.exp(4))
    with pytest.raises(GraphFreedError):
        y.backward()


def test_a_shared_part_of_two_graphs_is_freed_by_the_first():
    x = leaf(2.0)
    shared = x.exp()
    a, b = shared * 2, shared * 3
    a.backward()
    with pytest.raises(GraphFreedError):
        b.backward()


# ---- second order ----


def test_second_order(device):
    x = leaf(0.5, -1.5, device=device)
    y = (x * x * x).sum()
    (first,) = rl.autograd.grad(y, x, create_graph=True)
    (second,) = rl.autograd.grad(first.sum(), x, create_graph=True)
    (third,) = rl.autograd.grad(second.sum(), x)
    np.testing.assert_allclose(first.tolist(), [0.75, 6.75], rtol=1e-6)
    np.testing.assert_allclose(second.tolist(), [3.0, -9.0], rtol=1e-6)
    np.testing.assert_allclose(third.tolist(), [6.0, 6.0], rtol=1e-6)


def test_a_gradient_penalty():
    x, w = leaf(1.0, 2.0), leaf(3.0, 4.0)
    (g,) = rl.autograd.grad((x * x * w).sum(), x, create_graph=True)  # 2 x w
    (g * g).sum().backward()  # sum 4 x^2 w^2
    np.testing.assert_allclose(w.grad.tolist(), [8 * 1 * 3, 8 * 4 * 4])
    np.testing.assert_allclose(x.grad.tolist(), [8 * 1 * 9, 8 * 2 * 16])


def test_create_graph_accumulates_into_grad_with_a_record():
    x = leaf(3.0)
    (x * x).backward(create_graph=True)
    first = x.grad
    x.grad = None
    first.backward()
    assert x.grad.item() == 2.0


# ---- grad() ----


def test_grad_of_several_roots_and_inputs():
    x, y = leaf(2.0), leaf(5.0)
    a, b = x * y, x * x
    gx, gy = rl.autograd.grad([a, b], [x, y], [rl.tensor([1.0]), rl.tensor([10.0])])
    assert (gx.item(), gy.item()) == (5.0 + 40.0, 2.0)
    assert x.grad is None
    assert y.grad is None


def test_grad_of_an_inner_value():
    x = leaf(2.0)
    y = x * x
    gy, gx = rl.autograd.grad(y * y, [y, x])
    assert (gy.item(), gx.item()) == (8.0, 32.0)


def test_grad_runs_only_what_leads_to_the_inputs():
    x, w = leaf(2.0), leaf(3.0)
    side = w.exp()
    y = x * side
    rl.autograd.grad(y, x)
    (side * 1).backward()  # its saves are still there
    assert w.grad.item() == pytest.approx(np.exp(3.0))


def test_unused_inputs():
    x, y = leaf(2.0), leaf(3.0)
    with pytest.raises(NotDifferentiable, match="allow_unused"):
        rl.autograd.grad(x * 2, [x, y])
    gx, gy = rl.autograd.grad(x * 2, [x, y], allow_unused=True)
    assert gx.item() == 2.0
    assert gy is None
    with pytest.raises(NotDifferentiable):
        rl.autograd.grad(x * 2, rl.ones(1))


def test_backward_into_chosen_inputs_only():
    x, y = leaf(2.0), leaf(3.0)
    (x * y).backward(inputs=[x])
    assert x.grad.item() == 3.0
    assert y.grad is None


# ---- what is recorded ----


def test_nothing_is_recorded_when_nothing_needs_it():
    x = rl.ones(3)
    y = (x * 2).exp().sum()
    assert not y.requires_grad
    assert y.grad_fn is None
    assert y.is_leaf


def test_frozen_tensors_get_no_gradient():
    x, frozen = leaf(2.0), rl.tensor([3.0])
    (x * frozen).backward()
    assert frozen.grad is None
    assert x.grad.item() == 3.0


def test_detach_stops_the_gradient():
    x = leaf(2.0)
    y = x * x
    (y.detach() * x).backward()
    assert x.grad.item() == 4.0
    assert not y.detach().requires_grad


def test_a_detached_value_stays_detached():
    x, w = leaf(2.0), leaf(3.0)
    y = x * 1
    cut = y.detach()
    y.mul_(w)
    assert not (cut * 2).requires_grad
    assert cut.item() == 6.0  # it is the same memory


def test_integers_and_comparisons_have_no_record():
    x = leaf(2.0)
    assert not (x > 1).requires_grad
    assert not x.long().requires_grad
    with pytest.raises(RushlightError, match="floating"):
        rl.ones(2, dtype=rl.int64, requires_grad=True)


def test_requires_grad_can_be_switched_on_leaves():
    x = rl.ones(2)
    x.requires_grad_()
    (x * 2).sum().backward()
    assert x.grad.tolist() == [2.0, 2.0]
    x.requires_grad_(False)
    assert not (x * 2).requires_grad
    with pytest.raises(RushlightError, match="leaves"):
        (leaf(1.0) * 2).requires_grad_(False)


def test_no_derivative_is_an_error_that_names_the_op():
    x = leaf(0.2, 0.3)
    with pytest.raises(NotDifferentiable) as error:
        rl.unique(x).sum().backward()
    assert "unique" in error.value.args[0]


# ---- handles on the middle of a storage ----


@pytest.mark.parametrize("make", ["detach", "data", "parameter"])
def test_a_handle_that_starts_late_in_its_storage(make):
    x = rl.arange(10, dtype=rl.float32)
    if make == "detach":
        y = x[4:6].detach()
    elif make == "data":
        y = rl.zeros(2)
        y.data = x[4:6]
    else:
        y = rl.nn.Parameter(x[4:6])
    for _ in range(3):  # the second call of an op is shorter than the first
        assert (y + 1).tolist() == [5.0, 6.0]
        assert (y * y).tolist() == [16.0, 25.0]
        assert y.neg().tolist() == [-4.0, -5.0]


@pytest.mark.parametrize(
    "use", [lambda h: h * h, lambda h: h.exp() * h, lambda h: h @ h, lambda h: h**3]
)
def test_what_is_detached_in_place_keeps_its_part_in_what_was_recorded(use, device):
    """Its users saved the handle; their second derivatives still reach what made it."""

    def second(detach):
        x = rl.tensor([[1.0, 2.0], [0.5, 3.0]], device=device, requires_grad=True)
        h = x * x
        y = use(h).sum()
        if detach:
            h.detach_()
            assert not h.requires_grad
        (g,) = rl.autograd.grad(y, x, create_graph=True)
        (g * g).sum().backward()
        return g.tolist(), x.grad.tolist()

    assert second(True) == second(False)
