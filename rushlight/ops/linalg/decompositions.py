"""Factorisations of matrices: Cholesky, QR, singular values. See Note [Matrix derivatives]."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from rushlight.core.dtypes import DType, int32, real_type
from rushlight.core.errors import RushlightError, ShapeError
from rushlight.core.shapes import Spec
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
    half_diagonal,
    narrow,
    on_diagonal,
    product,
    row,
    summed,
    tril,
    triu,
    unflat,
)
from rushlight.ops.linalg.solve import right_triangular, triangular
from rushlight.ops.pointwise import arithmetic as e
from rushlight.ops.reduce import reductions
from rushlight.ops.registry import composite
from rushlight.ops.view import views
from rushlight.ops.view.reshaping import diag_embed
from rushlight.tape.record import call
from rushlight.tape.record.needed import is_followed
from rushlight.tape.record.state import Changed, impure
from rushlight.tape.record.value import Value

Results = list[tuple[DType, tuple[int, ...]]]


def is_recorded(x: Value) -> bool:
    """Whether a gradient may be needed through results of x.

    No memo may keep a choice made by it.
    """
    impure()
    return is_followed(x)


# ---- Cholesky ----


def _cholesky_grad(
    needs: int, grads: list[Any], ins: list[Any], outs: list[Any], upper: bool, label: str
) -> list[Value | None]:
    lower, g = (adjoint(outs[0]), adjoint(grads[0])) if upper else (outs[0], grads[0])
    inner = half_diagonal(tril(product(adjoint(lower), g)))
    of_a = right_triangular(triangular(adjoint(lower), inner, True), lower, False)
    return [e.mul(e.add(of_a, adjoint(of_a)), 0.5)]


_cholesky_op = LibraryOp(
    "lapack",
    "cholesky",
    lambda ins, upper, label: [(ins[0].dtype, ins[0].shape), (int32, ins[0].shape[:1])],
    "L of A = L L^H, and where it failed.",
    _cholesky_grad,
    ((), (0,)),
    result_names=("L",),
)


@returned("linalg_cholesky_ex")
class CholeskyEx(NamedTuple):
    """The result of linalg.cholesky_ex."""

    L: Any
    info: Any


def _factored(a: Value, upper: bool, label: str) -> CholeskyEx:
    check_matrices("linalg.cholesky", a, square=True)
    batch = a._spec.shape[:-2]
    factor, info = call_library(_cholesky_op, (flat(a),), bool(upper), label)
    return CholeskyEx(unflat(factor, batch), views.reshape(info, batch))


@composite("linalg_cholesky_ex", method=False, top=False, out="exact", autocast={"cpu": "float32"})
def cholesky_ex(A: Value, *, upper: bool = False, check_errors: bool = False) -> CholeskyEx:
    """L of A = L L^H (U of U^H U), and per matrix an info.

    The info is 0 or the order of the first minor that is not positive definite.
    """
    return _factored(A, upper, "linalg.cholesky_ex" if check_errors else "")


@composite(
    "linalg_cholesky", method=False, top=False, out="exact", pure=True, autocast={"cpu": "float32"}
)
def linalg_cholesky(A: Value, *, upper: bool = False) -> Value:
    """L of A = L L^H, or U of A = U^H U, of positive definite matrices."""
    return _factored(A, upper, "linalg.cholesky").L


@composite("cholesky", out="exact", pure=True, autocast={"cpu": "float32"})
def cholesky(input: Value, upper: bool = False) -> Value:
    """L of A = L L^H, or U of A = U^H U, of positive definite matrices."""
    return _factored(input, upper, "cholesky").L


def _inverse_grad(
    needs: int, grads: list[Any], ins: list[Any], outs: list[Any], upper: bool
) -> list[Value | None]:
    """As PyTorch's, of all elements of the factor, also those that are not read."""
    inner = product(product(outs[0], e.add(grads[0], adjoint(grads[0]))), outs[0])
    return [e.neg(product(ins[0], inner) if upper else product(inner, ins[0]))]


def _solve_grad(
    needs: int, grads: list[Any], ins: list[Any], outs: list[Any], upper: bool
) -> list[Value | None]:
    factor = ins[0]
    of_b = call_library(_cholesky_solve_op, (factor, grads[0]), upper)
    if not needs & 1:
        return [None, of_b]
    inner = product(of_b, adjoint(outs[0]))
    inner = e.add(inner, adjoint(inner))
    return [e.neg(product(factor, inner) if upper else product(inner, factor)), of_b]


_cholesky_inverse_op = LibraryOp(
    "lapack",
    "cholesky_inverse",
    lambda ins, upper: [(ins[0].dtype, ins[0].shape)],
    "The inverse from a Cholesky factor.",
    _inverse_grad,
    ((0,), (0,)),
)
_cholesky_solve_op = LibraryOp(
    "lapack",
    "cholesky_solve",
    lambda ins, upper: [(ins[1].dtype, ins[1].shape)],
    "X of A X = B from a Cholesky factor.",
    _solve_grad,
    ((0,), (0,)),
    operand_names=("self", "input2"),
)


@composite("cholesky_inverse", out="cast")
def cholesky_inverse(input: Value, upper: bool = False) -> Value:
    """The inverse of A, from its Cholesky factor."""
    check_matrices("cholesky_inverse", input, square=True)
    return unflat(
        call_library(_cholesky_inverse_op, (flat(input),), bool(upper)), input._spec.shape[:-2]
    )


@composite("cholesky_solve", out="cast", pure=True, keywords={"input2": "L"})
def cholesky_solve(B: Value, L: Value, upper: bool = False) -> Value:
    """X of A X = B, from the Cholesky factor of A."""
    check_matrices("cholesky_solve", L, B, square=True)
    if L._spec.shape[-1] != B._spec.shape[-2]:
        raise ShapeError(
            f"cholesky_solve: L {L._spec!r} and B {B._spec!r} do not fit; they need as many rows"
        )
    batch, (factor, b) = batched("cholesky_solve", L, B)
    return unflat(call_library(_cholesky_solve_op, (flat(factor), flat(b)), bool(upper)), batch)


# ---- QR ----


def _qr_results(ins: Sequence[Spec], mode: str) -> Results:
    dtype, (count, m, n) = ins[0].dtype, ins[0].shape
    k = m if mode == "complete" else min(m, n)
    r = (dtype, (count, k, n))
    return [r] if mode == "r" else [(dtype, (count, m, k)), r]


def _qr_grad(
    needs: int, grads: list[Any], ins: list[Any], outs: list[Any], mode: str
) -> list[Value | None]:
    m, n = ins[0].shape[-2:]
    if mode == "r":
        raise RushlightError(
            "linalg.qr: The derivative of linalg.qr depends on Q, which is not computed when "
            "mode='r'. Use linalg.qr(A, mode='reduced') if you are going to differentiate through "
            "linalg.qr."
        )
    if mode == "complete" and m > n:
        raise RushlightError(
            "linalg.qr: The QR decomposition is not differentiable when mode='complete' and nrows "
            "> ncols; use mode='reduced'"
        )
    (g_q, g_r), (q, r) = grads, outs
    k = min(m, n)
    rest = None
    if n > k:  # the columns beyond the square ones are Q times theirs
        r_rest, r = narrow(r, -1, k, n), narrow(r, -1, 0, k)
        if g_r is not None:
            g_rest, g_r = narrow(g_r, -1, k, n), narrow(g_r, -1, 0, k)
            rest = product(q, g_rest)
            g_q = summed([g_q, product(product(q, r_rest), adjoint(g_rest))])
        else:
            rest = e.mul(product(q, r_rest), 0)
    inner = summed(
        [
            None if g_r is None else product(g_r, adjoint(r)),
            None if g_q is None else e.neg(product(adjoint(q), g_q)),
        ]
    )
    assert inner is not None
    above = triu(inner)
    whole = half_diagonal(e.add(above, adjoint(above)))
    of_a = right_triangular(summed([g_q, product(q, whole)]), adjoint(r), False)  # type: ignore[arg-type]
    return [of_a if rest is None else views.cat([of_a, rest], 2)]


_qr_op = LibraryOp(
    "lapack", "qr", _qr_results, "Q and R.", _qr_grad, ((), (0, 1)), result_names=("Q", "R")
)
_r_op = LibraryOp("lapack", "qr", _qr_results, "R alone.", _qr_grad)


@returned("linalg_qr")
class QR(NamedTuple):
    """The result of qr."""

    Q: Any
    R: Any


@composite("linalg_qr", method=False, top=False, out="exact", pure=True)
def linalg_qr(A: Value, mode: str = "reduced") -> QR:
    """Q with orthonormal columns and R, an upper triangle, of A = Q R.

    Args:
        mode: 'reduced', 'complete' for a square Q, or 'r' for R alone.

    Example:
        >>> q, r = torch.linalg.qr(torch.ones(3, 2))
        >>> q.shape, r.shape
        (rushlight.Size([3, 2]), rushlight.Size([2, 2]))
    """
    check_matrices("linalg.qr", A)
    if mode not in ("reduced", "complete", "r"):
        raise RushlightError(f"linalg.qr: mode is 'reduced', 'complete' or 'r', got {mode!r}")
    batch = A._spec.shape[:-2]
    if mode == "r":
        return QR(
            views.reshape(eye(0, A), (0,)), unflat(call_library(_r_op, (flat(A),), mode), batch)
        )
    q, r = call_library(_qr_op, (flat(A),), mode)
    return QR(unflat(q, batch), unflat(r, batch))


@composite("qr", out="exact")
def qr(input: Value, some: bool = True) -> QR:
    """Q and R of A = Q R; with some=False Q is square."""
    return linalg_qr(input, "reduced" if some else "complete")


@returned("geqrf")
class Geqrf(NamedTuple):
    """The result of geqrf."""

    a: Any
    tau: Any


_geqrf_op = LibraryOp(
    "lapack",
    "geqrf",
    lambda ins: [
        (ins[0].dtype, ins[0].shape),
        (ins[0].dtype, (ins[0].shape[0], min(ins[0].shape[1:]))),
    ],
    "R with the reflectors below it, and their factors.",
)


@composite("geqrf", out="cast")
def geqrf(input: Value) -> Geqrf:
    """R, the reflectors of Q below its diagonal, and their factors."""
    check_matrices("geqrf", input)
    a, tau = call_library(_geqrf_op, (flat(input),))
    return Geqrf(unflat(a, input._spec.shape[:-2]), unflat(tau, input._spec.shape[:-2]))


def _reflect(vectors: Value, tau: Value, x: Value, turned: bool) -> Value:
    """Q x, or Q^H x if `turned`, where Q is the product of all 1 - tau v v^H: that is 1 - V T V^H.

    T is triangular: 1 / T has 1 / tau on its diagonal and V^H V above it. Both are multiplied by
    tau, so nothing is divided by it.
    """
    k = tau._spec.shape[-1]
    factors = column(tau)
    inverse = e.add(e.mul(factors, triu(product(adjoint(vectors), vectors), 1)), eye(k, tau))
    seen = product(adjoint(vectors), x)
    if turned:
        inner = e.mul(conj(factors), triangular(adjoint(inverse), seen, False, True))
    else:
        inner = triangular(inverse, e.mul(factors, seen), True, True)
    return e.sub(x, product(vectors, inner))


def _reflectors(op: str, a: Value, tau: Value) -> Value:
    """The vectors of the reflectors: ones on the diagonal, zeros above."""
    check_matrices(op, a)
    m, n = a._spec.shape[-2:]
    fits = tau._spec.shape[:-1] == a._spec.shape[:-2] and tau._spec.shape[-1] <= min(m, n)
    if not fits or tau._spec.dtype is not a._spec.dtype:
        raise RushlightError(f"{op}: reflectors {a._spec!r} and factors {tau._spec!r} do not fit")
    k = tau._spec.shape[-1]
    return e.add(tril(narrow(a, -1, 0, k), -1), eye(m, a, k))


@composite(
    "linalg_householder_product",
    method=False,
    top=False,
    out="cast",
    keywords={"input2": "tau"},
    autocast={"cpu": "float32"},
)
def householder_product(A: Value, tau: Value) -> Value:
    """The first columns of the product of reflectors 1 - tau v v^H.

    The vectors v are below the diagonal of A.

    Args:
        tau: The factors of the reflections.
    """
    vectors = _reflectors("linalg.householder_product", A, tau)
    m, n = A._spec.shape[-2:]
    if m < n:
        raise ShapeError(
            f"linalg.householder_product: A needs at least as many rows as columns, got {A._spec!r}"
        )
    start = views.expand(eye(m, A, n), A._spec.shape)
    return _reflect(vectors, tau, start, False)


@composite("orgqr", out="cast", keywords={"tau": "input2"}, autocast={"cpu": "float32"})
def orgqr(input: Value, input2: Value) -> Value:
    """The first columns of the product of reflectors: linalg.householder_product."""
    return householder_product(input, input2)


@composite("ormqr", out="exact", keywords={"input2": "tau", "input3": "other"})
def ormqr(
    input: Value, tau: Value, other: Value, left: bool = True, transpose: bool = False
) -> Value:
    """The product of the reflectors in `input` and tau, or its adjoint, times `other`.

    With `left=False` it multiplies from the right.

    Args:
        tau: The factors of the reflections.
    """
    vectors = _reflectors("ormqr", input, tau)
    check_matrices("ormqr", input, other)
    if other._spec.shape[:-2] != input._spec.shape[:-2]:
        raise ShapeError(
            f"ormqr: the batches of {input._spec!r} and {other._spec!r} differ; .expand() one"
        )
    if not left:  # C Q is the adjoint of Q^H C^H
        return adjoint(ormqr(input, tau, adjoint(other), True, not transpose))
    if other._spec.shape[-2] != input._spec.shape[-2]:
        raise RushlightError(f"ormqr: {input._spec!r} and {other._spec!r} do not fit")
    return _reflect(vectors, tau, other, transpose)


# ---- singular values ----


def skew(x: Value) -> Value:
    return e.sub(x, adjoint(x))


def check_gauge(op: str, *turns: Value | None) -> None:
    """Refuse a loss that depends on the phases of complex vectors, which no decomposition fixes.

    `turns` are matrices skew(V^H g), whose diagonals together are the derivative of the loss by the
    phases.
    """
    diagonals = [diagonal_of(call.detached(turn)) for turn in turns if turn is not None]
    spec = diagonals[0]._spec
    limits = spec.device.device.limits
    if (
        spec.dtype.kind != "c"
        or spec.hidden
        or not spec.numel
        or limits.asynchronous
        or not limits.computes
    ):
        return
    impure()  # elements are read
    with Changed(grad=False):
        total = diagonals[0] if len(diagonals) == 1 else e.add(*diagonals)
        most: Any = reductions.amax(e.abs(total))
    if most.item() > 0.02:
        raise RushlightError(
            f"{op}: in the complex case the vectors are given up to a factor of size 1, and the "
            "loss depends on it, so that its gradient is ill-defined; use what does not change "
            "with it, such as sizes or projections"
        )


def _svd_grad(
    needs: int, grads: list[Any], ins: list[Any], outs: list[Any], full: bool
) -> list[Value | None]:
    """Only changes of U and V within their own span, and out of it, count; the gauge is free."""
    (g_u, g_s, g_vh), (u, s, vh) = grads, outs
    m, n = ins[0].shape[-2:]
    k = s._spec.shape[-1]
    u, vh = narrow(u, -1, 0, k), narrow(vh, -2, 0, k)
    if g_u is None and g_vh is None:
        return [None if g_s is None else product(e.mul(u, row(g_s)), vh)]
    g_u = None if g_u is None else narrow(g_u, -1, 0, k)
    g_v = None if g_vh is None else adjoint(narrow(g_vh, -2, 0, k))
    squares = e.mul(s, s)
    gaps = on_diagonal(e.sub(row(squares), column(squares)), 1.0)
    turn_u = None if g_u is None else skew(product(adjoint(u), g_u))
    turn_v = None if g_v is None else skew(product(vh, g_v))
    check_gauge("linalg.svd", turn_u, turn_v)
    inner = summed(
        [
            None if turn_u is None else e.mul(e.div(turn_u, gaps), row(s)),
            None if turn_v is None else e.mul(e.div(turn_v, gaps), column(s)),
            None if g_s is None else diag_embed(g_s),
        ]
    )
    assert inner is not None
    if u._spec.dtype.kind == "c" and turn_u is not None:
        inner = e.add(inner, diag_embed(e.div(diagonal_of(turn_u), e.mul(s, 2))))
    of_a = product(product(u, inner), vh)
    if g_u is not None and m > k:
        outside = e.sub(g_u, product(u, product(adjoint(u), g_u)))
        of_a = e.add(of_a, product(e.div(outside, row(s)), vh))
    if g_v is not None and n > k:
        outside = e.sub(adjoint(g_v), product(product(adjoint(g_v), adjoint(vh)), vh))
        of_a = e.add(of_a, product(u, e.div(outside, column(s))))
    return [of_a]


def _svd_results(ins: Sequence[Spec], full: bool) -> Results:
    dtype, (count, m, n) = ins[0].dtype, ins[0].shape
    k = min(m, n)
    sides = (m, n) if full else (k, k)
    return [
        (dtype, (count, m, sides[0])),
        (real_type(dtype), (count, k)),
        (dtype, (count, sides[1], n)),
    ]


_svd_op = LibraryOp(
    "lapack",
    "svd",
    _svd_results,
    "U, S and V^H.",
    _svd_grad,
    ((), (0, 1, 2)),
    result_names=("U", "S", "Vh"),
)
_svdvals_op = LibraryOp(
    "lapack",
    "svdvals",
    lambda ins: [(real_type(ins[0].dtype), (ins[0].shape[0], min(ins[0].shape[1:])))],
    "The singular values.",
)


@returned("linalg_svd")
class LinalgSVD(NamedTuple):
    """The result of linalg.svd."""

    U: Any
    S: Any
    Vh: Any


@returned("svd")
class SVD(NamedTuple):
    """The result of svd."""

    U: Any
    S: Any
    V: Any


def _check_driver(op: str, driver: str | None) -> None:
    if driver not in (None, "gesvd", "gesvdj", "gesvda"):
        raise RushlightError(
            f"{op}: driver is None, 'gesvd', 'gesvdj' or 'gesvda', got {driver!r:.60}"
        )


@composite("linalg_svd", method=False, top=False, out="exact", autocast={"cpu": "float32"})
def linalg_svd(A: Value, full_matrices: bool = True, *, driver: str | None = None) -> LinalgSVD:
    """U, S and V^H of A = U S V^H, the singular values S descending.

    `driver` is for CUDA libraries. Example:
        >>> u, s, vh = torch.linalg.svd(torch.ones(3, 2), full_matrices=False)
        >>> u.shape, s.shape, vh.shape
        (rushlight.Size([3, 2]), rushlight.Size([2]), rushlight.Size([2, 2]))
    """
    _check_driver("linalg.svd", driver)
    check_matrices("linalg.svd", A)
    batch = A._spec.shape[:-2]
    return LinalgSVD(
        *(unflat(x, batch) for x in call_library(_svd_op, (flat(A),), bool(full_matrices)))
    )


@composite(
    "linalg_svdvals", method=False, top=False, out="exact", pure=True, autocast={"cpu": "float32"}
)
def svdvals(A: Value, *, driver: str | None = None) -> Value:
    """The singular values, descending."""
    _check_driver("linalg.svdvals", driver)
    check_matrices("linalg.svdvals", A)
    if is_recorded(A):
        return linalg_svd(A, False).S
    return unflat(call_library(_svdvals_op, (flat(A),)), A._spec.shape[:-2])


@composite("svd", out="exact", autocast={"cpu": "float32"})
def svd(input: Value, some: bool = True, compute_uv: bool = True) -> SVD:
    """U, S and V of A = U S V^H; without compute_uv U and V are zeros.

    Example:
        >>> u, s, v = torch.svd(torch.ones(3, 2))
        >>> u.shape, s.shape, v.shape
        (rushlight.Size([3, 2]), rushlight.Size([2]), rushlight.Size([2, 2]))
    """
    if not compute_uv:
        m, n = input._spec.shape[-2:]
        zeros = [e.mul(eye(size, input), 0) for size in (m, n)]
        batch = input._spec.shape[:-2]
        u, v = (e.clone(views.expand(z, (*batch, *z._spec.shape))) for z in zeros)
        return SVD(u, svdvals(input), v)
    u, s, vh = linalg_svd(input, not some)
    return SVD(u, s, adjoint(vh))
