"""Eigenvalues and eigenvectors, of Hermitian and of any square matrices.

See Note [Matrix derivatives].
"""

from __future__ import annotations

from typing import Any, NamedTuple

from rushlight.core.dtypes import complex_type, real_type
from rushlight.core.errors import RushlightError
from rushlight.ops.family.library import LibraryOp, call_library
from rushlight.ops.family.returned import returned
from rushlight.ops.linalg.decompositions import check_gauge, is_recorded, skew
from rushlight.ops.linalg.matrices import (
    adjoint,
    check_matrices,
    column,
    conj,
    diagonal_of,
    flat,
    on_diagonal,
    product,
    row,
    unflat,
)
from rushlight.ops.linalg.solve import solve_ex
from rushlight.ops.pointwise import arithmetic as e
from rushlight.ops.registry import composite
from rushlight.ops.view import complex_parts
from rushlight.ops.view.reshaping import diag_embed
from rushlight.tape.record.value import Value


def _eigh_grad(
    needs: int, grads: list[Any], ins: list[Any], outs: list[Any], triangle: str
) -> list[Value | None]:
    (g_values, g_vectors), (values, v) = grads, outs
    if g_vectors is None:
        return [product(e.mul(v, row(g_values)), adjoint(v))]
    gaps = on_diagonal(e.sub(row(values), column(values)), 1.0)
    turn = skew(product(adjoint(v), g_vectors))
    check_gauge("linalg.eigh", turn)
    inner = on_diagonal(e.div(e.mul(turn, 0.5), gaps), 0.0)
    if g_values is not None:
        inner = e.add(inner, diag_embed(g_values))
    return [product(product(v, inner), adjoint(v))]


_eigh_op = LibraryOp(
    "lapack",
    "eigh",
    lambda ins, triangle: [
        (real_type(ins[0].dtype), ins[0].shape[:2]),
        (ins[0].dtype, ins[0].shape),
    ],
    "Eigenvalues and eigenvectors of Hermitian matrices.",
    _eigh_grad,
    ((), (0, 1)),
    result_names=("eigenvalues", "eigenvectors"),
)
_eigvalsh_op = LibraryOp(
    "lapack",
    "eigvalsh",
    lambda ins, triangle: [(real_type(ins[0].dtype), ins[0].shape[:2])],
    "Eigenvalues of Hermitian matrices.",
)


@returned("linalg_eig")
class Eig(NamedTuple):
    """The result of linalg.eig."""

    eigenvalues: Any
    eigenvectors: Any


@returned("linalg_eigh")
class Eigh(NamedTuple):
    """The result of linalg.eigh and linalg.eig."""

    eigenvalues: Any
    eigenvectors: Any


def _triangle(op: str, a: Value, triangle: str) -> str:
    check_matrices(op, a, square=True)
    if not isinstance(triangle, str) or triangle.upper() not in ("L", "U"):
        raise RushlightError(f"{op}: UPLO is 'L' or 'U', got {triangle!r}")
    return triangle.upper()


@composite("linalg_eigh", method=False, top=False, out="exact", pure=True)
def eigh(A: Value, UPLO: str = "L") -> Eigh:
    """Eigenvalues, ascending, and eigenvectors of symmetric or Hermitian matrices.

    One triangle is read.

    Example:
        >>> torch.linalg.eigh(torch.tensor([[2.0, 0.0], [0.0, 1.0]])).eigenvalues
        tensor([1., 2.])
    """
    triangle = _triangle("linalg.eigh", A, UPLO)
    return Eigh(
        *(unflat(x, A._spec.shape[:-2]) for x in call_library(_eigh_op, (flat(A),), triangle))
    )


@composite("linalg_eigvalsh", method=False, top=False, out="exact")
def eigvalsh(A: Value, UPLO: str = "L") -> Value:
    """Eigenvalues, ascending, of symmetric or Hermitian matrices."""
    triangle = _triangle("linalg.eigvalsh", A, UPLO)
    if is_recorded(A):
        return eigh(A, UPLO).eigenvalues
    return unflat(call_library(_eigvalsh_op, (flat(A),), triangle), A._spec.shape[:-2])


def _eig_grad(needs: int, grads: list[Any], ins: list[Any], outs: list[Any]) -> list[Value | None]:
    """Eigenvectors have norm 1, so the part along them is removed; their phase must not matter."""
    (g_values, g_vectors), (values, v) = grads, outs
    turned = adjoint(v)
    if g_vectors is None:
        inner = e.mul(column(g_values), turned)
    else:
        moved = product(turned, g_vectors)
        check_gauge("linalg.eig", skew(moved))
        stretch = complex_parts.real_part(diagonal_of(moved))
        moved = e.sub(moved, e.mul(product(turned, v), row(stretch)))
        gaps = on_diagonal(conj(e.sub(row(values), column(values))), 1.0)
        inner = on_diagonal(e.div(moved, gaps), 0.0)
        if g_values is not None:
            inner = e.add(inner, diag_embed(g_values))
        inner = product(inner, turned)
    of_a = solve_ex(turned, inner).result
    return [of_a if ins[0].dtype.kind == "c" else complex_parts.real_part(of_a)]


_eig_op = LibraryOp(
    "lapack",
    "eig",
    lambda ins: [
        (complex_type(ins[0].dtype), ins[0].shape[:2]),
        (complex_type(ins[0].dtype), ins[0].shape),
    ],
    "Eigenvalues and eigenvectors.",
    _eig_grad,
    ((), (0, 1)),
    result_names=("eigenvalues", "eigenvectors"),
)
_eigvals_op = LibraryOp(
    "lapack",
    "eigvals",
    lambda ins: [(complex_type(ins[0].dtype), ins[0].shape[:2])],
    "Eigenvalues.",
)


@composite("linalg_eig", method=False, top=False, out="cast")
def eig(A: Value) -> Eig:
    """Eigenvalues and eigenvectors of square matrices, complex, in no order."""
    check_matrices("linalg.eig", A, square=True)
    return Eig(*(unflat(x, A._spec.shape[:-2]) for x in call_library(_eig_op, (flat(A),))))


@composite("linalg_eigvals", method=False, top=False, out="cast")
def eigvals(A: Value) -> Value:
    """Eigenvalues of square matrices, complex, in no order."""
    check_matrices("linalg.eigvals", A, square=True)
    if is_recorded(A):
        return eig(A).eigenvalues
    return unflat(call_library(_eigvals_op, (flat(A),)), A._spec.shape[:-2])
