"""The inverse and hyperbolic functions: errors in ulps and special values, by the reference
device.
"""

import math

import numpy as np
import pytest
from scipy import special

import rushlight
from benchmarks import ulp
from rushlight.core.dtypes import bool_, float32, float64, int32, uint32
from rushlight.scalar import hyperbolic, inverse
from rushlight.scalar.elementary import lower
from rushlight.scalar.gamma import digamma, lgamma
from rushlight.scalar.ir import arg, topological

DTYPES = [float32, float64]
KIND = {float32: np.float32, float64: np.float64}
INF, NAN = math.inf, math.nan

# name -> (truth, the largest argument in float32 and float64)
FUNCTIONS = {
    "sinh": (np.sinh, (88.9, 709.9)),
    "cosh": (np.cosh, (88.9, 709.9)),
    "tan": (np.tan, (1e4, 1e4)),
    "exp2": (np.exp2, (125.0, 1020.0)),
    "asin": (np.arcsin, (1.0, 1.0)),
    "acos": (np.arccos, (1.0, 1.0)),
    "atan": (np.arctan, (1e3, 1e3)),
    "asinh": (np.arcsinh, (1e30, 1e300)),
    "acosh": (np.arccosh, (1e30, 1e300)),
    "atanh": (np.arctanh, (1.0, 1.0)),
}


def formula(name, dtype, operands=1):
    function = getattr(inverse, name) if hasattr(inverse, name) else getattr(hyperbolic, name)
    return function(*(arg(i, dtype) for i in range(operands)))


def points(name, dtype, largest):
    """Even, near 0, and even in the exponent; with either sign."""
    random = np.random.default_rng(3)
    spread = np.exp(random.uniform(-60, math.log(largest), 8000))
    x = np.concatenate(
        [random.uniform(0, min(largest, 8), 8000), random.uniform(0, min(largest, 1), 8000), spread]
    )
    x = (1 + x if name == "acosh" else x * random.choice([-1, 1], x.shape)).astype(KIND[dtype])
    return x[np.abs(x) <= largest]


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_error_is_within_its_bound(name, dtype):
    truth, largest = FUNCTIONS[name]
    x = points(name, dtype, largest[DTYPES.index(dtype)])
    errors = ulp.errors(ulp.run(formula(name, dtype), x), truth(x.astype(np.longdouble)))
    assert errors.max() <= inverse.BOUNDS[name][DTYPES.index(dtype)], x[errors.argmax()]


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
def test_angles_of_points(dtype):
    y, x = np.random.default_rng(4).normal(size=(2, 20_000)).astype(KIND[dtype])
    errors = ulp.errors(
        ulp.run(formula("atan2", dtype, 2), y, x), np.arctan2(y, x, dtype=np.longdouble)
    )
    assert errors.max() <= inverse.BOUNDS["atan2"][0]
    values = np.array([0.0, -0.0, 1, -1, INF, -INF, NAN, 1e-40, 3e38], KIND[dtype])
    y, x = (a.ravel() for a in np.meshgrid(values, values))
    got, want = ulp.run(formula("atan2", dtype, 2), y, x), np.arctan2(y, x)
    np.testing.assert_allclose(got, want, rtol=1e-6)
    assert np.array_equal(np.signbit(got[~np.isnan(got)]), np.signbit(want[~np.isnan(got)]))


@pytest.mark.parametrize("name", ["erfc", "erfinv"])
def test_error_functions_in_float32(name):
    random = np.random.default_rng(5)
    x = random.uniform(-3, 9, 20_000) if name == "erfc" else np.tanh(random.uniform(-8, 8, 20_000))
    x = x.astype(np.float32)
    errors = ulp.errors(
        ulp.run(formula(name, float32), x), getattr(special, name)(x.astype(np.float64))
    )
    assert errors.max() <= inverse.BOUNDS[name][0], x[errors.argmax()]


def test_error_functions_in_float64():
    x = np.linspace(-3, 5, 4001)
    np.testing.assert_allclose(ulp.run(formula("erfc", float64), x), special.erfc(x), rtol=4e-15)
    assert ulp.run(formula("erfc", float64), np.array([25.0]))[0] == pytest.approx(
        8.300172571196522e-274, rel=1e-14
    )
    y = np.tanh(np.linspace(-9, 9, 4001))
    np.testing.assert_allclose(
        ulp.run(formula("erfinv", float64), y), special.erfinv(y), rtol=2e-15
    )


SPECIAL = {
    "sinh": [(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -INF), (1e4, INF)],
    "cosh": [(0.0, 1.0), (INF, INF), (-INF, INF), (-1e4, INF)],
    "tan": [(0.0, 0.0), (-0.0, -0.0), (INF, NAN)],
    "exp2": [(0.0, 1.0), (INF, INF), (-INF, 0.0), (5.0, 32.0), (-1e4, 0.0), (1e4, INF)],
    "asin": [(0.0, 0.0), (-0.0, -0.0), (2.0, NAN), (-INF, NAN)],
    "acos": [(1.0, 0.0), (2.0, NAN), (-INF, NAN)],
    "atan": [(0.0, 0.0), (-0.0, -0.0)],
    "asinh": [(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -INF)],
    "acosh": [(1.0, 0.0), (0.5, NAN), (-5.0, NAN), (INF, INF), (-INF, NAN)],
    "atanh": [(0.0, 0.0), (-0.0, -0.0), (1.0, INF), (-1.0, -INF), (2.0, NAN), (INF, NAN)],
    "erfc": [(0.0, 1.0), (INF, 0.0), (-INF, 2.0)],
    "erfinv": [(0.0, 0.0), (1.0, INF), (-1.0, -INF), (1.5, NAN), (-INF, NAN)],
}


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
@pytest.mark.parametrize("name", SPECIAL)
def test_special_values(name, dtype):
    for x, want in [*SPECIAL[name], (NAN, NAN)]:
        got = float(ulp.run(formula(name, dtype), np.array([x], KIND[dtype]))[0])
        same = (
            math.isnan(got)
            if math.isnan(want)
            else (got, math.copysign(1, got)) == (want, math.copysign(1, want))
        )
        assert same, f"{name}({x}) is {got}, not {want}"


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
def test_gamma_functions(dtype):
    """Errors relative to 1 + |result|: near zeros no more is promised."""
    x = np.concatenate(
        [np.linspace(0.01, 30, 5001), np.linspace(-7.9, -0.1, 781) + 0.003, [1e3, 1e6]]
    ).astype(KIND[dtype])
    for function, truth in ((lgamma, special.gammaln), (digamma, special.digamma)):
        got = ulp.run(lower((function(arg(0, dtype)),))[0], x)
        want = truth(x.astype(np.float64))
        slope = (
            1
            + np.abs(want)
            + np.where(x < 0, np.abs(special.polygamma(1, x.astype(np.float64))), 0)
        )
        assert (np.abs(got - want) / slope).max() <= 12 * np.finfo(KIND[dtype]).eps, (
            function.__name__
        )


@pytest.mark.parametrize("name", [*FUNCTIONS, "erfc", "erfinv"])
def test_float32_needs_no_wide_types(name):
    """WebGPU has neither float64 nor int64."""
    assert {e.dtype for e in topological([formula(name, float32)])} <= {
        bool_,
        int32,
        uint32,
        float32,
    }


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
def test_nextafter_steps_by_one_bit(dtype):
    values = np.array(
        [0.0, -0.0, 1, -1, 2.5, INF, -INF, NAN, np.finfo(KIND[dtype]).max], KIND[dtype]
    )
    x, y = (a.ravel() for a in np.meshgrid(values, values))
    got = rushlight.nextafter(rushlight.tensor(x), rushlight.tensor(y)).numpy()
    with np.errstate(all="ignore"):
        want = np.nextafter(x, y)
    assert np.array_equal(got, want, equal_nan=True)
