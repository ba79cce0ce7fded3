"""The standard's linear algebra: the main namespace's four functions, and the extension."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from rushlight import linalg as L
from rushlight.array_api import reductions
from rushlight.array_api.array import Array, check_kind, is_array, op, operands, unwrap, wrap
from rushlight.array_api.manipulation import matrix_transpose
from rushlight.core.dtypes import DType
from rushlight.tensor import Tensor


def matmul(x1: Any, x2: Any, /) -> Array:
    """The matrix product; vectors count as rows or columns."""
    if not is_array(x1) or not is_array(x2):
        raise TypeError("matmul: two arrays are needed")
    return wrap(op("matmul")(*operands("matmul", "numeric", x1, x2)))


def _operator(self: Any, other: Any, /) -> Any:
    return matmul(self, other) if is_array(other) else NotImplemented


def _reflected(self: Any, other: Any, /) -> Any:
    return matmul(other, self) if is_array(other) else NotImplemented


def _in_place(self: Any, other: Any, /) -> Any:
    if not is_array(other):
        return NotImplemented
    result = matmul(self, other)
    if result.shape != self.shape or result.dtype is not self.dtype:
        raise TypeError(
            f"in place: a result {result._tensor._spec!r} does not fit into {self._tensor._spec!r}"
        )
    self._tensor.copy_(result._tensor)
    return self


def install() -> None:
    """Give Array its matrix product."""
    for name, method in (("matmul", _operator), ("rmatmul", _reflected), ("imatmul", _in_place)):
        setattr(Array, f"__{name}__", method)


def tensordot(x1: Any, x2: Any, /, *, axes: int | tuple[Sequence[int], Sequence[int]] = 2) -> Array:
    """Products summed over axes of both."""
    return wrap(op("tensordot")(*operands("tensordot", "numeric", x1, x2), axes))


def vecdot(x1: Any, x2: Any, /, *, axis: int = -1) -> Array:
    """Products (with the conjugate of the first, if complex) summed along an axis."""
    first, second = operands("vecdot", "numeric", x1, x2)
    if not -min(first.ndim, second.ndim) <= axis < 0:
        raise ValueError(
            f"vecdot: the axis is counted from the end and lies in both arrays, got {axis}"
        )
    if first.dtype.kind == "c":
        first = op("conj_physical")(first)
    if first.shape[axis] != second.shape[axis]:
        raise ValueError(
            f"vecdot: {first._spec!r} and {second._spec!r} differ in size along axis {axis}"
        )
    product = op("mul")(first, second)
    return wrap(op("sum")(product, axis).to(product.dtype))


def _floating(name: str, x: Any) -> Tensor:
    tensor = unwrap(x)
    check_kind(name, tensor.dtype, "floating")
    return tensor


def cholesky(x: Any, /, *, upper: bool = False) -> Array:
    """The Cholesky factors of positive definite matrices."""
    return wrap(L.cholesky(_floating("cholesky", x), upper=upper))


def cross(x1: Any, x2: Any, /, *, axis: int = -1) -> Array:
    """The cross product of 3-vectors along an axis."""
    first, second = operands("cross", "numeric", x1, x2)
    if not -min(first.ndim, second.ndim) <= axis < 0:
        raise ValueError(
            f"cross: the axis is counted from the end and lies in both arrays, got {axis}"
        )
    if first.shape[axis] != 3 or second.shape[axis] != 3:
        raise ValueError(
            f"cross: {first._spec!r} and {second._spec!r} must have size 3 along axis {axis}"
        )
    return wrap(L.cross(*op("broadcast_tensors")(first, second), dim=axis))


def det(x: Any, /) -> Array:
    """Determinants."""
    return wrap(L.det(_floating("det", x)))


def diagonal(x: Any, /, *, offset: int = 0) -> Array:
    """Diagonals of matrices along a new last axis."""
    return wrap(op("diagonal")(unwrap(x), offset, -2, -1))


class Eig(NamedTuple):
    """Eigenvalues and eigenvectors of square matrices, complex."""

    eigenvalues: Array
    eigenvectors: Array


def eig(x: Any, /) -> Eig:
    """Eigenvalues and eigenvectors of square matrices, complex."""
    return Eig(*map(wrap, L.eig(_floating("eig", x))))


def eigvals(x: Any, /) -> Array:
    """Eigenvalues of square matrices, complex."""
    return wrap(L.eigvals(_floating("eigvals", x)))


class Eigh(NamedTuple):
    """Eigenvalues and eigenvectors of symmetric matrices."""

    eigenvalues: Array
    eigenvectors: Array


def eigh(x: Any, /) -> Eigh:
    """Eigenvalues and eigenvectors of symmetric (Hermitian) matrices."""
    return Eigh(*map(wrap, L.eigh(_floating("eigh", x))))


def eigvalsh(x: Any, /) -> Array:
    """Eigenvalues of symmetric (Hermitian) matrices."""
    return wrap(L.eigvalsh(_floating("eigvalsh", x)))


def inv(x: Any, /) -> Array:
    """Inverse matrices."""
    return wrap(L.inv(_floating("inv", x)))


def matrix_norm(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Array:
    """Norms of matrices."""
    return wrap(L.matrix_norm(_floating("matrix_norm", x), ord, (-2, -1), keepdims))


def matrix_power(x: Any, n: int, /) -> Array:
    """Matrices to an integer power."""
    return wrap(L.matrix_power(_floating("matrix_power", x), n))


def matrix_rank(x: Any, /, *, rtol: Any = None) -> Array:
    """The number of singular values above rtol times the largest."""
    return wrap(
        L.matrix_rank(_floating("matrix_rank", x), rtol=unwrap(rtol) if is_array(rtol) else rtol)
    )


def outer(x1: Any, x2: Any, /) -> Array:
    """All products of two vectors' elements."""
    first, second = operands("outer", "numeric", x1, x2)
    if first.ndim != 1 or second.ndim != 1:
        raise ValueError(f"outer: two vectors are needed, got {first._spec!r} and {second._spec!r}")
    return wrap(op("outer")(first, second))


def pinv(x: Any, /, *, rtol: Any = None) -> Array:
    """Pseudo-inverses."""
    return wrap(L.pinv(_floating("pinv", x), rtol=unwrap(rtol) if is_array(rtol) else rtol))


class Qr(NamedTuple):
    """The QR decomposition: orthonormal columns and a triangle."""

    Q: Array
    R: Array


def qr(x: Any, /, *, mode: str = "reduced") -> Qr:
    """The QR decomposition."""
    if mode not in ("reduced", "complete"):
        raise ValueError(f"qr: mode is 'reduced' or 'complete', got {mode!r}")
    return Qr(*map(wrap, L.qr(_floating("qr", x), mode)))


class Slogdet(NamedTuple):
    """The signs and the logarithms of absolute values of determinants."""

    sign: Array
    logabsdet: Array


def slogdet(x: Any, /) -> Slogdet:
    """Determinants by sign and logarithm."""
    return Slogdet(*map(wrap, L.slogdet(_floating("slogdet", x))))


def solve(x1: Any, x2: Any, /) -> Array:
    """The solution of x1 @ y = x2; x2 is a vector only where it has one dimension."""
    first, second = operands("solve", "floating", x1, x2)
    if second.ndim == 1:
        return wrap(L.solve(first, op("unsqueeze")(second, -1)).squeeze(-1))
    lead = first.ndim - second.ndim
    for _ in range(max(lead, 0)):
        second = op("unsqueeze")(second, 0)
    return wrap(L.solve(first, second))


class Svd(NamedTuple):
    """Singular vectors and values."""

    U: Array
    S: Array
    Vh: Array


def svd(x: Any, /, *, full_matrices: bool = True) -> Svd:
    """The singular value decomposition."""
    return Svd(*map(wrap, L.svd(_floating("svd", x), full_matrices)))


def svdvals(x: Any, /) -> Array:
    """Singular values."""
    return wrap(L.svdvals(_floating("svdvals", x)))


def trace(x: Any, /, *, offset: int = 0, dtype: DType | None = None) -> Array:
    """Sums of diagonals."""
    return reductions.sum(diagonal(x, offset=offset), axis=-1, dtype=dtype)


def vector_norm(x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: float = 2) -> Array:
    """Norms of vectors, over all elements by default."""
    tensor = _floating("vector_norm", x)
    return wrap(L.vector_norm(tensor, ord, axis, keepdims))


__all__ = [
    "cholesky",
    "cross",
    "det",
    "diagonal",
    "eig",
    "eigh",
    "eigvals",
    "eigvalsh",
    "inv",
    "matmul",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "matrix_transpose",
    "outer",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "svd",
    "svdvals",
    "tensordot",
    "trace",
    "vecdot",
    "vector_norm",
]
