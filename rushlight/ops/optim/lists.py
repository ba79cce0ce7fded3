"""Folds and updates of all tensors of a model at once: norms, clipping, checks for infinities."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from rushlight.core.dtypes import DType, compute_type, float32
from rushlight.core.errors import SparseOperandError
from rushlight.core.shapes import Spec
from rushlight.kernel.shapes import Reduce, Rowwise
from rushlight.ops.create.creation import empty_spec
from rushlight.ops.optim.whole_steps import Moves, has_lists
from rushlight.ops.view.inplace import Update
from rushlight.scalar import build as s
from rushlight.scalar.ir import Expr, arg, const, row
from rushlight.tape.memory.recipe import no_recipes
from rushlight.tape.record.state import STATE
from rushlight.tape.record.value import Value


def can_list(values: Sequence[Value]) -> bool:
    """Whether folds of all values can be one launch for each dtype."""
    if not values or not no_recipes() or STATE.get().special:
        return False
    try:
        specs = [v._spec for v in values]
    except SparseOperandError:
        return False
    pools: set[Any] = {spec.device for spec in specs}
    if len(pools) > 1 or not has_lists(values[0]):
        return False
    dense = all(spec.contiguous and spec.dtype.kind == "f" for spec in specs)
    return dense and all(v._memory.address is not None for v in values)


def fold_each(values: Sequence[Value], kind: str, body: Callable[[Expr], Expr]) -> Value:
    """The fold of `body` over all elements of each value, as float32 numbers in a vector."""
    pool: Any = values[0]._spec.device
    found = empty_spec(Spec.of(pool, float32, (len(values),)))
    at: int = found._memory.address + found._offset  # type: ignore[operator]
    items: dict[DType, list[tuple[int, ...]]] = {}
    for place, v in enumerate(values):
        address: int = v._memory.address + v._offset  # type: ignore[operator]
        items.setdefault(v._spec.dtype, []).append((at + 4 * place, address, v._spec.numel))
    for dtype, some in items.items():
        for act, *numbers in pool.device.limits.lists(_fold(dtype, kind, body))(some, ()):
            act(*numbers)
    return found


def _fold(dtype: DType, kind: str, body: Callable[[Expr], Expr]) -> Rowwise:
    step = Reduce(kind, body(arg(0, compute_type(dtype))))
    result = s.cast(row(0, step.body.dtype), float32)
    return Rowwise((float32,), ("row",), (dtype,), (), (step,), (result,), "axis", ("0", "1"))


def is_infinite(x: Expr) -> Expr:
    """1.0 for an infinity or NaN, else 0.0."""
    return s.where(s.absolute(x) < const(math.inf, x.dtype), const(0, x.dtype), const(1, x.dtype))


def update_all(
    update: Update,
    rows: Sequence[tuple[Value, ...]],
    params: tuple[float, ...],
    *then: tuple[Any, ...],
) -> None:
    """`update` of each of the rows, and calls: all or nothing, in as few launches as possible."""
    moves = Moves()
    for values in rows:
        moves.add_listed(update, values, params)
    moves.acts += then
    moves.make()
