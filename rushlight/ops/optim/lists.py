"""Folds and updates of all tensors of a model at once: norms, clipping, checks for infinities."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from operator import add, attrgetter
from typing import Any

from rushlight.core.dtypes import DType, compute_type, float32, float64
from rushlight.core.errors import SparseOperandError
from rushlight.core.shapes import Spec
from rushlight.kernel.shapes import Reduce, Rowwise
from rushlight.ops.create.creation import empty_spec
from rushlight.ops.optim.whole_steps import Moves, has_lists
from rushlight.ops.view.inplace import Update
from rushlight.scalar import build as s
from rushlight.scalar.ir import Expr, arg, row
from rushlight.tape.memory import replay
from rushlight.tape.record.state import STATE
from rushlight.tape.record.value import Value

_ADDRESS, _OFFSET = attrgetter("_memory.address"), attrgetter("_offset")
_LARGEST = 1 << 32  # elements of one item: a device has room for the partial results of these


def can_list(values: Sequence[Value]) -> bool:
    """Whether folds of all values can be one launch for each dtype.

    It does not depend on checkpoints and budgets, inside which each value is folded by itself: the
    bits are the same.
    """
    state = STATE.get()
    if not values or state.batch or state.dual is not None or state.trace is not None:
        return False
    try:
        specs = [v._spec for v in values]
    except SparseOperandError:
        return False
    pools: set[Any] = {spec.device for spec in specs}
    if len(pools) > 1 or not has_lists(values[0]):
        return False
    return all(s.contiguous and s.dtype.kind == "f" and s.numel <= _LARGEST for s in specs)


def fold_each(values: Sequence[Value], kind: str, body: Callable[[Expr], Expr]) -> Value:
    """The fold of `body` over all elements of each value, in a vector of their widest type.

    That is float32 or float64.
    """
    pool: Any = values[0]._spec.device
    wide = float64 if any(v._spec.dtype is float64 for v in values) else float32
    found = empty_spec(Spec.of(pool, wide, (len(values),)))
    at = replay.keep(found._memory) + found._offset
    targets = range(at, at + wide.itemsize * len(values), wide.itemsize)
    try:
        addresses = [*map(add, map(_ADDRESS, values), map(_OFFSET, values))]
    except TypeError:  # one may be dropped
        for v, target in zip(values, targets, strict=True):
            with replay.LOCK, replay.Pins([v._memory]):
                (here,) = replay.pinned_addresses([v])
                _run(pool, _fold(v._spec.dtype, kind, body, wide), [(target, here, v._spec.numel)])
        return found
    specs = [v._spec for v in values]
    dtypes = [spec.dtype for spec in specs]
    items = [*zip(targets, addresses, [spec.numel for spec in specs], strict=True)]
    for dtype in dict.fromkeys(dtypes):
        listed = [item for item, its in zip(items, dtypes, strict=True) if its is dtype]
        _run(pool, _fold(dtype, kind, body, wide), listed)
    return found


def _run(pool: Any, kernel: Rowwise, items: Sequence[tuple[int, ...]]) -> None:
    for act, *numbers in pool.device.limits.lists(kernel)(items, ()):
        act(*numbers)


@functools.cache
def _fold(dtype: DType, kind: str, body: Callable[[Expr], Expr], wide: DType) -> Rowwise:
    step = Reduce(kind, body(arg(0, compute_type(dtype))))
    result = s.cast(row(0, step.body.dtype), wide)
    return Rowwise((wide,), ("row",), (dtype,), (), (step,), (result,), "axis", ("0", "1"))


scale_by = Update("scale_by", lambda g, factor: (g * factor,), 1, 0, "g *= factor.")


def update_all(update: Update, rows: Sequence[tuple[Value, ...]], *then: tuple[Any, ...]) -> None:
    """`update` of each of the rows, and calls: all or nothing, in as few launches as possible."""
    moves = Moves()
    moves.add_rows(update, rows)
    moves.acts += then
    moves.make()
