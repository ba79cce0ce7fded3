"""Small things of the tape that people's programs meet: empty requests, strict derivatives, overwritten values, checkpoints."""

from __future__ import annotations

import contextlib

import pytest

import rushlight as rl
from rushlight.autograd import functional, grad
from rushlight.core.errors import KindError, RushlightError
from rushlight.utils.checkpoint import checkpoint, set_checkpoint_early_stop


def leaf(*numbers):
    return rl.tensor(list(numbers), dtype=rl.float64, requires_grad=True)


def test_no_inputs_is_an_error():
    with pytest.raises(RushlightError, match="inputs is empty"):
        grad(leaf(1) * 2, [])


def test_strict_with_create_graph_asks_for_a_derivative_that_depends():
    x = leaf(1, 2)
    for f in (functional.vjp, functional.jvp):
        assert f(lambda x: x**2, x, rl.ones_like(x).detach(), create_graph=True, strict=True)[1].requires_grad
        with pytest.raises(RushlightError, match="independent of the inputs"):
            f(lambda x: x * 2, x, rl.ones_like(x).detach(), create_graph=True, strict=True)
    with pytest.raises(RushlightError, match="independent of the inputs"):
        functional.jacobian(lambda x: x * 2, x, create_graph=True, strict=True)
    assert functional.jacobian(lambda x: x * 2, x, strict=True).tolist() == [[2, 0], [0, 2]]


@pytest.mark.parametrize("f", [functional.hessian, functional.hvp, functional.vhp])
def test_a_function_that_returns_no_tensor(f):
    with pytest.raises(KindError, match="must return one tensor, got float"):
        f(lambda x: 3.0, rl.ones(2))


@pytest.mark.parametrize("write", [lambda y, v: y.copy_(v), lambda y, v: y.fill_(v[0])])
def test_what_is_overwritten_has_a_gradient_of_zeros(write):
    x, v = leaf(1, 2), leaf(3, 4)
    y = x * 1
    write(y, v)
    y.sum().backward()
    assert x.grad.tolist() == [0, 0]
    assert v.grad.sum() == 2


def test_blocks_around_a_checkpoint():
    entered = []

    @contextlib.contextmanager
    def block(name):
        entered.append(name)
        yield

    x = leaf(1, 2)
    with set_checkpoint_early_stop(False):
        y = checkpoint(
            rl.sin, x, use_reentrant=False, context_fn=lambda: (block("run"), block("again")), early_stop=False
        )
    y.sum().backward()
    assert entered == ["run"]
    assert rl.equal(x.grad, x.detach().cos())


# ---- views ----

VIEWS = [
    lambda x: x.expand(2, 3),
    lambda x: x.reshape(-1).as_strided((2, 2), (0, 1)),
    lambda x: x.reshape(-1).as_strided((2, 2), (1, 1)),
    lambda x: x.reshape(-1).as_strided((3, 2), (1, 0)),
    lambda x: x.reshape(-1).unfold(0, 2, 1),
    lambda x: x.expand(4, 3)[::2],
    lambda x: x.t().expand(3, 2),
]


@pytest.mark.parametrize("view", VIEWS)
def test_an_overlapping_view_of_what_was_written_to_since(view, device):
    weight = rl.arange(12.0, device=device)[: view(rl.ones(1, 3)).numel()]

    def value(x, before):
        h = x * 1
        v = view(h) if before else None
        h.mul_(h.detach() + 2)
        v = view(h) if v is None else v
        return (v * v * weight.reshape(v.shape)).sum()

    x = rl.tensor([[1.0, 2.0, 3.0]], device=device, requires_grad=True)
    (found,) = grad(value(x, before=True), x)
    (wanted,) = grad(value(x, before=False), x)
    assert found.tolist() == wanted.tolist()


def test_overlapping_parts_of_complex_numbers():
    c = rl.tensor([[1 + 2j, 3 - 1j]], dtype=rl.complex128, requires_grad=True)
    h = c * 1
    real = h.expand(3, 2).real
    h.mul_(2)
    assert grad((real * real).sum(), c)[0].tolist() == [[24, 72]]


UNCHANGED = {
    "reshape": lambda x: x.reshape(2, 3),
    "reshape_as": lambda x: x.reshape_as(x),
    "squeeze": lambda x: x.squeeze(),
    "squeeze(0)": lambda x: rl.squeeze(input=x, dim=0),
    "expand": lambda x: x.expand(-1, 3),
    "expand_as": lambda x: x.expand_as(x),
    "broadcast_to": lambda x: rl.broadcast_to(x, (2, 3)),
    "narrow": lambda x: x.narrow(0, 0, 2),
    "chunk": lambda x: x.chunk(1)[0],
    "split": lambda x: x.split(2)[0],
    "hsplit": lambda x: x.hsplit(1)[0],
}


@pytest.mark.parametrize("name", UNCHANGED)
def test_a_view_of_all_is_another_tensor(name):
    for _ in range(3):  # the function, then what was learned of it
        x = rl.ones(2, 3, requires_grad=True)
        y = UNCHANGED[name](x)
        assert y is not x
        assert y.data_ptr() == x.data_ptr()
        assert y.grad_fn.next_functions[0][0].variable is x
        h = x * 1
        UNCHANGED[name](h).t_()
        assert h.shape == (2, 3)
        UNCHANGED[name](h)[0].mul_(2)
        assert grad(h.sum(), x)[0].tolist() == [[2, 2, 2], [1, 1, 1]]


def test_a_view_that_was_written_to_is_still_a_view_of_its_base():
    x = leaf(1, 2, 3)
    y = x * 1
    v = y[:2]
    y.retain_grad()
    v.mul_(3)
    seen = []
    y.register_hook(lambda g: seen.append(g.tolist()))
    (v * v).sum().backward(retain_graph=True)
    assert y.grad.tolist() == [6, 12, 0]
    assert seen == [[6, 12, 0]]
    assert x.grad.tolist() == [18, 36, 0]
    assert grad(v.sum(), y)[0].tolist() == [1, 1, 0]


def test_a_hook_after_the_gradient_was_added_returns_nothing():
    x = leaf(1, 2)
    handle = x.register_post_accumulate_grad_hook(lambda t: t.grad * 2)
    with pytest.raises(RushlightError, match="must return None"):
        x.sum().backward()
    handle.remove()
    assert x.grad is None  # a pass that failed changes none
    x.register_post_accumulate_grad_hook(lambda t: None)
    x.sum().backward()
    assert x.grad.tolist() == [1, 1]


def test_data_of_another_shape_or_type():
    p = rl.nn.Parameter(rl.ones(3))
    seen = []
    p.register_hook(lambda g: seen.append(g.tolist()))
    old = (p * 2).sum()
    p.data = rl.ones(2, dtype=rl.float64)
    assert (p.shape, p.dtype, p.is_leaf, p.requires_grad) == ((2,), rl.float64, True, True)
    (p * 3).sum().backward()
    assert p.grad.tolist() == [3, 3]
    assert seen == [[3, 3]]
    with pytest.raises(RushlightError, match=r"a leaf float32\[3\] whose \.data has become float64\[2\]"):
        old.backward()
    with pytest.raises(RushlightError, match="requires gradients"):
        p.data = rl.ones(2, dtype=rl.int64)
    with pytest.raises(RushlightError, match="a result with a record"):
        (p * 2).data = rl.ones(3)
    plain = rl.ones(3)
    plain.data = rl.arange(4)
    assert plain.tolist() == [0, 1, 2, 3]


def test_views_say_so():
    x = rl.ones(2, 3)
    assert x[0]._is_view()
    assert x.t()._base is x
    assert not x._is_view()
    assert not (x * 2)._is_view()


def test_prehooks_of_a_leaf_s_node_are_of_what_is_added():
    x = leaf(1)
    seen = []
    node = (x * 1).grad_fn.next_functions[0][0]
    node.register_prehook(lambda g: seen.append("before"))
    node.register_hook(lambda ins, outs: seen.append("after"))
    grad(x * 2, x)
    assert seen == []
    (x * 2).backward()
    assert seen == ["before", "after"]


def test_view_copy_of_what_lies_otherwise():
    x = rl.arange(6.0).reshape(2, 3).t()
    assert rl.view_copy(x, (2, 3)).tolist() == x.reshape(2, 3).tolist()
