"""Rows of a table whose gradient is sparse where the table is a leaf: `embedding(sparse=True)`.

The rule gives the dense gradient, for all but a plain backward pass into leaves. Such a pass makes
the sparse one itself, of the gradient and the saved index: Note [Sparse gradients] in
`sparse/gradients.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from rushlight.core.shapes import Spec
from rushlight.ops.family.kernel_op import KernelOp
from rushlight.ops.index.gather import plan_rows, plan_scatter, rows_grad
from rushlight.ops.pointwise import arithmetic as e
from rushlight.ops.view import inplace, views
from rushlight.tape.record import call
from rushlight.tape.record.needed import Needed
from rushlight.tape.record.op import Grad, Op, Plan, Static
from rushlight.tape.record.value import Value

_PUT = KernelOp(
    "index_copy", partial(plan_scatter, "set"), [None] * 3, [()] * 3, "Rows put into a table."
)
_ADDED = KernelOp(
    "index_add", partial(plan_scatter, "add"), [None] * 3, [()] * 3, "Rows added into a table."
)


class _Unlearned(Grad):
    """A derivative without a cached program: a pass must process the node."""

    __slots__ = ()

    programs = property(lambda self: None, lambda self, value: None)


class SparseRows(KernelOp):
    """`static` is the row that gets no gradient, or -1."""

    __slots__ = ()

    def make_grad(self, plan: Plan, needs: int) -> Grad:
        made = super().make_grad(plan, needs)
        return _Unlearned(made.needs, made.saves_in, made.saves_out, made.rule)


def _plan(op: Op, ins: Sequence[Spec], static: Static) -> Plan:
    return plan_rows(op, ins, static)


def _dense(g: Any, out: Any, table: Any, index: Any, padding: int) -> Value:
    if padding >= 0:
        g = e.select(views.unsqueeze(e.eq(index, padding), -1), 0.0, g)
    return rows_grad(g, index, table.shape)


_rows = SparseRows(
    "embedding",
    _plan,
    [_dense, None],
    [(1,), ()],
    "Rows of a table, with a sparse gradient.",
    batching="index.rows",
)


def put_rows(target: Value, index: Value, rows: Value, add: bool) -> None:
    """Write rows into a table, or add them, in place.

    Nothing is recorded and nothing of its size is made.
    """
    if rows._spec.numel:
        prepare_rows(target, index, rows, add).finish()


def prepare_rows(target: Value, index: Value, rows: Value, add: bool) -> inplace.Write:
    """The write of `put_rows`."""
    shape = rows._spec.shape
    wide = views.expand(views.reshape(index, (shape[0], *[1] * (len(shape) - 1))), shape)
    if not target._spec.contiguous:
        whole = e.clone(call.detached(target))
        prepare_rows(whole, index, rows, add).finish()
        return inplace.prepare_copy(target, whole)
    plan = call.plan_for(_ADDED if add else _PUT, (target, wide, rows), (0,))
    return inplace.Write([target], plan, (target, wide, rows), ())


def sparse_rows(table: Value, index: Value, padding: int | None) -> Value:
    """table[index] along the first dimension."""
    Needed.sparse_gradients()
    static = (-1 if padding is None else padding,)
    made: Value = call.call(_rows, (views.contiguous(table), views.contiguous(index)), static)
    return made
