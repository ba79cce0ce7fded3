"""Numbers that scale an operand: `alpha` and `value` act in the type of the result."""

import math

import pytest

import rushlight as rl

INT, BYTE = rl.tensor([-3], dtype=rl.int32), rl.tensor([6], dtype=rl.uint8)
CHAR = rl.tensor([100], dtype=rl.int8)


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (lambda: rl.add(INT, BYTE, alpha=-1), -9),
        (lambda: rl.sub(INT, CHAR, alpha=3), -303),
        (lambda: rl.rsub(CHAR, INT, alpha=3), -303),
        (lambda: rl.rsub(BYTE, INT, alpha=-1), 3),
        (lambda: INT.clone().add_(BYTE, alpha=-1), -9),
        (lambda: rl.add(INT.to(rl.int64), INT, alpha=2**40), -3 - 3 * 2**40),
        (lambda: rl._foreach_add([INT], [BYTE], alpha=-1)[0], -9),
        (lambda: rl.add(rl.tensor([1.5]), CHAR, alpha=1000), 100001.5),
        (lambda: rl.add(rl.tensor([1.5]), rl.tensor([3.0], dtype=rl.half), alpha=1e5), 300001.5),
    ],
)
def test_alpha_multiplies_in_the_type_of_the_result(made, expected):
    assert made().tolist() == [expected]


def test_alpha_passes_a_gradient_in_the_operands_own_type():
    x = rl.tensor([2.0], dtype=rl.half, requires_grad=True)
    rl.add(rl.tensor([1.0]), x, alpha=3.0).sum().backward()
    assert x.grad.dtype is rl.half
    assert x.grad.tolist() == [3.0]


def test_an_alpha_that_the_result_does_not_hold_is_refused():
    with pytest.raises(rl.RushlightError, match="300 does not fit into uint8"):
        rl.add(BYTE, BYTE, alpha=300)


def test_a_factor_does_not_change_the_type_of_addcmul():
    made = rl.addcmul(INT, INT, INT, value=2.0)
    assert made.dtype is rl.int32
    assert made.tolist() == [15]
    assert rl.addcmul(INT, INT, INT, value=-2.5).tolist() == [-21]  # cut towards zero
    assert BYTE.clone().addcmul_(BYTE, BYTE, value=0.5).tolist() == [6]
    for number in (-1.5, 300, math.inf):
        with pytest.raises(rl.RushlightError, match=f"addcmul: {number} does not fit into uint8"):
            rl.addcmul(BYTE, BYTE, BYTE, value=number)
    true = rl.tensor([True])
    with pytest.raises(NotImplementedError, match="addcmul: bool"):
        rl.addcmul(true, true, true, value=2)
    with pytest.raises(rl.RushlightError, match="addcdiv: 2j is complex"):
        rl.addcdiv(rl.ones(1), rl.ones(1), rl.ones(1), value=2j)
    with pytest.raises(rl.RushlightError, match="lerp: 1j is complex"):
        rl.lerp(rl.ones(1), rl.ones(1), 1j)


def test_bounds_of_clamp_count_in_the_promoted_type():
    assert rl.clamp(BYTE, -0.5, 300).tolist() == [6.0]
    assert rl.clamp(BYTE, rl.tensor([1]), 300).tolist() == [6]
    with pytest.raises(rl.RushlightError, match="300 does not fit into uint8"):
        rl.clamp(BYTE, 1, 300)
