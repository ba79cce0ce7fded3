"""Views: another way to see the same storage. No kernel runs; the derivative is another view or a copy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rushlight.core.dtypes import DType
from rushlight.core.shapes import Shape, Spec, check_inside
from rushlight.tape.record.op import Grad, Op, Plan, Static

# (shape, strides, *static) -> (shape, strides, offset in elements)
ViewRule = Callable[..., tuple[Shape, Shape, int]]


class View(Op):
    """`rule` says what is seen; `vjp(g, x, *static)` gives the gradient of x, x being known by shape only.

    `seen_as` is the type seen, where it is not x's own: strides and offset then count elements of that type.
    Nothing is seen beyond x, unless `beyond` says so: then each call checks the storage. See Note [Reach].
    """

    __slots__ = ("beyond", "rule", "seen_as", "vjp")

    def __init__(
        self,
        name: str,
        rule: ViewRule,
        vjp: Callable[..., Any],
        doc: str,
        seen_as: Callable[[DType], DType] | None = None,
        beyond: bool = False,
    ) -> None:
        super().__init__(name, doc)
        self.rule = rule
        self.seen_as = seen_as
        self.beyond = beyond
        self.vjp = vjp

    def make_plan(self, ins: Sequence[Spec], static: Static) -> Plan:
        (x,) = ins
        shape, strides, skip = self.rule(x.shape, x.strides, *static)
        dtype = x.dtype if self.seen_as is None else self.seen_as(x.dtype)
        out = Spec.of(x.device, dtype, tuple(shape), tuple(strides))
        skip *= dtype.itemsize
        if not self.beyond:
            check_inside(self.name, x, out, skip)
        return Plan(self, ins, [out], None, static, cost=0.0, offsets=(skip,), beyond=self.beyond)

    def make_grad(self, plan: Plan, needs: int) -> Grad:
        static, vjp = plan.static, self.vjp

        def rule(grads: list[Any], values: list[Any], params: tuple[Any, ...]) -> list[Any]:
            return [vjp(grads[0], values[0], *static)]

        return Grad(needs, (), (), rule)


class Views(Op):
    """Several views of one value, recorded once: `rule` gives one (shape, strides, offset) for each.

    `vjp(grads, x, *static)` puts the gradient of x together from theirs, None where a view got none. A view's own gradient is
    a whole tensor that is zero elsewhere, so that of many views recorded one by one is quadratic work.
    """

    __slots__ = ("rule", "vjp")

    def __init__(
        self,
        name: str,
        rule: Callable[..., Sequence[tuple[Shape, Shape, int]]],
        vjp: Callable[..., Any],
        doc: str,
    ) -> None:
        super().__init__(name, doc)
        self.rule = rule
        self.vjp = vjp

    def make_plan(self, ins: Sequence[Spec], static: Static) -> Plan:
        (x,) = ins
        seen = self.rule(x.shape, x.strides, *static)
        outs = [
            Spec.of(x.device, x.dtype, tuple(shape), tuple(strides)) for shape, strides, _ in seen
        ]
        skips = tuple([skip * x.dtype.itemsize for _, _, skip in seen])
        for out, skip in zip(outs, skips, strict=True):
            check_inside(self.name, x, out, skip)
        return Plan(self, ins, outs, None, static, cost=0.0, offsets=skips)

    def make_grad(self, plan: Plan, needs: int) -> Grad:
        static, vjp = plan.static, self.vjp

        def rule(grads: list[Any], values: list[Any], params: tuple[Any, ...]) -> list[Any]:
            return [vjp(grads, values[0], *static)]

        return Grad(needs, (), (), rule)
