"""An optimiser's step as an op with a derivative, for `differentiable=True`.

The formula is the same, its numbers are tensors too. Results are new tensors; the derivative
follows from the formula's instructions.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from rushlight.core.dtypes import compute_type
from rushlight.core.shapes import Spec
from rushlight.ops.create.creation import full_spec
from rushlight.ops.family.map import Formula, MapOp
from rushlight.ops.pointwise import arithmetic as e
from rushlight.ops.view import complex_parts
from rushlight.ops.view.inplace import Update
from rushlight.scalar import build as s
from rushlight.scalar.ir import arg
from rushlight.tape.record import call
from rushlight.tape.record.op import Static
from rushlight.tape.record.value import Value


class UpdateOp(MapOp):
    """The values that an update would write, as a function of its inputs and its numbers."""

    __slots__ = ("update",)

    def __init__(self, update: Update) -> None:
        super().__init__(f"{update.name}_step", update.doc)
        self.update = update

    def formula(self, ins: Sequence[Spec], static: Static) -> Formula:
        compute = compute_type(ins[0].dtype)
        leaves = [s.cast(arg(i, compute_type(spec.dtype)), compute) for i, spec in enumerate(ins)]
        outputs = tuple(spec.dtype for spec in ins[: self.update.targets])
        results = self.update.body(*leaves)
        body = tuple(s.cast(r, compute_type(d)) for r, d in zip(results, outputs, strict=True))
        return Formula(tuple(spec.dtype for spec in ins), (), outputs, body)


@functools.cache
def _update_op(update: Update) -> UpdateOp:
    return UpdateOp(update)


def taken(update: Update, values: Sequence[Any], numbers: Sequence[Any]) -> list[Value]:
    """The new values of an update's targets, on the tape.

    Complex numbers are updated as real and imaginary parts.
    """
    paired = values[0]._spec.dtype.kind == "c"
    if paired:
        values = [complex_parts.split(v) for v in values]
    first = values[0]._spec
    one = Spec.of(first.device, compute_type(first.dtype), ())
    given = [
        e.cast(n, one.dtype) if isinstance(n, Value) else full_spec(one, float(n)) for n in numbers
    ]
    # The parameter is overwritten afterwards, and the saves of the derivative must stay.
    made: Any = call.call_map(_update_op(update), [e.clone(values[0]), *values[1:], *given], ())
    results: list[Value] = list(made) if isinstance(made, (tuple, list)) else [made]
    return [complex_parts.joined(v) for v in results] if paired else results
