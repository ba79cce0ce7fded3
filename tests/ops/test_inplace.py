"""In-place ops: the gradients of the out-of-place op, or a clear error."""

from __future__ import annotations

import numpy as np
import pytest

import rushlight as rl
from rushlight import InplaceError, RushlightError, ShapeError
from rushlight.devices.shared.registry import pool_of


def gradients(function, *numbers: list[float], device: str = "cpu") -> list[list[float]]:
    """The gradients of sum(function * [1, 2, 3, ...]) with respect to each input."""
    leaves = [rl.tensor(n, device=device, requires_grad=True) for n in numbers]
    out = function(*leaves)
    weights = rl.arange(1, out.numel() + 1, dtype=rl.float32, device=device).reshape(out.shape)
    (out * weights).sum().backward()
    return [[0.0] * x.numel() if x.grad is None else x.grad.tolist() for x in leaves]


def same_gradients(written, pure, *numbers: list[float], device: str = "cpu") -> None:
    leaves = [rl.tensor(n, device=device) for n in numbers]
    np.testing.assert_allclose(written(*leaves).tolist(), pure(*leaves).tolist(), rtol=1e-6)
    for got, want in zip(
        gradients(written, *numbers, device=device),
        gradients(pure, *numbers, device=device),
        strict=True,
    ):
        np.testing.assert_allclose(got, want, rtol=1e-5)


X, Y = [0.5, 1.5, -2.0, 3.0], [2.0, -1.0, 0.25, 4.0]


# ---- whole tensors ----

WHOLE = {
    "add_": (lambda x, y: (x * 1).add_(y), lambda x, y: x + y),
    "sub_": (lambda x, y: (x * 1).sub_(y), lambda x, y: x - y),
    "mul_": (lambda x, y: (x * 1).mul_(y), lambda x, y: x * y),
    "div_": (lambda x, y: (x * 1).div_(y), lambda x, y: x / y),
    "mul_ by a number": (lambda x, y: (x * y).mul_(3.0), lambda x, y: x * y * 3.0),
    "iadd": (lambda x, y: operator_add(x * 1, y), lambda x, y: x + y),
    "exp_": (lambda x, y: (x * y).exp_(), lambda x, y: (x * y).exp()),
    "tanh_": (lambda x, y: (x + y).tanh_(), lambda x, y: (x + y).tanh()),
    "relu_": (lambda x, y: (x * y).relu_(), lambda x, y: (x * y).relu()),
    "square_": (lambda x, y: (x * y).square_(), lambda x, y: (x * y).square()),
    "mul_ by itself": (lambda x, y: times_itself(x * y), lambda x, y: (x * y) * (x * y)),
    "zero_": (lambda x, y: (x * 1).zero_() + y, lambda x, y: x * 0 + y),
    "fill_": (lambda x, y: (x * 1).fill_(2.0) * y, lambda x, y: (x * 0 + 2.0) * y),
    "copy_": (lambda x, y: (x * 1).copy_(y), lambda x, y: x * 0 + y),
    "copy_ broadcast": (lambda x, y: (x * 1).copy_(y[:1]), lambda x, y: x * 0 + y[:1]),
    "into a constant": (
        lambda x, y: rl.ones(4, device=x.device).mul_(x).add_(y),
        lambda x, y: x + y,
    ),
    "twice": (lambda x, y: (x * 1).add_(y).mul_(2.0).add_(x), lambda x, y: (x + y) * 2 + x),
    "clamp_": (lambda x, y: (x * y).clamp_(-1.0, 2.0), lambda x, y: (x * y).clamp(-1.0, 2.0)),
    "masked_fill_": (
        lambda x, y: (x * y).masked_fill_(x > 1, 7.0),
        lambda x, y: (x * y).masked_fill(x > 1, 7.0),
    ),
}


def operator_add(x: rl.Tensor, y: rl.Tensor) -> rl.Tensor:
    x += y
    return x


def times_itself(x: rl.Tensor) -> rl.Tensor:
    return x.mul_(x)


@pytest.mark.parametrize("name", WHOLE)
def test_a_write_differentiates_like_the_op(name):
    same_gradients(*WHOLE[name], X, Y)


@pytest.mark.parametrize("name", ["mul_", "exp_", "copy_", "twice"])
def test_a_write_differentiates_on_each_device(name, device):
    same_gradients(*WHOLE[name], X, Y, device=device)


# ---- views ----


def shifted(x: rl.Tensor) -> rl.Tensor:
    """[0, x0, x1, x2]"""
    return rl.cat([rl.zeros(1, device=x.device), x[:-1]])


def write_a_view(x, y):
    h = x * 1
    h[1:3].mul_(y[1:3])
    return h


def mask(x, *places):
    return rl.tensor([1.0 if i in places else 0.0 for i in range(4)], device=x.device)


def write_a_view_pure(x, y):
    inside = mask(x, 1, 2)
    return x * (1 - inside) + x * y * inside


def assign_a_slice(x, y):
    h = x * 1
    h[::2] = y[2:] * 3
    return h


def assign_a_slice_pure(x, y):
    return rl.stack([y[2] * 3, x[1], y[3] * 3, x[3]])


def write_a_view_of_a_view(x, y):
    h = (x * 1).reshape(2, 2)
    h.t()[1].exp_()
    return h.flatten() + y


def write_a_view_of_a_view_pure(x, y):
    inside = mask(x, 1, 3)
    return x * (1 - inside) + x.exp() * inside + y


def overlap(x, y):
    h = x * y
    h[1:].add_(h[:-1])
    return h


def overlap_pure(x, y):
    return x * y + shifted(x * y)


def siblings(x, y):
    """A view made before a write to its sibling sees the write."""
    h = x * 1
    low, high = h[:3], h[1:]
    low.mul_(y[:3])
    return rl.cat([high * high, h[:1]])


def siblings_pure(x, y):
    h = rl.cat([x[:3] * y[:3], x[3:]])
    return rl.cat([h[1:] * h[1:], h[:1]])


def base_after_view(x, y):
    """A view made before a write to its base sees the write."""
    h = x * 1
    part = h[1:3]
    h.mul_(y)
    return part * part


def base_after_view_pure(x, y):
    part = (x * y)[1:3]
    return part * part


def constant_base(x, y):
    """A view of a constant, into which a recorded value is written through the base."""
    h = rl.zeros(4, device=x.device)
    part = h[1:3]
    h.add_(x)
    total = rl.zeros(2, device=x.device)
    total.add_(part)
    return total * y[:2]


def constant_base_pure(x, y):
    return x[1:3] * y[:2]


def stale_target(x, y):
    h = rl.zeros(4, device=x.device)
    part = h[1:3]
    h.add_(x)
    part.mul_(2.0)
    return h * y


def stale_target_pure(x, y):
    return x * (1 + mask(x, 1, 2)) * y


def transposed_copy(x, y):
    h = (x * y).reshape(2, 2)
    h.copy_(h.t())
    return h


def transposed_copy_pure(x, y):
    return (x * y).reshape(2, 2).t().contiguous()


def with_gaps(x, y):
    """A detached transpose has gaps between its rows; its views can be written to."""
    h = rl.zeros(2, 2, device=x.device).t().detach()
    h[0] = x[:2]
    h[:, 1].mul_(y[2:])
    return h


def with_gaps_pure(x, y):
    zero = x[0] * 0
    return rl.stack([rl.stack([x[0], x[1] * y[2]]), rl.stack([zero, zero * y[3]])])


VIEWS = {
    "a view": (write_a_view, write_a_view_pure),
    "a slice": (assign_a_slice, assign_a_slice_pure),
    "a view of a view": (write_a_view_of_a_view, write_a_view_of_a_view_pure),
    "overlap": (overlap, overlap_pure),
    "siblings": (siblings, siblings_pure),
    "base after view": (base_after_view, base_after_view_pure),
    "constant base": (constant_base, constant_base_pure),
    "stale target": (stale_target, stale_target_pure),
    "transposed copy": (transposed_copy, transposed_copy_pure),
    "with gaps": (with_gaps, with_gaps_pure),
}


@pytest.mark.parametrize("name", VIEWS)
def test_a_write_to_a_view_differentiates(name):
    same_gradients(*VIEWS[name], X, Y)


@pytest.mark.parametrize("name", ["a slice", "overlap", "siblings"])
def test_a_write_to_a_view_differentiates_on_each_device(name, device):
    same_gradients(*VIEWS[name], X, Y, device=device)


def test_a_write_to_a_view_to_second_order():
    x = rl.tensor([1.0, 2.0, 3.0], requires_grad=True)
    h = x * x
    h[1:].mul_(x[1:])  # x0^2, x1^3, x2^3
    (first,) = rl.autograd.grad(h.sum(), x, create_graph=True)
    (second,) = rl.autograd.grad(first.sum(), x)
    assert first.tolist() == [2.0, 12.0, 27.0]
    assert second.tolist() == [2.0, 12.0, 18.0]


def test_a_stale_view_knows_that_it_needs_a_gradient():
    x = rl.ones(4, requires_grad=True)
    h = rl.zeros(4)
    part = h[:2]
    assert not part.requires_grad
    h.add_(x)
    assert part.requires_grad
    assert not part.is_leaf
    part.backward(rl.ones(2))
    assert x.grad.tolist() == [1.0, 1.0, 0.0, 0.0]


def test_a_stale_view_is_refreshed_under_no_grad_too():
    x = rl.ones(4, requires_grad=True)
    h = rl.zeros(4)
    part = h[:2]
    h.add_(x)
    with rl.no_grad():
        assert part.requires_grad
        part * 2
    assert (part * 2).requires_grad


# ---- values ----


def test_overlapping_writes_read_the_old_elements(device):
    x = rl.arange(6, dtype=rl.float32, device=device)
    x[1:].add_(x[:-1])
    assert x.tolist() == [0, 1, 3, 5, 7, 9]
    y = rl.arange(4, dtype=rl.float32, device=device).reshape(2, 2)
    y.copy_(y.t())
    assert y.tolist() == [[0, 2], [1, 3]]


def test_writes_return_the_tensor_and_are_seen_through_views(device):
    x = rl.zeros(2, 3, device=device)
    row = x[1]
    assert x.add_(1.0) is x
    x[0, 1:] = 5
    x[:, 0] = rl.tensor([7.0, 8.0], device=device)
    assert x.tolist() == [[7, 5, 5], [8, 1, 1]]
    assert row.tolist() == [8, 1, 1]


def test_copy_casts_and_broadcasts():
    x = rl.zeros(2, 2, dtype=rl.int64)
    x.copy_(rl.tensor([1.7, -2.7]))
    assert x.tolist() == [[1, -2], [1, -2]]
    with pytest.raises(RushlightError, match="cannot be stored"):
        x.add_(0.5)


def test_a_result_that_does_not_fit_is_refused():
    x = rl.zeros(2)
    with pytest.raises(ShapeError, match="does not fit"):
        x.add_(rl.ones(3, 2))
    assert x.tolist() == [0, 0]


# ---- versions ----


@pytest.mark.parametrize("write", ["add_", "zero", "slice", "base", "detached"])
def test_an_overwritten_save_is_found(write):
    x = rl.ones(3, requires_grad=True)
    h = x * 2
    y = h * h  # saves h
    if write == "add_":
        h.add_(1.0)
    elif write == "zero":
        h.zero_()
    elif write == "slice":
        h[0] = 1.0
    elif write == "base":
        h.reshape(1, 3).mul_(2.0)
    else:
        h.detach().add_(1.0)
    with pytest.raises(InplaceError, match="mul: a value saved for its backward was overwritten"):
        y.sum().backward()


def test_an_overwritten_saved_output_is_found():
    x = rl.ones(3, requires_grad=True)
    y = x.exp()
    y.add_(1.0)
    with pytest.raises(InplaceError, match="exp: "):
        y.sum().backward()
    z = x.exp().exp_()  # the first one's result is overwritten
    with pytest.raises(InplaceError, match="exp: "):
        z.sum().backward()


def test_a_write_that_nobody_minds():
    x = rl.ones(3, requires_grad=True)
    y = (x * 2 + 1).add_(3.0)
    y.mul_(2.0)
    y.sum().backward()
    assert x.grad.tolist() == [4.0] * 3


def test_replaced_data_is_found():
    x = rl.ones(3, requires_grad=True)
    y = x * x
    x.data = rl.full((3,), 5.0)
    with pytest.raises(InplaceError):
        y.sum().backward()


# ---- what may be written ----


def test_a_leaf_that_requires_gradients_is_not_written():
    x = rl.ones(3, requires_grad=True)
    for write in (
        lambda: x.add_(1.0),
        lambda: x[0].zero_(),
        lambda: x.__setitem__(0, 2.0),
        lambda: x.copy_(rl.zeros(3)),
    ):
        with pytest.raises(InplaceError, match="leaf"):
            write()
    assert x.tolist() == [1.0, 1.0, 1.0]


def test_updates_under_no_grad():
    x = rl.ones(3, requires_grad=True)
    for _ in range(2):
        (x * x).sum().backward()
        with rl.no_grad():
            x -= 0.25 * x.grad
            x[0] = 9.0
        x.grad = None
    assert x.is_leaf
    assert x.requires_grad
    assert x.tolist() == [9.0, 0.25, 0.25]


def test_detached_memory_may_be_written():
    x = rl.ones(3, requires_grad=True)
    x.detach().add_(1.0)
    x.data.mul_(2.0)
    assert x.tolist() == [4.0] * 3


def test_gradients_may_be_written():
    x = rl.ones(3, requires_grad=True)
    (x * 2).sum().backward()
    x.grad.zero_()
    x.grad.add_(1.0)
    assert x.grad.tolist() == [1.0] * 3


def test_an_expanded_view_is_not_written():
    x = rl.ones(1, 3).expand(2, 3)
    for write in (lambda: x.add_(1.0), lambda: x.__setitem__(slice(None), rl.ones(2, 3))):
        with pytest.raises(InplaceError, match="expanded"):
            write()


def test_a_refused_write_changes_nothing():
    x = rl.ones(3, requires_grad=True)
    h = x * 1
    with pytest.raises(ShapeError):
        h.add_(rl.ones(4))
    h.sum().backward()
    assert x.grad.tolist() == [1.0] * 3


def test_writing_an_int_tensor():
    counts = rl.zeros(3, dtype=rl.int64)
    counts += 1
    counts[1] += 4
    counts[2:] = rl.tensor([9])
    assert counts.tolist() == [1, 5, 9]


# ---- recomputed writes ----

AGAIN = {
    "a number": (lambda x, y: x.add_(0.5), lambda x, y: x + 0.5),
    "a whole number": (lambda x, y: x.mul_(2), lambda x, y: x * 2),
    "a tensor": (lambda x, y: x.sub_(y), lambda x, y: x - y),
    "itself": (lambda x, y: x.mul_(x), lambda x, y: x * x),
    "its own row": (lambda x, y: x.add_(x[0]), lambda x, y: x + x[0].clone()),
    "another's row": (lambda x, y: x.add_(y[1]), lambda x, y: x + y[1]),
    "turned": (lambda x, y: x.copy_(y.t()), lambda x, y: y.t() * 1),
    "its own turned": (lambda x, y: x.copy_(x.t()), lambda x, y: x.t() * 1),
    "filled": (lambda x, y: x.fill_(2.5), lambda x, y: x * 0 + 2.5),
    "filled with a whole number": (lambda x, y: x.fill_(3), lambda x, y: x * 0 + 3),
    "zero": (lambda x, y: x.zero_(), lambda x, y: x * 0),
}


@pytest.mark.parametrize("name", AGAIN)
@pytest.mark.parametrize("dtype", [rl.float32, rl.float16, rl.float64], ids=str)
def test_a_write_made_again_is_the_same(name, dtype, device):
    if dtype not in pool_of(device).device.limits.dtypes:
        pytest.skip(f"limit: no {dtype.name}")
    written, pure = AGAIN[name]
    for i in range(3):
        x = rl.tensor([[0.5, 1.5], [-2.0, 3.0 + i]], dtype=dtype, device=device)
        y = rl.tensor([[4.0, -1.0], [0.25, 8.0]], dtype=dtype, device=device)
        seen, before = x.view(4), x._version
        want = pure(x.clone(), y)
        assert written(x, y) is x
        assert rl.equal(x, want) and rl.equal(seen, want.reshape(4)) and x._version == before + 1


def test_a_write_made_again_is_still_recorded_and_still_noticed():
    for _ in range(3):
        plain = rl.ones(3)
        plain.mul_(2.0)
        leaf = rl.ones(3, requires_grad=True)
        with pytest.raises(InplaceError):
            leaf.mul_(2.0)
        grown = leaf * 3
        grown.mul_(2.0)
        grown.add_(plain)
        grown.sum().backward()
        assert leaf.grad.tolist() == [6, 6, 6]
        factor = rl.ones(3)
        product = leaf * factor
        factor.mul_(2.0)
        with pytest.raises(RuntimeError):
            product.sum().backward()
        plain.mul_(leaf)
        assert plain.requires_grad
        with rl.no_grad():
            leaf.mul_(2.0)
        assert leaf.tolist() == [2, 2, 2] and leaf.requires_grad


def test_a_write_made_again_keeps_its_errors():
    whole = rl.arange(3)
    for _ in range(2):
        whole.fill_(7)
        with pytest.raises(RushlightError):
            whole.add_(0.5)
        with pytest.raises(ShapeError):
            rl.zeros(3).add_(rl.zeros(4))
        assert whole.tolist() == [7, 7, 7]
        assert rl.zeros(2, dtype=rl.bool).fill_(5).tolist() == [True, True]
        assert rl.zeros(2, dtype=rl.int64).fill_(2.9).tolist() == [2, 2]


def test_what_a_bool_tensor_cannot_hold_in_place():
    x = rl.tensor([True, False])
    for wrong in (
        lambda: x.add_(1),
        lambda: x.mul_(2),
        lambda: x.add_(rl.tensor([1, 2])),
        lambda: x.__iadd__(1),
    ):
        with pytest.raises(RuntimeError):
            wrong()
    assert x.tolist() == [True, False] and x.add_(True).tolist() == [True, True]
    y = rl.tensor([2, 3])
    for _ in range(2):
        with pytest.raises(RuntimeError, match="negative"):
            y.pow_(-1)
        assert y.clone().pow_(2).tolist() == [4, 9]
    assert rl.can_cast(rl.int64, rl.uint8) and not rl.can_cast(rl.int8, rl.bool)


def test_functions_written_in_place_take_input_by_name():
    x = rl.tensor([-1.0, 2.0])
    assert rl.clamp_(input=x, min=0) is x and x.tolist() == [0, 2]
    assert rl.exp_(input=rl.zeros(1)).tolist() == [1] and rl.fill_(input=x, value=3).tolist() == [
        3,
        3,
    ]
