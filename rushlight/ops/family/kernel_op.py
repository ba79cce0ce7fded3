"""Ops whose derivative is written with other ops: contractions, indexing, random numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rushlight.core.shapes import Spec
from rushlight.ops.family.saved_names import name_operands, name_results
from rushlight.tape.record.op import Grad, Op, Plan, Static

Vjp = Callable[..., Any]


class KernelOp(Op):
    """`plan(op, ins, static)` builds it; `vjps` has a rule per input (None: no gradient).

    A rule is called as `vjp(g, out, *inputs, *static)` and `saves` names, per input, the values it
    reads: positions of inputs, or "out". A value that is not saved is a shadow: its shape is known,
    its elements are not. `batching` names its batching rule, `operand_names` and `result_names` the
    names that its record shows. `piece(low, high, g, out, *inputs, *static)` gives those rows of
    the first input's gradient.
    """

    __slots__ = ("batching", "piece", "planner", "saves", "vjps")

    batching: str

    def __init__(
        self,
        name: str,
        planner: Callable[[Op, Sequence[Spec], Static], Plan],
        vjps: Sequence[Vjp | None],
        saves: Sequence[Sequence[int | str]],
        doc: str,
        batching: str = "",
        operand_names: tuple[str, ...] = (),
        result_names: tuple[str, ...] = (),
        piece: Vjp | None = None,
    ) -> None:
        super().__init__(name, doc)
        self.piece = piece
        if batching:
            self.batching = batching
        if operand_names:
            name_operands(name, *operand_names)
        if result_names:
            name_results(name, *result_names)
        self.planner = planner
        self.vjps = tuple(vjps)
        self.saves = tuple(tuple(names) for names in saves)

    def make_plan(self, ins: Sequence[Spec], static: Static) -> Plan:
        return self.planner(self, ins, static)

    def make_grad(self, plan: Plan, needs: int) -> Grad:
        asked = [i for i in range(len(plan.ins)) if needs >> i & 1]
        if not any(self.vjps):
            return super().make_grad(plan, needs)
        asked = [i for i in asked if self.vjps[i] is not None]
        names = {name for i in asked for name in self.saves[i]}
        saves_in = tuple(sorted(n for n in names if isinstance(n, int)))
        saves_out = (0,) if "out" in names else ()
        n, static, vjps = len(plan.ins), plan.static, self.vjps
        # Small gradients first: the scratch memory of a weight's is gone before the data's is made.
        asked.sort(key=lambda i: plan.ins[i].numel)

        def rule(grads: list[Any], values: list[Any], params: tuple[Any, ...]) -> list[Any]:
            parts: list[Any] = [None] * n
            for i in asked:
                vjp = vjps[i]
                assert vjp is not None
                parts[i] = vjp(grads[0], values[n], *values[:n], *static)
            return parts

        grad, piece = Grad(needs, saves_in, saves_out, rule), self.piece
        if piece is not None and asked == [0]:
            grad.piece = lambda g, values, low, high: piece(
                low, high, g, values[n], *values[:n], *static
            )
        return grad
