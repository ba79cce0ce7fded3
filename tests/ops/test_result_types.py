"""Dtypes of results, of accumulation and of `out=`; ops that exist for some dtypes only."""

from __future__ import annotations

import math

import pytest

import rushlight as rl
import rushlight.nn.functional as F


def test_margin_ranking_loss_of_integers_is_a_float():
    x = rl.tensor([1, 2, 3])
    assert (
        F.margin_ranking_loss(x, x + 1, rl.ones(3, dtype=rl.int64), reduction="none").dtype
        is rl.float32
    )


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


NAN, INF = math.nan, math.inf


def test_addr_promotes_and_knows_bools():
    v = rl.ones(2)
    assert rl.addr(rl.ones(2, 2, dtype=rl.float16), v, v).dtype is rl.float32
    assert rl.addr(rl.ones(2, 2, dtype=rl.int32), v, v, beta=0.5).tolist() == [[1.5, 1.5]] * 2
    yes = rl.ones(2, 2, dtype=rl.bool)
    assert rl.addr(yes, v.bool(), v.bool(), beta=True, alpha=False).tolist() == [[True, True]] * 2
    assert rl.addr(yes, v.bool(), v.bool(), beta=0, alpha=False).tolist() == [[False, False]] * 2
    for beta, like in ((True, v), (1j, v), (0.5, v.int())):
        with pytest.raises(RuntimeError, match="beta"):
            rl.addr(rl.ones(2, 2).to(like.dtype), like, like, beta=beta)
    with pytest.raises(RuntimeError, match="at least one"):
        rl.chain_matmul()


def test_results_that_have_one_type():
    x = rl.tensor([1.5, -2.0])
    with pytest.raises(RuntimeError, match="float64"):
        x.float_power_(2)
    with pytest.raises(RuntimeError, match="float64"):
        rl.float_power(x, 2, out=rl.empty(2))
    assert rl.clamp_max(x.int(), rl.tensor([1, 1]), out=rl.empty(2, dtype=rl.int64)).tolist() == [
        1,
        -2,
    ]
    for name, args in (("sum", (x, 0)), ("cumsum", (x, 0)), ("mean", (x, 0))):
        with pytest.raises(RuntimeError, match="does not match"):
            getattr(rl, name)(*args, dtype=rl.float64, out=rl.empty(0))


def test_functions_that_take_or_give_one_type():
    x = rl.tensor([1.5, INF])
    for call in (
        lambda: rl.frexp(x.int()),
        lambda: rl.isposinf(x, out=rl.empty(2, dtype=rl.uint8)),
        lambda: rl.nonzero_static(x, size=1, out=rl.empty(1, 1)),
        lambda: rl.einsum(". ..", x),
        lambda: rl._int_mm(x, x),
    ):
        with pytest.raises(RuntimeError):
            call()
    a = rl.full((2, 3), 100, dtype=rl.int8)
    assert rl._int_mm(a, a.T).tolist() == [[30000, 30000]] * 2


def test_hardshrink_compares_in_the_type_of_its_elements():
    x = rl.tensor([0.3, 0.7], dtype=rl.bfloat16)
    assert rl.nn.functional.hardshrink(x, 0.3).tolist()[0] == 0


def test_integers_have_no_reciprocals():
    x = rl.tensor([2, 3])
    for _ in range(3):
        assert (x**2).tolist() == [4, 9]
        for wrong in (lambda: x**-1, lambda: rl.pow(x, -2), lambda: rl.tensor([True]) ** -1):
            with pytest.raises(RuntimeError, match="negative"):
                wrong()
    assert (rl.tensor([2.0]) ** -1).tolist() == [0.5] and (x**-1.0).tolist() == pytest.approx(
        [0.5, 1 / 3]
    )


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


def test_types_of_integer_results():
    half = rl.tensor([1.5], dtype=rl.float16)
    assert (
        rl.ldexp(half, rl.tensor([2])).dtype is rl.float16
        and rl.ldexp(half, rl.tensor([2])).item() == 6
    )
    assert rl.ldexp(rl.tensor([3], dtype=rl.int32), rl.tensor([2])).dtype is rl.float32
    mask = rl.tensor([True, False])
    assert rl.clamp(mask, rl.tensor([2, 0], dtype=rl.int8)).dtype is rl.int8
    assert rl.clamp_min(mask, 2).dtype is rl.int64
    assert rl.isin(2.5, rl.tensor([2, 3])).item() is False
    assert rl.isin(3, rl.tensor([2, 3])).item() is True


def test_clamped_truth_values_take_the_type_of_the_bounds():
    truth, low, high = rl.tensor([True, False]), rl.zeros(2, dtype=rl.float64), rl.ones(2)
    assert rl.clamp(truth, low[0], high).dtype is rl.float32
    assert rl.clamp(truth, low, high[0]).dtype is rl.float64


HALF_AND_WHOLE = [
    pytest.param(half, whole, id=f"{half.name}-{whole.name}")
    for half in (rl.float16, rl.bfloat16)
    for whole in (rl.bool, rl.uint8, rl.int16, rl.int32, rl.int64, rl.uint64)
]


@pytest.mark.parametrize(("half", "whole"), HALF_AND_WHOLE)
def test_gradients_of_halves_beside_integers(half, whole, device):
    """The integer is rounded to the half type first, by instructions without a derivative."""
    x = rl.tensor([2.0, 3.0, 1.0], device=device).to(half).requires_grad_()
    n = rl.tensor([1, 0, 1], device=device).to(whole)
    made = rl.where(n > 0, x, n) + x**n
    made.backward(rl.ones_like(made))
    assert x.grad.tolist() == [2.0, 0.0, 2.0]
    if whole is not rl.bool:
        x.grad = None
        (n - x).backward(rl.ones_like(made))
        assert x.grad.tolist() == [-1.0, -1.0, -1.0]


@pytest.mark.parametrize("mode", [None, "floor", "trunc"])
def test_quotients_of_two_python_numbers(mode):
    """As PyTorch's `div` alone: libraries compute chunk counts so."""
    for x, y in ((16, 4), (-16, 3), (7.5, 2), (7, -2.0)):
        exact = {None: x / y, "floor": math.floor(x / y), "trunc": math.trunc(x / y)}[mode]
        found = rl.div(x, y, rounding_mode=mode)
        whole = mode is not None and isinstance(x, int) and isinstance(y, int)
        assert found.dtype is (rl.int64 if whole else rl.float32)
        assert found.item() == pytest.approx(exact) and found.shape == ()
