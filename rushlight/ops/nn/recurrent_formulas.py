"""The scalar formulas of recurrent layers: one step of each kind, and its derivative.

An argument is an element of a gate, a state or a gradient. The parts of the gates come as `x`, from
the input with the biases, and `h`, from the state. A derivative reads the gates after their
activations. Its last argument, the gradient of the step's output, is there where `given` says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from rushlight.core.dtypes import DType, compute_type
from rushlight.kernel.shapes import Cell, Map, Reduce, Rowwise
from rushlight.ops.family.map import Formula
from rushlight.ops.nn.activations import _share as gate
from rushlight.scalar import build as s
from rushlight.scalar.ir import Expr, arg, row


def _formula(dtype: DType, count: int, body: Sequence[Expr]) -> Formula:
    return Formula((dtype,) * count, (), (dtype,) * len(body), tuple(body))


def _arguments(dtype: DType, count: int) -> list[Expr]:
    return [arg(i, compute_type(dtype)) for i in range(count)]


@cache
def added(dtype: DType, count: int) -> Formula:
    """The sum of `count` elements, from the first on."""
    first, *rest = _arguments(dtype, count)
    for each in rest:
        first = first + each
    return _formula(dtype, count, [first])


@cache
def sum_kernel(dtype: DType) -> Map:
    """The sum of two contiguous operands."""
    formula = added(dtype, 2)
    return Map(formula.outputs, formula.inputs, (), formula.body, 0, ("1", "1", "1"))


@cache
def column_sums(dtype: DType) -> Rowwise:
    """Sums over the rows of a matrix."""
    compute = compute_type(dtype)
    passes = (Reduce("sum", arg(0, compute)),)
    stores = (row(0, compute),)
    return Rowwise((dtype,), ("row",), (dtype,), (), passes, stores, "inner", ("1", "1"))


# ---- steps ----


@cache
def simple_step(dtype: DType, mode: str) -> Formula:
    """The state, of x and h."""
    x, h = _arguments(dtype, 2)
    return _formula(dtype, 2, [s.tanh(x + h) if mode == "RNN_TANH" else s.maximum(x + h, 0)])


@cache
def lstm_step(dtype: DType) -> Formula:
    """The gates i, f, g, o, the memory and the output, of four x, four h and the old memory."""
    *parts, c = _arguments(dtype, 9)
    return _formula(dtype, 9, _lstm(parts[:4], parts[4:], c))


def _lstm(x: Sequence[Expr], h: Sequence[Expr], c: Expr) -> list[Expr]:
    i, f, g, o = (each + part for each, part in zip(x, h, strict=True))
    i, f, g, o = gate(i), gate(f), s.tanh(g), gate(o)
    c = f * c + i * g
    return [i, f, g, o, c, o * s.tanh(c)]


@cache
def lstm_shown(dtype: DType) -> Formula:
    """The output, of the gate o and the memory."""
    o, c = _arguments(dtype, 2)
    return _formula(dtype, 2, [o * s.tanh(c)])


@cache
def gru_step(dtype: DType, bias: bool) -> Formula:
    """The gates r, z, n, the state's part of n, and the state.

    Of three x, three h, the old state and the bias of the state's part of n.
    """
    count = 8 if bias else 7
    parts = _arguments(dtype, count)
    return _formula(dtype, count, _gru(parts[:3], parts[3:6], *parts[6:]))


def _gru(x: Sequence[Expr], state: Sequence[Expr], h: Expr, bias: Expr | None = None) -> list[Expr]:
    (xr, xz, xn), (hr, hz, hn) = x, state
    hn = hn if bias is None else hn + bias
    r, z = gate(xr + hr), gate(xz + hz)
    n = s.tanh(xn + r * hn)
    return [r, z, n, hn, n + z * (h - n)]


@cache
def cell(dtype: DType, lstm: bool, bias: bool, whole: bool) -> Cell:
    """A step with its products; the parts of h come first, then those of x, the old state, biases.

    An LSTM's has four biases; a GRU's three of x, and that of the state's part of n. The results
    are those of a step; without `whole` no gates, and nothing that a GRU keeps beside them.
    """
    count = 4 if lstm else 3
    inputs = count + 1 + (4 if bias else 0)
    parts = _arguments(dtype, count + inputs)
    h, x, (old, *more) = parts[:count], parts[count : 2 * count], parts[2 * count :]
    x = [each + b for each, b in zip(x, more, strict=False)] if bias else x
    body = _lstm(x, h, old) if lstm else _gru(x, h, old, *more[3:])
    return Cell(dtype, count, inputs, tuple(body if whole else body[4:]))


# ---- derivatives of steps ----


@cache
def simple_slope(dtype: DType, mode: str, given: bool) -> Formula:
    """The gradient of x and h, of the state and its gradient."""
    count = 3 if given else 2
    h, dh, *rest = _arguments(dtype, count)
    dh = dh + rest[0] if rest else dh
    slope = dh * (1 - h * h) if mode == "RNN_TANH" else s.where(h <= 0, 0.0, dh)
    return _formula(dtype, count, [slope])


@cache
def lstm_slope(dtype: DType, given: bool) -> Formula:
    """The gradients of the four sums x + h and of the old memory.

    Of the gates, the old and the new memory, the new memory's gradient and the output's.
    """
    count = 9 if given else 8
    i, f, g, o, old, new, dc, dh, *rest = _arguments(dtype, count)
    dh = dh + rest[0] if rest else dh
    seen = s.tanh(new)
    dc = dc + dh * o * (1 - seen * seen)
    slopes = [
        dc * g * (i * (1 - i)),
        dc * old * (f * (1 - f)),
        dc * i * (1 - g * g),
        dh * seen * (o * (1 - o)),
    ]
    return _formula(dtype, count, [*slopes, dc * f])


@cache
def gru_slope(dtype: DType, given: bool) -> Formula:
    """The gradients of three x, three h, and of the old state where z keeps it.

    Of r, z, n, the state's part of n, the old state, and the new state's gradient in two parts.
    """
    count = 8 if given else 7
    r, z, n, hn, h, kept, dh, *rest = _arguments(dtype, count)
    dh = dh + kept
    dh = dh + rest[0] if rest else dh
    dn = dh * (1 - z) * (1 - n * n)
    dz = dh * (h - n) * (z * (1 - z))
    dr = dn * hn * (r * (1 - r))
    return _formula(dtype, count, [dr, dz, dn, dr, dz, dn * r, dh * z])
