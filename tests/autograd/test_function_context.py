"""autograd.Function in common styles: attributes of the context, results of forward, views,
writes.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest

import rushlight as rl
from rushlight.autograd import Function, grad
from rushlight.autograd.function import once_differentiable
from rushlight.core.errors import InplaceError, KindError, NotDifferentiable, RushlightError


def make(forward: Callable[..., Any], backward: Callable[..., Any], **others: Any) -> Any:
    members = {"forward": forward, "backward": backward, **others}
    return type("Made", (Function,), {name: staticmethod(f) for name, f in members.items()})


def leaf(*numbers: float) -> Any:
    return rl.tensor(list(numbers), dtype=rl.float64, requires_grad=True)


NAMES = [
    "constant",
    "dirty",
    "node",
    "aside",
    "materialize",
    "unpacked",
    "saves",
    "to_save",
    "left",
]


@pytest.mark.parametrize("name", NAMES)
def test_any_name_may_be_used_on_the_context(name):
    def forward(ctx, x, k):
        setattr(ctx, name, k)
        return x * k

    x = leaf(1, 2)
    make(forward, lambda ctx, g: (g * getattr(ctx, name), None)).apply(x, 3).sum().backward()
    assert x.grad.tolist() == [3, 3]


def test_backward_gets_a_place_for_every_result():
    seen = []

    def backward(ctx, *grads):
        seen.append([None if g is None else g.tolist() for g in grads])
        (y,) = ctx.saved_tensors
        return grads[1] * y

    def forward(ctx, x):
        y = x.exp()
        ctx.save_for_backward(y)
        return "name", y, 7, None

    x = leaf(0, 1)
    name, y, seven, nothing = make(forward, backward).apply(x)
    assert (name, seven, nothing) == ("name", 7, None)
    (g,) = grad(y.sum(), x, create_graph=True)
    assert seen == [[None, [1, 1], None, None]]
    # y, which was saved, is the one result with a record, not the second.
    (second,) = grad(g.sum(), x)
    assert rl.allclose(second, x.exp())


def test_results_that_are_no_tensors():
    x = leaf(1)
    for thing in (None, {"a": 1}, "text", (None, 3)):
        assert make(lambda ctx, x, thing=thing: thing, lambda ctx, *g: None).apply(x) == thing
    both = make(lambda ctx, x: [x * 2, x * 3], lambda ctx, g, h: g * 2 + h * 3).apply(x)
    assert isinstance(both, list)
    (both[0] + both[1]).backward()
    assert x.grad.tolist() == [5]


def test_names_of_arguments():
    def setup(ctx, inputs, output):
        assert len(inputs) == 2
        ctx.k = inputs[1]

    f = make(lambda x, k=4: x * k, lambda ctx, g: (g * ctx.k, None), setup_context=setup)
    x = leaf(1)
    (f.apply(x) + f.apply(x, k=3) + f.apply(k=2, x=x)).backward()
    assert x.grad.tolist() == [9]
    by_ctx = make(lambda ctx, x, *, k: x * k, lambda ctx, g: g * 5)
    assert grad(by_ctx.apply(x, k=5), x)[0].tolist() == [5]
    with pytest.raises(RushlightError, match="k= requires gradients"):
        by_ctx.apply(x, k=leaf(1))


def test_what_is_given_is_checked():
    x = leaf(1, 2)
    with pytest.raises(RushlightError, match="argument 1 of forward, which was no tensor"):
        make(lambda ctx, x, k: x * k, lambda ctx, g: (g, g)).apply(x, 2.0).sum().backward()
    with pytest.raises(KindError, match="float"):
        make(lambda ctx, x: x * 2, lambda ctx, g: 1.0).apply(x).sum().backward()
    for method in (
        "save_for_backward",
        "save_for_forward",
        "mark_dirty",
        "mark_non_differentiable",
    ):
        with pytest.raises(KindError, match=f"{method}: takes tensors, got int"):
            make(lambda ctx, x, m=method: getattr(ctx, m)(3), lambda ctx, g: g).apply(x)
    with pytest.raises(RushlightError, match=r"call Made\.apply"):
        make(lambda ctx, x: x, lambda ctx, g: g)()(x)


def test_vjp_is_another_name_of_backward():
    x = leaf(1)
    type(
        "Other",
        (Function,),
        {"forward": staticmethod(lambda ctx, x: x * 2), "vjp": staticmethod(lambda ctx, g: g * 2)},
    ).apply(x).backward()
    assert x.grad.tolist() == [2]
    with pytest.raises(RushlightError, match="two names"):
        make(lambda ctx, x: x * 2, lambda ctx, g: g, vjp=lambda ctx, g: g).apply(x).backward()


def test_the_record_shows_the_context():
    def forward(ctx, x, k):
        ctx.k = k
        y = x.exp()
        ctx.save_for_backward(x, None, y)
        return y

    x = leaf(0, 1)
    y = make(forward, lambda ctx, g: (g, None)).apply(x, 5)
    assert y.grad_fn.k == 5
    assert y.grad_fn.needs_input_grad == (True, False)
    kept_x, none, kept_y = y.grad_fn.saved_tensors
    assert none is None
    assert kept_x.tolist() == x.tolist()
    assert kept_y.tolist() == y.tolist()
    assert not hasattr(y.grad_fn, "other")
    assert not hasattr((x * 2).grad_fn, "k")


# ---- the second derivative through values that were not saved ----


def test_once_differentiable_with_what_was_not_saved():
    def forward(ctx, x):
        ctx.x = x.detach()
        return x**3

    f = make(forward, once_differentiable(lambda ctx, g: g * 3 * ctx.x**2))
    x = leaf(2)
    (g,) = grad(f.apply(x), x, create_graph=True)
    assert g.item() == 12
    with pytest.raises(NotDifferentiable, match="once_differentiable"):
        g.backward()


# ---- views and writes ----


def test_an_argument_handed_back_is_a_view_of_it():
    f = make(lambda ctx, x: x, lambda ctx, g: g * 5)
    plain = rl.ones(2)
    assert f.apply(plain) is not plain
    x = leaf(1, 2)
    with pytest.raises(InplaceError, match="leaf"):
        f.apply(x).mul_(3)
    h = x * 1
    y = f.apply(h)
    y.mul_(3)
    assert h.tolist() == [3, 6]
    assert grad(h.sum(), x)[0].tolist() == [15, 15]


def test_a_view_that_forward_gave_and_a_write_to_what_it_shows():
    f = make(lambda ctx, x: x[:1], lambda ctx, g: rl.cat([g * 5, g * 0]))
    x = leaf(1, 2)
    h = x * 1
    y = f.apply(h)
    h.mul_(3)
    with pytest.raises(InplaceError, match=r"Made: its result .* is a view of an argument"):
        (y * 2).sum()


def test_a_write_to_a_view_by_a_function():
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.exp_()

    f = make(forward, lambda ctx, g: g)
    x = leaf(1, 2)
    h = x * 1
    v = h[:1]
    assert f.apply(v) is v
    assert rl.allclose(h, rl.tensor([rl.tensor(1.0).double().exp().item(), 2.0], dtype=rl.float64))
    assert grad((h * rl.tensor([10.0, 20.0]).double()).sum(), x)[0].tolist() == [10, 20]
    with pytest.raises(InplaceError, match="leaf"):
        f.apply(x[:1])


def test_a_saved_argument_that_was_written_to_is_the_result():
    def forward(ctx, x):
        ctx.mark_dirty(x)
        x.exp_()
        ctx.save_for_backward(x)
        return x

    f = make(forward, lambda ctx, g: g * ctx.saved_tensors[0])
    x = leaf(0.5)
    (g,) = grad(f.apply(x * 2), x, create_graph=True)
    (second,) = grad(g, x)
    assert rl.allclose(second, 4 * (2 * x).exp())


def test_what_is_dirty_is_returned():
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2) * 3

    with pytest.raises(InplaceError, match="not among the results"):
        make(forward, lambda ctx, g: g).apply(leaf(1) * 1)


@pytest.mark.parametrize("mode", [rl.no_grad, rl.inference_mode])
def test_a_view_made_where_nothing_is_recorded_is_not_written_to_where_it_is(mode):
    x = leaf(1, 2)
    h = x * 1
    with mode():
        v = h[:1]
    with pytest.raises(InplaceError, match="a view that was made under no_grad"):
        v.mul_(3)
    with pytest.raises(InplaceError, match="a view that was made under no_grad"):
        v[0] = 3
    with rl.no_grad():
        v.mul_(3)
    assert h.tolist() == [3, 2]


def test_a_dirty_view_may_be_written_to_again():
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)

    x = leaf(1, 2)
    h = x * 1
    v = make(forward, lambda ctx, g: g * 2).apply(h.view(2))
    h.mul_(3)
    assert v.tolist() == [6, 12]
    assert grad((v * v).sum(), x)[0].tolist() == [72, 144]


def test_a_function_s_results_are_freed_without_the_collector():
    def forward(ctx, x):
        ctx.mark_dirty(x)
        ctx.save_for_backward(x)
        return x.mul_(2)

    gc.collect()
    gc.disable()
    try:
        y = make(forward, lambda ctx, g: g * 2).apply(leaf(1, 2) * 1)
        z = make(lambda ctx, x: (ctx.mark_non_differentiable(x), x * 2)[1], lambda ctx, g: g).apply(
            leaf(1) * 1
        )
        nodes = [weakref.ref(y.grad_fn), weakref.ref(z.grad_fn)]
        del y, z
        assert [node() for node in nodes] == [None, None]
    finally:
        gc.enable()


def test_results_of_all_kinds_under_vmap():
    def forward(ctx, x, k):
        ctx.save_for_backward(x)
        ctx.k = k
        return "name", x * k, 3, x.sin()

    def backward(ctx, name, g, three, h):
        assert name is three is None
        return g * ctx.k + h * ctx.saved_tensors[0].cos(), None

    f = make(forward, backward)

    def value(x):
        _, a, _, b = f.apply(x, 5.0)
        return (a * a).sum() + b.sum()

    x = rl.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=rl.float64)
    found = rl.func.vmap(rl.func.grad(value))(x)
    assert rl.allclose(found, 50 * x + x.cos())
    same = make(lambda ctx, x: x, lambda ctx, g: g * 7)
    assert (
        rl.func.vmap(rl.func.grad(lambda v: (same.apply(v) * 2).sum()))(x).tolist()
        == [[14, 14]] * 2
    )
