"""Distances between tensors and rows, and rows scaled to a maximal norm."""

from __future__ import annotations

from typing import Any

from rushlight.core.dtypes import FLOAT, int64
from rushlight.core.errors import DTypeError, RushlightError, ShapeError
from rushlight.core.shapes import wrap_dim
from rushlight.ops.create import creation
from rushlight.ops.family.declare import elementwise
from rushlight.ops.index.gather import gather, rows
from rushlight.ops.index.select import hits
from rushlight.ops.linalg.matmul import matmul
from rushlight.ops.pointwise import arithmetic as e
from rushlight.ops.reduce import reductions
from rushlight.ops.reduce.cumulative import cumsum
from rushlight.ops.reduce.statistics import vector_norm
from rushlight.ops.registry import composite
from rushlight.ops.view import views
from rushlight.ops.view.formats import packed
from rushlight.scalar import build as s
from rushlight.scalar.ir import Expr, const
from rushlight.tape.record.value import Value


@composite("dist", pure=True, autocast={"gpu": "float32"})
def dist(input: Value, other: Value, p: float = 2) -> Value:
    """The p-norm of the difference."""
    return vector_norm(e.sub(input, other), p)


# None means the first; the limit of "many rows" is PyTorch's.
_MODES = (
    None,
    "use_mm_for_euclid_dist_if_necessary",
    "use_mm_for_euclid_dist",
    "donot_use_mm_for_euclid_dist",
)
_MANY_ROWS = 25


def _euclid_vjp(g: Expr, out: Expr, left: Expr, right: Expr, both: Expr) -> tuple[Expr, Expr, Expr]:
    """For equal rows it is 0, as that of a norm."""
    nowhere = out.eq(0)
    slope = s.where(nowhere, const(0, g.dtype), g / (s.where(nowhere, const(1, g.dtype), out) * 2))
    return slope, slope, slope * -2


_euclid = elementwise(
    "euclid",
    lambda left, right, both: s.sqrt(s.maximum(left + right - both * 2, const(0, left.dtype))),
    "The distance of two points, of their squared lengths and their product.",
    FLOAT,
    vjp=_euclid_vjp,
    listed=False,
)


def _by_products(x1: Value, x2: Value) -> Value:
    """Euclidean distances of rows: |a|^2 + |b|^2 - 2 a b."""
    left, right = (reductions.sum(reductions.size_squared(x), -1, True) for x in (x1, x2))
    return _euclid(left, views.transpose(right, -1, -2), matmul(x1, views.transpose(x2, -1, -2)))


@composite("cdist", method=False, pure=True, autocast="float32")
def cdist(
    x1: Value,
    x2: Value,
    p: float = 2.0,
    compute_mode: str | None = "use_mm_for_euclid_dist_if_necessary",
) -> Value:
    """The p-norm of the difference of each row of x1 and each of x2.

    Euclidean distances between many rows come from a matrix product, as with `compute_mode` in
    PyTorch: no differences are stored, and distances much smaller than the rows lose digits.
    "donot_use_mm_for_euclid_dist" computes the differences themselves.

    Example:
        >>> torch.cdist(torch.tensor([[0.0, 0.0]]), torch.tensor([[3.0, 4.0]]))
        tensor([[5.]])
    """
    if compute_mode not in _MODES:
        raise ValueError(
            f"cdist: compute_mode is one of {', '.join(map(repr, _MODES[1:]))}, got "
            f"{compute_mode!r}"
        )
    left, right = x1._spec.shape, x2._spec.shape
    if len(left) < 2 or len(right) < 2 or left[-1] != right[-1]:
        raise ShapeError(f"cdist: {x1._spec!r} and {x2._spec!r} need rows of one length")
    if x1._spec.dtype.kind != "f" or x2._spec.dtype.kind != "f":
        raise DTypeError(f"cdist: takes floating point, got {x1._spec!r} and {x2._spec!r}")
    if p < 0:
        raise RushlightError(f"cdist: p must not be negative, got {p}")
    many = compute_mode == _MODES[2] or (
        compute_mode in _MODES[:2] and max(left[-2], right[-2]) > _MANY_ROWS
    )
    if (
        p == 2
        and many
        and left[-1]
        and x1._spec.dtype is x2._spec.dtype
        and x1._spec.dtype.itemsize >= 4
    ):
        return _by_products(x1, x2)
    away = e.sub(views.unsqueeze(x1, -2), views.unsqueeze(x2, -3))
    if left[-1] == 0:  # rows without elements have distance 0
        return vector_norm(away, 2, -1)
    return vector_norm(away, p, -1)


@composite("renorm", inplace="result", out="exact", autocast={"gpu": "float32"})
@packed
def renorm(input: Value, p: float, dim: int, maxnorm: float) -> Value:
    """Each slice along `dim` whose p-norm is above maxnorm scaled down to it.

    Example:
        >>> torch.renorm(torch.tensor([[3.0, 4.0], [0.3, 0.4]]), p=2, dim=0, maxnorm=1)
        tensor([[0.6000, 0.8000],
                [0.3000, 0.4000]])
    """
    rank = len(input._spec.shape)
    if rank < 2:
        raise RushlightError(f"renorm: at least 2 dimensions are needed, got {input._spec!r}")
    if p <= 0 or maxnorm < 0:
        raise RushlightError(
            f"renorm: p must be positive and maxnorm not negative, got {p} and {maxnorm}"
        )
    place = wrap_dim(dim, rank, "renorm")
    others: Any = [i for i in range(rank) if i != place]
    length = vector_norm(input, p, others, True)
    # The small term is PyTorch's: a slice just scaled is not scaled again.
    scale = e.select(e.gt(length, maxnorm), e.div(float(maxnorm), e.add(length, 1e-7)), 1)
    return e.mul(input, e.cast(scale, input._spec.dtype))


def _pair_indices(n: int, like: Value) -> tuple[Value, Value]:
    """The indices i < j of all pairs of n rows, in order of i, then j."""
    count = n * (n - 1) // 2
    k = creation.arange(count, device=like._spec.device.device.name)
    lines = creation.arange(n, device=like._spec.device.device.name)
    # Row i begins at i n - i (i + 1) / 2; the row of a pair is the number of starts up to it, less
    # one.
    begins = e.sub(e.mul(lines, n), e.floor_divide(e.mul(lines, e.add(lines, 1)), 2))
    started = hits(views.slice_dim(begins, 0, 0, n - 1), 0, (count,))
    first = e.sub(cumsum(started, 0, dtype=int64), 1)
    second = e.add(e.add(e.sub(k, gather(begins, 0, first)), first), 1)
    return first, second


@composite("pdist", method=False, pure=True, autocast={"gpu": "float32"})
def pdist(input: Value, p: float = 2.0) -> Value:
    """The p-norm of the difference of each pair of rows: (0, 1), (0, 2), ..., (1, 2), ..."""
    if len(input._spec.shape) != 2:
        raise ShapeError(f"pdist: input must have 2 dimensions, got {input._spec!r}")
    if input._spec.dtype.kind != "f":
        raise DTypeError(f"pdist: takes floating point, got {input._spec!r}")
    if p < 0:
        raise RushlightError(f"pdist: p must not be negative, got {p}")
    n, width = input._spec.shape
    if n < 2:
        return views.slice_dim(views.reshape(input, (input._spec.numel,)), 0, 0, 0)
    first, second = _pair_indices(n, input)
    if not width:
        return reductions.sum(rows(input, first), 1)
    return vector_norm(e.sub(rows(input, first), rows(input, second)), p, -1)
