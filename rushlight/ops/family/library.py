"""Ops that a host library computes (`devices/shared/library`): factorisations, transforms.

An op names the library's function, the shapes and dtypes of its results, and its derivative in
other ops. Inputs are made contiguous; every device takes them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rushlight.core.dtypes import DType
from rushlight.core.shapes import Shape, Spec
from rushlight.kernel.shapes import Library
from rushlight.ops.family.build import built, check_device_dtype
from rushlight.ops.family.saved_names import name_operands, name_results
from rushlight.tape.record import call
from rushlight.tape.record.needed import Needed
from rushlight.tape.record.op import Grad, Op, Plan, Static, check_devices
from rushlight.tape.record.value import Value

Results = Sequence[tuple[DType, Shape]]


class LibraryOp(Op):
    """`results(ins, *static)` gives dtype and shape per output.

    `static` are also the function's options. `vjp(needs, grads, ins, outs, *static)` gives a
    gradient per input: `needs` is a bit mask of the needed inputs, `grads` has None for an unused
    output, and of `ins` and `outs` those in `saves` can be read.
    """

    __slots__ = ("function", "library", "results", "saves", "vjp")

    batching = "library.library"

    def __init__(
        self,
        library: str,
        function: str,
        results: Callable[..., Results],
        doc: str,
        vjp: Callable[..., Sequence[Value | None]] | None = None,
        saves: tuple[tuple[int, ...], tuple[int, ...]] = ((), ()),
        operand_names: tuple[str, ...] = (),
        result_names: tuple[str, ...] = (),
    ) -> None:
        super().__init__(function, doc)
        if operand_names:
            name_operands(function, *operand_names)
        if result_names:
            name_results(function, *result_names)
        self.library = library
        self.function = function
        self.results = results
        self.vjp = vjp
        self.saves = saves

    def make_plan(self, ins: Sequence[Spec], static: Static) -> Plan:
        pool = check_devices(self.name, ins)
        outs = [Spec.of(pool, dtype, shape) for dtype, shape in self.results(ins, *static)]
        for spec in (*ins, *outs):
            check_device_dtype(self.name, pool, spec.dtype)
        everything = (*outs, *ins)
        kernel = Library(
            self.library,
            self.function,
            tuple(s.dtype for s in outs),
            tuple(s.dtype for s in ins),
            tuple(len(s.shape) for s in everything),
            static,
        )
        tail = tuple(n for spec in everything for n in spec.shape)
        return Plan(self, ins, outs, built(pool, kernel), static, tail)

    def make_grad(self, plan: Plan, needs: int) -> Grad:
        if self.vjp is None:
            return super().make_grad(plan, needs)
        n, static, vjp = len(plan.ins), plan.static, self.vjp

        def rule(
            grads: list[Any], values: list[Any], params: tuple[Any, ...]
        ) -> Sequence[Value | None]:
            return vjp(needs, grads, values[:n], values[n:], *static)

        return Grad(needs, *self.saves, rule)


def call_library(op: LibraryOp, inputs: Sequence[Value], *static: Any) -> Any:
    """Run the op on inputs of any layout; one value, or a tuple of several results."""
    return call.call(op, [x if x._spec.contiguous else Needed.clone(x) for x in inputs], static)
