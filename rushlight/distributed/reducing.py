"""How values of ranks are put together: operations, and the tree. See Note [Sums of ranks]."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Any

from rushlight.core.dtypes import FLOAT8, bool_
from rushlight.core.errors import DTypeError
from rushlight.ops.pointwise.arithmetic import maximum, minimum
from rushlight.tensor import Tensor


class ReduceOp(enum.Enum):
    """How values of ranks are put together."""

    SUM = "sum"
    AVG = "avg"
    PRODUCT = "product"
    MIN = "min"
    MAX = "max"
    BAND = "band"
    BOR = "bor"
    BXOR = "bxor"


ReduceOp.RedOpType = ReduceOp  # type: ignore[attr-defined]  # PyTorch's class of the operations


_USUAL: dict[ReduceOp, Callable[[Any, Any], Any]] = {
    ReduceOp.SUM: lambda a, b: a.add_(b),
    ReduceOp.AVG: lambda a, b: a.add_(b),
    ReduceOp.PRODUCT: lambda a, b: a.mul_(b),
    ReduceOp.MIN: lambda a, b: a.copy_(minimum(a, b)),
    ReduceOp.MAX: lambda a, b: a.copy_(maximum(a, b)),
    ReduceOp.BAND: lambda a, b: a.bitwise_and_(b),
    ReduceOp.BOR: lambda a, b: a.bitwise_or_(b),
    ReduceOp.BXOR: lambda a, b: a.bitwise_xor_(b),
}
_OF_BOOLS = {
    ReduceOp.SUM: _USUAL[ReduceOp.BOR],
    ReduceOp.MAX: _USUAL[ReduceOp.BOR],
    ReduceOp.PRODUCT: _USUAL[ReduceOp.BAND],
    ReduceOp.MIN: _USUAL[ReduceOp.BAND],
}
_BITS = (ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR)
_ORDERED = (ReduceOp.MIN, ReduceOp.MAX)


def check(op: Any, tensor: Tensor) -> ReduceOp:
    """The operation, refused where the dtype has none."""
    if not isinstance(op, ReduceOp):
        raise TypeError(f"distributed: op is one of ReduceOp, got {op!r}")
    kind = tensor.dtype.kind
    if tensor.dtype in FLOAT8:
        raise DTypeError(
            f"ReduceOp.{op.name}: {tensor.dtype} has no arithmetic; reduce .to(bfloat16)"
        )
    if (op in _BITS and kind in "fc") or (op in _ORDERED and kind == "c"):
        raise DTypeError(f"ReduceOp.{op.name}: not for {tensor.dtype}")
    if op is ReduceOp.AVG and tensor.dtype is bool_:
        raise DTypeError("ReduceOp.AVG: not for bool")
    return op


def combine(rows: Sequence[Tensor], op: ReduceOp) -> Tensor:
    """All rows in one, in the memory of the first, by the tree of Note [Sums of ranks] 3."""
    table = _OF_BOOLS if rows[0].dtype is bool_ else {}
    made: Tensor = _combined(rows, table.get(op, _USUAL[op]), 0, len(rows))
    return made


def _combined(rows: Sequence[Tensor], step: Callable[[Any, Any], Any], low: int, high: int) -> Any:
    # Not a closure, which would refer to itself: rows must be freed when the caller ends.
    if high - low == 1:
        return rows[low]
    middle = (low + high) // 2
    left = _combined(rows, step, low, middle)
    step(left, _combined(rows, step, middle, high))
    return left


def averaged(total: Tensor, op: ReduceOp, count: int) -> None:
    """Divide a sum where an average was asked for."""
    if op is ReduceOp.AVG:
        if total.dtype.kind in "fc":
            total.div_(count)
        else:
            total.div_(count, rounding_mode="trunc")
