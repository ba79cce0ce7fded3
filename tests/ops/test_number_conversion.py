"""Numbers in and out: what a type holds, arrays as operands, powers, divisors and kinds of errors that PyTorch has."""

from __future__ import annotations

import numpy as np
import pytest

import rushlight as rl
import rushlight.nn.functional as F


def test_floats_become_whole_numbers_where_the_type_is_whole():
    assert rl.full((2,), 2.5, dtype=rl.int64).tolist() == [2, 2]
    assert rl.full_like(rl.zeros(2, dtype=rl.int8), -2.5).tolist() == [-2, -2]
    assert rl.zeros(2, dtype=rl.int32).new_full((1,), 3.9).tolist() == [3]
    assert rl.tensor(2.5, dtype=rl.int64).item() == 2
    x = rl.zeros(2, dtype=rl.uint8)
    for _ in range(2):
        assert x.fill_(2.9).tolist() == [2, 2]
        for wrong in (300, float("nan"), float("inf"), -1.5):
            with pytest.raises(RuntimeError):
                x.fill_(wrong)


def test_lists_with_tensors_and_large_integers():
    assert rl.tensor([rl.tensor([1]), rl.tensor(2)]).tolist() == [1, 2]
    with pytest.raises(TypeError, match="stack"):
        rl.tensor([rl.ones(2), rl.ones(2)])
    with pytest.raises(ValueError, match="equal lengths"):
        rl.tensor([[1], [2, 3]])
    with pytest.raises(ValueError, match="int64"):
        rl.tensor([2**63])
    assert rl.tensor([2**64], dtype=rl.float32).item() == 2.0**64
    assert rl.tensor([2**63], dtype=rl.uint64).tolist() == [2**63]


@pytest.mark.parametrize("size", [1.5, "a", True, None, 2.0])
def test_sizes_are_integers(size):
    with pytest.raises(TypeError):
        rl.zeros(size)
    with pytest.raises(TypeError):
        rl.ones((2, size))


def test_arrays_are_operands():
    x = rl.tensor([1.0, 2.0])
    a = np.array([3.0, 4.0])
    assert (x * a).dtype is rl.float64 and (x * a).tolist() == [3, 8] and (a * x).tolist() == [3, 8]
    assert (x == np.array([1.0, 5.0])).tolist() == [True, False]
    assert (x - np.array([[1], [2]])).tolist() == [[0, 1], [-1, 0]]


def test_integers_have_no_reciprocals():
    x = rl.tensor([2, 3])
    for _ in range(3):
        assert (x**2).tolist() == [4, 9]
        for wrong in (lambda: x**-1, lambda: rl.pow(x, -2), lambda: rl.tensor([True]) ** -1):
            with pytest.raises(RuntimeError, match="negative"):
                wrong()
    assert (rl.tensor([2.0]) ** -1).tolist() == [0.5] and (x**-1.0).tolist() == pytest.approx([0.5, 1 / 3])


def test_a_false_divisor_is_a_zero():
    x, y = rl.tensor([2, 3]), rl.tensor([True, False])
    for op in (rl.floor_divide, rl.remainder, rl.fmod):
        with pytest.raises(RuntimeError, match="Zero"):
            op(x, y)


def test_an_op_that_is_not_there_for_a_type_is_not_implemented():
    for wrong in (
        lambda: rl.tensor([1.5]) & 1,
        lambda: rl.atan2(rl.tensor([1j]), 1),
        lambda: rl.arange(2, dtype=rl.bool),
    ):
        with pytest.raises(NotImplementedError):
            wrong()
    with pytest.raises(RuntimeError, match="rounding_mode"):
        rl.div(rl.ones(1), 2, rounding_mode="up")
    with pytest.raises(RuntimeError, match="sign"):
        F.hardtanh(rl.ones(2, dtype=rl.uint8))


def test_all_and_any_over_no_dimension_reduce_nothing():
    x = rl.tensor([[1, 0], [2, 3]])
    assert rl.all(x, dim=()).tolist() == [[True, False], [True, True]]
    assert rl.any(rl.zeros(2, 0), dim=()).shape == (2, 0)
    assert rl.all(x.to(rl.uint8), dim=()).dtype is rl.uint8


def test_types_of_results():
    half = rl.tensor([1.5], dtype=rl.float16)
    assert rl.ldexp(half, rl.tensor([2])).dtype is rl.float16 and rl.ldexp(half, rl.tensor([2])).item() == 6
    assert rl.ldexp(rl.tensor([3], dtype=rl.int32), rl.tensor([2])).dtype is rl.float32
    mask = rl.tensor([True, False])
    assert rl.clamp(mask, rl.tensor([2, 0], dtype=rl.int8)).dtype is rl.int8
    assert rl.clamp_min(mask, 2).dtype is rl.int64
    assert rl.isin(2.5, rl.tensor([2, 3])).item() is False
    assert rl.isin(3, rl.tensor([2, 3])).item() is True
