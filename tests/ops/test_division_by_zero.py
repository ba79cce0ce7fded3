"""Division by zero: integers raise on synchronous devices, floats give infinities and NaN."""

from __future__ import annotations

import math

import pytest

import rushlight as rl

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


def test_a_false_divisor_is_a_zero():
    x, y = rl.tensor([2, 3]), rl.tensor([True, False])
    for op in (rl.floor_divide, rl.remainder, rl.fmod):
        with pytest.raises(RuntimeError, match="Zero"):
            op(x, y)
