"""The scalar instruction set: what happens to one element.

Owns: expressions, their simplifier, their derivatives, the lowering of elementary functions,
Philox.
Takes: Python formulas over `Expr`. Gives: typed, hash-consed expression graphs.
Never: knows arrays, loops, memory or devices.
"""

from rushlight.scalar.build import (
    absolute as abs,
    bits_to,
    cast,
    ceil,
    cos,
    erf,
    exp,
    floor,
    fma,
    isnan,
    log,
    maximum,
    minimum,
    mulhi,
    power,
    remainder_c,
    round_even,
    sin,
    sqrt,
    tanh,
    trunc,
    where,
)
from rushlight.scalar.ir import Expr, arg, const, extent, index, param, row

__all__ = [
    "Expr",
    "abs",
    "arg",
    "bits_to",
    "cast",
    "ceil",
    "const",
    "cos",
    "erf",
    "exp",
    "extent",
    "floor",
    "fma",
    "index",
    "isnan",
    "log",
    "maximum",
    "minimum",
    "mulhi",
    "param",
    "power",
    "remainder_c",
    "round_even",
    "row",
    "sin",
    "sqrt",
    "tanh",
    "trunc",
    "where",
]
