"""The lowered elementary functions: errors in ulps, special values, and their instructions."""

import math

import numpy as np
import pytest

import rushlight
from benchmarks import ulp
from rushlight import scalar as s
from rushlight.core.dtypes import bool_, float32, float64, int32, uint32
from rushlight.scalar import elementary
from rushlight.scalar.ir import arg, topological

DTYPES = [float32, float64]
NAMES = list(ulp.FUNCTIONS)
LOWERED = ("exp", "log", "sin", "cos", "tanh", "erf", "pow")
INF, NAN = math.inf, math.nan


def kind_of(dtype):
    return np.float32 if dtype is float32 else np.float64


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
@pytest.mark.parametrize("name", NAMES)
def test_error_is_within_its_bound(name, dtype):
    measured = ulp.measure(name, dtype, 10_000)
    if measured is None:
        pytest.skip("its truth needs mpmath")
    worst, _, where = measured
    assert worst <= ulp.BOUNDS[name][DTYPES.index(dtype)], where


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
@pytest.mark.parametrize("name", NAMES)
def test_error_is_within_its_bound_on_many_points(name, dtype):
    measured = ulp.measure(name, dtype, 300_000)
    if measured is None:
        pytest.skip("its truth needs mpmath")
    worst, _, where = measured
    assert worst <= ulp.BOUNDS[name][DTYPES.index(dtype)], where


@pytest.mark.parametrize("name", NAMES)
def test_float32_needs_no_wide_types(name):
    """WebGPU has neither float64 nor int64."""
    types = {e.dtype for e in topological([ulp.formula(name, float32)])}
    assert types <= {bool_, int32, uint32, float32}


@pytest.mark.parametrize("name", NAMES)
def test_float32_without_a_true_fma(name, monkeypatch):
    """Where fma rounds twice, half an ulp may be lost, not the result."""
    monkeypatch.setitem(ulp.ARITHMETIC, "fma", lambda dtype, a, b, c: a * b + c)
    worst, _, where = ulp.measure(name, float32, 10_000)
    assert worst <= ulp.BOUNDS[name][0] + 0.5, where


SPECIAL = {
    "exp": [(0.0, 1), (-0.0, 1), (INF, INF), (-INF, 0.0), (1e4, INF), (-1e4, 0.0)],
    "log": [(0.0, -INF), (-0.0, -INF), (1.0, 0.0), (INF, INF), (-1.0, NAN), (-INF, NAN)],
    "sin": [(0.0, 0.0), (-0.0, -0.0), (INF, NAN), (-INF, NAN)],
    "cos": [(0.0, 1.0), (-0.0, 1.0), (INF, NAN), (-INF, NAN)],
    "tanh": [(0.0, 0.0), (-0.0, -0.0), (INF, 1.0), (-INF, -1.0), (50.0, 1.0)],
    "erf": [(0.0, 0.0), (-0.0, -0.0), (INF, 1.0), (-INF, -1.0), (-8.0, -1.0)],
    "expm1": [(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -1.0)],
    "log1p": [(0.0, 0.0), (-0.0, -0.0), (-1.0, -INF), (-2.0, NAN), (INF, INF)],
}


def same(got, want):
    if math.isnan(want):
        return math.isnan(got)
    return got == want and math.copysign(1, got) == math.copysign(1, want)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
@pytest.mark.parametrize("name", SPECIAL)
def test_special_values(name, dtype):
    for x, want in [*SPECIAL[name], (NAN, NAN)]:
        got = float(ulp.run(ulp.formula(name, dtype), np.array([x], kind_of(dtype)))[0])
        assert same(got, want), f"{name}({x}) is {got}, not {want}"


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
def test_power_of_special_values_is_that_of_c(dtype):
    numbers = [
        0.0,
        -0.0,
        1,
        -1,
        0.5,
        -0.5,
        2,
        -2,
        3,
        -3,
        1e30,
        -1e30,
        2.5,
        -2.5,
        1e-30,
        INF,
        -INF,
        NAN,
    ]
    x, y = (a.ravel().astype(kind_of(dtype)) for a in np.meshgrid(numbers, numbers))
    with np.errstate(all="ignore"):
        want = np.power(x.astype(np.float64), y.astype(np.float64)).astype(kind_of(dtype))
    got = ulp.run(ulp.formula("pow", dtype), x, y)
    edge = (got == 0) | np.isinf(got) | np.isnan(got) | (np.abs(got) == 1)
    for a, b, g, w in zip(x[edge], y[edge], got[edge], want[edge], strict=True):
        assert same(float(g), float(w)), f"pow({a}, {b}) is {g}, not {w}"
    np.testing.assert_allclose(got, want, rtol=1e-6)


def test_subnormal_results_are_rounded_once():
    x = np.linspace(-103.9, -87.3, 4001).astype(np.float32)
    want = np.exp(x.astype(np.float64)).astype(np.float32)
    off = ulp.run(ulp.formula("exp", float32), x).view(np.int32) - want.view(np.int32)
    assert np.abs(off).max() <= 1


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
def test_log2_is_exact_at_powers_of_two(dtype):
    n = np.arange(*((-149, 128) if dtype is float32 else (-1074, 1024)))
    assert np.array_equal(ulp.run(ulp.formula("log2", dtype), np.ldexp(kind_of(dtype)(1), n)), n)


def test_halves_are_rounded_once_from_float32():
    x = rushlight.linspace(-3, 3, 4001).to(rushlight.float16)
    for name in ("exp", "tanh", "erf", "sin"):
        got = getattr(rushlight, name)(x)
        assert rushlight.equal(got, getattr(rushlight, name)(x.float()).to(rushlight.float16)), name


# The numbers of each type that lie closest to a multiple of pi/2.
CLOSEST = [(float32, 16367173 * 2.0**72), (float64, 6381956970095103 * 2.0**797)]


@pytest.mark.parametrize(("dtype", "x"), CLOSEST, ids=lambda v: getattr(v, "name", ""))
@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_reduction_at_the_hardest_arguments(name, dtype, x):
    got = ulp.run(ulp.formula(name, dtype), np.array([x, -x], kind_of(dtype)))
    wide = np.array([x, -x], np.longdouble)
    assert ulp.errors(got, getattr(np, name)(wide)).max() <= ulp.BOUNDS[name][0]


def test_sin_and_cos_share_their_reduction():
    x = arg(0, float32)
    both = elementary.lower((s.sin(x), s.cos(x)))
    assert len(topological(both)) < len(topological(both[:1])) + 15


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
def test_lower_leaves_only_basic_instructions(dtype):
    x, y = arg(0, dtype), arg(1, dtype)
    roots = (s.sqrt(s.exp(x) + s.log(y)), s.power(s.tanh(x), s.erf(y)) * s.sin(s.cos(x)))
    lowered = elementary.lower(roots)
    assert not {e.op for e in topological(lowered)} & set(LOWERED)
    assert "sqrt" in {e.op for e in topological(lowered)}
    assert [r.dtype for r in lowered] == [dtype, dtype]


def test_lower_keeps_what_has_no_elementary_functions():
    x = arg(0, float32)
    assert elementary.lower((x * 2 + 1,)) == (x * 2 + 1,)


def test_small_constant_powers_are_products():
    x = arg(0, float32)
    assert elementary.lower((s.power(x, 2.0),)) == (x * x,)
    assert elementary.lower((s.power(x, -1.0),)) == (1.0 / x,)
    assert elementary.lower((s.power(x, 0.0),))[0].value == 1.0
    assert len(topological(elementary.lower((s.power(x, 2.5),)))) > 20
