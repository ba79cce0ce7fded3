"""Elementary functions made of basic instructions: every device rounds alike, and loops vectorise.

Emitters run `lower` before printing; `sqrt` stays, since hardware has it. float32 formulas use
float32, int32 and uint32 only. NaN, infinities, signed zeros, subnormals, overflow and underflow
follow C99, where the device itself keeps them. `benchmarks/ulp.py` prints the measured errors;
tests hold them to BOUNDS. sin and cos hold for every finite argument
(Note [Reduction by quarter turns]).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rushlight.core.dtypes import float32
from rushlight.scalar.elementary_exponential import (
    erf,
    exp,
    expm1,
    log,
    log1p,
    log2,
    log10,
    tanh,
    times_half_of_one_plus_erf,
)
from rushlight.scalar.elementary_power import power
from rushlight.scalar.elementary_remainder import remainder
from rushlight.scalar.elementary_trigonometry import cos, sin
from rushlight.scalar.ir import Expr, const, make, topological
from rushlight.scalar.named import USES, Use

__all__ = [
    "BOUNDS",
    "cos",
    "erf",
    "exp",
    "expm1",
    "log",
    "log1p",
    "log2",
    "log10",
    "lower",
    "power",
    "sin",
    "tanh",
]

# Bounds on the error in units in the last place, as (float32, float64). A device whose fma rounds
# twice may exceed those of float32 by half a unit.
BOUNDS: dict[str, tuple[float, float]] = {
    "exp": (1.05, 1.05),
    "log": (1.0, 1.0),
    "sin": (1.75, 1.75),
    "cos": (1.75, 1.75),
    "tanh": (1.6, 1.6),
    "erf": (1.5, 1.5),
    "pow": (1.5, 1.5),
    "expm1": (2.0, 2.0),
    "log1p": (1.0, 1.0),
    "log2": (1.75, 1.75),
    "log10": (1.75, 1.75),
}


def _power(x: Expr, y: Expr) -> Expr:
    """Small constant powers are products: shorter, and never less accurate."""
    if y.op == "const" and y.value in _SHORT:
        return _SHORT[y.value](x)
    return power(x, y)


_SHORT: dict[object, Callable[[Expr], Expr]] = {
    0.0: lambda x: const(1.0, x.dtype),
    1.0: lambda x: x,
    2.0: lambda x: x * x,
    3.0: lambda x: x * x * x,
    -1.0: lambda x: 1.0 / x,
}

_FORMULAS: dict[str, Callable[..., Expr]] = {
    "exp": exp,
    "log": log,
    "sin": sin,
    "cos": cos,
    "tanh": tanh,
    "erf": erf,
    "pow": _power,
}


def _gelu(expr: Expr) -> tuple[Expr, float] | None:
    """(x, c) of (x * 0.5) * (1 + erf(x * c)) in float32, as `gelu` is written."""
    if expr.op != "mul" or expr.dtype is not float32:
        return None
    half, sum_ = expr.args
    if half.op != "mul" or sum_.op != "add" or half.args[1] is not const(0.5, float32):
        return None
    one, erf_ = sum_.args
    if one is not const(1.0, float32) or erf_.op != "erf" or erf_.args[0].op != "mul":
        return None
    x, factor = erf_.args[0].args
    if x is not half.args[0] or factor.op != "const":
        return None
    return x, float(factor.value)  # type: ignore[arg-type]


def lower(roots: Sequence[Expr], fused: bool = False) -> tuple[Expr, ...]:
    """The expressions without exp, log, sin, cos, tanh, erf and pow.

    Where fma is `fused`, `rem` of floats of usual size is lowered too.
    """
    done: dict[Expr, Expr] = {}
    for expr in topological(list(roots)):
        args = tuple(done[a] for a in expr.args)
        formula = _FORMULAS.get(expr.op)
        if formula is not None:
            done[expr] = formula(*args)
        elif fused and expr.op == "rem" and expr.dtype.kind == "f":
            done[expr] = remainder(*args)
        elif (found := _gelu(expr)) is not None:
            done[expr] = times_half_of_one_plus_erf(done[found[0]], found[1])
        elif args == expr.args:
            done[expr] = expr
        else:
            done[expr] = make(expr.op, args, expr.dtype, expr.value)
        if expr in USES and done[expr] is not expr:
            use = USES[expr]
            USES.setdefault(done[expr], Use(use.named, tuple(done.get(g, g) for g in use.given)))
    return tuple(done[r] for r in roots)
