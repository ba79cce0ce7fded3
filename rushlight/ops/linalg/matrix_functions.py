"""Functions of matrices: pseudoinverse, least squares, rank, norms, powers, exp, LDL."""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from typing import Any, NamedTuple

from rushlight.core.dtypes import DType, float32, float64, int32, int64, real_type
from rushlight.core.errors import DTypeError, RushlightError, ShapeError
from rushlight.core.shapes import numel, wrap_dim
from rushlight.ops.create import creation
from rushlight.ops.family.library import LibraryOp, call_library
from rushlight.ops.family.read_back import read
from rushlight.ops.family.returned import returned
from rushlight.ops.linalg.decompositions import svdvals
from rushlight.ops.linalg.eigenvalues import eigvalsh
from rushlight.ops.linalg.matmul import matmul
from rushlight.ops.linalg.matrices import (
    adjoint,
    batched,
    check_matrices,
    column,
    eye,
    flat,
    one_each,
    product,
    row,
    unflat,
)
from rushlight.ops.linalg.solve import inv, inv_ex, solve
from rushlight.ops.pointwise import arithmetic as e
from rushlight.ops.reduce import reductions, statistics
from rushlight.ops.registry import composite
from rushlight.ops.view import views
from rushlight.tape.record import call
from rushlight.tape.record.value import Value
from rushlight.tape.vmap.batched import physical_of

_EPSILON = {float32: 2.0**-23, float64: 2.0**-52}

# ---- pseudoinverse and least squares ----


def _pinv_grad(
    needs: int, grads: list[Any], ins: list[Any], outs: list[Any], hermitian: bool
) -> list[Value | None]:
    """Golub and Pereyra's formula.

    Nothing is divided by singular values, so multiple and zero ones are fine.
    """
    a, p, g = ins[0], outs[0], adjoint(grads[0])
    turned = adjoint(p)
    inner = product(g, p)
    across = product(inner, turned)
    of_a = e.sub(e.sub(across, product(a, product(p, across))), adjoint(product(p, inner)))
    return [e.add(of_a, product(product(turned, p), e.sub(g, product(inner, a)))), None, None]


_pinv_op = LibraryOp(
    "lapack",
    "pinv",
    lambda ins, hermitian: [(ins[0].dtype, (ins[0].shape[0], ins[0].shape[2], ins[0].shape[1]))],
    "The pseudoinverse, without small singular values.",
    _pinv_grad,
    ((0,), (0,)),
)


def _tolerances(a: Value, atol: Any, rtol: Any) -> tuple[Value, Value]:
    """An absolute and a relative tolerance per matrix, as reals; PyTorch's defaults."""
    real = real_type(a._spec.dtype)
    batch, device = a._spec.shape[:-2], a._spec.device.device.name
    for limit in (atol, rtol):
        if isinstance(limit, complex) or (
            isinstance(limit, Value) and limit._spec.dtype.kind == "c"
        ):
            raise DTypeError(
                f"linalg: tolerances for {a._spec!r} are real numbers, got a complex one"
            )
    if rtol is None:
        default = _EPSILON[real] * max(a._spec.shape[-2:])
        if isinstance(atol, Value):
            rtol = e.select(e.gt(atol, 0), 0.0, default)
        else:
            rtol = 0.0 if atol else default
    atol = 0.0 if atol is None else atol

    def each(value: Any) -> Value:
        value = (
            value
            if isinstance(value, Value)
            else creation.full((), float(value), dtype=real, device=device)
        )
        return views.expand(e.cast(call.detached(value), real), batch)

    return each(atol), each(rtol)


def _pseudoinverse(a: Value, atol: Any, rtol: Any, hermitian: bool) -> Value:
    check_matrices("linalg.pinv", a, square=hermitian)
    batch = a._spec.shape[:-2]
    limits = [views.reshape(v, (numel(batch),)) for v in _tolerances(a, atol, rtol)]
    return unflat(call_library(_pinv_op, (flat(a), *limits), bool(hermitian)), batch)


@composite("linalg_pinv", method=False, top=False, out="cast", pure=True)
def pinv(
    A: Value, rcond: Any = None, hermitian: bool = False, *, atol: Any = None, rtol: Any = None
) -> Value:
    """The pseudoinverse; singular values up to max(atol, rtol * largest) count as 0."""
    return _pseudoinverse(A, atol, rcond if rtol is None else rtol, hermitian)


@composite("pinverse")
def pinverse(input: Value, rcond: float = 1e-15) -> Value:
    """The pseudoinverse; singular values up to rcond * largest count as 0."""
    return _pseudoinverse(input, None, rcond, False)


@returned("linalg_lstsq")
class Lstsq(NamedTuple):
    """The result of linalg.lstsq."""

    solution: Any
    residuals: Any
    rank: Any
    singular_values: Any


def _lstsq_grad(
    needs: int, grads: list[Any], ins: list[Any], outs: list[Any], rcond: float
) -> list[Value | None]:
    """The solution is pinv(A) B."""
    a, b = ins
    p = pinv(a)
    g = grads[0]
    if g is None:
        return [None, None]
    of_b = product(adjoint(p), g) if needs & 2 else None
    of_a = _pinv_grad(1, [product(g, adjoint(b))], [a], [p], False)[0] if needs & 1 else None
    return [of_a, of_b]


_lstsq_op = LibraryOp(
    "lapack",
    "lstsq",
    lambda ins, rcond: [
        (ins[0].dtype, (ins[0].shape[0], ins[0].shape[2], ins[1].shape[2])),
        (int64, ins[0].shape[:1]),
        (real_type(ins[0].dtype), (ins[0].shape[0], min(ins[0].shape[1:]))),
    ],
    "Least squares: solution, rank, singular values.",
    _lstsq_grad,
    ((0, 1), ()),
)


@composite("linalg_lstsq", method=False, top=False, out="cast")
def lstsq(A: Value, B: Value, rcond: float | None = None, *, driver: str | None = None) -> Lstsq:
    """X with the least |A X - B|, and of those the least |X|.

    Residuals where A has full column rank.

    Example:
        >>> A = torch.tensor([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]])
        >>> torch.linalg.lstsq(A, torch.tensor([[1.0], [3.0], [5.0]])).solution.round(decimals=3)
        tensor([[1.],
                [2.]])
    """
    name = "linalg.lstsq"
    driver = "gelsy" if driver is None else driver
    if driver not in ("gels", "gelsy", "gelsd", "gelss"):
        raise RushlightError(
            f"{name}: driver is 'gels', 'gelsy', 'gelsd' or 'gelss', got {driver!r}"
        )
    if not 0 <= len(A._spec.shape) - len(B._spec.shape) <= 1:
        raise ShapeError(
            f"{name}: B has as many dimensions as A, or one less, got {A._spec!r} and {B._spec!r}"
        )
    vector = len(A._spec.shape) - 1 == len(B._spec.shape) and A._spec.shape[:-1] == B._spec.shape
    b = column(B) if vector else B
    check_matrices(name, A, b)
    m, n = A._spec.shape[-2:]
    if b._spec.shape[-2] != m:
        raise ShapeError(
            f"{name}: A {A._spec!r} and B {B._spec!r} do not fit; they need as many rows"
        )
    batch, (a, b) = batched(name, A, b)
    limit = _EPSILON[real_type(A._spec.dtype)] * max(m, n) if rcond is None else float(rcond)
    x, rank, values = call_library(_lstsq_op, (flat(a), flat(b)), limit)
    x, rank, values = unflat(x, batch), unflat(rank, batch), unflat(values, batch)
    rank, values = (one_each(found, batch, A._spec.shape[:-2]) for found in (rank, values))
    nothing = views.reshape(eye(0, A, dtype=values._spec.dtype), (0,))
    residuals = nothing
    if (
        m > n
        and driver != "gelsy"
        and (driver == "gels" or min(read(physical_of(rank)), default=n) == n)
    ):
        missed = e.abs(e.sub(product(a, x), b))
        residuals = reductions.sum(e.mul(missed, missed), -2)
    if driver == "gels":
        rank = views.reshape(eye(0, A, dtype=int64), (0,))
    values = call.detached(values) if driver in ("gelsd", "gelss") else nothing
    return Lstsq(views.squeeze(x, -1) if vector else x, residuals, rank, values)


# ---- rank, condition, norms ----


@composite("linalg_matrix_rank", method=False, top=False, out="cast")
def matrix_rank(
    A: Value, tol: Any = None, hermitian: bool = False, *, atol: Any = None, rtol: Any = None
) -> Value:
    """The number of singular values above max(atol, rtol * largest).

    `tol` is an older name of atol.
    """
    check_matrices("linalg.matrix_rank", A, square=hermitian)
    if tol is not None:
        atol, rtol = tol, 0.0
    seen = call.detached(A)
    values = e.abs(eigvalsh(seen)) if hermitian else svdvals(seen)
    if not values._spec.shape[-1]:
        return reductions.sum(e.cast(values, int64), -1)
    absolute, relative = _tolerances(seen, atol, rtol)
    limit = e.maximum(absolute, e.mul(relative, reductions.amax(values, -1)))
    return reductions.sum(e.gt(values, column(limit)), -1)


def singular_norm(values: Value, ord: Any) -> Value:
    """The largest (2), smallest (-2) or sum ("nuc") of singular values along the last dimension."""
    if ord == "nuc":
        return reductions.sum(values, -1)
    if not values._spec.shape[-1]:
        if ord == -2:
            raise IndexError("matrix_norm: there are no singular values, so none is the smallest")
        return reductions.sum(values, -1)
    return (reductions.amax if ord == 2 else reductions.amin)(values, -1)


@composite(
    "linalg_matrix_norm", method=False, top=False, out="exact", pure=True, autocast={"gpu": "dtype"}
)
def matrix_norm(
    A: Value,
    ord: Any = "fro",
    dim: Sequence[int] = (-2, -1),
    keepdim: bool = False,
    *,
    dtype: DType | None = None,
) -> Value:
    """The norm of matrices.

    "fro", "nuc", the largest or smallest singular value (2, -2), column sum (1, -1) or row sum
    (inf, -inf).
    """
    spec = A._spec
    if spec.dtype.kind not in "fc":
        raise DTypeError(
            f"matrix_norm: takes floating point, got {spec!r}; cast with .float() first"
        )
    if len(spec.shape) < 2 or len(dim) != 2:
        raise ShapeError(
            f"matrix_norm: two dimensions of a matrix are needed, got {list(dim)} of {spec!r}"
        )
    rows, columns = (wrap_dim(d, len(spec.shape), "matrix_norm") for d in dim)
    if rows == columns:
        raise ShapeError(f"matrix_norm: the dimensions must differ, got {list(dim)}")
    A = A if dtype is None else e.cast(A, dtype)
    if ord == "fro":
        return statistics.vector_norm(A, 2, (rows, columns), keepdim)
    if ord in ("nuc", 2, -2):
        order = [d for d in range(len(spec.shape)) if d not in (rows, columns)]
        found = singular_norm(svdvals(views.permute(A, (*order, rows, columns))), ord)
        return (
            views.reshape(found, _keepdim_shape(spec.shape, (rows, columns))) if keepdim else found
        )
    if ord not in (1, -1, math.inf, -math.inf):
        raise RushlightError(
            f"matrix_norm: ord is 'fro', 'nuc', 1, -1, 2, -2, inf or -inf, got {ord!r}"
        )
    along, sought = (rows, columns) if abs(ord) == 1 else (columns, rows)
    sums = reductions.sum(e.abs(A), along, True)
    if ord > 0 and not spec.shape[sought]:
        return reductions.sum(sums, (rows, columns), keepdim)  # the largest of none is 0
    best = (reductions.amax if ord > 0 else reductions.amin)(sums, sought, True)
    return best if keepdim else reductions.sum(best, (rows, columns))


def _keepdim_shape(shape: Sequence[int], dims: Sequence[int]) -> tuple[int, ...]:
    return tuple(1 if d in dims else n for d, n in enumerate(shape))


@composite("linalg_norm", method=False, top=False, out="exact", pure=True)
def linalg_norm(
    A: Value,
    ord: Any = None,
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: DType | None = None,
) -> Value:
    """The norm of vectors for one dimension, of matrices for two."""
    dims = None if dim is None else (dim,) if isinstance(dim, int) else tuple(dim)
    rank = len(A._spec.shape)
    if ord is not None and dims is not None and not 1 <= len(dims) <= 2:
        raise RushlightError(
            f"norm: with ord {ord!r} one or two dimensions are named, got {list(dims)}"
        )
    if ord is not None and (len(dims) if dims is not None else rank) == 2:
        return matrix_norm(A, ord, (-2, -1) if dims is None else dims, keepdim, dtype=dtype)
    if isinstance(ord, str) or (ord is not None and dims is None and rank > 2):
        raise RushlightError(
            f"norm: ord {ord!r} needs one or two dimensions, got {dim!r} of {A._spec!r}"
        )
    return statistics.vector_norm(A, 2 if ord is None else ord, dims, keepdim, dtype=dtype)


@composite("norm", out="exact", pure=True, autocast={"gpu": "dtype"})
def norm(
    input: Value,
    p: Any = "fro",
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    dtype: DType | None = None,
) -> Value:
    """The p-norm of the elements over dimensions.

    "fro" and None mean 2, "nuc" the sum of singular values.

    Example:
        >>> torch.norm(torch.tensor([3.0, 4.0]))
        tensor(5.)
    """
    if p == "nuc":
        dims = dim if dim is not None else tuple(range(len(input._spec.shape)))
        return matrix_norm(input, "nuc", dims, keepdim, dtype=dtype)
    if p is not None and p != "fro" and not isinstance(p, (numbers.Real, Value)):
        raise RushlightError(f"norm: p is a number, 'fro' or 'nuc', got {p!r}")
    return statistics.vector_norm(
        input, 2 if p is None or p == "fro" else p, dim, keepdim, dtype=dtype
    )


@composite("nuclear_norm", method=False, out="cast", autocast={"gpu": "float32"})
def nuclear_norm(
    input: Value, dim: bool | Sequence[int] = (-2, -1), keepdim: bool = False
) -> Value:
    """The sum of the singular values of matrices."""
    if isinstance(dim, bool):  # PyTorch's form without dimensions
        return matrix_norm(input, "nuc", (-2, -1), dim)
    return matrix_norm(input, "nuc", dim, keepdim)


@composite("frobenius_norm", method=False, out="cast", autocast={"gpu": "float32"})
def frobenius_norm(input: Value, dim: int | Sequence[int], keepdim: bool = False) -> Value:
    """The Euclidean norm of the elements over dimensions."""
    return statistics.vector_norm(input, 2, dim, keepdim)


@composite("linalg_cond", method=False, top=False, out="cast", autocast={"cpu": "float32"})
def cond(A: Value, p: Any = None) -> Value:
    """The norm of matrices times that of their inverses; by default by singular values."""
    check_matrices("linalg.cond", A)
    if p is None or p in (2, -2):
        values = svdvals(A)
        if not values._spec.shape[-1]:
            return reductions.sum(values, -1)
        largest, smallest = reductions.amax(values, -1), reductions.amin(values, -1)
        return e.div(smallest, largest) if p == -2 else e.div(largest, smallest)
    if A._spec.shape[-1] != A._spec.shape[-2]:
        raise RushlightError(
            f"linalg.cond: with p={p!r} square matrices are needed, got {A._spec!r}"
        )
    if p not in ("fro", "nuc", 1, -1, math.inf, -math.inf):
        raise RushlightError(
            f"linalg.cond: p is None, 'fro', 'nuc', 1, -1, 2, -2, inf or -inf, got {p!r}"
        )
    if not A._spec.shape[-1]:
        return reductions.sum(e.abs(A), (-2, -1))
    other, info = inv_ex(A)
    regular = e.eq(info, 0)
    found = e.mul(matrix_norm(A, p), matrix_norm(e.select(column(column(regular)), other, 0), p))
    return e.select(regular, found, math.inf)


# ---- powers and the exponential ----


@composite("matrix_power", out="cast", pure=True, linalg="matrix_power")
def matrix_power(input: Value, n: int) -> Value:
    """The n-th power of square matrices, by squaring; of the inverse where n is negative.

    Args:
        n: The exponent.
    """
    shape = input._spec.shape
    if len(shape) < 2 or shape[-1] != shape[-2]:
        raise ShapeError(f"matrix_power: square matrices are needed, got {input._spec!r}")
    if n < 0:
        return matrix_power(inv(input), -n)
    if n == 0:
        where = {"device": input._spec.device.device.name}
        one = creation.eye(shape[-1], dtype=input._spec.dtype, **where)
        # On the tape, with gradient 0.
        return e.select(creation.full((), True, **where), one, input)
    out: Value | None = None
    square = input
    while True:
        if n & 1:
            out = square if out is None else matmul(out, square)
        n >>= 1
        if not n:
            assert out is not None
            return e.clone(out) if out is input else out
        square = matmul(square, square)


# exp(x) = sum of x^k / k! up to 18: for |x| <= 1 the remainder is below 2^-53.
_TERMS = 18


@composite("matrix_exp", out="cast", out_top=False, linalg="matrix_exp")
def matrix_exp(input: Value) -> Value:
    """The exponential of square matrices: a Taylor series of input / 2^s, squared s times."""
    shape = input._spec.shape
    if input._spec.dtype.kind not in "fc" or len(shape) < 2 or shape[-1] != shape[-2]:
        raise ShapeError(
            "matrix_exp: square matrices of floating point or complex numbers are needed, got "
            f"{input._spec!r}"
        )
    n = shape[-1]
    if not input._spec.numel:
        return e.clone(input)
    sums = reductions.sum(e.abs(call.detached(input)), -2)
    largest = reductions.amax(sums, -1)
    sizes = read(physical_of(largest))
    counts = [max(0, math.frexp(s)[1]) if math.isfinite(s) else 0 for s in sizes]
    most = max(counts)
    one = eye(n, input)
    if not most:
        return _series(input, one)
    return _scaled_series(flat(input), one, largest, most, shape[:-2])


def _scaled_series(
    a: Value, one: Value, largest: Value, most: int, batch: tuple[int, ...]
) -> Value:
    """Each matrix halved until its norm is below 1, and its exponential squared as often."""
    norms = views.reshape(largest, (a._spec.shape[0], 1, 1))
    for step in range(most):
        above = e.ge(norms, 2.0**step)
        a = e.select(above, e.mul(a, 0.5), a)
    x = _series(a, one)
    for step in range(most):
        x = e.select(e.ge(norms, 2.0**step), product(x, x), x)
    return unflat(x, batch)


def _series(a: Value, one: Value) -> Value:
    """The sum of a^k / k!, four powers at a time: few products (Paterson and Stockmeyer)."""
    square = product(a, a)
    powers = (one, a, square, product(square, a))
    step = product(square, square)
    x: Value | None = None
    for start in range(_TERMS - _TERMS % 4, -1, -4):
        for k in range(start, min(start + 4, _TERMS + 1)):
            part = e.mul(powers[k - start], 1 / math.factorial(k))
            x = (
                part
                if x is None
                else e.add(x, part)
                if k > start
                else e.add(product(step, x), part)
            )
    assert x is not None
    return x


# ---- LDL ----


@returned("linalg_ldl_factor")
class LDLFactor(NamedTuple):
    """The result of linalg.ldl_factor."""

    LD: Any
    pivots: Any


@returned("linalg_ldl_factor_ex")
class LDLFactorEx(NamedTuple):
    """The result of linalg.ldl_factor_ex."""

    LD: Any
    pivots: Any
    info: Any


_ldl_op = LibraryOp(
    "lapack",
    "ldl_factor",
    lambda ins, hermitian, label: [
        (ins[0].dtype, ins[0].shape),
        (int32, ins[0].shape[:2]),
        (int32, ins[0].shape[:1]),
    ],
    "L and D of A = L D L^T, pivots and info.",
)
_ldl_solve_op = LibraryOp(
    "lapack",
    "ldl_solve",
    lambda ins, hermitian: [(ins[2].dtype, ins[2].shape)],
    "X of A X = B from L and D.",
)


def _ldl(a: Value, hermitian: bool, label: str) -> LDLFactorEx:
    check_matrices("linalg.ldl_factor", a, square=True)
    batch = a._spec.shape[:-2]
    return LDLFactorEx(
        *(unflat(x, batch) for x in call_library(_ldl_op, (flat(a),), bool(hermitian), label))
    )


@composite("linalg_ldl_factor_ex", method=False, top=False, out="exact")
def ldl_factor_ex(A: Value, *, hermitian: bool = False, check_errors: bool = False) -> LDLFactorEx:
    """L and D of A = L D L^T (L^H if hermitian) in one matrix, LAPACK's pivots, and info.

    The info is 0 or the index of the first zero of D.
    """
    return _ldl(A, hermitian, "linalg.ldl_factor_ex" if check_errors else "")


@composite("linalg_ldl_factor", method=False, top=False, out="exact")
def ldl_factor(A: Value, *, hermitian: bool = False) -> LDLFactor:
    """L and D of A = L D L^T (L^H if hermitian) in one matrix, and LAPACK's pivots."""
    return LDLFactor(*_ldl(A, hermitian, "linalg.ldl_factor")[:2])


@composite("linalg_ldl_solve", method=False, top=False, out="exact")
def ldl_solve(LD: Value, pivots: Value, B: Value, *, hermitian: bool = False) -> Value:
    """X of A X = B from the result of ldl_factor for A."""
    check_matrices("linalg.ldl_solve", LD, B, square=True)
    if LD._spec.shape[-1] != B._spec.shape[-2] or pivots._spec.shape != LD._spec.shape[:-1]:
        raise ShapeError(
            f"linalg.ldl_solve: LD {LD._spec!r}, pivots {pivots._spec!r} and B {B._spec!r} do not "
            "fit"
        )
    batch, (ld, b, exchanges) = batched("linalg.ldl_solve", LD, B, row(pivots))
    n = LD._spec.shape[-1]
    operands = (flat(ld), views.reshape(exchanges, (numel(batch), n)), flat(b))
    return unflat(call_library(_ldl_solve_op, operands, bool(hermitian)), batch)


# ---- tensors as matrices ----


@composite("linalg_tensorinv", method=False, top=False, out="cast")
def tensorinv(A: Value, ind: int = 2) -> Value:
    """The inverse of A as a matrix whose rows are the first `ind` dimensions."""
    if ind <= 0:
        raise RushlightError(f"linalg.tensorinv: ind must be positive, got {ind}")
    rows, columns = A._spec.shape[:ind], A._spec.shape[ind:]
    if numel(rows) != numel(columns):
        raise ShapeError(
            f"linalg.tensorinv: the first {ind} sizes of {A._spec!r} must multiply to as much as "
            "the others"
        )
    return views.reshape(inv(views.reshape(A, (numel(rows), numel(columns)))), (*columns, *rows))


@composite("linalg_tensorsolve", method=False, top=False, out="cast", autocast={"cpu": "float32"})
def tensorsolve(A: Value, B: Value, dims: Sequence[int] | None = None) -> Value:
    """X with tensordot(A, X, X.ndim) = B; `dims` of A are moved to its end first."""
    if dims is not None:
        rank = len(A._spec.shape)
        last = [wrap_dim(d, rank, "linalg.tensorsolve") for d in dims]
        A = views.permute(A, (*[d for d in range(rank) if d not in last], *last))
    shape = A._spec.shape[len(B._spec.shape) :]
    if numel(shape) != B._spec.numel or numel(A._spec.shape[: len(B._spec.shape)]) != B._spec.numel:
        raise ShapeError(
            f"linalg.tensorsolve: {A._spec!r} is not square for a right-hand side {B._spec!r}"
        )
    matrix = views.reshape(A, (B._spec.numel, B._spec.numel))
    return views.reshape(solve(matrix, views.reshape(B, (B._spec.numel,))), shape)
