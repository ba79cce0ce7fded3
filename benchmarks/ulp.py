"""The errors of the elementary functions, in units in the last place.

    python benchmarks/ulp.py [points] [--only NAME,NAME] [--markdown]

The reference arithmetic runs the lowered formulas, on every exponent (subnormals and huge arguments
included) and on the ranges where the result changes. The truth is float64 for float32 functions;
for float64 functions it is long double (64 bits of mantissa on x86) where C has the function, else
mpmath with 40 digits on three thousand points: those rows are left out when mpmath is not
installed. `--markdown` prints the table that benchmarks/results/ulp.md keeps.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from rushlight.core.dtypes import float32, float64
from rushlight.devices.reference import ARITHMETIC, NumpyMachine
from rushlight.ops.registry import REGISTRY
from rushlight.scalar import elementary, inverse
from rushlight.scalar.elementary import lower, power
from rushlight.scalar.interpret import evaluate
from rushlight.scalar.ir import arg, topological

try:
    import mpmath
except ImportError:
    mpmath = None

_PI = np.longdouble("3.14159265358979323846264338327950288")
_PRECISE = 3000  # points measured with mpmath


def _erf_long(x):
    """erf in long double: the series of positive terms below 3, the continued fraction of erfc
    above.
    """
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


def _sinc(x):
    """sin(pi x) / (pi x) with whole turns subtracted exactly."""
    whole = np.rint(x)
    pi = _PI.astype(x.dtype)
    with np.errstate(all="ignore"):
        sine = np.sin(pi * (x - whole)) * np.where(np.remainder(whole, 2) == 0, 1, -1)
        return np.where(x == 0, 1, sine / (pi * x))


def _sigmoid(x):
    small = np.exp(-np.abs(x))
    return np.where(x < 0, small, 1) / (1 + small)


def _gamma_log(x):
    return np.where(x == -np.inf, np.inf, special.gammaln(x))


@dataclass(frozen=True)
class Function:
    """One function: its truths, and the range where it changes."""

    single: Callable[..., Any]  # the truth of float32, in float64
    long: Callable[..., Any] | None = None  # the truth of float64, in long double
    precise: str = ""  # else its name in mpmath
    operands: int = 1
    reach: tuple[float, float] = (4, 4)  # dense below it, in float32 and float64
    floor: float = (
        0  # below this size the unit is that of the floor: near a zero the error is absolute
    )
    positive: bool = False  # measured above 0 only
    body: Callable[..., Any] | None = None  # the formula, where it is not that of an op of the name


def _same(function, **named):
    """C has it in long double too."""
    return Function(function, function, **named)


FUNCTIONS = {
    "exp": _same(np.exp, reach=(104, 745)),
    "exp2": _same(np.exp2, reach=(150, 1075)),
    "expm1": _same(np.expm1, reach=(104, 745)),
    "log": _same(np.log),
    "log2": _same(np.log2),
    "log10": _same(np.log10),
    "log1p": _same(np.log1p),
    "sin": _same(np.sin, reach=(100, 100)),
    "cos": _same(np.cos, reach=(100, 100)),
    "tan": _same(np.tan, reach=(100, 100)),
    "asin": _same(np.arcsin, reach=(1, 1)),
    "acos": _same(np.arccos, reach=(1, 1)),
    "atan": _same(np.arctan),
    "atan2": _same(np.arctan2, operands=2),
    "sinh": _same(np.sinh, reach=(90, 711)),
    "cosh": _same(np.cosh, reach=(90, 711)),
    "tanh": _same(np.tanh, reach=(25, 25)),
    "asinh": _same(np.arcsinh),
    "acosh": _same(np.arccosh),
    "atanh": _same(np.arctanh, reach=(1, 1)),
    "pow": _same(np.power, operands=2, body=power),
    "sqrt": _same(np.sqrt),
    "rsqrt": _same(lambda x: 1 / np.sqrt(x)),
    "hypot": _same(np.hypot, operands=2),
    "sinc": _same(_sinc, reach=(20, 20)),
    "sigmoid": _same(_sigmoid, reach=(104, 745)),
    "logaddexp": _same(np.logaddexp, operands=2, reach=(30, 60), floor=1),
    "erf": Function(special.erf, _erf_long, reach=(6.5, 6.5)),
    "erfc": Function(special.erfc, precise="erfc", reach=(11, 28)),
    "erfinv": Function(lambda x: np.copysign(special.erfinv(x), x), precise="erfinv", reach=(1, 1)),
    "lgamma": Function(_gamma_log, precise="loggamma", reach=(40, 40), positive=True),
    "lgamma, x < 0": Function(_gamma_log, reach=(40, 40), floor=1),
    "digamma": Function(special.digamma, precise="digamma", reach=(40, 40), floor=1, positive=True),
}
BOUNDS = {**elementary.BOUNDS, **inverse.BOUNDS}
NOT_ELEMENTARY = ("logaddexp", "lgamma", "lgamma, x < 0", "digamma")


def formula(name, dtype):
    function = FUNCTIONS[name]
    body = function.body or REGISTRY[name.split(",")[0]].function.op.body
    return lower((body(*(arg(i, dtype) for i in range(function.operands))),))[0]


def run(expr, *operands):
    machine = NumpyMachine()

    def leaf(e):
        return operands[e.value] if e.op == "arg" else machine.number(e.dtype, e.value)

    with np.errstate(all="ignore"):
        return evaluate((expr,), leaf, ARITHMETIC)[0]


def errors(got, truth, floor=0.0):
    """Distance from the truth in ulps of the result type; inf where a special value differs."""
    kind = got.dtype
    with np.errstate(all="ignore"):
        rounded = truth.astype(kind)
        size = np.maximum(np.abs(rounded), kind.type(floor))
        unit = np.spacing(np.where(np.isfinite(rounded), size, np.finfo(kind).max)).astype(
            truth.dtype
        )
        far = np.abs(got.astype(truth.dtype) - truth) / unit
    same = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
    overflow = np.isinf(rounded) != np.isinf(got)
    edge = overflow & (np.abs(truth) >= np.finfo(kind).max) & ~np.isnan(got)
    exact = same & ~np.isfinite(rounded)
    result = np.where(exact | edge, 0, far)
    zero = (got == 0) & (rounded == 0) & (np.signbit(got) != np.signbit(rounded))
    return np.where(np.isnan(result) | zero, np.inf, result).astype(np.float64)


def samples(name, kind, count, seed=0):
    """Numbers of every exponent, and numbers where the function changes."""
    rng = np.random.default_rng(seed)
    integer = np.int32 if kind == np.float32 else np.int64
    limits = np.iinfo(integer)
    largest = np.finfo(kind).max
    everything = rng.integers(limits.min, limits.max, count, dtype=integer, endpoint=True).view(
        kind
    )
    reach = FUNCTIONS[name].reach[0 if kind == np.float32 else 1]
    uniform = rng.uniform(-reach, reach, count).astype(kind)
    near = (rng.uniform(-1, 1, count) * 2.0 ** rng.integers(-30, 4, count)).astype(kind)
    around_one = (1 + rng.uniform(-1, 1, count) * 2.0 ** rng.integers(-20, 0, count)).astype(kind)
    turns = np.round(rng.uniform(0, 1e5, count)) * (math.pi / 2)
    ends = [
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
        largest,
        -largest,
    ]
    least = np.array([1, 2, 3, -limits.max, 1 - limits.max], integer).view(kind)
    parts = [everything, uniform, near, around_one, turns.astype(kind), np.array(ends, kind), least]
    if name.endswith("x < 0"):
        return -np.abs(np.concatenate(parts))
    return np.abs(np.concatenate(parts)) if FUNCTIONS[name].positive else np.concatenate(parts)


def operands_of(name, kind, count):
    x = samples(name, kind, count)
    if FUNCTIONS[name].operands == 1:
        return (x,)
    rng = np.random.default_rng(1)
    y = samples(name, kind, count, seed=2)
    rng.shuffle(y)
    if name != "pow":
        with np.errstate(all="ignore"):
            close = (x * rng.uniform(0.25, 4, x.size)).astype(kind)
        return np.concatenate([x, x]), np.concatenate([y, close])
    # Pairs whose result is finite: y = (a power of two that fits) / log2 x.
    top = 126 if kind == np.float32 else 1022
    base = np.abs(samples("log", kind, count, seed=3))
    with np.errstate(all="ignore"):
        fit = (
            rng.uniform(-1.1 * top, 1.1 * top, base.size) / np.log2(base.astype(np.float64))
        ).astype(kind)
    small = rng.integers(-20, 20, x.size).astype(kind)
    return np.concatenate([x, base, x]), np.concatenate([y, fit, small])


def _precisely(name, x):
    """mpmath's values at some finite points, each as the sum of two float64 in long double."""
    function = getattr(mpmath, FUNCTIONS[name].precise)
    lowest = np.finfo(np.float64).tiny  # mpmath's series take very long at extreme arguments
    fit = x[np.isfinite(x) & (np.abs(x) > lowest) & (np.abs(x) < 1e15)]
    fit = fit[np.abs(fit) < 1] if name == "erfinv" else fit
    fit = fit[np.abs(fit) < 26] if name == "erfc" else fit
    fit = np.random.default_rng(0).permutation(fit)[:_PRECISE]
    truth = np.empty(fit.size, np.longdouble)
    with mpmath.workdps(40):
        for i, value in enumerate(fit):
            exact = function(mpmath.mpf(float(value)))
            head = float(exact)
            truth[i] = np.longdouble(head) + np.longdouble(float(exact - head))
    return fit, truth


def measure(name, dtype, count):
    """(greatest error in ulps, mean error, the operands of the greatest); None without a truth."""
    function = FUNCTIONS[name]
    kind = np.float32 if dtype is float32 else np.float64
    wide = np.float64 if dtype is float32 else np.longdouble
    operands = operands_of(name, kind, count)
    truth_of = function.single if dtype is float32 else function.long
    if truth_of is not None:
        with np.errstate(all="ignore"):
            truth = truth_of(*(x.astype(wide) for x in operands))
    elif function.precise and mpmath is not None:
        fit, truth = _precisely(name, operands[0])
        operands = (fit,)
    else:
        return None
    far = errors(run(formula(name, dtype), *operands), truth, function.floor)
    worst = int(np.argmax(far))
    finite = far[np.isfinite(far)]
    return float(far[worst]), float(finite.mean()), tuple(float(x[worst]) for x in operands)


def rows(names, count):
    """(name, type, instructions, measured) of each function and type."""
    for name in names:
        for dtype in (float32, float64):
            expr = formula(name, dtype)
            length = sum(bool(e.args) and e.op != "bitcast" for e in topological([expr]))
            measured = measure(name, dtype, count)
            if measured is not None:
                yield name, dtype.name, length, measured


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("points", nargs="?", type=int, default=200_000)
    parser.add_argument("--only", default=",".join(FUNCTIONS.keys() - {"lgamma, x < 0"}))
    parser.add_argument("--markdown", action="store_true")
    options = parser.parse_args()
    wanted = options.only.split(",")
    names = [name for name in FUNCTIONS if name.split(",")[0] in wanted]
    if options.markdown:
        print(
            "| function | type | instructions | bound, ulp | greatest found | mean | at |\n"
            "|---|---|---|---|---|---|---|"
        )
    else:
        print(
            f"{'function':14} {'type':8} {'instructions':>12} {'max ulp':>8} {'mean':>6}  worst at"
        )
    for name, kind, length, (worst, mean, where) in rows(names, options.points):
        shown = ", ".join(map(repr, where))
        if options.markdown:
            mark = " *" if name in NOT_ELEMENTARY else ""
            bound = BOUNDS[name][kind == "float64"]
            print(
                f"| {name}{mark} | {kind} | {length} | {bound} | {worst:.2f} | {mean:.2f} | "
                f"{shown} |",
                flush=True,
            )
        else:
            print(f"{name:14} {kind:8} {length:12} {worst:8.3f} {mean:6.3f}  {shown}", flush=True)


if __name__ == "__main__":
    main()
