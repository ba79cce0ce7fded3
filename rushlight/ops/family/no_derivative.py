"""Results of composite ops with no derivative, or a zero one: recorded all the same.

A composite that reads its operands' elements, or draws numbers, computes with detached operands.
Its result must still depend on them: then a gradient that reaches it raises, or is zeros, and is
never lost silently.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from rushlight.core.shapes import Spec
from rushlight.tape.record import call
from rushlight.tape.record.needed import Needed, is_followed
from rushlight.tape.record.op import Grad, Op, Plan, Static
from rushlight.tape.record.value import Value


class Recorded(Op):
    """The first input, as a function of the others.

    `flat`: piecewise constant, the derivative is zero.
    """

    __slots__ = ("flat",)

    batching = "index.stand"

    def __init__(self, name: str, flat: bool) -> None:
        super().__init__(name, f"What {name} gives, with a record of what it is made of.")
        self.flat = flat

    def make_plan(self, ins: Sequence[Spec], static: Static) -> Plan:
        return Plan(self, ins, [ins[0]], None, static, cost=0.0, offsets=(0,))

    def make_grad(self, plan: Plan, needs: int) -> Grad:
        if not self.flat:
            return super().make_grad(plan, needs)
        ins = plan.ins

        def rule(grads: list[Any], values: list[Any], params: tuple[Any, ...]) -> list[Any]:
            asked = [i for i in range(len(ins)) if needs >> i & 1]
            return [
                Needed.full(Spec.of(s.device, s.dtype, s.shape), 0.0) if i in asked else None
                for i, s in enumerate(ins)
            ]

        return Grad(needs, (), (), rule)


@functools.cache
def _recorded(name: str, flat: bool) -> Recorded:
    return Recorded(name, flat)


def _depending(name: str, flat: bool, result: Value, sources: Sequence[Any]) -> Value:
    needing = [v for v in sources if isinstance(v, Value) and is_followed(v)]
    return call.call(_recorded(name, flat), (result, *needing)) if needing else result


def without_derivative(name: str, result: Value, *sources: Any) -> Value:
    """The result of a composite: a gradient through it to a source raises NotDifferentiable."""
    return _depending(name, False, result, sources)


def with_zero_derivative(name: str, result: Value, *sources: Any) -> Value:
    """The result of a composite: the gradient of each source is zeros."""
    return _depending(name, True, result, sources)
