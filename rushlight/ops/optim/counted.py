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
import operator
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
    """One evaluation: instructions and plain numbers.

    An instruction is a function of expressions and the places of its operands.

    They are expressions only where nobody has seen the same instructions before.
    """

    def __init__(self) -> None:
        self.made: list[tuple[Any, ...]] = []
        self.params: list[float] = []

    def note(self, instruction: Callable[..., Expr], *operands: Any) -> Counted:
        self.made.append((instruction, *map(self.place, operands)))
        return Counted(len(self.made) - 1, self)

    def place(self, x: Any) -> int:
        if x.__class__ is Counted:
            return int(x.at)
        self.params.append(float(x))
        self.made.append(("param", len(self.params) - 1))
        return len(self.made) - 1


class Counted:
    """A number that follows from a count on the device; it has Python's operators."""

    __slots__ = ("at", "writing")

    def __init__(self, at: int, writing: _Writing) -> None:
        self.at = at
        self.writing = writing

    def __add__(self, other: Any) -> Counted:
        return self.writing.note(operator.add, self, other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Counted:
        return self.writing.note(operator.sub, self, other)

    def __rsub__(self, other: Any) -> Counted:
        return self.writing.note(operator.sub, other, self)

    def __mul__(self, other: Any) -> Counted:
        return self.writing.note(operator.mul, self, other)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Counted:
        return self.writing.note(operator.truediv, self, other)

    def __rtruediv__(self, other: Any) -> Counted:
        return self.writing.note(operator.truediv, other, self)

    def __pow__(self, other: float) -> Counted:
        return self.writing.note(elementary.power, self, other)

    def __rpow__(self, base: float) -> Counted:
        return self.writing.note(elementary.exp, self._exponent(base))

    def __gt__(self, other: Any) -> Counted:
        return self.writing.note(operator.gt, self, other)

    def _exponent(self, base: float) -> Counted:
        return self * (math.log(base) if base else -math.inf)


def _lacking(exponent: Expr) -> Expr:
    return -elementary.expm1(exponent)


# ---- functions of plain numbers and of counted ones ----


def lacking(base: float, count: Any) -> Any:
    """1 - base ** count."""
    if not isinstance(count, Counted):
        return 1 - base**count
    return count.writing.note(_lacking, count._exponent(base))


def root(x: Any) -> Any:
    """The square root."""
    return x.writing.note(s.sqrt, x) if isinstance(x, Counted) else math.sqrt(x)


def largest(x: Any, y: float) -> Any:
    return x.writing.note(s.maximum, x, y) if isinstance(x, Counted) else max(x, y)


def chosen(condition: Any, x: Any, y: Any) -> Any:
    """x where the condition holds, else y."""
    if not isinstance(condition, Counted):
        return x if condition else y
    return condition.writing.note(s.where, condition, x, y)


def plain(x: Any) -> Any:
    """A number as a float, from whatever holds it; a counted one is as it is."""
    return x if isinstance(x, Counted) else float(x)


# ---- the launch ----


class _Counts(MapOp):
    """New counts and numbers; the inputs are old counts, and `found`.

    `made` are the instructions, of which the first are the old counts; `kept` and `given` the
    places of new counts and of numbers.
    """

    __slots__ = ("given", "kept", "made", "parameter")

    def __init__(
        self,
        made: tuple[tuple[Any, ...], ...],
        kept: tuple[tuple[str, int], ...],
        given: tuple[int, ...],
        parameter: DType,
    ) -> None:
        super().__init__("count_steps", "Counts after a step, and the numbers of that step.")
        self.made, self.kept, self.given, self.parameter = made, kept, given, parameter

    def formula(self, ins: Sequence[Spec], static: Static) -> Formula:
        wide = _wide(ins[0].device)
        values: list[Expr] = []
        for instruction, *places in self.made:
            if instruction == "count":
                leaf = arg(places[0], compute_type(ins[places[0]].dtype))
                values.append(s.cast(leaf, wide))
            elif instruction == "param":
                values.append(param(places[0], wide))
            else:
                values.append(instruction(*[values[place] for place in places]))
        left_out = arg(len(self.kept), compute_type(ins[-1].dtype)) > 0
        results = [
            (_kind(name, wide), s.where(left_out, values[i], values[place]))
            for i, (name, place) in enumerate(self.kept)
        ]
        dtype = compute_type(real_type(self.parameter))
        results += [(dtype, values[place]) for place in self.given]
        params = (wide,) * sum(instruction == "param" for instruction, *_ in self.made)
        outputs = tuple(kind for kind, _ in results)
        body = tuple(s.cast(expr, kind) for kind, expr in results)
        return Formula(tuple(spec.dtype for spec in ins), params, outputs, body)


_counts_op = functools.cache(_Counts)


def _wide(pool: Any) -> DType:
    return float64 if float64 in pool.device.limits.dtypes else float32


def _kind(name: str, wide: DType) -> DType:
    return int32 if name == "step" else wide


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
    before = [
        x if isinstance(x, Value) else full_spec(Spec.of(pool, _kind(name, _wide(pool)), ()), x)
        for name, x in old.items()
    ]
    writing = _Writing()
    writing.made += [("count", i) for i in range(len(before))]
    change: dict[str, Any] = {name: Counted(i, writing) for i, name in enumerate(old)}
    change["step"] = change["step"] + 1
    named = numbers(change)
    kept = tuple([(name, writing.place(change[name])) for name in old])
    waiting = {name: x.at for name, x in named.items() if x.__class__ is Counted}
    op = _counts_op(tuple(writing.made), kept, (*waiting.values(),), parameter)
    results = call.call_map(op, [*before, found], tuple(writing.params))
    results = [held_apart(v) for v in (results if len(old) + len(waiting) > 1 else [results])]
    given = dict(zip(waiting, results[len(old) :], strict=True))
    return dict(zip(old, results, strict=False)), {**named, **given}
