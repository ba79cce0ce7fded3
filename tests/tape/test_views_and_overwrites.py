"""Views and writes on the tape: overlapping views, overwritten values, views of all elements,
`.data`.
"""

from __future__ import annotations

import pytest

import rushlight as rl
from rushlight.autograd import grad
from rushlight.core.errors import RushlightError


def leaf(*numbers):
    return rl.tensor(list(numbers), dtype=rl.float64, requires_grad=True)


@pytest.mark.parametrize("write", [lambda y, v: y.copy_(v), lambda y, v: y.fill_(v[0])])
def test_what_is_overwritten_has_a_gradient_of_zeros(write):
    x, v = leaf(1, 2), leaf(3, 4)
    y = x * 1
    write(y, v)
    y.sum().backward()
    assert x.grad.tolist() == [0, 0]
    assert v.grad.sum() == 2


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
    for _ in range(3):  # the function, then its cached program
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
    with pytest.raises(
        RushlightError, match=r"a leaf float32\[3\] whose \.data has become float64\[2\]"
    ):
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


def test_view_copy_of_what_lies_otherwise():
    x = rl.arange(6.0).reshape(2, 3).t()
    assert rl.view_copy(x, (2, 3)).tolist() == x.reshape(2, 3).tolist()


def test_zero_gradient_of_a_strided_tensor_stays_in_its_memory(device):
    """The gradient of a step function is zeros; they must not take the strides of its operand."""
    base = rl.ones(64, 40, device=device).requires_grad_()
    base[:, ::2].sign().sum().backward()
    assert float(base.grad.abs().sum()) == 0


def test_overwriting_gives_zero_gradients(device):
    x = rl.tensor([1.0, 2.0, 3.0], device=device).requires_grad_()
    y = x * 2
    y.zero_()
    assert y.requires_grad
    (y + x).sum().backward()
    assert x.grad.tolist() == [1, 1, 1]


def test_overwriting_a_view_gives_zero_gradients_there(device):
    x = rl.tensor([1.0, 2.0, 3.0], device=device).requires_grad_()
    y = x * 2
    view = y[1:]
    view.fill_(7)
    assert view.requires_grad
    y[0] = 5
    y[0:1].copy_(rl.tensor([4.0], device=device))
    (y * y).sum().backward()
    assert y.tolist() == [4, 7, 7]
    assert x.grad.tolist() == [0, 0, 0]


def test_expanded_views_are_written_where_that_means_one_thing():
    x = rl.zeros(3, 1)
    x.expand(3, 4)[1, 2] = 5
    assert x.tolist() == [[0], [5], [0]]
    x.expand(3, 4).fill_(2)
    assert x.tolist() == [[2], [2], [2]]
    for write in (lambda: x.expand(3, 4).copy_(rl.ones(3, 4)), lambda: x.expand(3, 4).mul_(2)):
        with pytest.raises(RuntimeError, match="share"):
            write()


def test_as_strided_of_elements_that_share_memory():
    x = rl.arange(5.0, dtype=rl.float64, requires_grad=True)
    rl.autograd.gradcheck(lambda v: v.expand(5, 5).as_strided((5, 5), (0, 1), 0), [x])
    rl.autograd.gradcheck(
        lambda v: v.as_strided((3, 2), (1, 1), 1).as_strided((2, 2), (2, 1), 1), [x]
    )
