"""Binary search in sorted rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight.core.dtypes import bool_, int32, int64, result_type
from rushlight.core.errors import RushlightError, ShapeError
from rushlight.core.shapes import Spec
from rushlight.kernel.shapes import Search
from rushlight.ops.create import creation
from rushlight.ops.family.build import built, check_device_dtype
from rushlight.ops.family.kernel_op import KernelOp
from rushlight.ops.index import gather
from rushlight.ops.pointwise import arithmetic as e
from rushlight.ops.registry import composite
from rushlight.ops.view import views
from rushlight.ops.view.reshaping import device_of
from rushlight.tape.record import call
from rushlight.tape.record.op import Op, Plan, Static, check_devices
from rushlight.tape.record.value import Value


def _plan_search(op: Op, ins: Sequence[Spec], static: Static) -> Plan:
    (right,) = static
    line, wanted = ins
    pool = check_devices(op.name, ins)
    check_device_dtype(op.name, pool, line.dtype)
    out = Spec.of(pool, int64, wanted.shape)
    rows, count = wanted.shape
    steps = (0 if line.shape[0] == 1 else line.strides[0], line.strides[1])
    tail = (rows, count, line.shape[1], *out.strides, *steps, *wanted.strides)
    cost = float(wanted.numel * max(line.shape[1], 1).bit_length())
    return Plan(op, ins, [out], built(pool, Search(line.dtype, right)), static, tail, cost)


_search = KernelOp(
    "searchsorted",
    _plan_search,
    [None, None],
    [(), ()],
    "Places in sorted rows.",
    batching="index.search",
)


def search(line: Value, wanted: Value, right: bool) -> Value:
    """The number of elements of each sorted row, or of one row, before each value.

    Rows are (..., n) or (n,), values (..., m).
    """
    if line._spec.dtype is not wanted._spec.dtype or line._spec.dtype is bool_:
        common = result_type([(v._spec.dtype, len(v._spec.shape)) for v in (line, wanted)])
        line, wanted = (e.cast(v, int32 if common is bool_ else common) for v in (line, wanted))
    shape = wanted._spec.shape
    rows = (1, line._spec.numel) if len(line._spec.shape) == 1 else (-1, line._spec.shape[-1])
    if not wanted._spec.numel or not line._spec.numel:
        return creation.full_spec(Spec.of(wanted._spec.device, int64, shape), 0)
    sought = views.reshape(wanted, (1, -1) if rows[0] == 1 else (-1, shape[-1]))
    return views.reshape(
        call.call(_search, (views.reshape(line, rows), sought), (bool(right),)), shape
    )


@composite("searchsorted", method=False, out="exact")
def searchsorted(
    sorted_sequence: Value,
    input: Any,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Value | None = None,
) -> Value:
    """Insertion positions in sorted rows: before equal elements, or after them (`right`).

    Example:
        >>> edges = torch.tensor([1, 3, 5])
        >>> torch.searchsorted(edges, torch.tensor([0, 3, 6]))
        tensor([0, 1, 3])
        >>> torch.searchsorted(edges, torch.tensor([3]), right=True)
        tensor([2])
    """
    op = "searchsorted"
    if side not in (None, "left", "right"):
        raise RushlightError(f"{op}: side is 'left' or 'right', got {side!r}")
    if side == "left" and right:
        raise RushlightError(f"{op}: side is 'left' and right is True; pass one of them")
    line, right = call.detached(sorted_sequence), right or side == "right"
    if not isinstance(input, Value):
        input = creation.full((), input, device=device_of(line))
    shape = input._spec.shape
    if not line._spec.shape or (len(line._spec.shape) > 1 and line._spec.shape[:-1] != shape[:-1]):
        raise ShapeError(
            f"{op}: sorted rows {line._spec!r} must be one line, or have the dimensions of "
            f"{input._spec!r} but for the last"
        )
    if sorter is not None:
        if sorter._spec.shape != line._spec.shape or sorter._spec.dtype is not int64:
            raise RushlightError(
                f"{op}: the sorter must be int64 with the shape of {line._spec!r}, got "
                f"{sorter._spec!r}"
            )
        line = gather.gather(line, -1, sorter)
    found = search(line, call.detached(input), right)
    return e.cast(found, int32) if out_int32 else found


@composite("bucketize", method=False, out="exact")
def bucketize(
    input: Value | float, boundaries: Value, *, out_int32: bool = False, right: bool = False
) -> Value:
    """The index of the interval between sorted boundaries of each element.

    Example:
        >>> torch.bucketize(torch.tensor([0, 3, 6]), torch.tensor([1, 3, 5]))
        tensor([0, 1, 3])
    """
    if len(boundaries._spec.shape) != 1:
        raise ShapeError(f"bucketize: the boundaries must be a vector, got {boundaries._spec!r}")
    return searchsorted(boundaries, input, out_int32=out_int32, right=right)
