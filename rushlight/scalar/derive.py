"""Reverse-mode derivatives of expressions. A derivative is an expression, so all orders follow."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from rushlight.scalar import build as s
from rushlight.scalar.ir import SLOPES, Expr, const, topological

Rule = Callable[..., tuple[Expr | None, ...]]


def _pow(g: Expr, out: Expr, x: Expr, y: Expr) -> tuple[Expr, Expr]:
    # x ** 0 is constant, also at 0; 0 ** y is constant in y for y >= 0. Values that are not
    # selected must be finite there too: the next derivative multiplies them by 0.
    none, one = const(0, x.dtype), const(1, x.dtype)
    by_x = s.where(y.eq(0), none, g * (y * s.power(x, s.where(y.eq(0), one, y) - 1)))
    flat = x.eq(0) & (y >= 0)
    by_y = s.where(flat, none, g * (out * s.log(s.where(flat, one, x))))
    return by_x, by_y


def _pick(g: Expr, x: Expr, y: Expr, wins: Expr) -> Expr:
    """Gradient of max or min for the side that is selected; a tie is shared equally."""
    return s.where(x.eq(y), g * 0.5, s.where(wins, g, const(0, g.dtype)))


RULES: dict[str, Rule] = {
    "add": lambda g, out, x, y: (g, g),
    "sub": lambda g, out, x, y: (g, -g),
    "mul": lambda g, out, x, y: (g * y, g * x),
    "div": lambda g, out, x, y: (g / y, -(g * out) / y),
    "rem": lambda g, out, x, y: (g, -g * s.trunc(x / y)),
    "neg": lambda g, out, x: (-g,),
    "abs": lambda g, out, x: (s.where(x > 0, g, s.where(x < 0, -g, const(0, x.dtype))),),
    "fma": lambda g, out, x, y, z: (g * y, g * x, g),
    "min": lambda g, out, x, y: (_pick(g, x, y, x < y), _pick(g, x, y, y < x)),
    "max": lambda g, out, x, y: (_pick(g, x, y, x > y), _pick(g, x, y, y > x)),
    "sqrt": lambda g, out, x: (g / (out * 2),),
    "exp": lambda g, out, x: (g * out,),
    "log": lambda g, out, x: (g / x,),
    "sin": lambda g, out, x: (g * s.cos(x),),
    "cos": lambda g, out, x: (-g * s.sin(x),),
    "tanh": lambda g, out, x: (g * (1 - out * out),),
    "erf": lambda g, out, x: (g * (s.exp(-(x * x)) * (2 / math.sqrt(math.pi))),),
    "pow": _pow,
    "select": lambda g, out, c, x, y: (
        None,
        s.where(c, g, const(0, g.dtype)),
        s.where(c, const(0, g.dtype), g),
    ),
    "cast": lambda g, out, x: (s.cast(g, x.dtype) if x.dtype.kind in "fc" else None,),
}


def _complex_abs(g: Expr, out: Expr, x: Expr) -> tuple[Expr]:
    zero = out.eq(0)
    scaled = s.where(zero, const(0, g.dtype), g / s.where(zero, const(1, out.dtype), out))
    return (s.paired(s.real(x) * scaled, s.imag(x) * scaled),)


def _complex_pow(g: Expr, out: Expr, x: Expr, y: Expr) -> tuple[Expr, Expr]:
    none, one = const(0, x.dtype), const(1, x.dtype)
    by_x = s.where(y.eq(0), none, g * s.conj(y * s.power(x, s.where(y.eq(0), one, y) - 1)))
    flat = x.eq(0)
    by_y = s.where(flat, none, g * s.conj(out * s.log(s.where(flat, one, x))))
    return by_x, by_y


# The gradient of a real loss by a complex number is (by its real part) + i (by its imaginary part),
# as in PyTorch. For a function with a complex derivative that is g * conj(derivative), so the rules
# above hold with g conjugated before and after.
COMPLEX_RULES: dict[str, Rule] = {
    "add": RULES["add"],
    "sub": RULES["sub"],
    "neg": RULES["neg"],
    "select": RULES["select"],
    "cast": RULES["cast"],
    "mul": lambda g, out, x, y: (g * s.conj(y), g * s.conj(x)),
    "abs": _complex_abs,
    "pow": _complex_pow,
    "real": lambda g, out, x: (s.paired(g, const(0, g.dtype)),),
    "imag": lambda g, out, x: (s.paired(const(0, g.dtype), g),),
    "complex": lambda g, out, re, im: (s.real(g), s.imag(g)),
}


def _rule_of(expr: Expr) -> Rule:
    if all(e.dtype.kind != "c" for e in (expr, *expr.args)):
        rule = RULES.get(expr.op)
    else:
        rule = COMPLEX_RULES.get(expr.op)
        if rule is None and expr.op in RULES:
            plain = RULES[expr.op]
            return lambda g, *rest: tuple(p and s.conj(p) for p in plain(s.conj(g), *rest))
    if rule is None:
        raise ValueError(f"instruction {expr.op} has no derivative")
    return rule


# Constant almost everywhere: their derivative is zero, as in PyTorch.
FLAT = (
    "floor",
    "ceil",
    "round",
    "trunc",
    "eq",
    "ne",
    "lt",
    "le",
    "isnan",
    "and",
    "or",
    "xor",
    "not",
)


def gradients(
    outs: Sequence[Expr], seeds: Sequence[Expr], wrt: Sequence[Expr]
) -> list[Expr | None]:
    """For each of `wrt`, the sum over `outs` of seed times derivative.

    None where none depends on it, and of integers and truth values.
    """
    sums: dict[Expr, Expr] = {}
    for out, seed in zip(outs, seeds, strict=True):
        sums[out] = sums[out] + seed if out in sums else seed
    # What is made of integers alone is constant, whatever its instructions.
    wanted = {expr for expr in wrt if expr.dtype.kind in "fc"}
    order = topological(list(outs))
    useful: set[Expr] = set()
    for expr in order:
        if expr in wanted or any(a in useful for a in expr.args):
            useful.add(expr)
    for expr in reversed(order):
        g = sums.get(expr)
        if g is None or not expr.args or expr in wanted or expr.op in FLAT:
            continue
        if expr in SLOPES:
            x, slope = SLOPES[expr]
            more = g * slope(x)
            sums[x] = sums[x] + more if x in sums else more
            continue
        for operand, part in zip(expr.args, _rule_of(expr)(g, expr, *expr.args), strict=True):
            if part is not None and operand in useful and operand.dtype.kind in "fc":
                sums[operand] = sums[operand] + part if operand in sums else part
    return [sums.get(w) for w in wrt]
