"""Python's operators: NumPy arrays, foreign classes and plain numbers as operands."""

from __future__ import annotations

import math

import numpy as np
import pytest

import rushlight as rl

NAN, INF = math.nan, math.inf


class Mine:
    """Another library's operand, which knows what to do with a tensor."""

    def __radd__(self, other):
        return "added"

    def __rmatmul__(self, other):
        return "multiplied"

    def __gt__(self, other):
        return "compared"


def test_operators_leave_the_unknown_to_the_other_operand():
    x = rl.ones(2)
    assert (x + Mine(), x @ Mine(), x < Mine()) == ("added", "multiplied", "compared")
    x += Mine()
    assert x == "added"
    x = rl.ones(2, dtype=rl.int64)
    assert (x == None) is False and (x != None) is True  # noqa: E711
    assert x not in (None, "text", [1, 1])
    for call in (
        lambda: x + "text",
        lambda: "text" + x,
        lambda: x & None,
        lambda: x < "text",
        lambda: x @ 2,
    ):
        with pytest.raises(TypeError):
            call()
    assert x.__rdiv__(3).tolist() == [3.0, 3.0]


def test_two_numbers_make_a_tensor():
    assert rl.add(2, 3).dtype is rl.int64
    assert rl.mul(2, 1.5).tolist() == 3.0
    assert rl.div(True, False).tolist() == INF
    assert rl.sub(2j, 3).tolist() == -3 + 2j
    assert rl.floor_divide(7, 2).tolist() == 3
    with pytest.raises(TypeError, match="at least one"):
        rl.maximum(2, 3)


def test_alpha_of_bools_and_of_integers():
    yes, one = rl.tensor([True, False]), rl.tensor([1], dtype=rl.int8)
    assert rl.add(yes, yes, alpha=2).tolist() == [True, False]
    assert rl.add(~yes, yes, alpha=0).tolist() == [False, True]
    assert yes.clone().add_(~yes, alpha=3).tolist() == [True, True]
    for call in (lambda: rl.add(one, one, alpha=1.0), lambda: one.sub_(one, alpha=1.0)):
        with pytest.raises(RuntimeError, match="no integer"):
            call()
    with pytest.raises(TypeError, match="requires a gradient"):
        rl.addcmul(rl.ones(2), rl.ones(2), rl.ones(2), value=rl.tensor(2.0, requires_grad=True))


@pytest.mark.parametrize("dtype", [rl.float16, rl.bfloat16], ids=["float16", "bfloat16"])
def test_a_number_counts_as_what_a_half_type_holds_of_it(device, dtype):
    for value in (0.1, 0.3, 1e-7, -2051.0, 3.3e4, 7e-6):
        x = rl.tensor([value], dtype=dtype, device=device)
        assert (x == value).item() and (x >= value).item() and not (x > value).item(), value
        assert (x - value).item() == 0
        assert (x % value).item() == 0
    assert (rl.tensor([INF], dtype=rl.float16, device=device) == 1e6).item()
    x = rl.tensor([3.0], dtype=dtype, device=device)
    assert (x * 0.1).item() == rl.tensor(3.0 * np.float32(0.1), dtype=dtype).item()


def test_arrays_are_operands():
    x = rl.tensor([1.0, 2.0])
    a = np.array([3.0, 4.0])
    assert (x * a).dtype is rl.float64 and (x * a).tolist() == [3, 8] and (a * x).tolist() == [3, 8]
    assert (x == np.array([1.0, 5.0])).tolist() == [True, False]
    assert (x - np.array([[1], [2]])).tolist() == [[0, 1], [-1, 0]]


class Foreign:
    def __radd__(self, other):
        return "mine"

    def __rsub__(self, other):
        return "mine too"


def test_operators_leave_what_is_foreign():
    x = rl.ones(2)
    assert (x == None) is False and (x != None) is True  # noqa: E711
    assert (x == "a") is False and x in [None, x] and (x == [1, 1]) is False
    assert x + Foreign() == "mine" and x - Foreign() == "mine too"
    for call in (lambda: x + "a", lambda: x - None, lambda: x < "a", lambda: x ** "a"):
        with pytest.raises(TypeError):
            call()
    with pytest.raises(RuntimeError, match="str"):
        "a" in x  # noqa: B015


def test_reversed_turns_the_first_dimension():
    assert rl.equal(reversed(rl.arange(6).reshape(2, 3)), rl.tensor([[3, 4, 5], [0, 1, 2]]))
