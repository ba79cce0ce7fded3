"""Tensor's methods beside the ops: in-place forms, operators, in-place views, layouts, metadata."""

from __future__ import annotations

import numpy as np
import pytest

import rushlight as rl
from rushlight import InplaceError, RushlightError, ShapeError
from rushlight.ops.registry import REGISTRY

UNARY = [
    "abs absolute acos asin atan ceil cos cosh deg2rad erf erfc exp exp2 expm1 fix floor frac "
    "lgamma log log10 log1p log2",
    "logical_not neg negative rad2deg reciprocal relu round rsqrt sgn sigmoid sign sin sinc sinh "
    "sqrt square tan tanh trunc",
    "nan_to_num digamma tril triu logit erfinv acosh asinh atanh",
]
BINARY = (
    "add sub mul div divide true_divide multiply subtract eq ne lt le gt ge greater greater_equal "
    "less less_equal"
)
BINARY += (
    " not_equal logical_and logical_or logical_xor pow floor_divide remainder fmod atan2 arctan2 "
    "hypot copysign xlogy"
)
X = [[0.25, 0.5, 0.75], [0.125, 0.875, 0.5]]
Y = [[0.5, 0.5, 0.25], [0.125, 2.0, 0.75]]


@pytest.mark.parametrize("name", " ".join(UNARY).split())
def test_in_place_is_the_op_stored(name):
    x = rl.tensor(X)
    want = getattr(x, name)()
    got = getattr(x, f"{name}_")()
    assert got is x
    np.testing.assert_array_equal(x.numpy(), want.numpy().astype(np.float32))


@pytest.mark.parametrize("name", BINARY.split())
def test_in_place_of_two_is_the_op_stored(name):
    for other in (rl.tensor(Y), 0.5):
        x = rl.tensor(X)
        want = getattr(x, name)(other)
        version = x._version
        assert getattr(x, f"{name}_")(other) is x
        assert x._version > version
        assert x.dtype is rl.float32
        np.testing.assert_array_equal(x.numpy(), want.numpy().astype(np.float32))


def test_every_declared_in_place_form_is_there():
    assert not [n for n, e in REGISTRY.items() if e.inplace and not hasattr(rl.Tensor, f"{n}_")]
    assert not [n for n, e in REGISTRY.items() if e.inplace_top and not hasattr(rl, f"{n}_")]


def test_rounding_modes_and_decimals():
    x = rl.tensor([7.0, -7.0, 5.5])
    assert x.clone().div_(2, rounding_mode="floor").tolist() == [3.0, -4.0, 2.0]
    assert x.clone().divide_(2, rounding_mode="trunc").tolist() == [3.0, -3.0, 2.0]
    assert rl.tensor([7, -7]).div_(2, rounding_mode="trunc").tolist() == [3, -3]
    with pytest.raises(rl.DTypeError):
        rl.tensor([7, -7]).div_(2)
    np.testing.assert_allclose(
        rl.tensor([1.2345, -0.055]).round(decimals=2).tolist(), [1.23, -0.06], rtol=1e-6
    )
    assert rl.tensor([1250.0, 149.0]).round_(decimals=-2).tolist() == [1200.0, 100.0]
    with pytest.raises(RushlightError, match="decimals"):
        rl.tensor([12]).round(decimals=-1)


def test_operators_with_a_number_on_the_left_and_in_place():
    x = rl.tensor([6, 3, 12])
    assert (5 & x).tolist() == [4, 1, 4]
    assert (9 | x).tolist() == [15, 11, 13]
    assert (5 ^ x).tolist() == [3, 6, 9]
    assert (1 << rl.tensor([1, 2, 3])).tolist() == [2, 4, 8]
    assert (64 >> rl.tensor([1, 2, 3])).tolist() == [32, 16, 8]
    y = x
    y &= 6
    y |= 1
    y ^= 2
    y <<= 3
    y >>= 1
    assert y is x
    assert x.tolist() == [20, 4, 28]
    z = rl.tensor([7.0, -7.0])
    w = z
    w //= 2
    assert w is z
    assert z.tolist() == [3.0, -4.0]
    z %= 3
    z **= 2
    z -= 1
    assert z.tolist() == [-1.0, 3.0]
    with pytest.raises(TypeError, match="unsupported operand"):
        "text" @ rl.tensor([[1.0]])


def test_reversed_and_complex_of_one_element():
    assert list(reversed(rl.tensor([[1, 2], [3, 4]])).flatten().tolist()) == [3, 4, 1, 2]
    assert complex(rl.tensor(2.5)) == 2.5 + 0j


# ---- views in place ----


def test_a_view_in_place_changes_what_the_handle_sees():
    x = rl.arange(6.0).reshape(2, 3).clone()
    at = x.data_ptr()
    assert x.t_() is x
    assert (x.shape, x.stride(), x.data_ptr()) == ((3, 2), (1, 3), at)
    x.unsqueeze_(0).squeeze_(0).transpose_(0, 1).swapaxes_(0, 1).swapdims_(0, 1)
    assert x.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert x.as_strided_((2, 2), (1, 2), 1).tolist() == [[1, 3], [2, 4]]
    assert (x + 1).tolist() == [[2, 4], [3, 5]]


def test_a_view_in_place_is_differentiated():
    leaf = rl.arange(6.0).reshape(2, 3).clone().requires_grad_()
    h = leaf * 2
    h.t_()
    weights = rl.arange(6.0).reshape(3, 2)
    (h * weights).sum().backward()
    assert leaf.grad.tolist() == (weights.t() * 2).tolist()


def test_writes_after_a_view_in_place_reach_older_and_newer_views():
    def run(in_place: bool) -> list:
        leaf = rl.arange(6.0).requires_grad_()
        h = (leaf * 1).reshape(2, 3) if not in_place else (leaf * 1).reshape(2, 3).clone()
        old = h[0]
        h = h.t() if not in_place else h.t_()
        new = h[1]
        new.mul_(3.0)
        old.mul_(5.0)
        h.add_(leaf[0])
        total = (h * rl.arange(6.0).reshape(3, 2)).sum() + (old * old).sum() + new.exp().sum()
        total.backward()
        return [total.item(), leaf.grad.tolist(), old.tolist(), new.tolist(), h.tolist()]

    assert run(True) == run(False)


def test_a_leaf_changes_in_place_only_without_recording():
    leaf = rl.ones(2, 3, requires_grad=True)
    with pytest.raises(InplaceError, match="no_grad"):
        leaf.t_()
    with rl.no_grad():
        leaf.t_()
    assert leaf.is_leaf
    assert leaf.shape == (3, 2)
    (leaf * rl.arange(6.0).reshape(3, 2)).sum().backward()
    assert leaf.grad.tolist() == [[0, 1], [2, 3], [4, 5]]
    with pytest.raises(InplaceError):
        leaf[0].zero_()


def test_a_saved_tensor_that_is_viewed_in_place_is_found_out():
    x = rl.rand(2, 2, requires_grad=True) * 1
    y = x * x
    x.t_()
    with pytest.raises(InplaceError):
        y.sum().backward()


# ---- other memory ----


def test_resize():
    x = rl.arange(6.0)
    view = x[1:3]
    x.resize_(2, 2)
    assert x.tolist() == [[0, 1], [2, 3]]
    x.resize_(100)
    assert x[:4].tolist() == [0, 1, 2, 3]
    view.fill_(9)
    assert x[:4].tolist() == [0, 9, 9, 3]
    assert rl.empty(0).resize_as_(rl.zeros(3, 4)).shape == (3, 4)
    with pytest.raises(RushlightError, match="gradients"):
        rl.ones(2, requires_grad=True).resize_(3)
    with pytest.raises(RushlightError, match="belongs to others"):
        rl.from_numpy(np.ones(4, np.float32)).resize_(400)


def test_set():
    x, y = rl.zeros(3), rl.arange(4.0)
    old = x[:2]
    x.set_(y)
    x[0] = 7
    assert y.tolist() == [7, 1, 2, 3]
    assert old.fill_(5).tolist() == [5, 5]
    assert x.tolist() == [7, 1, 2, 3]
    x.set_(y.untyped_storage(), 1, (2,), (2,))
    assert x.tolist() == [1, 3]
    assert x.set_().numel() == 0
    with pytest.raises(ShapeError):
        x.set_(y.untyped_storage(), 0, (1000,))


def test_detach_in_place():
    leaf = rl.ones(2, requires_grad=True)
    h = leaf * 2
    assert h.detach_() is h
    assert not h.requires_grad
    with pytest.raises(RushlightError, match="view"):
        (leaf * 2)[0].detach_()


def test_fill_diagonal():
    for shape, wrap in (
        ((3, 3), False),
        ((7, 3), True),
        ((7, 3), False),
        ((2, 5), True),
        ((3, 3, 3), False),
    ):
        want = np.zeros(shape, np.float32)
        np.fill_diagonal(want, 4, wrap)
        assert rl.zeros(*shape).fill_diagonal_(4, wrap).tolist() == want.tolist()
    with pytest.raises(ShapeError):
        rl.zeros(2, 3, 4).fill_diagonal_(1)


# ---- layouts and metadata ----


def test_memory_formats_have_pytorchs_strides():
    x = rl.rand(2, 3, 4, 5)
    y = x.contiguous(memory_format=rl.channels_last)
    assert y.stride() == (60, 1, 15, 3)
    assert y.is_contiguous(memory_format=rl.channels_last)
    assert not y.is_contiguous()
    assert y.dim_order() == (0, 2, 3, 1)
    assert rl.equal(x, y)
    assert y.contiguous(memory_format=rl.channels_last) is y
    assert x.to(memory_format=rl.channels_last).stride() == y.stride()
    assert y.clone(memory_format=rl.contiguous_format).stride() == x.stride()
    assert rl.rand(1, 2, 3, 4, 5).clone(memory_format=rl.channels_last_3d).stride() == (
        120,
        1,
        40,
        10,
        2,
    )
    with pytest.raises(ShapeError, match="4 dimensions"):
        rl.rand(2).contiguous(memory_format=rl.channels_last)


def test_metadata():
    x = rl.zeros(2, 3)
    assert (x.nelement(), x.ndimension(), x.itemsize, x.nbytes, x.element_size()) == (
        6,
        2,
        4,
        24,
        4,
    )
    assert x.is_same_size(rl.ones(2, 3))
    assert not x.is_same_size(rl.ones(3, 2))
    assert x.is_set_to(x.view(2, 3))
    assert not x.is_set_to(x[:1])
    assert x.layout is rl.strided
    assert (x.is_cpu, x.is_cuda, x.is_sparse, x.get_device(), x.is_signed()) == (
        True,
        False,
        False,
        -1,
        True,
    )
    assert rl.tensor([3]).is_nonzero()
    assert not rl.tensor(0.0).is_nonzero()
    with pytest.raises(RushlightError, match="any"):
        x.is_nonzero()
    assert x.untyped_storage().nbytes() == 24
    assert x[1:].untyped_storage().data_ptr() == x.data_ptr()
    assert x[1:].data_ptr() == x.data_ptr() + 12
    assert x.mT.shape == (3, 2)
    with pytest.raises(RushlightError, match="matrix"):
        rl.zeros(3).mT  # noqa: B018


def test_the_derivative_of_a_constant_gradient_is_zero():
    x = rl.rand(1, 1, 4, 4, requires_grad=True)
    for function in (lambda v: rl.nn.functional.avg_pool2d(v, 2), lambda v: v * 3.0):
        (g,) = rl.autograd.grad(function(x).sum(), [x], create_graph=True)
        (second,) = rl.autograd.grad(g.sum(), [x])
        assert second.tolist() == rl.zeros_like(x).tolist()


def test_every_element_put_to_one_place_gets_its_gradient():
    x = rl.tensor([[[1.0, 2.0, 3.0]]], requires_grad=True)
    out = rl.nn.functional.max_unpool1d(x, rl.tensor([[[0, 2, 2]]]), 1, output_size=(3,))
    assert out.tolist() == [[[1.0, 0.0, 3.0]]]
    (out * rl.tensor([5.0, 6.0, 7.0])).sum().backward()
    assert x.grad.tolist() == [[[5.0, 7.0, 7.0]]]


def changed_in_place(x):
    h = (x * 2).reshape(2, 3)
    first = h[0]
    h.t_()
    first.mul_(3.0)
    h.unsqueeze_(0)
    w = h.exp() + 1
    w.squeeze_()
    out = rl.empty(0)
    with rl.no_grad():
        rl.exp(x, out=out)
    out.resize_(3)
    return (w * rl.arange(6.0).reshape(3, 2)).sum() + (x * out[0]).sum()


def gradients_of(function):
    x = rl.linspace(0.1, 0.6, 6).requires_grad_()
    y = function(x)
    y.backward()
    return y.item(), x.grad.tolist()


def test_views_in_place_and_out_keep_their_bits_in_regions():
    want = gradients_of(changed_in_place)
    assert gradients_of(lambda x: rl.utils.checkpoint.checkpoint(changed_in_place, x)) == want
    with rl.memory.budget("4MiB"):
        assert gradients_of(changed_in_place) == want
        x = rl.arange(10.0) * 2
        view = x[2:4]
        x.resize_(5000)
        view.add_(1)
        assert x[:5].tolist() == [0, 2, 5, 7, 8]


def test_a_result_saved_for_its_derivative_is_not_viewed_in_place():
    w = rl.rand(1, 3, requires_grad=True).exp()
    w.squeeze_()
    with pytest.raises(InplaceError):
        w.sum().backward()
