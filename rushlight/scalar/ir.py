"""Expressions: the nouns of the scalar instruction set.

# Note [Scalar instructions]
1. Types are bool, int32, int64, uint32, uint64, float32, float64. Halves are loaded as float32 and
   rounded when stored, integers of 8 and 16 bits as int32 and cut when stored.
2. Both operands of an arithmetic instruction have one type; `cast` is the only conversion.
3. Integer arithmetic wraps. Integer `div` truncates towards zero and `rem` has the sign of the
   dividend; by zero both give 0 (an op that must raise checks first). Shifts count modulo the
   width; `shr` keeps the sign of int types.
4. NaN and Inf are ordinary values: no emitter may assume them away. `min`/`max` give NaN when
   either side is NaN.
5. `fma` rounds once where the hardware can; nothing else is contracted, so that an element has the
   same bits in a vector body, in a tail and under any split over threads.
6. float to int casts truncate; out of range and NaN are unspecified, as in C. int to bool is
   `!= 0`.
7. Comparisons give bool; `and or xor not` take bool or integers; `select(c, a, b)` is
   `a if c else b`.
8. `bitcast` keeps the bits: float32 <-> int32/uint32, float64 <-> int64, int64 <-> uint64. `mulhi`
   is the high word of uint32 * uint32.
9. Leaves: `arg i` is input i's element; `param i` a launch-time number; `index` the element's
   position (int64): in a map the linear position in the output, in a rowwise kernel and in a scan
   the position along the axis; `extent` the axis length (int64); `row k` the result of the k-th
   reduction, in a scan (k = 0) the state before this position.
10. A formula may also be of complex type; `real`, `imag` and `complex` convert. No kernel has such
    an expression: `scalar/complex.py` lowers them to pairs of real ones first.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from rushlight.core.dtypes import (
    DType,
    bool_,
    float32,
    float64,
    int32,
    int64,
    real_type,
    uint32,
    uint64,
)

TYPES = (bool_, int32, int64, uint32, uint64, float32, float64)

LEAVES = ("const", "arg", "param", "index", "extent", "row")
ARITHMETIC = ("add", "sub", "mul", "div", "rem", "min", "max", "neg", "abs", "fma")
ROUNDING = ("floor", "ceil", "round", "trunc")  # `round` rounds ties to even
COMPARISON = ("eq", "ne", "lt", "le", "isnan")
BITWISE = ("and", "or", "xor", "not", "shl", "shr", "mulhi")
CHOICE = ("select", "cast", "bitcast")
ELEMENTARY = ("sqrt", "exp", "log", "sin", "cos", "tanh", "erf", "pow")
INSTRUCTIONS = LEAVES + ARITHMETIC + ROUNDING + COMPARISON + BITWISE + CHOICE + ELEMENTARY

_ORDER: dict[str, Callable[[Any, Any], bool]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
}

Number = bool | int | float
AnyNumber = Number | complex


class Expr:
    """One instruction and its operands.

    Equal expressions are one object (`make` is the only maker).
    """

    __slots__ = ("args", "dtype", "op", "value")

    op: str
    args: tuple[Expr, ...]
    dtype: DType
    value: Number | None  # the constant, or the number of an arg, param or row

    def __repr__(self) -> str:
        if self.op == "const":
            return repr(self.value)
        if self.op in ("arg", "param", "row"):
            return f"{self.op}{self.value}"
        return f"{self.op}({', '.join(map(repr, self.args))})"

    def __add__(self, other: Expr | Number) -> Expr:
        return binary("add", self, other)

    def __radd__(self, other: Number) -> Expr:
        return binary("add", other, self)

    def __sub__(self, other: Expr | Number) -> Expr:
        return binary("sub", self, other)

    def __rsub__(self, other: Number) -> Expr:
        return binary("sub", other, self)

    def __mul__(self, other: Expr | Number) -> Expr:
        return binary("mul", self, other)

    def __rmul__(self, other: Number) -> Expr:
        return binary("mul", other, self)

    def __truediv__(self, other: Expr | Number) -> Expr:
        return binary("div", self, other)

    def __rtruediv__(self, other: Number) -> Expr:
        return binary("div", other, self)

    def __neg__(self) -> Expr:
        return unary("neg", self)

    def __lt__(self, other: Expr | Number) -> Expr:
        return binary("lt", self, other)

    def __le__(self, other: Expr | Number) -> Expr:
        return binary("le", self, other)

    def __gt__(self, other: Expr | Number) -> Expr:
        return binary("lt", other, self)

    def __ge__(self, other: Expr | Number) -> Expr:
        return binary("le", other, self)

    # `==` stays identity: expressions are dictionary keys.
    def eq(self, other: Expr | Number) -> Expr:
        return binary("eq", self, other)

    def ne(self, other: Expr | Number) -> Expr:
        return binary("ne", self, other)

    def __and__(self, other: Expr | Number) -> Expr:
        return binary("and", self, other)

    def __or__(self, other: Expr | Number) -> Expr:
        return binary("or", self, other)

    def __xor__(self, other: Expr | Number) -> Expr:
        return binary("xor", self, other)

    def __invert__(self) -> Expr:
        return unary("not", self)

    def __lshift__(self, other: Expr | Number) -> Expr:
        return binary("shl", self, other)

    def __rshift__(self, other: Expr | Number) -> Expr:
        return binary("shr", self, other)


_EXPRESSIONS: dict[tuple[object, ...], Expr] = {}


def make(op: str, args: tuple[Expr, ...], dtype: DType, value: Number | None = None) -> Expr:
    # repr distinguishes 0.0 from -0.0 and 1 from 1.0 and True, which hash alike.
    key = (op, args, dtype, None if value is None else repr(value))
    found = _EXPRESSIONS.get(key)
    if found is None:
        found = Expr()
        found.op, found.args, found.dtype, found.value = op, args, dtype, value
        _EXPRESSIONS[key] = found
    return found


def const(value: AnyNumber, dtype: DType) -> Expr:
    if dtype.kind == "c":
        return make(("const"), (), dtype, complex(value))  # type: ignore[arg-type]  # in no kernel: rule 10
    assert not isinstance(value, complex)
    if dtype.kind == "f":
        value = float(value)
    elif dtype.kind == "b":
        value = bool(value)
    else:
        value = int(value)
        if dtype.kind == "u":
            value &= (1 << 8 * dtype.itemsize) - 1
    return make("const", (), dtype, value)


def arg(i: int, dtype: DType) -> Expr:
    return make("arg", (), dtype, i)


def param(i: int, dtype: DType) -> Expr:
    return make("param", (), dtype, i)


def row(k: int, dtype: DType) -> Expr:
    return make("row", (), dtype, k)


def index() -> Expr:
    return make("index", (), int64)


def extent() -> Expr:
    return make("extent", (), int64)


def _pair(a: Expr | Number, b: Expr | Number) -> tuple[Expr, Expr]:
    if not isinstance(a, Expr):
        assert isinstance(b, Expr)
        a = const(a, b.dtype)
    elif not isinstance(b, Expr):
        b = const(b, a.dtype)
    if a.dtype is not b.dtype:
        raise TypeError(f"scalar operands differ in type: {a!r} is {a.dtype}, {b!r} is {b.dtype}")
    return a, b


def unary(op: str, x: Expr) -> Expr:
    if op == "neg" and x.op == "neg":
        return x.args[0]
    if op == "neg" and x.op == "const":
        assert x.value is not None
        return const(-x.value, x.dtype)
    if op == "not" and x.op == "not":
        return x.args[0]
    return make(
        op, (x,), bool_ if op == "isnan" else real_type(x.dtype) if op == "abs" else x.dtype
    )


def binary(op: str, a: Expr | Number, b: Expr | Number) -> Expr:
    a, b = _pair(a, b)
    if op in ("mul", "div") and _is(b, 1):
        return a
    if op == "mul" and _is(a, 1):
        return b
    if op == "mul" and _is(b, -1):
        return unary("neg", a)
    if op == "mul" and _is(a, -1):
        return unary("neg", b)
    if op in ("add", "sub") and a.dtype.kind not in "fc" and _is(b, 0):
        return a
    if op in _ORDER and _is_whole(a) and _is_whole(b):
        return const(_ORDER[op](a.value, b.value), bool_)
    return make(op, (a, b), bool_ if op in COMPARISON else a.dtype)


def _is_whole(x: Expr) -> bool:
    """A constant that every type represents exactly."""
    value = x.value
    return (
        x.op == "const"
        and isinstance(value, (int, float))
        and -128 < value < 128
        and value == int(value)
    )


def _is(x: Expr, value: int) -> bool:
    return x.op == "const" and x.dtype.kind in "if" and x.value == value


def topological(roots: tuple[Expr, ...] | list[Expr]) -> tuple[Expr, ...]:
    """Every expression under `roots` once, operands before users; without recursion."""
    return _ordered(tuple(roots))


@lru_cache(maxsize=64)  # an emitter asks for the order of one long formula a dozen times
def _ordered(roots: tuple[Expr, ...]) -> tuple[Expr, ...]:
    order: dict[Expr, None] = {}
    stack = list(reversed(roots))
    while stack:
        expr = stack[-1]
        waiting = len(stack)
        for operand in expr.args[::-1]:
            if operand not in order:
                stack.append(operand)
        if len(stack) == waiting:
            order[stack.pop()] = None
    return tuple(order)


def rebuild(roots: tuple[Expr, ...] | list[Expr], replace: dict[Expr, Expr]) -> tuple[Expr, ...]:
    """The expressions with some replaced."""
    done = dict(replace)
    for expr in topological(roots):
        if expr in done:
            continue
        args = tuple(done[a] for a in expr.args)
        done[expr] = expr if args == expr.args else make(expr.op, args, expr.dtype, expr.value)
        if expr in SLOPES and SLOPES[expr][0] in done:
            x, slope = SLOPES[expr]
            with_slope(done[expr], done[x], slope)
    return tuple(done[r] for r in roots)


# ---- declared derivatives ----

# Formula: (its operand, the formula of its derivative).
SLOPES: dict[Expr, tuple[Expr, Callable[[Expr], Expr]]] = {}


def with_slope(made: Expr, x: Expr, slope: Callable[[Expr], Expr]) -> Expr:
    """`made`, a formula of x, with the derivative `slope` instead of that of its instructions.

    The declared derivative is more accurate, at poles for example.
    """
    if made.args:
        SLOPES.setdefault(made, (x, slope))
    return made
