"""autograd.Function: gradients the user writes, to second order, with saves that are checked and
given back.
"""

from __future__ import annotations

import pytest

import rushlight as rl
from rushlight import InplaceError, RushlightError
from rushlight.autograd import Function, grad


class Cube(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * 3 * x * x


class Exp(Function):
    @staticmethod
    def forward(x, factor):
        return (x * factor).exp()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.factor = inputs[1]
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, g):
        return g * ctx.saved_tensors[0] * ctx.factor, None


def test_gradients_to_second_order():
    x = rl.tensor([1.0, 2.0], requires_grad=True)
    y = Cube.apply(x)
    assert y.tolist() == [1, 8]
    (g,) = grad(y.sum(), x, create_graph=True)
    assert g.tolist() == [3, 12]
    (second,) = grad(g.sum(), x)
    assert second.tolist() == [6, 12]


def test_a_saved_result_and_a_number():
    x = rl.tensor([0.5], requires_grad=True)
    (g,) = grad(Exp.apply(x, 2.0).sum(), x, create_graph=True)
    (second,) = grad(g.sum(), x)
    assert second.item() == pytest.approx(4 * 2.718281828, rel=1e-6)


def test_several_results_and_missing_gradients():
    class Split(Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.mark_non_differentiable(count := rl.tensor([1.0]))
            return x + y, x - y, count

        @staticmethod
        def backward(ctx, a, b, c):
            return a + b, a - b

    x, y = rl.ones(2, requires_grad=True), rl.ones(2, requires_grad=True)
    first, second, count = Split.apply(x, y)
    assert not count.requires_grad
    (first * 3).sum().backward()
    assert x.grad.tolist() == [3, 3]
    assert y.grad.tolist() == [3, 3]
    assert second.requires_grad


def test_gradients_that_do_not_come_may_be_none():
    seen = []

    class Pair(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            return x * 1, x * 2

        @staticmethod
        def backward(ctx, a, b):
            seen.append((a, b is None))
            return a

    x = rl.ones(2, requires_grad=True)
    Pair.apply(x)[0].sum().backward()
    assert seen[0][1]
    assert x.grad.tolist() == [1, 1]


def test_writes_are_said():
    class Doubled(Function):
        @staticmethod
        def forward(ctx, x, honest):
            if honest:
                ctx.mark_dirty(x)
            return x.mul_(2)

        @staticmethod
        def backward(ctx, g):
            return g * 2, None

    leaf = rl.ones(2, requires_grad=True)
    h = leaf * 1
    assert Doubled.apply(h, True) is h
    (h * h).sum().backward()
    assert leaf.grad.tolist() == [8, 8]
    with pytest.raises(InplaceError, match="mark_dirty"):
        Doubled.apply(leaf * 1, False)


def test_an_input_handed_back_keeps_its_own_record():
    class Scaled(Function):
        @staticmethod
        def forward(ctx, x):
            return x

        @staticmethod
        def backward(ctx, g):
            return g * 10

    x = rl.ones(2, requires_grad=True)
    y = Scaled.apply(x)
    assert y is not x
    assert x.is_leaf
    (y + x).sum().backward()
    assert x.grad.tolist() == [11, 11]


def test_gradients_are_not_added_into_the_users_memory():
    class Passing(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * 1

        @staticmethod
        def backward(ctx, g):
            return ctx.saved_tensors[0]

    x = rl.tensor([1.0, 2.0], requires_grad=True)
    h = x * 1
    (Passing.apply(h) + h * 3 + h).sum().backward()
    assert h.tolist() == [1, 2]
    assert x.grad.tolist() == [5, 6]


def test_saves_are_checked_and_given_back():
    x = rl.ones(2, requires_grad=True)
    h = x * 1
    y = Cube.apply(h)
    h.mul_(2)
    with pytest.raises(InplaceError):
        y.sum().backward()
    y = Cube.apply(x)
    y.sum().backward()
    with pytest.raises(RushlightError):
        y.sum().backward()


def test_errors():
    class Short(Function):
        @staticmethod
        def forward(ctx, x, y):
            return x * y

        @staticmethod
        def backward(ctx, g):
            return g

    x = rl.ones(2, requires_grad=True)
    with pytest.raises(RushlightError, match="2 arguments"):
        Short.apply(x, x).sum().backward()
    with rl.no_grad():
        assert not Cube.apply(x).requires_grad


def test_in_a_checkpoint():
    x = rl.tensor([1.0, 2.0], requires_grad=True)
    y = rl.utils.checkpoint.checkpoint(lambda v: Cube.apply(v * 2).sin(), x)
    (g,) = grad(y.sum(), x)
    plain = x.detach().requires_grad_()
    (want,) = grad(((plain * 2) ** 3).sin().sum(), plain)
    assert g.tolist() == pytest.approx(want.tolist(), rel=1e-5)


def test_a_second_derivative_through_once_differentiable_is_refused():
    """It must not count as a constant: the sum would be silently wrong."""

    class Once(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        @rl.autograd.once_differentiable
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return 3 * x * x * g

    x = rl.tensor([2.0], requires_grad=True)
    (g,) = grad((Once.apply(x) + x * x).sum(), x, create_graph=True)
    assert g.tolist() == [16]
    with pytest.raises(rl.NotDifferentiable, match="once_differentiable"):
        grad(g.sum(), x)
    (g,) = grad(Once.apply(x).sum(), x)
    assert not g.requires_grad


def test_a_saved_view_starts_where_it_did(device):
    class Square(rl.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * 2 * x

    x = rl.tensor([[1.0, 2.0], [3.0, 4.0]], device=device, requires_grad=True)
    Square.apply(x[1]).sum().backward()
    assert x.grad.tolist() == [[0.0, 0.0], [6.0, 8.0]]


def test_to_second_order_in_a_checkpoint():
    def function(v):
        return Exp.apply(Cube.apply(v * 2), 0.1).sin()

    def derivatives(run):
        x = rl.tensor([0.5, 1.0], requires_grad=True)
        (first,) = grad(run(x).sum(), x, create_graph=True)
        return first.tolist(), grad(first.sum(), x)[0].tolist()

    want = derivatives(function)
    assert derivatives(lambda x: rl.utils.checkpoint.checkpoint(function, x)) == want


class Kept(Function):
    """Twice the operand; the gradient that backward gives stays in the list `gave`, or not."""

    gave = None

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        made = g * 2
        if Kept.gave is not None:
            Kept.gave.append(made if len(Kept.gave) % 2 else made.view(-1))
        Kept.made_at = made.data_ptr()
        return made


def test_a_gradient_that_the_user_keeps_is_not_written_to():
    Kept.gave = []
    try:
        x = rl.ones(3).requires_grad_()
        for _ in range(4):  # the handle is kept, and a view of it
            (Kept.apply(x) + Kept.apply(x)).sum().backward()
        assert x.grad.tolist() == [16.0] * 3
        assert [g.tolist() for g in Kept.gave] == [[2.0] * 3] * 8
        assert x.grad.data_ptr() not in [g.data_ptr() for g in Kept.gave]
    finally:
        Kept.gave = None


def test_a_gradient_that_nobody_keeps_becomes_the_leafs_without_a_copy():
    x = rl.ones(3).requires_grad_()
    Kept.apply(x).sum().backward()
    assert x.grad.tolist() == [2.0] * 3
    assert x.grad.data_ptr() == Kept.made_at and x.grad._base is None


def test_calls_of_a_kind_share_one_derivative():
    x, y = rl.ones(3).requires_grad_(), rl.ones(3).requires_grad_()
    first, second = Cube.apply(x), Cube.apply(y)
    assert first._node.grad is second._node.grad
    (first * 2 + second).sum().backward()  # each with its own context
    assert x.grad.tolist() == [6.0] * 3 and y.grad.tolist() == [3.0] * 3
