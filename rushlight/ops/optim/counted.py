"""Numbers of an optimiser's step that follow from counts which only the device knows.

# Note [Steps decided on the device]
1. Where a scaler decides on the device whether a step is made, the host does not know how many
   steps a parameter has seen. Its counts (`FusedOptimizer.counts`) are then tensors of one element;
   parameters with the same past share them. The number of steps is an int32 then, which is how a
   shared one is known (Note [Optimisers] says how it is read).
2. `FusedOptimizer.numbers` is Python on numbers. Called with `Counted` for the counts it writes an
   expression: a plain number that meets one becomes a launch parameter, so rates and betas may
   change from step to step without another kernel. One launch over one element gives the new counts
   and the numbers of all parameters with that past.
3. It computes in float64 where the device has it. Elsewhere it computes in float32, in which
   `lacking` loses no digits; `1 - beta**count` would.
4. The step's kernel reads these numbers, and `found`, as operands. Where `found` is not 0 the new
   values are the old ones, in both launches.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rushlight.core.dtypes import DType, compute_type, float32, float64, int32, real_type
from rushlight.core.shapes import Spec
from rushlight.ops.create.creation import full_spec
from rushlight.ops.family.map import Formula, MapOp
from rushlight.ops.optim.whole_steps import held_apart
from rushlight.scalar import build as s, elementary
from rushlight.scalar.ir import Expr, arg, param
from rushlight.tape.record import call
from rushlight.tape.record.op import Static
from rushlight.tape.record.value import Value


class _Writing:
    """One evaluation: the type of its expressions, and the plain numbers that they use."""

    def __init__(self, wide: DType) -> None:
        self.wide = wide
        self.params: list[float] = []

    def read(self, x: Any) -> Expr:
        if isinstance(x, Counted):
            return x.expr
        self.params.append(float(x))
        return param(len(self.params) - 1, self.wide)


class Counted:
    """A number that follows from a count on the device; it has Python's operators."""

    __slots__ = ("expr", "writing")

    def __init__(self, expr: Expr, writing: _Writing) -> None:
        self.expr = expr
        self.writing = writing

    def _made(self, expr: Expr) -> Counted:
        return Counted(expr, self.writing)

    def __add__(self, other: Any) -> Counted:
        return self._made(self.expr + self.writing.read(other))

    def __radd__(self, other: Any) -> Counted:
        return self._made(self.writing.read(other) + self.expr)

    def __sub__(self, other: Any) -> Counted:
        return self._made(self.expr - self.writing.read(other))

    def __rsub__(self, other: Any) -> Counted:
        return self._made(self.writing.read(other) - self.expr)

    def __mul__(self, other: Any) -> Counted:
        return self._made(self.expr * self.writing.read(other))

    def __rmul__(self, other: Any) -> Counted:
        return self._made(self.writing.read(other) * self.expr)

    def __truediv__(self, other: Any) -> Counted:
        return self._made(self.expr / self.writing.read(other))

    def __rtruediv__(self, other: Any) -> Counted:
        return self._made(self.writing.read(other) / self.expr)

    def __pow__(self, other: float) -> Counted:
        return self._made(elementary.power(self.expr, self.writing.read(other)))

    def __rpow__(self, base: float) -> Counted:
        return self._made(elementary.exp(self._exponent(base)))

    def __gt__(self, other: Any) -> Counted:
        return self._made(self.expr > self.writing.read(other))

    def _exponent(self, base: float) -> Expr:
        return self.expr * self.writing.read(math.log(base) if base else -math.inf)


# ---- functions of plain numbers and of counted ones ----


def lacking(base: float, count: Any) -> Any:
    """1 - base ** count."""
    if not isinstance(count, Counted):
        return 1 - base**count
    return count._made(-elementary.expm1(count._exponent(base)))


def root(x: Any) -> Any:
    """The square root."""
    return x._made(s.sqrt(x.expr)) if isinstance(x, Counted) else math.sqrt(x)


def largest(x: Any, y: float) -> Any:
    return x._made(s.maximum(x.expr, x.writing.read(y))) if isinstance(x, Counted) else max(x, y)


def chosen(condition: Any, x: Any, y: Any) -> Any:
    """x where the condition holds, else y."""
    if not isinstance(condition, Counted):
        return x if condition else y
    read = condition.writing.read
    return condition._made(s.where(condition.expr, read(x), read(y)))


def plain(x: Any) -> Any:
    """A number as a float, from whatever holds it; a counted one is as it is."""
    return x if isinstance(x, Counted) else float(x)


# ---- the launch ----


class _Counts(MapOp):
    """New counts and numbers; the inputs are old counts, and `found`."""

    __slots__ = ("made", "params")

    def __init__(self, made: tuple[tuple[DType, Expr], ...], params: tuple[DType, ...]) -> None:
        super().__init__("count_steps", "Counts after a step, and the numbers of that step.")
        self.made = made
        self.params = params

    def formula(self, ins: Sequence[Spec], static: Static) -> Formula:
        inputs = tuple(spec.dtype for spec in ins)
        outputs = tuple(dtype for dtype, _ in self.made)
        return Formula(inputs, self.params, outputs, tuple(expr for _, expr in self.made))


_counts_op = functools.cache(_Counts)


def counted(
    numbers: Callable[[dict[str, Any]], dict[str, Any]],
    old: Mapping[str, Any],
    found: Value,
    parameter: DType,
) -> tuple[dict[str, Value], dict[str, Any]]:
    """The counts after a step, unless `found`, and the step's numbers: plain ones and values.

    `old` are numbers or values. `numbers(counts)` may change the counts that it is given; they are
    one step ahead already.
    """
    pool: Any = found._spec.device
    wide = float64 if float64 in pool.device.limits.dtypes else float32
    kinds = {name: int32 if name == "step" else wide for name in old}
    before = [
        x if isinstance(x, Value) else full_spec(Spec.of(pool, kinds[name], ()), x)
        for name, x in old.items()
    ]
    writing = _Writing(wide)
    leaves = [
        s.cast(arg(i, compute_type(value._spec.dtype)), wide) for i, value in enumerate(before)
    ]
    change: dict[str, Any] = {
        name: Counted(leaf, writing) for name, leaf in zip(old, leaves, strict=True)
    }
    change["step"] = change["step"] + 1
    named = numbers(change)
    left_out = arg(len(old), compute_type(found._spec.dtype)) > 0
    made = []
    for (name, kind), leaf in zip(kinds.items(), leaves, strict=True):
        made.append((kind, s.cast(s.where(left_out, leaf, writing.read(change[name])), kind)))
    waiting = {name: x for name, x in named.items() if isinstance(x, Counted)}
    dtype = compute_type(real_type(parameter))
    made += [(dtype, s.cast(x.expr, dtype)) for x in waiting.values()]
    op = _counts_op(tuple(made), (wide,) * len(writing.params))
    results = call.call_map(op, [*before, found], tuple(writing.params))
    results = [held_apart(v) for v in (results if len(made) > 1 else [results])]
    given = dict(zip(waiting, results[len(old) :], strict=True))
    return dict(zip(old, results, strict=False)), {**named, **given}
