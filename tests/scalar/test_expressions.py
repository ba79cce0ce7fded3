"""scalar/: expressions, their simplifier, derivatives, Philox, and each instruction's meaning."""

import math
import operator

import numpy as np
import pytest

from rushlight import scalar as s
from rushlight.core.dtypes import bool_, float32, float64, int32, int64, uint32
from rushlight.devices.reference import ARITHMETIC, NumpyMachine, numpy_dtype
from rushlight.scalar.derive import FLAT, RULES, gradients
from rushlight.scalar.interpret import evaluate
from rushlight.scalar.ir import INSTRUCTIONS, LEAVES, arg, const, make, rebuild, topological
from rushlight.scalar.philox import philox, random_word, uniform


def run(root, *operands):
    """The value of an expression; arg i is operands[i], cast to the leaf's type."""
    machine = NumpyMachine()

    def leaf(expr):
        if expr.op == "arg":
            return np.asarray(operands[expr.value], numpy_dtype(expr.dtype))
        return machine.number(expr.dtype, expr.value)

    with np.errstate(all="ignore"):
        return evaluate((root,), leaf, ARITHMETIC)[0]


X, Y, Z = (s.arg(i, float64) for i in range(3))


# ---- expressions ----


def test_equal_expressions_are_one_object():
    assert X + Y is X + Y
    assert s.exp(X) * 2 is s.exp(X) * 2.0
    assert X + Y is not Y + X
    assert s.const(0.0, float32) is not s.const(-0.0, float32)
    assert s.const(1, int32) is not s.const(True, bool_)
    assert s.const(1, int32) is not s.const(1, int64)


def test_uint32_constants_wrap():
    assert s.const(-1, uint32).value == 0xFFFFFFFF


def test_simplifier():
    n = s.arg(0, int64)
    assert X * 1 is X and 1 * X is X and X / 1 is X
    negative = -X
    assert X * -1 is negative and -negative is X
    assert ~~n is n
    assert n + 0 is n and n - 0 is n
    assert s.where(X > 0, Y, Y) is Y
    assert s.cast(X, float64) is X
    assert s.cast(s.const(2, int32), float32) is s.const(2.0, float32)
    assert (-s.const(0.0, float64)) is s.const(-0.0, float64)


def test_simplifier_keeps_what_rounding_and_signs_need():
    assert (X + 0.0).op == "add"  # -0.0 + 0.0 is 0.0
    assert (X * 0.0).op == "mul"  # inf * 0 is NaN


def test_operands_of_two_types_are_refused():
    with pytest.raises(TypeError, match="differ in type"):
        X + s.arg(1, float32)
    with pytest.raises(TypeError, match="branches differ"):
        s.where(X > 0, X, s.arg(1, float32))


def test_topological_order_is_deep_and_complete():
    deep = X
    for _ in range(20_000):
        deep = deep + Y
    order = topological([deep])
    assert len(order) == 20_002
    assert order[-1] is deep
    place = {e: i for i, e in enumerate(order)}
    assert all(place[a] < place[e] for e in order for a in e.args)


def test_rebuild_replaces():
    (changed,) = rebuild((s.exp(X) + Y,), {X: Z})
    assert changed is s.exp(Z) + Y


def test_evaluate_takes_any_arithmetic():
    table = {"add": lambda dtype, a, b: f"({a}+{b})", "exp": lambda dtype, a: f"e^{a}"}
    leaves = lambda e: f"x{e.value}"  # noqa: E731
    assert evaluate((s.exp(X + Y), X), leaves, table) == ["e^(x0+x1)", "x0"]


def test_every_instruction_can_be_evaluated():
    assert set(ARITHMETIC) == set(INSTRUCTIONS) - set(LEAVES)


# ---- what the instructions mean ----


def test_integers_wrap():
    n = s.arg(0, int32)
    assert run(n + 1, 2**31 - 1) == -(2**31)
    assert run(n * n, 65537) == np.int32(131073)
    assert run(-s.arg(0, uint32), 1) == 0xFFFFFFFF
    assert run(s.abs(n), -(2**31)) == -(2**31)


@pytest.mark.parametrize("dtype", [int32, int64])
def test_integer_division_truncates(dtype):
    a, b = s.arg(0, dtype), s.arg(1, dtype)
    tops = np.array([7, -7, 7, -7, 5, 0, -6, 6])
    bottoms = np.array([2, 2, -2, -2, 0, 0, 3, -3])
    np.testing.assert_array_equal(run(a / b, tops, bottoms), [3, -3, -3, 3, 0, 0, -2, -2])
    np.testing.assert_array_equal(
        run(s.remainder_c(a, b), tops, bottoms), [1, -1, 1, -1, 0, 0, 0, 0]
    )
    least = np.iinfo(numpy_dtype(dtype)).min
    assert run(a / b, least, -1) == least


def test_shifts_count_modulo_the_width():
    n, u = s.arg(0, int32), s.arg(0, uint32)
    assert run(n << 33, 3) == 6
    assert run(n >> 1, -8) == -4
    assert run(u >> 1, 0x80000000) == 0x40000000
    assert run(s.arg(0, int64) << 64, 3) == 3


def test_mulhi_is_the_high_word():
    a, b = s.arg(0, uint32), s.arg(1, uint32)
    x, y = 0xDEADBEEF, 0xCAFEBABE
    assert run(s.mulhi(a, b), x, y) == (x * y) >> 32


@pytest.mark.parametrize("function", [s.maximum, s.minimum])
def test_min_and_max_pass_nan_on(function):
    assert math.isnan(run(function(X, Y), math.nan, 1.0))
    assert math.isnan(run(function(X, Y), 1.0, math.nan))


def test_rounding():
    values = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 2.4])
    np.testing.assert_array_equal(run(s.round_even(X), values), [-2, -2, -0.0, 0, 2, 2, 2])
    np.testing.assert_array_equal(run(s.trunc(X), values), [-2, -1, -0.0, 0, 1, 2, 2])
    np.testing.assert_array_equal(run(s.floor(X), values), [-3, -2, -1, 0, 1, 2, 2])
    np.testing.assert_array_equal(run(s.ceil(X), values), [-2, -1, -0.0, 1, 2, 3, 3])


def test_casts():
    assert run(s.cast(X, int32), -2.9) == -2
    assert run(s.cast(s.arg(0, int64), uint32), -1) == 0xFFFFFFFF
    assert run(s.cast(s.arg(0, int64), bool_), 256)
    assert run(s.cast(X, float32), 0.1).dtype == np.float32
    assert run(s.bits_to(s.arg(0, float32), int32), 1.0) == 0x3F800000
    assert run(s.bits_to(X, int64), -0.0) == -(2**63)


def test_float32_rounds_at_each_instruction():
    x, y = s.arg(0, float32), s.arg(1, float32)
    big = np.float32(2**24)
    assert run((x + y) + y, big, 1.0) == big
    assert run(x * y, 1e30, 1e30) == np.inf


@pytest.mark.parametrize("dtype", [float32, float64])
def test_fma_rounds_once(dtype):
    bits = 24 if dtype is float32 else 53
    a = 1 + 2.0 ** (1 - bits)
    x = s.arg(0, dtype)
    product = run(s.fma(x, x, s.arg(1, dtype)), a, -1.0)
    assert product == 2.0 ** (2 - bits) + 2.0 ** (2 - 2 * bits)
    assert math.copysign(1, run(s.fma(x, x, s.arg(1, dtype)), 0.0, -0.0)) == 1
    assert math.copysign(1, run(s.fma(x, s.arg(1, dtype), s.arg(2, dtype)), -0.0, 1.0, -0.0)) == -1


# ---- Philox ----


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_known_answers(counter, key, words):
    """The vectors published with Random123 for philox4x32-10."""
    made = philox(
        tuple(s.const(c, uint32) for c in counter), tuple(s.const(k, uint32) for k in key)
    )
    assert [int(run(w)) for w in made] == list(words)


def test_random_words_are_the_counters_words_in_order():
    seed, position = s.arg(0, int64), s.arg(1, int64)
    words = run(random_word(seed, position), 0, np.arange(4))
    np.testing.assert_array_equal(words, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8])
    # The key is the seed's two words, the counter the position's: a high bit of either changes the
    # stream.
    far = run(random_word(seed, position), 1 << 40, np.arange(4))
    high = run(random_word(seed, position), 0, np.arange(4) + (1 << 40))
    assert not (far == words).any() and not (high == words).any()


@pytest.mark.parametrize("dtype", [float32, float64])
def test_uniform_is_below_one(dtype):
    numbers = run(uniform(s.arg(0, int64), s.arg(1, int64), dtype), 7, np.arange(100_000))
    assert numbers.min() >= 0 and numbers.max() < 1
    assert abs(numbers.mean() - 0.5) < 0.005
    assert abs(numbers.var() - 1 / 12) < 0.002


# ---- derivatives ----

FORMULAS = {
    "add": (operator.add, (0.3, -0.7)),
    "sub": (operator.sub, (0.3, -0.7)),
    "mul": (operator.mul, (0.3, -0.7)),
    "div": (operator.truediv, (0.3, -0.7)),
    "rem": (s.remainder_c, (5.3, 1.7)),
    "neg": (operator.neg, (0.3,)),
    "abs": (s.abs, (-0.3,)),
    "fma": (s.fma, (0.3, -0.7, 1.1)),
    "min": (s.minimum, (0.3, -0.7)),
    "max": (s.maximum, (0.3, -0.7)),
    "sqrt": (s.sqrt, (0.8,)),
    "exp": (s.exp, (0.4,)),
    "log": (s.log, (0.8,)),
    "sin": (s.sin, (0.8,)),
    "cos": (s.cos, (0.8,)),
    "tanh": (s.tanh, (0.4,)),
    "erf": (s.erf, (0.4,)),
    "pow": (s.power, (1.3, 2.4)),
    "select": (lambda x, y: s.where(x > 0, x * y, x + y), (0.3, -0.7)),
    "cast": (lambda x: s.cast(s.cast(x, float64) * x, float64), (0.3,)),
}


def slope(root, place, which, step=1e-5):
    """A central difference of fourth order."""

    def at(shift):
        moved = list(place)
        moved[which] += shift * step
        return float(run(root, *moved))

    return (8 * (at(1) - at(-1)) - (at(2) - at(-2))) / (12 * step)


def test_every_rule_is_tested():
    assert set(FORMULAS) == set(RULES)
    assert not set(FLAT) & set(RULES)


@pytest.mark.parametrize("name", FORMULAS)
def test_derivatives_to_second_order(name):
    function, place = FORMULAS[name]
    args = [s.arg(i, float64) for i in range(len(place))]
    # The outside makes the incoming gradient depend on the inputs.
    out = s.sin(function(*args) * 1.3)
    one = s.const(1.0, float64)
    firsts = gradients([out], [one], args)
    for i, first in enumerate(firsts):
        assert first is not None
        assert float(run(first, *place)) == pytest.approx(slope(out, place, i), rel=1e-7, abs=1e-8)
        for j, second in enumerate(gradients([first], [one], args)):
            value = 0.0 if second is None else float(run(second, *place))
            assert value == pytest.approx(slope(first, place, j), rel=1e-7, abs=1e-7)


def test_gradients_sum_over_outputs_and_uses():
    first, second = gradients([X * Y, X], [s.const(2.0, float64), s.const(3.0, float64)], [X, Y])
    assert float(run(first, 5.0, 7.0)) == 17.0
    assert float(run(second, 5.0, 7.0)) == 10.0


def test_gradients_of_what_is_not_used_or_flat():
    assert gradients([s.exp(X)], [s.const(1.0, float64)], [Y]) == [None]
    assert gradients([s.floor(X)], [s.const(1.0, float64)], [X]) == [None]


def test_gradient_through_bits_is_refused():
    with pytest.raises(ValueError, match="bitcast has no derivative"):
        gradients([s.bits_to(s.bits_to(X, int64) + 1, float64)], [s.const(1.0, float64)], [X])


def test_ties_of_maximum_are_shared():
    parts = gradients([s.maximum(X, Y)], [s.const(1.0, float64)], [X, Y])
    assert [float(run(p, 2.0, 2.0)) for p in parts] == [0.5, 0.5]


def test_power_at_zero_is_finite():
    by_x, by_y = gradients([s.power(X, Y)], [s.const(1.0, float64)], [X, Y])
    assert float(run(by_x, 0.0, 0.0)) == 0.0
    assert float(run(by_y, 0.0, 2.0)) == 0.0


def test_make_is_the_only_maker():
    assert make("add", (X, Y), float64) is X + Y


def test_comparisons_of_constants_are_settled():
    """One driver loses the store of a kernel that compares two float64 constants."""
    zero, one = const(0, float64), const(1, float64)
    x = arg(0, float64)
    assert zero.ne(zero) is const(False, bool_)
    assert s.where(zero.ne(zero), x, one) is one
    assert s.where(zero < one, x, one) is x
    nan = const(float("nan"), float64)
    assert nan.eq(nan).op == "eq"
