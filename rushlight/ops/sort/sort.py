"""Sorting along a dimension, and ops that take the first elements of it.

Equal elements stay in the order of their positions, ascending or descending, on every device; NaN
is the largest element. The gradient goes to the original positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from rushlight.core.dtypes import int64
from rushlight.core.errors import RushlightError, ShapeError
from rushlight.core.shapes import Spec, kept_strides, wrap_dim
from rushlight.kernel.shapes import Sort
from rushlight.ops.family.build import built, check_device_dtype
from rushlight.ops.family.returned import returned
from rushlight.ops.family.saved_names import name_results
from rushlight.ops.index.gather import block_of, merges, scatter_zero, sides_of
from rushlight.ops.registry import composite
from rushlight.ops.view import views
from rushlight.ops.view.laid import in_strides
from rushlight.tape.record import call
from rushlight.tape.record.op import Grad, Op, Plan, Static, check_devices
from rushlight.tape.record.value import Value

_LONGEST = (1 << 31) - 1


@returned("sort")
class Sorted(NamedTuple):
    """The result of sort."""

    values: Any
    indices: Any


@returned("topk")
class TopK(NamedTuple):
    """The result of topk."""

    values: Any
    indices: Any


class SortOp(Op):
    """One Sort kernel: values and positions.

    Static is (dim, descending, the number of kept ones).
    """

    __slots__ = ()

    batching = "elementwise.sort"

    def make_plan(self, ins: Sequence[Spec], static: Static) -> Plan:
        dim, descending, keep = static
        (x,) = ins
        pool = check_devices(self.name, ins)
        check_device_dtype(self.name, pool, x.dtype)
        shape = (*x.shape[:dim], keep, *x.shape[dim + 1 :])
        values, places = Spec.of(pool, x.dtype, shape), Spec.of(pool, int64, shape)
        run = built(pool, Sort(x.dtype, descending))
        strides = [
            step for spec in (values, places, x) for step in sides_of(spec.shape, spec.strides, dim)
        ]
        tail = (*block_of(x.shape, dim), keep, *strides)
        cost = float(x.numel * max(x.shape[dim], 2).bit_length())
        return Plan(self, ins, [values, places], run, static, tail, cost)

    def make_grad(self, plan: Plan, needs: int) -> Grad:
        dim, shape = plan.static[0], plan.ins[0].shape

        def rule(grads: list[Any], values: list[Any], params: tuple[Any, ...]) -> list[Any]:
            return [scatter_zero(grads[0], values[2], dim, shape)]

        return Grad(needs, (), (1,), rule)


_sort = SortOp("sort", "The elements in order along a dimension, and where they were.")
name_results(_sort.name, "values", "indices")


def ordered(
    x: Value, dim: int, descending: bool = False, keep: int | None = None, op: str = "sort"
) -> Any:
    """The first `keep` (all, if None) elements in order and their positions."""
    shape = x._spec.shape
    dim = wrap_dim(dim, len(shape), op)
    if not shape:
        values, places = ordered(views.reshape(x, (1,)), 0, descending, None, op)
        return views.reshape(values, ()), views.reshape(places, ())
    if shape[dim] > _LONGEST:
        raise ShapeError(
            f"{op}: a dimension of at most {_LONGEST} elements is sorted, got {x._spec!r}"
        )
    x = x if x._spec.contiguous else merges(x, dim)
    return call.call(_sort, (x,), (dim, bool(descending), shape[dim] if keep is None else keep))


def _laid(x: Value, results: Sequence[Value]) -> list[Value]:
    """Sorted values in the layout of what was sorted, as in PyTorch."""
    return [v if x._spec.contiguous else in_strides(v, kept_strides(x._spec)) for v in results]


@composite("sort", out="exact", pure=True)
def sort(
    input: Value, dim: int = -1, descending: bool = False, stable: bool | None = False
) -> Sorted:
    """The elements in order along a dimension, and their positions.

    Always stable, NaN is largest.

    Example:
        >>> torch.sort(torch.tensor([3, 1, 2]), descending=True)
        rushlight.return_types.sort(
        values=tensor([3, 2, 1]),
        indices=tensor([0, 2, 1]))
    """
    return Sorted(*_laid(input, ordered(input, dim, descending)))


@composite("argsort", out="cast")
def argsort(input: Value, dim: int = -1, descending: bool = False, stable: bool = False) -> Value:
    """The positions that sort a dimension; always stable, NaN is largest.

    Example:
        >>> torch.argsort(torch.tensor([3, 1, 2]))
        tensor([1, 2, 0])
    """
    return _laid(input, ordered(call.detached(input), dim, descending, op="argsort")[1:])[0]


@composite("msort", out="exact")
def msort(input: Value) -> Value:
    """The elements in order along the first dimension."""
    return _laid(input, ordered(input, 0, op="msort")[:1])[0]


@composite("topk", out="exact", pure=True)
def topk(input: Value, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> TopK:
    """The k largest (or smallest) elements along a dimension, in order, and their positions.

    Args:
        k: How many.

    Example:
        >>> torch.topk(torch.tensor([3, 9, 5]), 2)
        rushlight.return_types.topk(
        values=tensor([9, 5]),
        indices=tensor([1, 2]))
    """
    dim = wrap_dim(dim, len(input._spec.shape), "topk")
    size = input._spec.shape[dim] if input._spec.shape else 1
    if not 0 <= k <= size:
        raise RushlightError(
            f"topk: k must lie in 0 to {size}, the size of dimension {dim} of {input._spec!r}; got "
            f"{k}"
        )
    return TopK(*ordered(input, dim, largest, k, "topk"))
