"""How far the elementary functions are from the truth, in units in the last place.

    python benchmarks/ulp.py [points]

The lowered formulas are run by the reference arithmetic, on every exponent and on the ranges where the result moves.
The truth is float64 for float32 functions and long double (64 bits of mantissa on x86) for float64 functions.
"""

from __future__ import annotations

import math
import sys

import numpy as np
from scipy import special

from rushlight.core.dtypes import float32, float64
from rushlight.devices.reference import ARITHMETIC, NumpyMachine
from rushlight.scalar import elementary
from rushlight.scalar.interpret import evaluate
from rushlight.scalar.ir import arg, topological

_PI = np.longdouble("3.14159265358979323846264338327950288")


def _erf_long(x):
    """erf in long double: the series of positive terms below 3, the continued fraction of erfc above."""
    size = np.abs(x)
    square = size * size
    term = np.minimum(size, 3)
    total = term.copy()
    inner = term * term
    for k in range(1, 120):
        term = term * (2 * inner) / (2 * k + 1)
        total = total + term
    near = total * np.exp(-inner) * (2 / np.sqrt(_PI))
    fraction = np.zeros_like(x)
    for k in range(120, 0, -1):
        fraction = (np.longdouble(k) / 2) / (np.maximum(size, 2) + fraction)
    far = 1 - np.exp(-square) / (np.sqrt(_PI) * (np.maximum(size, 2) + fraction))
    return np.copysign(np.where(size < 3, near, far), x)


# name -> (operands, truth in float64, truth in long double)
FUNCTIONS = {
    "exp": (1, np.exp, np.exp),
    "log": (1, np.log, np.log),
    "sin": (1, np.sin, np.sin),
    "cos": (1, np.cos, np.cos),
    "tanh": (1, np.tanh, np.tanh),
    "erf": (1, special.erf, _erf_long),
    "pow": (2, np.power, np.power),
    "expm1": (1, np.expm1, np.expm1),
    "log1p": (1, np.log1p, np.log1p),
}


def formula(name, dtype):
    function = elementary.power if name == "pow" else getattr(elementary, name)
    return function(*(arg(i, dtype) for i in range(FUNCTIONS[name][0])))


def run(expr, *operands):
    machine = NumpyMachine()

    def leaf(e):
        return operands[e.value] if e.op == "arg" else machine.number(e.dtype, e.value)

    with np.errstate(all="ignore"):
        return evaluate((expr,), leaf, ARITHMETIC)[0]


def errors(got, truth):
    """Distance from the truth in ulps of the result type; inf where a special value differs."""
    kind = got.dtype
    with np.errstate(all="ignore"):
        rounded = truth.astype(kind)
        unit = np.spacing(np.where(np.isfinite(rounded), np.abs(rounded), np.finfo(kind).max)).astype(truth.dtype)
        far = np.abs(got.astype(truth.dtype) - truth) / unit
    same = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
    overflow = np.isinf(rounded) != np.isinf(got)
    edge = overflow & (np.abs(truth) >= np.finfo(kind).max) & ~np.isnan(got)
    exact = same & ~np.isfinite(rounded)
    result = np.where(exact | edge, 0, far)
    zero = (got == 0) & (rounded == 0) & (np.signbit(got) != np.signbit(rounded))
    return np.where(np.isnan(result) | zero, np.inf, result).astype(np.float64)


def samples(name, kind, count, seed=0):
    """Numbers of every exponent, and numbers where the function moves."""
    rng = np.random.default_rng(seed)
    integer = np.int32 if kind == np.float32 else np.int64
    limits = np.iinfo(integer)
    everything = rng.integers(limits.min, limits.max, count, dtype=integer, endpoint=True).view(kind)
    reach = {"exp": 745, "expm1": 745, "tanh": 25, "erf": 6.5, "sin": 100, "cos": 100, "log": 4, "log1p": 4}.get(
        name, 4
    )
    reach = min(reach, 104) if kind == np.float32 and name in ("exp", "expm1") else reach
    uniform = rng.uniform(-reach, reach, count).astype(kind)
    near = (rng.uniform(-1, 1, count) * 2.0 ** rng.integers(-30, 4, count)).astype(kind)
    around_one = (1 + rng.uniform(-1, 1, count) * 2.0 ** rng.integers(-20, 0, count)).astype(kind)
    turns = np.round(rng.uniform(0, 1e5, count)) * (math.pi / 2)
    special_values = np.array(
        [
            0.0,
            -0.0,
            1,
            -1,
            np.inf,
            -np.inf,
            np.nan,
            0.5,
            -0.5,
            np.finfo(kind).tiny,
            np.finfo(kind).max,
            -np.finfo(kind).max,
        ],
        kind,
    )
    least = np.array([1, 2, 3, -limits.max, 1 - limits.max], integer).view(kind)
    return np.concatenate([everything, uniform, near, around_one, turns.astype(kind), special_values, least])


def operands_of(name, kind, count):
    x = samples(name, kind, count)
    if FUNCTIONS[name][0] == 1:
        return (x,)
    rng = np.random.default_rng(1)
    top = 126 if kind == np.float32 else 1022
    y = samples(name, kind, count, seed=2)
    rng.shuffle(y)
    # Pairs whose result is finite: y = (a power of two that fits) / log2 x.
    base = np.abs(samples("log", kind, count, seed=3))
    with np.errstate(all="ignore"):
        fit = (rng.uniform(-1.1 * top, 1.1 * top, base.size) / np.log2(base.astype(np.float64))).astype(kind)
    small = rng.integers(-20, 20, x.size).astype(kind)
    return np.concatenate([x, base, x]), np.concatenate([y, fit, small])


def measure(name, dtype, count):
    """(greatest error in ulps, mean error, the operands of the greatest)."""
    kind = np.float32 if dtype is float32 else np.float64
    wide = np.float64 if dtype is float32 else np.longdouble
    operands = operands_of(name, kind, count)
    truth_of = FUNCTIONS[name][1 if dtype is float32 else 2]
    with np.errstate(all="ignore"):
        truth = truth_of(*(x.astype(wide) for x in operands))
    far = errors(run(formula(name, dtype), *operands), truth)
    worst = int(np.argmax(far))
    finite = far[np.isfinite(far)]
    return float(far[worst]), float(finite.mean()), tuple(float(x[worst]) for x in operands)


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200_000
    print(f"{'function':8} {'type':8} {'instructions':>12} {'max ulp':>8} {'mean':>6}  worst at")
    for name in FUNCTIONS:
        for dtype in (float32, float64):
            expr = formula(name, dtype)
            length = sum(bool(e.args) and e.op != "bitcast" for e in topological([expr]))
            worst, mean, where = measure(name, dtype, count)
            print(f"{name:8} {dtype.name:8} {length:12} {worst:8.3f} {mean:6.3f}  {', '.join(map(repr, where))}")


if __name__ == "__main__":
    main()
