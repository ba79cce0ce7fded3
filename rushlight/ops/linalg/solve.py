"""Linear systems: solving, inverses, triangles, LU, determinants, least squares.

# Note [Matrix derivatives]
1. Gradients are PyTorch's: of a complex tensor, the conjugate of the derivative; so adjoints
   replace the transposes of real formulas.
2. Every rule is written in ops that have rules, so all orders follow. A factorisation inside a rule
   raises no error: singular matrices give infinities there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from rushlight.core.dtypes import DType, int32, real_type
from rushlight.core.errors import DTypeError, RushlightError, ShapeError
from rushlight.core.shapes import Spec, numel
from rushlight.ops.family.library import LibraryOp, call_library
from rushlight.ops.family.returned import returned
from rushlight.ops.linalg.matrices import (
    adjoint,
    batched,
    check_matrices,
    column,
    conj,
    diagonal_of,
    eye,
    flat,
    narrow,
    one_each,
    product,
    transposed,
    tril,
    triu,
    unflat,
)
from rushlight.ops.pointwise import arithmetic as e, complex_numbers
from rushlight.ops.reduce import reductions
from rushlight.ops.registry import composite
from rushlight.ops.view import complex_parts, views
from rushlight.tape.record import call
from rushlight.tape.record.value import Value

# ---- A X = B ----


def _solve_grad(
    needs: int, grads: list[Any], ins: list[Any], outs: list[Any], label: str
) -> list[Value | None]:
    of_b = _solve(adjoint(ins[0]), grads[0], "")[0]
    return [e.neg(product(of_b, adjoint(outs[0]))) if needs & 1 else None, of_b]


_solve_op = LibraryOp(
    "lapack",
    "solve",
    lambda ins, label: [(ins[1].dtype, ins[1].shape), (int32, ins[0].shape[:1])],
    "X of A X = B, and where it failed.",
    _solve_grad,
    ((0,), (0,)),
    operand_names=("A", "B"),
)


def _inverse_grad(
    needs: int, grads: list[Any], ins: list[Any], outs: list[Any], label: str
) -> list[Value | None]:
    inverse = adjoint(outs[0])
    return [e.neg(product(product(inverse, grads[0]), inverse)), None]


_inverse_op = LibraryOp(
    "lapack",
    "solve",
    lambda ins, label: [(ins[1].dtype, ins[1].shape), (int32, ins[0].shape[:1])],
    "X of A X = 1, and where it failed: the derivative needs no other system.",
    _inverse_grad,
    ((), (0,)),
)


def _solve(a: Value, b: Value, label: str) -> tuple[Value, Value]:
    """Batches of one shape, as one dimension."""
    x, info = call_library(_solve_op, (a, b), label)
    return x, info


@returned("linalg_solve_ex")
class SolveEx(NamedTuple):
    """The result of linalg.solve_ex."""

    result: Any
    info: Any


@returned("linalg_inv_ex")
class InvEx(NamedTuple):
    """The result of linalg.inv_ex."""

    inverse: Any
    info: Any


def is_vector(a: Value, b: Value) -> bool:
    """Whether B is a (batch of) right-hand side(s) without columns, by PyTorch's rule."""
    return len(b._spec.shape) == 1 or (
        len(a._spec.shape) - 1 == len(b._spec.shape) and b._spec.shape == a._spec.shape[:-1]
    )


def _solved(a: Value, b: Value, left: bool, label: str) -> tuple[Value, Value]:
    op = "linalg.solve"
    if not isinstance(b, Value) or not b._spec.shape:
        raise ShapeError(f"{op}: B must have at least 1 dimension")
    vector = is_vector(a, b) if isinstance(a, Value) else False
    if vector and not left:
        raise ShapeError(f"{op}: a vector B, {b._spec!r}, needs left=True")
    b = column(b) if vector else b
    check_matrices(op, a, b, square=True)
    a, b = (a, b) if left else (transposed(a), transposed(b))
    if a._spec.shape[-1] != b._spec.shape[-2]:
        raise ShapeError(
            f"{op}: A {a._spec!r} and B {b._spec!r} do not fit; they need as many rows"
        )
    own = a._spec.shape[:-2]
    batch, (a, b) = batched(op, a, b)
    x, info = _solve(flat(a), flat(b), label)
    x = unflat(x, batch)
    x = views.squeeze(x, -1) if vector else x if left else transposed(x)
    return x, one_each(views.reshape(info, batch), batch, own)


@composite("linalg_solve", method=False, top=False, out="exact", pure=True)
def solve(A: Value, B: Value, *, left: bool = True) -> Value:
    """X of A X = B, or of X A = B.

    Example:
        >>> torch.linalg.solve(torch.tensor([[2.0, 0.0], [0.0, 4.0]]), torch.tensor([2.0, 2.0]))
        tensor([1.0000, 0.5000])
    """
    return _solved(A, B, left, "linalg.solve")[0]


@composite("linalg_solve_ex", method=False, top=False, out="exact")
def solve_ex(A: Value, B: Value, *, left: bool = True, check_errors: bool = False) -> SolveEx:
    """X of A X = B, and per matrix 0 or the step at which it is singular."""
    return SolveEx(*_solved(A, B, left, "linalg.solve_ex" if check_errors else ""))


def _inverted(a: Value, label: str) -> tuple[Value, Value]:
    check_matrices("linalg.inv", a, square=True)
    batch, n = a._spec.shape[:-2], a._spec.shape[-1]
    one = views.expand(eye(n, a), (numel(batch), n, n))
    x, info = call_library(_inverse_op, (flat(a), one), label)
    return unflat(x, batch), views.reshape(info, batch)


@composite("linalg_inv", method=False, top=False, out="exact", pure=True)
def inv(A: Value) -> Value:
    """The inverse of square matrices."""
    return _inverted(A, "linalg.inv")[0]


@composite("linalg_inv_ex", method=False, top=False, out="exact")
def inv_ex(A: Value, *, check_errors: bool = False) -> InvEx:
    """The inverse, and per matrix 0 or the step at which it is singular."""
    return InvEx(*_inverted(A, "linalg.inv" if check_errors else ""))


@composite("inverse", out="cast", pure=True)
def inverse(input: Value) -> Value:
    """The inverse of square matrices."""
    return _inverted(input, "linalg.inv")[0]


# ---- triangles ----


def _triangular_grad(
    needs: int, grads: list[Any], ins: list[Any], outs: list[Any], upper: bool, unit: bool
) -> list[Value | None]:
    of_b = triangular(adjoint(ins[0]), grads[0], not upper, unit)
    if not needs & 1:
        return [None, of_b]
    of_a = e.neg(product(of_b, adjoint(outs[0])))
    return [triu(of_a, int(unit)) if upper else tril(of_a, -int(unit)), of_b]


_triangular_op = LibraryOp(
    "lapack",
    "triangular",
    lambda ins, upper, unit: [(ins[1].dtype, ins[1].shape)],
    "X of A X = B, A a triangle.",
    _triangular_grad,
    ((0,), (0,)),
)


def triangular(a: Value, b: Value, upper: bool, unit: bool = False) -> Value:
    """X of A X = B for one batch shape; only the triangle of A is read."""
    batch = b._spec.shape[:-2]
    return unflat(call_library(_triangular_op, (flat(a), flat(b)), bool(upper), bool(unit)), batch)


def right_triangular(b: Value, a: Value, upper: bool, unit: bool = False) -> Value:
    """X of X A = B."""
    return transposed(triangular(transposed(a), transposed(b), not upper, unit))


@composite("linalg_solve_triangular", method=False, top=False, out="exact", pure=True)
def solve_triangular(
    A: Value, B: Value, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Value:
    """X of A X = B, or of X A = B, where A is a triangle; the other half is not read."""
    check_matrices("linalg.solve_triangular", A, B, square=True)
    if A._spec.shape[-1] != B._spec.shape[-2 if left else -1]:
        raise ShapeError(f"linalg.solve_triangular: A {A._spec!r} and B {B._spec!r} do not fit")
    _, (a, b) = batched("linalg.solve_triangular", A, B)
    return (
        triangular(a, b, upper, unitriangular)
        if left
        else right_triangular(b, a, upper, unitriangular)
    )


@returned("triangular_solve")
class TriangularSolve(NamedTuple):
    """The result of triangular_solve."""

    solution: Any
    cloned_coefficient: Any


@composite("triangular_solve", out="exact")
def triangular_solve(
    input: Value, A: Value, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> TriangularSolve:
    """X of A X = input, or of A^T X = input, where A is a triangle; and a copy of A."""
    a = transposed(A) if transpose else A
    x = solve_triangular(
        a, input, upper=bool(upper) != bool(transpose), unitriangular=unitriangular
    )
    return TriangularSolve(x, e.clone(views.expand(A, (*x._spec.shape[:-2], *A._spec.shape[-2:]))))


# ---- LU ----


def _lu_results(ins: Sequence[Spec], label: str) -> list[tuple[DType, tuple[int, ...]]]:
    n, *sizes = ins[0].shape
    return [(ins[0].dtype, ins[0].shape), (int32, (n, min(sizes))), (int32, (n,))]


def _lu_grad(
    needs: int, grads: list[Any], ins: list[Any], outs: list[Any], label: str
) -> list[Value | None]:
    """Of A = P L U: the part of L^-1 P^T dA U^-1 below the diagonal changes L, the rest U."""
    g, lu, pivots = grads[0], outs[0], call.detached(outs[1])
    m, n = lu._spec.shape[-2:]
    k = min(m, n)
    first = narrow(narrow(lu, -2, 0, k), -1, 0, k)
    g_first = narrow(narrow(g, -2, 0, k), -1, 0, k)
    lower, upper = unit_lower(first), triu(first)
    below = product(adjoint(lower), tril(g_first, -1))
    above = product(triu(g_first), adjoint(upper))
    rest = None
    if n > k:
        u_rest, g_rest = narrow(lu, -1, k, n), narrow(g, -1, k, n)
        below = e.sub(below, product(g_rest, adjoint(u_rest)))
        rest = triangular(adjoint(lower), g_rest, True, True)
    elif m > k:
        l_rest, g_rest = narrow(lu, -2, k, m), narrow(g, -2, k, m)
        above = e.sub(above, product(adjoint(l_rest), g_rest))
        rest = right_triangular(g_rest, adjoint(upper), False)
    inner = e.add(tril(below, -1), triu(above))
    of_first = right_triangular(
        triangular(adjoint(lower), inner, True, True), adjoint(upper), False
    )
    whole = of_first if rest is None else views.cat([of_first, rest], 2 if n > k else 1)
    return [product(_permutation(pivots, m, whole._spec.dtype), whole)]


_lu_op = LibraryOp(
    "lapack",
    "lu_factor",
    _lu_results,
    "LU, pivots and info.",
    _lu_grad,
    ((), (0, 1)),
    result_names=("LU", "pivots"),
)
_permutation_op = LibraryOp(
    "lapack",
    "permutation",
    lambda ins, kind, rows: [(kind, (ins[0].shape[0], rows, rows))],
    "P of A = P L U from the exchanges of rows.",
)


def _permutation(pivots: Value, rows: int, dtype: DType) -> Value:
    return call_library(_permutation_op, (pivots,), dtype, rows)


def unit_lower(lu: Value) -> Value:
    """The lower triangle with ones on the diagonal."""
    return e.add(tril(lu, -1), eye(lu._spec.shape[-2], lu, lu._spec.shape[-1]))


@returned("linalg_lu_factor")
class LUFactor(NamedTuple):
    """The result of linalg.lu_factor."""

    LU: Any
    pivots: Any


@returned("linalg_lu_factor_ex")
class LUFactorEx(NamedTuple):
    """The result of linalg.lu_factor_ex."""

    LU: Any
    pivots: Any
    info: Any


@returned("linalg_lu")
class LU(NamedTuple):
    """The result of linalg.lu and lu_unpack."""

    P: Any
    L: Any
    U: Any


def _lu_factored(a: Value, pivot: bool, op: str, label: str) -> LUFactorEx:
    check_matrices(op, a)
    if not pivot:
        raise RushlightError(f"{op}: LU without pivoting is not implemented; leave pivot=True")
    batch = a._spec.shape[:-2]
    lu, pivots, info = call_library(_lu_op, (flat(a),), label)
    return LUFactorEx(unflat(lu, batch), unflat(pivots, batch), views.reshape(info, batch))


@composite("linalg_lu_factor_ex", method=False, top=False, out="exact")
def lu_factor_ex(A: Value, *, pivot: bool = True, check_errors: bool = False) -> LUFactorEx:
    """L and U in one matrix, the row exchanged with each (from 1), and info.

    The info is 0 or the index of the first zero pivot.
    """
    return _lu_factored(
        A, pivot, "linalg.lu_factor_ex", "linalg.lu_factor_ex" if check_errors else ""
    )


@composite("linalg_lu_factor", method=False, top=False, out="exact", pure=True)
def lu_factor(A: Value, *, pivot: bool = True) -> LUFactor:
    """L and U in one matrix, and the row exchanged with each (from 1)."""
    return LUFactor(*_lu_factored(A, pivot, "linalg.lu_factor", "linalg.lu_factor")[:2])


@composite("lu")
def lu(A: Value, pivot: bool = True, get_infos: bool = False) -> Any:
    """L and U in one matrix, the exchanged rows, and the info if asked for."""
    found = _lu_factored(A, pivot, "lu", "" if get_infos else "linalg.lu_factor")
    return found if get_infos else LUFactor(*found[:2])


@composite("lu_unpack", method=False, out="exact")
def lu_unpack(
    LU_data: Value, LU_pivots: Value, unpack_data: bool = True, unpack_pivots: bool = True
) -> LU:
    """P, L and U of A = P L U from the result of lu_factor."""
    check_matrices("lu_unpack", LU_data)
    m, n = LU_data._spec.shape[-2:]
    k, batch = min(m, n), LU_data._spec.shape[:-2]
    empty = _empty(LU_data)
    p, lower, upper = empty, empty, empty
    if unpack_pivots:
        if LU_pivots._spec.dtype is not int32:
            raise DTypeError(f"lu_unpack: LU_pivots must be int32, got {LU_pivots._spec!r}")
        exchanges = views.reshape(views.expand(LU_pivots, (*batch, k)), (numel(batch), k))
        p = unflat(_permutation(exchanges, m, LU_data._spec.dtype), batch)
    if unpack_data:
        lower, upper = unit_lower(narrow(LU_data, -1, 0, k)), triu(narrow(LU_data, -2, 0, k))
    return LU(p, lower, upper)


def _empty(like: Value) -> Value:
    return views.reshape(eye(0, like), (0,))


@composite("linalg_lu", method=False, top=False, out="exact")
def linalg_lu(A: Value, *, pivot: bool = True) -> LU:
    """P, L and U of A = P L U."""
    found = _lu_factored(A, pivot, "linalg.lu", "")
    return lu_unpack(found.LU, found.pivots)


@composite("linalg_lu_solve", method=False, top=False, out="exact")
def linalg_lu_solve(
    LU: Value, pivots: Value, B: Value, *, left: bool = True, adjoint: bool = False
) -> Value:
    """X of A X = B (X A = B; A^H X = B), from the result of lu_factor for A."""
    check_matrices("linalg.lu_solve", LU, B, square=True)
    if LU._spec.shape[-1] != B._spec.shape[-2 if left else -1]:
        raise ShapeError(f"linalg.lu_solve: LU {LU._spec!r} and B {B._spec!r} do not fit")
    p, lower, upper = lu_unpack(LU, pivots)
    _, (p, lower, upper, b) = batched("linalg.lu_solve", p, lower, upper, B)
    if not left:  # X A = B is A^T X^T = B^T, and with the adjoint conj(A) X^T = B^T
        if adjoint:
            lower, upper = conj(lower), conj(upper)
        return transposed(_through(p, lower, upper, transposed(b), not adjoint))
    if adjoint:
        return _through(p, conj(lower), conj(upper), b, True)
    return _through(p, lower, upper, b, False)


def _through(p: Value, lower: Value, upper: Value, b: Value, turned: bool) -> Value:
    """X of P L U X = B, or of (P L U)^T X = B."""
    if turned:
        return product(
            p, triangular(transposed(lower), triangular(transposed(upper), b, False), True, True)
        )
    return triangular(upper, triangular(lower, product(transposed(p), b), False, True), True)


@composite("lu_solve", out="exact")
def lu_solve(input: Value, LU_data: Value, LU_pivots: Value) -> Value:
    """X of A X = input, from the result of lu for A."""
    return linalg_lu_solve(LU_data, LU_pivots, input)


# ---- determinants ----


def _det_grad(needs: int, grads: list[Any], ins: list[Any], outs: list[Any]) -> list[Value | None]:
    return [e.mul(column(column(grads[0])), conj(_cofactor(ins[0])))]


def _cofactor_grad(
    needs: int, grads: list[Any], ins: list[Any], outs: list[Any]
) -> list[Value | None]:
    return [conj(call_library(_slope_op, (ins[0], conj(grads[0]))))]


def _slope_grad(
    needs: int, grads: list[Any], ins: list[Any], outs: list[Any]
) -> list[Value | None]:
    """The slope is linear and symmetric in its direction.

    This is the third derivative by the matrix, by the inverse.
    """
    a, g = ins
    h = conj(grads[0])
    of_direction = conj(call_library(_slope_op, (a, h))) if needs & 2 else None
    if not needs & 1:
        return [None, of_direction]
    inverse, _ = _inverted(a, "")
    xg, xh = product(inverse, g), product(inverse, h)
    of_g, of_h, of_both = _trace(xg), _trace(xh), _trace(product(xg, xh))
    twice = e.add(product(xg, xh), product(xh, xg))
    inner = e.sub(e.sub(twice, e.mul(of_h, xg)), e.mul(of_g, xh))
    inner = e.add(product(inner, inverse), e.mul(e.sub(e.mul(of_g, of_h), of_both), inverse))
    return [conj(transposed(e.mul(column(column(det(a))), inner))), of_direction]


def _trace(a: Value) -> Value:
    return column(column(reductions.sum(diagonal_of(a), -1)))


def _per_matrix(ins: Sequence[Spec]) -> list[tuple[DType, tuple[int, ...]]]:
    return [(ins[0].dtype, ins[0].shape[:1])]


_det_op = LibraryOp("lapack", "det", _per_matrix, "The determinant.", _det_grad, ((0,), ()))
_cofactor_op = LibraryOp(
    "lapack",
    "cofactor",
    lambda ins: [(ins[0].dtype, ins[0].shape)],
    "The derivative of the determinant.",
    _cofactor_grad,
    ((0,), ()),
)
_slope_op = LibraryOp(
    "lapack",
    "cofactor_slope",
    lambda ins: [(ins[0].dtype, ins[0].shape)],
    "The change of the determinant's derivative along a direction.",
    _slope_grad,
    ((0, 1), ()),
)


def _cofactor(a: Value) -> Value:
    return call_library(_cofactor_op, (a,))


@composite("det", out="exact", out_top=False, pure=True, linalg="det")
def det(A: Value) -> Value:
    """The determinant of square matrices."""
    check_matrices("linalg.det", A, square=True)
    return unflat(call_library(_det_op, (flat(A),)), A._spec.shape[:-2])


def _slogdet_grad(
    needs: int, grads: list[Any], ins: list[Any], outs: list[Any]
) -> list[Value | None]:
    g = grads[1]
    if ins[0]._spec.dtype.kind == "c" and grads[0] is not None:  # the phase changes too
        turn = complex_parts.imag_part(e.mul(conj(grads[0]), outs[0]))
        size = e.mul(turn, 0) if g is None else g
        g = complex_numbers.complex(size, e.neg(turn))
    if g is None:
        return [None]
    return [e.mul(adjoint(_inverted(ins[0], "linalg.solve")[0]), column(column(g)))]


_slogdet_op = LibraryOp(
    "lapack",
    "slogdet",
    lambda ins: [(ins[0].dtype, ins[0].shape[:1]), (real_type(ins[0].dtype), ins[0].shape[:1])],
    "The determinant's sign and the logarithm of its size.",
    _slogdet_grad,
    ((0,), (0,)),
    result_names=("sign", "logabsdet"),
)


@returned("linalg_slogdet")
class SLogDet(NamedTuple):
    """The result of slogdet."""

    sign: Any
    logabsdet: Any


@composite("slogdet", out="exact", pure=True, linalg="slogdet")
def slogdet(A: Value) -> SLogDet:
    """The sign of the determinant and the logarithm of its absolute value."""
    check_matrices("linalg.slogdet", A, square=True)
    sign, size = call_library(_slogdet_op, (flat(A),))
    batch = A._spec.shape[:-2]
    return SLogDet(unflat(sign, batch), unflat(size, batch))


@composite("logdet")
def logdet(input: Value) -> Value:
    """The logarithm of the determinant; NaN where that is negative."""
    sign, size = slogdet(input)
    if input._spec.dtype.kind == "c":
        return e.add(e.log(sign), size)
    return e.add(size, call.detached(e.log(call.detached(sign))))
