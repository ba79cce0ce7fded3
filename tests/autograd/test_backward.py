"""backward, grad and gradients: roots, external gradients, chosen inputs, checks, memory
ownership.
"""

from __future__ import annotations

import pytest

import rushlight as rl
from rushlight import (
    DeviceError,
    DTypeError,
    GraphFreedError,
    NotDifferentiable,
    RushlightError,
    ShapeError,
)
from rushlight.autograd import Function, backward, grad, gradients, graph
from rushlight.utils.checkpoint import checkpoint


def leaf(*numbers: float, device: str = "cpu") -> rl.Tensor:
    return rl.tensor(list(numbers) or [1.0, 2.0], requires_grad=True, device=device)


class Two(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 3, x * 7

    @staticmethod
    def backward(ctx, a, b):
        return a * 3 + b * 7


# ---- roots and their gradients ----


def test_several_roots_with_none_among_the_gradients(device):
    x = leaf(device=device)
    backward([(x * 2).sum(), x * 3], [None, rl.tensor([1.0, 10.0], device=device)])
    assert x.grad.tolist() == [5, 32]
    (g,) = grad([(x * 2).sum(), x * 3], x, [None, rl.tensor([1.0, 10.0], device=device)])
    assert g.tolist() == [5, 32]


def test_the_count_of_gradients():
    x = leaf()
    with pytest.raises(RushlightError, match=r"2 gradients were given for 1 roots.*mul"):
        backward([x * 2], [rl.ones(2), rl.ones(2)])
    with pytest.raises(RushlightError, match="1 gradients were given for 2 roots"):
        grad([x * 2, x * 3], x, [rl.ones(2)])


def test_a_gradient_of_another_shape_type_or_device(require_device):
    require_device("webgpu")
    x = leaf()
    z = rl.ones(2, dtype=rl.complex64, requires_grad=True)
    for root, gradient, error in [
        (x * 2, rl.ones(1), ShapeError),
        (x * 2, rl.ones(2, 1), ShapeError),
        (x * 2, rl.ones(2, dtype=rl.complex64), DTypeError),
        (z * 2, rl.ones(2), DTypeError),
        (x * 2, rl.ones(2, device="webgpu"), DeviceError),
        (x * 2, 1.0, TypeError),
    ]:
        with pytest.raises(error, match="the result of mul"):
            root.backward(gradient)
    with pytest.raises(ShapeError, match="a leaf"):
        x.backward(rl.ones(3))
    (x * 2).backward(rl.ones(2, dtype=rl.int64))  # real numbers are taken as the root's type
    assert x.grad.tolist() == [2, 2]
    assert x.grad.dtype is rl.float32


def test_a_root_without_record_is_named_by_its_place():
    x = leaf()
    with pytest.raises(NotDifferentiable, match="root 1"):
        backward([(x * 2).sum(), rl.ones(())])
    with pytest.raises(NotDifferentiable, match="root 1"):
        grad([(x * 2).sum(), rl.ones(())], x)
    with pytest.raises(RushlightError, match=r"not one number.*mul"):
        grad([x * 2], x, [None])


# ---- chosen inputs ----


def test_backward_into_values_that_are_no_leaves(device):
    x = leaf(device=device)
    h = x * 2
    h.sum().backward(inputs=[h])
    assert h.grad.tolist() == [1, 1]
    assert h.retains_grad
    assert x.grad is None
    h = x * 2
    (h * h).sum().backward(inputs=[h, x])
    assert h.grad.tolist() == [4, 8]
    assert x.grad.tolist() == [8, 16]


def test_backward_into_chosen_leaves_runs_their_hooks_and_adds():
    x, y = leaf(), leaf()
    seen = []
    x.register_hook(lambda g: g * 2)
    x.register_post_accumulate_grad_hook(lambda t: seen.append(t.grad.tolist()))
    (x * y).sum().backward(inputs=x, retain_graph=True)
    (x * y).sum().backward(inputs=[x])
    assert seen == [[2, 4], [4, 8]]
    assert y.grad is None
    (x * 2).sum().backward(inputs=[y])  # not part of the graph: nothing happens
    assert y.grad is None


def test_inputs_must_be_there_and_require_gradients():
    x = leaf()
    with pytest.raises(RushlightError, match="empty"):
        (x * 2).sum().backward(inputs=[])
    with pytest.raises(NotDifferentiable, match="does not require"):
        (x * 2).sum().backward(inputs=[rl.ones(2)])
    with pytest.raises(NotDifferentiable, match="input 1"):
        grad((x * 2).sum(), [x, rl.ones(2)], allow_unused=True)


def test_unused_inputs_as_none_or_zeros(device):
    x, z = leaf(device=device), rl.ones(3, requires_grad=True, device=device)
    with pytest.raises(NotDifferentiable, match="input 1"):
        grad((x * 2).sum(), [x, z])
    assert grad((x * 2).sum(), [x, z], allow_unused=True)[1] is None
    zeros = grad((x * 2).sum(), [x, z], materialize_grads=True)[1]
    assert zeros.tolist() == [0, 0, 0]
    assert zeros.device == device
    with pytest.raises(ValueError, match="materialize_grads"):
        grad((x * 2).sum(), [x, z], materialize_grads=True, allow_unused=False)


def test_zeros_in_place_of_unused_gradients_can_be_differentiated():
    x, z = leaf(), leaf()
    parts = grad((x * x).sum(), [x, z], create_graph=True, materialize_grads=True)
    (second,) = grad([p.sum() for p in parts], x)
    assert second.tolist() == [2, 2]


# ---- batches of gradients ----


def test_a_batch_of_gradients_in_one_pass(device):
    x, z = leaf(device=device), leaf(device=device)
    y, s = x * x, (x * 3).sum()
    batch = rl.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], device=device)
    seen = []
    y.register_hook(lambda g: seen.append(1))
    (g,) = grad(y, x, batch, is_grads_batched=True, retain_graph=True)
    assert g.tolist() == [[2, 0], [0, 4], [2, 4]]
    assert len(seen) == 1
    (g,) = grad(
        [y, s], x, [batch, rl.arange(3.0, device=device)], is_grads_batched=True, retain_graph=True
    )
    assert g.tolist() == [[2, 0], [3, 7], [8, 10]]
    none, g = grad(y, [z, x], batch, is_grads_batched=True, retain_graph=True, allow_unused=True)
    assert none is None
    assert g.shape == (3, 2)
    zeros, g = grad(
        y, [z, x], batch, is_grads_batched=True, create_graph=True, materialize_grads=True
    )
    assert not zeros.any()
    assert grad(g.sum(), x)[0].tolist() == [4, 4]


def test_a_whole_jacobian_as_a_batch():
    rl.manual_seed(0)
    x = rl.randn(4, dtype=rl.float64, requires_grad=True)
    y = (rl.randn(3, 4, dtype=rl.float64) @ x).softmax(0) * x[:3].exp()
    (rows,) = grad(y, x, rl.eye(3, dtype=rl.float64), is_grads_batched=True, retain_graph=True)
    for i in range(3):
        (row,) = grad(y[i], x, retain_graph=True)
        assert rows[i].tolist() == pytest.approx(row.tolist(), rel=1e-12)


def test_a_batch_of_gradients_must_fit():
    x = leaf()
    y, s = x * x, x.sum()
    with pytest.raises(ShapeError, match="mul"):
        grad(y, x, rl.ones(2), is_grads_batched=True)
    with pytest.raises(ValueError, match="size"):
        grad([y, s], x, [rl.ones(3, 2), rl.ones(2)], is_grads_batched=True)
    for given in (None, [rl.ones(3, 2), None]):
        with pytest.raises(RushlightError, match="is_grads_batched"):
            grad([y, s], x, given, is_grads_batched=True)


# ---- edges in place of tensors ----


def test_gradient_edges_stand_for_tensors():
    x = leaf()
    h = x * 2
    _, second = Two.apply(h)
    (g,) = grad(graph.get_gradient_edge(h), [x], rl.tensor([1.0, 5.0]), retain_graph=True)
    assert g.tolist() == [2, 10]
    (g,) = grad((h * h).sum(), [graph.get_gradient_edge(h)])
    assert g.tolist() == [4, 8]
    edge = graph.get_gradient_edge(second)
    assert edge.output_nr == 1
    backward(edge, rl.ones(2))
    assert x.grad.tolist() == [14, 14]
    assert graph.get_gradient_edge(x).node.variable is x
    (g,) = grad((x * 7).sum(), [graph.get_gradient_edge(x)])
    assert g.tolist() == [7, 7]
    with pytest.raises(NotDifferentiable, match="does not require"):
        graph.get_gradient_edge(rl.ones(2))


# ---- gradients as a result ----


def test_gradients_of_every_value(device):
    x, y = leaf(device=device), leaf(3.0, 4.0, device=device)
    h = x * y
    root = (h * h).sum()
    found = gradients(root)
    assert found[x].tolist() == [18, 64]
    assert found[y].tolist() == [6, 32]
    assert found[h].tolist() == [6, 16]
    assert found[root].item() == 1
    assert x.grad is None
    assert y.grad is None
    assert {id(t) for t in found} == {id(x), id(y)}
    assert len(found) == 2
    assert h in found
    assert found.get(rl.ones(2)) is None


def test_gradients_has_clear_key_errors():
    x, z = leaf(), leaf()
    h = x * 2
    found = gradients(h.sum(), of=[x])
    with pytest.raises(KeyError, match="does not require"):
        found[rl.ones(2)]
    with pytest.raises(KeyError, match="not asked for"):
        found[h]
    with pytest.raises(KeyError, match="do not depend"):
        gradients((x * 2).sum())[z]
    assert z not in gradients((x * 2).sum())


def test_gradients_with_given_gradients_and_several_roots():
    x = leaf()
    h = x * 2
    found = gradients([h, h.sum()], [rl.tensor([1.0, 10.0]), None])
    assert found[h].tolist() == [2, 11]
    assert found[x].tolist() == [4, 22]


def test_gradients_of_some_run_only_what_leads_there():
    x, y = leaf(), leaf()
    h = x * 2
    seen = []
    y.register_hook(lambda g: seen.append(g))
    found = gradients((h * y).sum(), of=[h])
    assert found[h].tolist() == [1, 2]
    assert list(found) == [h]
    assert seen == []
    with pytest.raises(NotDifferentiable, match="tensor 0"):
        gradients((x * 2).sum(), of=rl.ones(2))


def test_gradients_can_be_differentiated_and_graphs_kept():
    x = leaf()
    h = x * x
    y = (h * h).sum()
    found = gradients(y, create_graph=True)
    assert gradients(found[x].sum(), retain_graph=True)[x].tolist() == [12, 48]
    assert grad(found[h].sum(), h)[0].tolist() == [2, 2]
    assert gradients(y)[x].tolist() == [4, 32]
    with pytest.raises(GraphFreedError):
        gradients(y)


def test_gradients_of_results_and_of_rewritten_values():
    x = leaf()
    low, high = Two.apply(x)
    found = gradients((low * 3 + high * 5).sum())
    assert (found[low].tolist(), found[high].tolist()) == ([3, 3], [5, 5])
    assert found[x].tolist() == [3 * 3 + 7 * 5] * 2
    h = x * 2
    before = graph.get_gradient_edge(h)
    h.mul_(10)
    found = gradients(h.sum())
    assert found[h].tolist() == [1, 1]
    assert found[before].tolist() == [10, 10]


def test_gradients_do_not_change_each_other():
    x, y = leaf(), leaf()
    a = x + y
    found = gradients((a + a * 2 + x).sum())
    assert found[a].tolist() == [3, 3]
    assert found[x].tolist() == [4, 4]
    assert found[y].tolist() == [3, 3]


# ---- whose memory ----


def test_the_external_gradient_is_never_written():
    given = rl.ones(2)
    x, y = leaf(), leaf()
    h = x + y
    backward([h, h + 0, h], [given, given, given])
    assert given.tolist() == [1, 1]
    assert given._version == 0
    assert x.grad.tolist() == [3, 3]
    x.grad.zero_()
    assert given.tolist() == [1, 1]
    assert y.grad.tolist() == [3, 3]
    x.grad = None
    x.backward(given)
    (x * 2).sum().backward()
    assert given.tolist() == [1, 1]
    assert x.grad.tolist() == [3, 3]


def test_what_hooks_keep_is_not_written(device):
    x, y = leaf(device=device), leaf(device=device)
    h = x + y
    kept = []
    h.register_hook(kept.append)
    h.grad_fn.register_prehook(lambda outs: kept.extend(outs))
    h.grad_fn.register_hook(lambda ins, outs: kept.extend(ins))
    x.register_hook(kept.append)
    for _ in range(2):
        (h * 2 + x).sum().backward(retain_graph=True)
    assert [g.tolist() for g in kept] == [[2, 2], [2, 2], [2, 2], [2, 2], [3, 3]] * 2
    assert x.grad.tolist() == [6, 6]
    assert y.grad.tolist() == [4, 4]


def test_one_gradient_object_for_two_leaves():
    class Same(Function):
        @staticmethod
        def forward(ctx, x, y):
            return x * 1 + y

        @staticmethod
        def backward(ctx, g):
            g = g * 2
            return g, g

    x, y = leaf(), leaf()
    (Same.apply(x, y) + x).sum().backward()
    assert x.grad.tolist() == [3, 3]
    assert y.grad.tolist() == [2, 2]
    y.grad.zero_()
    assert x.grad.tolist() == [3, 3]


def test_an_assigned_gradient_is_added_to_where_it_lies():
    # As in PyTorch: parts of one flat buffer may be the gradients of many leaves.
    flat = rl.zeros(4)
    x, y = leaf(), leaf()
    x.grad, y.grad = flat[:2], flat[2:]
    (x * 2 + y * 3).sum().backward()
    assert flat.tolist() == [2, 2, 3, 3]


def test_an_expanded_gradient_is_not_written():
    one = rl.ones(1)
    x = leaf()
    x.grad = one.expand(2)
    (x * rl.tensor([2.0, 3.0])).sum().backward()
    assert x.grad.tolist() == [3, 4]
    assert one.tolist() == [1]
    h = leaf()
    h.expand(3, 2).backward(rl.ones(1).expand(3, 2))
    assert h.grad.tolist() == [3, 3]
    h.grad.add_(1)
    assert h.grad.tolist() == [4, 4]


def test_the_gradient_of_a_root_that_is_a_leaf_s_view():
    x = leaf()
    x.view(2, 1).backward(rl.ones(2, 1))
    x.grad.add_(1)
    assert x.grad.tolist() == [2, 2]


def test_a_gradient_that_is_assigned_is_checked(require_device):
    require_device("webgpu")
    x = leaf()
    for wrong, error in [
        (rl.ones(3), ShapeError),
        (rl.ones(2, dtype=rl.float64), DTypeError),
        (rl.ones(2, device="webgpu"), DeviceError),
        (3, TypeError),
        (x, RushlightError),
    ]:
        with pytest.raises(error, match="grad"):
            x.grad = wrong
    plain, h = rl.ones(2), x * 2
    plain.grad = h.grad = rl.zeros(2)
    assert plain.grad.tolist() == h.grad.tolist() == [0, 0]
    del plain.grad
    assert plain.grad is None


def test_a_frozen_leaf_keeps_its_gradient():
    x = leaf()
    (x * 2).sum().backward()
    x.requires_grad_(False)
    assert x.grad.tolist() == [2, 2]
    x.requires_grad_()
    (x * 2).sum().backward()
    assert x.grad.tolist() == [4, 4]


# ---- results of derivatives ----


def test_what_a_function_s_backward_gives_is_checked(require_device):
    require_device("webgpu")

    class Odd(Function):
        @staticmethod
        def forward(ctx, number, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return None, Odd.give(g)

    x = leaf()
    for give, error in [
        (lambda g: rl.ones(3), ShapeError),
        (lambda g: rl.ones(1), ShapeError),
        (lambda g: g + 0j, DTypeError),
        (lambda g: g.to("webgpu"), DeviceError),
        (lambda g: 3.0, TypeError),
    ]:
        Odd.give = staticmethod(give)
        with pytest.raises(error, match=r"Odd.*argument 1") as caught:
            Odd.apply(1, x).sum().backward()
        assert any("test_backward.py" in note for note in caught.value.__notes__)
    # Summed and cast to the input.
    Odd.give = staticmethod(lambda g: rl.ones(4, 2, dtype=rl.float64))
    Odd.apply(1, x).sum().backward()
    assert x.grad.tolist() == [4, 4]
    assert x.grad.dtype is rl.float32


# ---- a graph is freed by its pass ----


class Square(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        return g * 2 * ctx.saved_tensors[0]


@pytest.mark.parametrize(
    "make",
    [
        lambda x: x.exp(),
        lambda x: (x * 2).view(2, 1)[0].exp(),
        lambda x: Square.apply(x),
        lambda x: checkpoint(lambda t: (t.sin() * t).exp(), x),
        lambda x: (x * x).unbind()[0],
        lambda x: (x * 2).softmax(0),
        lambda x: x.clone().mul_(x),
    ],
    ids=["elementwise", "view", "function", "checkpoint", "unbind", "softmax", "inplace"],
)
def test_a_second_pass_is_an_error_in_all_ways(make):
    x = leaf()
    ways = [
        lambda y: y.backward(),
        lambda y: backward([y]),
        lambda y: y.backward(inputs=[x]),
        lambda y: grad(y, x),
        lambda y: gradients(y),
    ]
    for first in ways:
        y = make(x).sum()
        first(y)
        for again in ways:
            with pytest.raises(GraphFreedError, match="retain_graph"):
                again(y)
    y = make(x).sum()
    want = grad(y, x, retain_graph=True)[0].tolist()
    assert gradients(y, retain_graph=True)[x].tolist() == want
    assert grad(y, x)[0].tolist() == want


def test_a_budget_s_graph_is_gone_too():
    x = leaf()
    with rl.memory.budget("64MiB"):
        y = (x * x).exp().sum()
        y.backward()
        with pytest.raises(GraphFreedError, match="retain_graph"):
            y.backward()


def test_no_inputs_is_an_error():
    with pytest.raises(RushlightError, match="inputs is empty"):
        grad(leaf(1.0) * 2, [])


def test_what_is_refused_and_what_is_not() -> None:
    x = rl.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="empty"):
        rl.autograd.grad((x * 2).sum(), [])
    with pytest.raises(RuntimeError):
        x.numpy()
    with rl.no_grad():
        assert x.numpy().tolist() == [1.0, 1.0]
    # PyTorch's class for an op without a derivative.
    assert issubclass(rl.NotDifferentiable, NotImplementedError)
