"""Views: another layout of the same storage. No kernel runs.

The derivative is another view or a copy.

# Note [Moving views]
1. The start of a view (the index of `select`, the start of `slice`) is a launch parameter of its
   plan: there is one plan per spec and form of the key, for every index, recorded or not. The
   parameter counts steps of `Plan.stride` bytes.
2. A plan has the least and the most bytes that keep the view inside its input, and each call
   compares (`Plan.skip`). See Note [Reach].
3. The derivative passes the parameter to `place_part`, so one program serves every index.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rushlight.core.dtypes import DType
from rushlight.core.shapes import Shape, Spec, check_inside
from rushlight.tape.record.op import Grad, Op, Plan, Static

# (shape, strides, *static) -> (shape, strides, offset in elements)
ViewRule = Callable[..., tuple[Shape, Shape, int]]
# The static arguments of a view of a batch, from the number of its levels, their sizes and the
# static arguments for one example.
Shift = Callable[[int, tuple[int, ...], Static], Static]


def shift_none(lead: int, sizes: tuple[int, ...], static: Static) -> Static:
    """For a view of the last dimensions, which its static arguments do not number."""
    return static


def shift_first(lead: int, sizes: tuple[int, ...], static: Static) -> Static:
    """For (dim, ...)."""
    return (static[0] + lead, *static[1:])


def shift_last_two(lead: int, sizes: tuple[int, ...], static: Static) -> Static:
    """For (..., dim, dim)."""
    return (*static[:-2], static[-2] + lead, static[-1] + lead)


class View(Op):
    """`rule` says what is seen.

    `vjp(g, x, *static)` gives the gradient of x, x being known by shape only. `seen_as` is the type
    seen, where it is not x's own: strides and offset then count elements of that type. Where it is
    `moving`, the rule gives the elements per unit of its parameter instead of an offset, and the
    derivative is `vjp(g, x, static, params)`. See Note [Moving views]. Nothing is seen beyond x,
    unless `beyond` says so: then each call checks the storage. See Note [Reach]. `shift` gives the
    static arguments of the view of a whole batch; where no such arguments would do, `batching`
    names the batching rule.
    """

    __slots__ = ("batching", "beyond", "moving", "rule", "seen_as", "shift", "vjp")

    def __init__(
        self,
        name: str,
        rule: ViewRule,
        vjp: Callable[..., Any],
        doc: str,
        seen_as: Callable[[DType], DType] | None = None,
        beyond: bool = False,
        moving: bool = False,
        shift: Shift | None = None,
        batching: str | None = None,
    ) -> None:
        super().__init__(name, doc)
        self.batching = batching if shift is None else "view.view"
        self.shift = shift
        self.rule = rule
        self.seen_as = seen_as
        self.beyond = beyond
        self.moving = moving
        self.vjp = vjp

    def make_plan(self, ins: Sequence[Spec], static: Static) -> Plan:
        (x,) = ins
        shape, strides, skip = self.rule(x.shape, x.strides, *static)
        dtype = x.dtype if self.seen_as is None else self.seen_as(x.dtype)
        out = Spec.of(x.device, dtype, tuple(shape), tuple(strides))
        skip *= dtype.itemsize
        if self.moving:
            return Plan(self, ins, [out], None, static, cost=0.0, offsets=(0,), stride=skip)
        if not self.beyond:
            check_inside(self.name, x, out, skip)
        return Plan(self, ins, [out], None, static, cost=0.0, offsets=(skip,), beyond=self.beyond)

    def make_grad(self, plan: Plan, needs: int) -> Grad:
        static, vjp, moving = plan.static, self.vjp, self.moving

        def rule(grads: list[Any], values: list[Any], params: tuple[Any, ...]) -> list[Any]:
            if moving:
                return [vjp(grads[0], values[0], static, params)]
            return [vjp(grads[0], values[0], *static)]

        return Grad(needs, (), (), rule, hands_on=moving)


class Views(Op):
    """Several views of one value, recorded once: `rule` gives a layout for each.

    A layout is (shape, strides, offset). `vjp(grads, x, *static)` combines the gradient of x from
    theirs, None where a view has none. A view's own gradient is a whole tensor that is zero
    elsewhere, so that of many views recorded one by one is quadratic work.
    """

    __slots__ = ("rule", "shift", "vjp")

    batching = "view.view"

    def __init__(
        self,
        name: str,
        rule: Callable[..., Sequence[tuple[Shape, Shape, int]]],
        vjp: Callable[..., Any],
        doc: str,
        shift: Shift,
    ) -> None:
        super().__init__(name, doc)
        self.shift = shift
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
