"""Edges that a comparison with PyTorch over its own op samples (op_db) brought to light, op by op."""

from __future__ import annotations

import math

import pytest

import rushlight as rl
import rushlight.nn.functional as F

NAN = math.nan


def _gradients(function, *values):
    leaves = [rl.tensor(v, requires_grad=True) for v in values]
    function(*leaves).sum().backward()
    return [leaf.grad.tolist() for leaf in leaves]


LEFT = [NAN, 1.0, NAN, 2.0, 0.0, 3.0]
RIGHT = [1.0, NAN, NAN, 2.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("name", "left", "right"),
    [
        ("clamp_min", [0, 0, 0, 1, 0, 1], [0, 0, 0, 0, 1, 0]),
        ("clamp_max", [0, 0, 0, 1, 1, 0], [0, 0, 0, 0, 0, 1]),
        ("maximum", [1, 1, 1, 0.5, 0, 1], [1, 1, 1, 0.5, 1, 0]),
        ("minimum", [1, 1, 1, 0.5, 1, 0], [1, 1, 1, 0.5, 0, 1]),
    ],
)
def test_gradients_of_extremes_at_nan(name, left, right):
    assert _gradients(getattr(rl, name), LEFT, RIGHT) == [left, right]


def test_gradient_of_clamp_between_bounds_that_are_nan_or_crossed():
    high = [2.0, 4.0, NAN, 2.0, -1.0, NAN]
    x, low, top = _gradients(rl.clamp, LEFT, RIGHT, high)
    assert (x, low, top) == ([0, 0, 0, 1, 0, 0], [0] * 6, [0, 0, 0, 0, 1, 0])


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: rl.sum([1.0, 2.0]),
        lambda: rl.softmax([1.0, 2.0], 0),
        lambda: rl.clamp_min(2, rl.tensor([1, 2])),
        lambda: rl.max(2, 3),
        lambda: rl.isclose(rl.tensor([1, 2]), 2),
        lambda: rl.polar(2, rl.tensor([1.0])),
        lambda: F.linear([1.0], rl.ones(1, 1)),
        lambda: F.mse_loss([1.0], rl.ones(1)),
    ],
)
def test_what_is_no_tensor_is_a_type_error(wrong):
    with pytest.raises(TypeError, match="tensor"):
        wrong()


def test_an_attribute_that_a_tensor_does_not_have_stays_an_attribute_error():
    with pytest.raises(AttributeError, match="nonsense"):
        rl.ones(2).nonsense  # noqa: B018


@pytest.mark.parametrize("kind", [RuntimeError, IndexError])
def test_an_index_out_of_range_is_both_of_pytorchs_errors(kind):
    x = rl.ones(2, 2)
    for wrong in (
        lambda: rl.gather(x, 1, rl.tensor([[0, 23]])),
        lambda: x.scatter(0, rl.tensor([[34, 1]]), x),
        lambda: x[rl.tensor([5])],
        lambda: rl.amax(rl.ones(5, 0, 5)),
    ):
        with pytest.raises(kind):
            wrong()


def test_narrow_and_roll_and_item_and_arange_refuse_as_pytorch():
    x = rl.ones(4, 5)
    for wrong in (
        lambda: rl.ones(()).narrow(0, 0, 1),
        lambda: x.narrow(1, 0, 6),
        lambda: x.narrow(0, rl.tensor([1, 2]), 1),
        lambda: x.narrow(0, rl.tensor(True), 1),
        x.item,
        lambda: rl.arange(0, math.inf, 2),
        lambda: F.gelu(x, approximate="no"),
    ):
        with pytest.raises(RuntimeError):
            wrong()
    for wrong in (lambda: x.narrow(0, 7, 1), lambda: rl.ones(()).roll(0, 0)):
        with pytest.raises(IndexError):
            wrong()
    assert x.narrow(0, rl.tensor(-1), 1).shape == (1, 5)


def test_adaptive_pools_of_nothing_keep_the_gradient():
    for pool, shape, size in ((F.adaptive_avg_pool1d, (0, 8, 8), 5), (F.adaptive_max_pool2d, (0, 8, 8, 8), 5)):
        x = rl.zeros(shape, requires_grad=True)
        out = pool(x, size)
        assert out.requires_grad
        out.sum().backward()
        assert x.grad.shape == shape


def test_margin_ranking_loss_of_integers_is_a_float():
    x = rl.tensor([1, 2, 3])
    assert F.margin_ranking_loss(x, x + 1, rl.ones(3, dtype=rl.int64), reduction="none").dtype is rl.float32


def test_functions_of_the_library_that_take_out():
    x = rl.linspace(-2, 2, 12).reshape(3, 4)
    out = rl.empty(3, 4)
    for function in (F.gelu, F.hardshrink, F.softplus, F.softshrink, F.logsigmoid):
        assert function(x, out=out) is out
        assert rl.equal(out, function(x))
    out = rl.empty(3, 3)
    assert rl.tensordot(x, x.T, 1, out=out) is out
    assert F.linear(x, x, out=out) is out
    assert rl.equal(out, x @ x.T)


def test_extremes_of_unsigned_integers_start_below_all_of_them():
    x = rl.arange(36).reshape(1, 6, 6).to(rl.uint8)
    pooled = F.max_pool2d(x, 3, 2, 1, ceil_mode=True)
    assert pooled[0, 0].tolist() == [7, 9, 11, 11]
    assert pooled[0, -1].tolist() == [31, 33, 35, 35]
    low = rl.tensor([5], dtype=rl.uint8)
    one = rl.tensor([1], dtype=rl.uint8)
    assert low.scatter_reduce(0, rl.tensor([0]), one, "amax", include_self=False).tolist() == [1]


def test_interpolation_of_bytes_rounds_each_dimension():
    x = rl.tensor([[[[1, 2], [3, 250]]]], dtype=rl.uint8)
    assert F.interpolate(x, size=(3, 3), mode="bilinear")[0, 0].tolist() == [[1, 2, 2], [2, 65, 126], [3, 127, 250]]
    assert F.interpolate(x, size=(3, 3), mode="bicubic")[0, 0].tolist() == [[1, 0, 0], [1, 65, 129], [0, 138, 255]]


def test_types_of_results():
    x = rl.tensor([1.7, 2.2])
    assert rl.prod(x, dtype=rl.float64).dtype is rl.float64
    assert rl.prod(x, 0, True, dtype=rl.int32).tolist() == [2]
    assert x.prod(dtype=rl.float64).item() == pytest.approx(3.74)
    assert rl.where(x > 2, True, False).dtype is rl.bool
    assert rl.where(x > 2, True, 2).dtype is rl.int64
    assert rl.einsum("i->", rl.tensor([1, 2], dtype=rl.int32)).dtype is rl.int64
    assert rl.arange(0.0, -8.0, -4.0, dtype=rl.uint8).tolist() == [0, 252]
    assert rl.arange(0.5, 4.7, dtype=rl.int32).tolist() == [0, 1, 2, 3, 4]
    assert rl.arange(0.5, 4.7, dtype=rl.int64).tolist() == [0, 1, 2, 3]
    assert rl.arange(0.5, 4.7, 1.5, dtype=rl.int32).tolist() == [0, 1, 2]
    assert rl.clone(x, memory_format=rl.contiguous_format).tolist() == x.tolist()


def test_sums_and_products_are_made_in_the_type_of_out():
    x = rl.tensor([1.7, 2.2])
    assert rl.sum(x, 0, out=rl.empty((), dtype=rl.int64)).item() == 3
    assert rl.cumprod(x, 0, out=rl.empty(2, dtype=rl.int64)).tolist() == [1, 2]
    assert rl.sum(x, 0, out=rl.empty((), dtype=rl.float64)).item() == x.double().sum().item()


def test_hinge_embedding_loss_of_infinity():
    x = rl.tensor([math.inf, 1.0])
    assert F.hinge_embedding_loss(x, rl.tensor([1.0, -1.0])).item() == math.inf
    assert F.hinge_embedding_loss(x, rl.tensor([-1.0, -1.0])).item() == 0


def test_refused_as_in_pytorch():
    x = rl.ones(3, 3)
    for wrong in (
        lambda: rl.gradient(x, dim=(1, 1)),
        lambda: rl.linalg.cross(rl.ones(5, 3), rl.ones(5, 1)),
        lambda: x.masked_fill(x > 0, 1j),
        lambda: x.masked_fill(x > 0, rl.tensor(1j)),
        lambda: rl.cov(x, fweights=rl.tensor([1, -1, 1])),
        lambda: rl.cov(x, aweights=rl.tensor([1.0, -1.0, 1.0])),
        lambda: F.conv1d(rl.ones(1, 1, 4), rl.ones(1, 1, 2), rl.ones(1, dtype=rl.float64)),
    ):
        with pytest.raises(RuntimeError):
            wrong()


@pytest.mark.parametrize(
    ("function", "wanted"),
    [
        (F.relu, 1.0),
        (F.elu, 1.0),
        (F.celu, 1.0),
        (F.relu6, 0.0),
        (F.hardtanh, 0.0),
        (F.hardshrink, 0.0),
        (F.softshrink, 0.0),
    ],
)
def test_gradients_of_activations_at_nan(function, wanted):
    assert _gradients(function, [NAN, 0.75, -9.0])[0][0] == wanted
    assert _gradients(function, [NAN, 0.75, -9.0])[0][1] == 1.0


def test_gradients_where_a_quotient_has_no_value():
    assert _gradients(rl.atan2, [0.0, -0.0, 1.0], [0.0, 0.0, 0.0]) == [[0.0, 0.0, 0.0], [0.0, 0.0, -1.0]]
    (slope,) = _gradients(rl.logit, [0.0, 1.0, 0.5, -1.0, 2.0])
    assert slope[:3] == [math.inf, math.inf, 4.0]
    assert all(math.isnan(v) for v in slope[3:])
    (slope,) = _gradients(rl.special.entr, [1.0, -1.0])
    assert slope[0] == -1.0
    assert math.isnan(slope[1])


def test_diff_of_order_zero_is_the_input():
    x = rl.ones(5, 5)
    assert rl.diff(x, 0, 0, rl.ones(1, 5), rl.ones(2, 5)).shape == (5, 5)


DIVISIONS = [
    lambda x, y: x // y,
    lambda x, y: x % y,
    rl.fmod,
    rl.remainder,
    lambda x, y: rl.div(x, y, rounding_mode="trunc"),
    lambda x, y: rl.div(x, y, rounding_mode="floor"),
    lambda x, y: x.clone().floor_divide_(y),
    lambda x, y: x.clone().remainder_(y),
    lambda x, y: x.clone().fmod_(y),
    lambda x, y: x.clone().div_(y, rounding_mode="floor"),
    lambda x, y: rl.floor_divide(x, y, out=rl.empty_like(x)),
    lambda x, y: 7 // (y * 1),
    lambda x, y: 7 % (y * 1),
]


@pytest.mark.parametrize("divide", DIVISIONS)
@pytest.mark.parametrize("where", ["cpu", "reference"])
def test_integers_are_not_divided_by_zero(divide, where):
    x = rl.tensor([7, -7, 8], device=where)
    for kind in (RuntimeError, ZeroDivisionError):
        with pytest.raises(kind, match="ZeroDivisionError"):
            divide(x, rl.tensor([2, 0, 3], device=where))
    divide(x, rl.tensor([2, -1, 3], device=where))


def test_division_by_the_number_zero():
    x = rl.tensor([7, -7])
    for divide in DIVISIONS[:-2]:
        with pytest.raises(RuntimeError, match="ZeroDivisionError"):
            divide(x, 0)
    assert (x // 0.0).tolist() == [math.inf, -math.inf]
    assert math.isnan((x.float() % 0)[0].item())
    assert rl.floor_divide(rl.empty(0, dtype=rl.int64), rl.empty(0, dtype=rl.int64)).shape == (0,)


@pytest.mark.parametrize(
    "name", ["sum", "prod", "logsumexp", "nansum", "any", "all", "softmax", "log_softmax", "count_nonzero", "unique"]
)
def test_a_tensor_without_dimensions_has_none_out_of_range(name):
    with pytest.raises(IndexError):
        getattr(rl, name)(rl.ones(()), dim=1)


def test_parts_of_nothing():
    assert [part.shape for part in rl.chunk(rl.ones(0, 3), 3)] == [(0, 3)] * 3
    for wrong in (lambda: rl.chunk(rl.ones(()), 2), lambda: rl.split(rl.ones(()), 2)):
        with pytest.raises(RuntimeError):
            wrong()


def test_no_sequences_and_no_images():
    x = rl.zeros(2, 0, 4, requires_grad=True)
    out, _ = rl.nn.LSTM(4, 3)(x)
    assert out.shape == (2, 0, 3)
    image = rl.zeros(0, 2, 5, 5, requires_grad=True)
    pooled = F.max_pool2d(image, 2)
    assert pooled.shape == (0, 2, 2, 2)
    pooled.sum().backward()
    assert image.grad.shape == image.shape
