"""Helpers of ops on batches of matrices: checks, merged batches, adjoints, triangles."""

from __future__ import annotations

from collections.abc import Sequence

from rushlight.core.dtypes import COMPLEX, DType, bool_, float32, float64
from rushlight.core.errors import DTypeError, ShapeError
from rushlight.core.shapes import Shape, Spec, broadcast_shapes, numel
from rushlight.ops.create import creation
from rushlight.ops.create.creation import full_spec
from rushlight.ops.linalg.matmul import _product
from rushlight.ops.pointwise import arithmetic as e, scaled
from rushlight.ops.pointwise.complex_numbers import conjugate
from rushlight.ops.view import views
from rushlight.ops.view.reshaping import diagonal
from rushlight.tape.record.value import Value

LAPACK = (float32, float64, *COMPLEX)
conj = conjugate
product = _product  # matmul without its casts: derivatives are not under autocast


# ---- checks ----


def check_matrices(op: str, *values: Value, square: bool = False) -> None:
    """Tensors of at least two dimensions, all of one dtype that LAPACK has."""
    for x in values:
        if not isinstance(x, Value):
            raise DTypeError(f"{op}: takes tensors, got {type(x).__name__}")
        if len(x._spec.shape) < 2:
            raise ShapeError(
                f"{op}: The input tensor A must have at least 2 dimensions, got {x._spec!r}"
            )
        if x._spec.dtype not in LAPACK:
            raise DTypeError(
                f"{op}: takes float32, float64 and complex, got {x._spec!r}; cast with .float() or "
                ".double() first"
            )
        if x._spec.dtype is not values[0]._spec.dtype:
            raise DTypeError(
                f"{op}: operands must have one dtype, got {values[0]._spec!r} and {x._spec!r}; "
                "cast with .to(dtype)"
            )
    if square and values[0]._spec.shape[-1] != values[0]._spec.shape[-2]:
        raise ShapeError(f"{op}: A must be batches of square matrices, got {values[0]._spec!r}")


# ---- batches ----


def flat(x: Value) -> Value:
    """(batch, rows, columns), all batch dimensions as one."""
    shape = x._spec.shape
    return views.reshape(x, (numel(shape[:-2]), *shape[-2:]))


def unflat(x: Value, batch: Shape) -> Value:
    """The batch dimensions restored."""
    return views.reshape(x, (*batch, *x._spec.shape[1:]))


def batched(op: str, *values: Value) -> tuple[Shape, list[Value]]:
    """The common batch shape, and each operand expanded to it."""
    batch = broadcast_shapes([x._spec.shape[:-2] for x in values], op, [x._spec for x in values])
    return batch, [views.expand(x, (*batch, *x._spec.shape[-2:])) for x in values]


def one_each(x: Value, batch: Shape, own: Shape) -> Value:
    """Results for an expanded batch reduced to one for each matrix of batch shape `own`."""
    if own == batch:
        return x
    spec = x._spec
    shape = (*own, *spec.shape[len(batch) :])
    if not spec.numel or not numel(own):  # an empty expanded batch has no results
        return full_spec(Spec.of(spec.device, spec.dtype, shape), 0)
    for _ in range(len(batch) - len(own)):
        x = views.select(x, 0, 0)
    for dim, size in enumerate(own):
        x = views.slice_dim(x, dim, 0, size)
    return e.clone(x)


# ---- parts ----


def transposed(x: Value) -> Value:
    return views.transpose(x, -1, -2)


def adjoint(x: Value) -> Value:
    """The conjugate transpose."""
    return conjugate(views.transpose(x, -1, -2))


def eye(n: int, like: Value, m: int | None = None, dtype: DType | None = None) -> Value:
    return creation.eye(n, m, dtype=dtype or like._spec.dtype, device=like._spec.device.device.name)


def tril(x: Value, diagonal: int = 0) -> Value:
    return scaled.tril(x, diagonal)


def triu(x: Value, diagonal: int = 0) -> Value:
    return scaled.triu(x, diagonal)


def diagonal_of(x: Value) -> Value:
    return diagonal(x, 0, -2, -1)


def column(x: Value) -> Value:
    """x with a last dimension of 1."""
    return views.unsqueeze(x, -1)


def row(x: Value) -> Value:
    """x with a second last dimension of 1."""
    return views.unsqueeze(x, -2)


def narrow(x: Value, dim: int, start: int, stop: int) -> Value:
    """x[start:stop] along a dimension counted from the end."""
    return views.slice_dim(x, len(x._spec.shape) + dim, start, stop - start)


def half_diagonal(x: Value) -> Value:
    """x with its diagonal halved."""
    n = x._spec.shape[-1]
    return e.mul(x, e.sub(1, e.mul(eye(n, x), 0.5)))


def on_diagonal(x: Value, values: Value | float) -> Value:
    """x with other values on its diagonal: a column or row per matrix, or a number."""
    n = x._spec.shape[-1]
    mask = eye(n, x, dtype=bool_)
    return e.select(mask, row(values) if isinstance(values, Value) else values, x)


def summed(parts: Sequence[Value | None]) -> Value | None:
    """The sum of the values that are not None."""
    total: Value | None = None
    for part in parts:
        if part is not None:
            total = part if total is None else e.add(total, part)
    return total
