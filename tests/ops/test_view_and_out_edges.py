"""Views, joining, `out=` and in-place forms at their edges, as PyTorch has them."""

from __future__ import annotations

import warnings

import pytest

import rushlight as rl
import rushlight.nn.functional as F


def test_select_takes_a_tensor():
    x = rl.arange(6).reshape(2, 3)
    for _ in range(2):
        assert x.select(0, rl.tensor(1)).tolist() == [3, 4, 5]
    x.select(1, rl.tensor(-1)).zero_()
    assert x.tolist() == [[0, 1, 0], [3, 4, 0]]
    with pytest.raises(IndexError):
        x.select(0, rl.tensor(2))


@pytest.mark.parametrize(
    ("error", "wrong"),
    [
        (RuntimeError, lambda x: x.flatten(1, 0)),
        (RuntimeError, lambda x: x.squeeze((0, 0))),
        (RuntimeError, lambda x: rl.cat([rl.tensor(1.0), rl.tensor(2.0)])),
        (RuntimeError, lambda x: rl.cat([rl.tensor(1.0)], 1)),
        (IndexError, lambda x: x.index_select(0, rl.zeros(1, 1, dtype=rl.int64))),
    ],
)
def test_what_views_refuse(error, wrong):
    with pytest.raises(error):
        wrong(rl.ones(2, 3))


def test_index_put_of_a_later_dimension_can_be_viewed():
    x = rl.zeros(2, 3).index_put((slice(None), rl.tensor([0, 2])), rl.ones(2))
    assert x.view(-1).tolist() == [1, 0, 1, 1, 0, 1]


def test_variance_with_more_correction_than_elements():
    x = rl.tensor([1.0, 2.0])
    assert rl.var(x, correction=2).item() == float("inf") and rl.std(x, correction=5).item() == float("inf")
    assert rl.var(rl.ones(1)).isnan().item() and rl.var(rl.ones(0)).isnan().item()


def test_functional_softmax_chooses_a_dimension_with_a_warning():
    for shape, dim in (((3,), 0), ((2, 3), 1), ((2, 3, 4), 0), ((1, 2, 3, 4), 1), ((), 0)):
        x = rl.arange(24.0)[: int(rl.zeros(shape).numel())].reshape(shape)
        for op in (F.softmax, F.log_softmax, F.softmin):
            with pytest.warns(UserWarning, match="dim"):
                got = op(x)
            assert got.tolist() == op(x, dim).tolist()
    with pytest.raises(TypeError):
        rl.softmax(rl.ones(2))


@pytest.mark.parametrize(
    ("call", "out"),
    [
        (lambda o: rl.clamp(rl.ones(2), 0, out=o), rl.float64),
        (lambda o: rl.argmax(rl.ones(2), 0, out=o), rl.int32),
        (lambda o: rl.matmul(rl.ones(2, 2), rl.ones(2, 2), out=o), rl.float64),
        (lambda o: rl.where(rl.ones(2) > 0, rl.ones(2), 0.0, out=o), rl.float16),
        (lambda o: rl.nonzero(rl.ones(2), out=o), rl.float32),
        (lambda o: rl.all(rl.ones(2), 0, out=o), rl.float32),
        (lambda o: rl.linalg.inv(rl.eye(2), out=o), rl.float64),
        (lambda o: rl.floor(rl.ones(2), out=o), rl.float64),
        (lambda o: rl.add(rl.ones(2), 1, out=o), rl.int64),
    ],
)
def test_out_of_another_type_is_refused(call, out):
    with pytest.raises(RuntimeError, match="out"):
        call(rl.empty(0, dtype=out))


def test_out_of_another_type_is_cast_to():
    for call, dtype, want in (
        (lambda o: rl.add(rl.ones(2), 1, out=o), rl.float64, [2, 2]),
        (lambda o: rl.exp(rl.zeros(2), out=o), rl.complex64, [1, 1]),
        (lambda o: rl.eq(rl.ones(2), 1, out=o), rl.int8, [1, 1]),
        (lambda o: rl.add(rl.tensor([-1]), 0, out=o), rl.uint8, [255]),
        (lambda o: rl.all(rl.ones(2), 0, out=o), rl.uint8, 1),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            o = rl.empty(0, dtype=dtype)
            assert call(o) is o and o.dtype is dtype and o.tolist() == want


def test_what_a_bool_tensor_cannot_hold_in_place():
    x = rl.tensor([True, False])
    for wrong in (lambda: x.add_(1), lambda: x.mul_(2), lambda: x.add_(rl.tensor([1, 2])), lambda: x.__iadd__(1)):
        with pytest.raises(RuntimeError):
            wrong()
    assert x.tolist() == [True, False] and x.add_(True).tolist() == [True, True]
    y = rl.tensor([2, 3])
    for _ in range(2):
        with pytest.raises(RuntimeError, match="negative"):
            y.pow_(-1)
        assert y.clone().pow_(2).tolist() == [4, 9]
    assert rl.can_cast(rl.int64, rl.uint8) and not rl.can_cast(rl.int8, rl.bool)


def test_results_that_users_view():
    x = rl.randn(6, 4, 3)
    for y in (
        rl.nn.BatchNorm1d(4)(x),
        rl.nn.BatchNorm1d(4)(x[:, :, 0]),
        rl.nn.BatchNorm2d(4)(x.unsqueeze(-1)),
        F.conv_transpose1d(x, rl.randn(4, 2, 3), stride=2, padding=1, dilation=2),
        rl.kthvalue(x, 2).values,
    ):
        assert y.is_contiguous() and y.view(-1).shape == (y.numel(),)


def test_functions_written_in_place_take_input_by_name():
    x = rl.tensor([-1.0, 2.0])
    assert rl.clamp_(input=x, min=0) is x and x.tolist() == [0, 2]
    assert rl.exp_(input=rl.zeros(1)).tolist() == [1] and rl.fill_(input=x, value=3).tolist() == [3, 3]
