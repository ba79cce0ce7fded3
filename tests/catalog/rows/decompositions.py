"""Rows of factorisations and functions of matrices.

Where a factorisation is unique up to signs, sign-independent results are compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import rushlight
from tests.catalog.row import Array, Make, Sample, always, at, int64
from tests.catalog.rows.linalg import SQUARE, both, definite, over, regular, row, t, triangle

# ---- factorisations ----


def symmetric(op: Any, a: Any, **named: Any) -> Any:
    """The op of the symmetric part, as in PyTorch's derivative."""
    return op((a + a.mT) / 2, **named)


def square_root(a: Array, upper: bool = False) -> Array:
    lower = np.linalg.cholesky((a + t(a)) / 2)
    return t(lower) if upper else lower


def factors(make: Make) -> Iterator[Sample]:
    yield at(triangle(make, 3, 3))
    yield at(triangle(make, 2, 4, 4))
    yield at(t(triangle(make, 2, 2)), upper=True)


def times_itself(factor: Array, upper: bool = False) -> Array:
    return t(factor) @ factor if upper else factor @ t(factor)


def with_factors(make: Make) -> Iterator[Sample]:
    yield at(make(3, 2), triangle(make, 3, 3))
    yield at(make(3, 2), t(triangle(make, 2, 3, 3)), upper=True)


def cholesky_solved(b: Array, factor: Array, upper: bool = False) -> Array:
    return np.linalg.solve(times_itself(factor, upper), b)


RECTANGLES = ((3, 3), (2, 4, 2), (2, 4), (2, 0, 3), (3, 0))


def projections(q: Any) -> Any:
    """Columns times a number each, times the columns: independent of the columns' signs."""
    return (q * _ramp(q)) @ t_of(q)


def _ramp(q: Any) -> Any:
    count = 1.0 + np.arange(q.shape[-1])
    return (
        count if isinstance(q, Array) else rushlight.tensor(count, dtype=q.dtype, device=q.device)
    )


def t_of(q: Any) -> Any:
    return t(q) if isinstance(q, Array) else q.mT


def free_qr(op: Any, *args: Any, **named: Any) -> Any:
    q, r = op(*args, **named)
    return q @ r, projections(q), (r * r).sum(-1)


def numpy_qr(a: Array, mode: str = "reduced", some: bool = True) -> Any:
    q, r = np.linalg.qr(a, mode if some else "complete")
    return q @ r, projections(q), (r * r).sum(-1)


def free_svd(op: Any, *args: Any, **named: Any) -> Any:
    u, s, vh = op(*args, **named)
    return invariants(u, s, vh.mT)


def free_old_svd(op: Any, *args: Any, **named: Any) -> Any:
    return invariants(*op(*args, **named))


def invariants(u: Any, s: Any, v: Any) -> Any:
    k = s.shape[-1]
    u, v = u[..., :k], v[..., :k]
    return projections(u), s, projections(v), (u * _ramp(u)) @ v.mT


def numpy_svd(a: Array, full_matrices: bool = True, some: bool = True) -> Any:
    u, s, vh = np.linalg.svd(a, full_matrices=False)
    return projections(u), s, projections(t(vh)), (u * _ramp(u)) @ vh


def free_eigh(op: Any, a: Any, **named: Any) -> Any:
    values, vectors = symmetric(op, a, **named)
    return values, projections(vectors)


def numpy_eigh(a: Array, UPLO: str = "L") -> Any:
    values, vectors = np.linalg.eigh((a + t(a)) / 2)
    return values, projections(vectors)


def reflections(make: Make) -> Iterator[Sample]:
    yield at(make(4, 3), make(3))
    yield at(make(2, 3, 2), make(2, 2))
    yield at(make(3, 3), make(2))


def reflected(a: Array, tau: Array) -> Array:
    """The product of 1 - tau v v^T in full."""
    m, n = a.shape[-2:]
    whole = np.broadcast_to(np.eye(m), (*a.shape[:-2], m, m))
    vectors = np.tril(a, -1) + np.eye(m, n)
    for i in range(tau.shape[-1]):
        v = vectors[..., :, i : i + 1]
        whole = whole @ (np.eye(m) - tau[..., i, None, None] * v @ t(v))
    return whole


def applied(make: Make) -> Iterator[Sample]:
    for left in (True, False):
        for transpose in (True, False):
            shape = (3, 2) if left else (2, 3)
            yield at(make(2, 3, 2), make(2, 2), make(2, *shape), left=left, transpose=transpose)


def reflected_product(a: Array, tau: Array, other: Array, left: bool, transpose: bool) -> Array:
    q = reflected(a, tau)
    q = t(q) if transpose else q
    return q @ other if left else other @ q


def q_of_geqrf(op: Any, a: Any) -> Any:
    found, tau = op(a)
    k = tau.shape[-1]
    return rushlight.linalg.householder_product(found[..., :k], tau) @ found[..., :k, :].triu()


def eig_power(op: Any, a: Any) -> Any:
    """A cubed, from its eigenvectors: independent of their order, length and phase."""
    values, vectors = op(a)
    return ((vectors * (values**3).unsqueeze(-2)) @ rushlight.linalg.inv(vectors)).real


def power_of(a: Array) -> Array:
    return a @ a @ a


def eigval_traces(op: Any, a: Any) -> Any:
    values = op(a)
    return values.sum(-1).real, (values * values).sum(-1).real


def traces(a: Array) -> Any:
    return np.trace(a, axis1=-2, axis2=-1), np.trace(a @ a, axis1=-2, axis2=-1)


DECOMPOSITIONS = [
    row("linalg_cholesky", square_root, both(over(definite), upper=True), symmetric),
    row("linalg_cholesky_ex", square_root, over(definite), lambda op, a: symmetric(op, a).L),
    row("cholesky", square_root, both(over(definite, SQUARE), upper=True), symmetric),
    row("cholesky_inverse", lambda f, upper=False: np.linalg.inv(times_itself(f, upper)), factors),
    row("cholesky_solve", cholesky_solved, with_factors),
    row("linalg_qr", numpy_qr, over(regular, RECTANGLES), free_qr),
    row("qr", numpy_qr, over(regular, RECTANGLES), free_qr),
    row("linalg_svd", numpy_svd, both(over(regular, RECTANGLES), full_matrices=False), free_svd),
    row("svd", numpy_svd, over(regular, RECTANGLES), free_old_svd),
    row("linalg_svdvals", lambda a: np.linalg.svd(a, compute_uv=False), over(regular, RECTANGLES)),
    row("linalg_eigh", numpy_eigh, both(over(definite), UPLO="U"), free_eigh),
    row("linalg_eigvalsh", lambda a: np.linalg.eigvalsh((a + t(a)) / 2), over(definite), symmetric),
    row("linalg_eig", power_of, over(regular), eig_power),
    row("linalg_eigvals", traces, over(regular), eigval_traces),
    row(
        "linalg_householder_product",
        lambda a, tau: reflected(a, tau)[..., : a.shape[-1]],
        reflections,
    ),
    row("orgqr", lambda a, tau: reflected(a, tau)[..., : a.shape[-1]], reflections),
    row("ormqr", reflected_product, applied),
    row("geqrf", lambda a: a, over(regular, RECTANGLES[:3]), q_of_geqrf, differentiable=False),
]

# ---- functions of matrices ----


def norms(make: Make) -> Iterator[Sample]:
    for order in ("fro", "nuc", 2, -2, 1, -1, np.inf, -np.inf):
        yield at(regular(make, 3, 4), order)
    yield at(regular(make, 2, 3, 3), "nuc", (0, 2), True)


def matrix_norm(
    a: Array, ord: Any = "fro", dim: tuple[int, int] = (-2, -1), keepdim: bool = False
) -> Array:
    return np.linalg.norm(a, ord, dim, keepdim)


def older_norms(make: Make) -> Iterator[Sample]:
    yield at(regular(make, 3, 4), (0, 1))
    yield at(regular(make, 2, 3, 3), (0, 2), True)


def any_norms(make: Make) -> Iterator[Sample]:
    yield at(make.nonzero(2, 3))
    yield at(make.nonzero(5), 3)
    yield at(regular(make, 3, 2), "nuc")
    yield at(make.nonzero(2, 3), 1, 1, True)


def norm_of(a: Array, ord: Any = None, dim: Any = None, keepdim: bool = False) -> Array:
    return np.linalg.norm(a, ord, dim, keepdim)


def conditions(make: Make) -> Iterator[Sample]:
    yield at(regular(make, 2, 3, 2))
    for order in (2, -2, "fro", 1, -1, np.inf, -np.inf, "nuc"):
        yield at(regular(make, 3, 3), order)


def condition(a: Array, p: Any = None) -> Array:
    if a.ndim == 2 and p not in (None, 2, -2):
        return np.linalg.norm(a, p) * np.linalg.norm(np.linalg.inv(a), p)
    s = np.linalg.svd(a, compute_uv=False)
    return s[..., -1] / s[..., 0] if p == -2 else s[..., 0] / s[..., -1]


def ranks(make: Make) -> Iterator[Sample]:
    yield at(regular(make, 3, 4))
    yield at(np.zeros((2, 3, 3)))
    yield at(np.diag([1.0, 2.0, 0.0]), hermitian=True)
    yield at(np.diag([1.0, 2.0, 4.0]), atol=1.5)
    yield at(np.diag([1.0, 2.0, 4.0]), rtol=0.3)
    yield at(np.zeros((0, 3)))


def rank(a: Array, hermitian: bool = False, atol: float = 1e-4, rtol: float = 0.0) -> Array:
    s = np.linalg.svd(a, compute_uv=False)
    return (s > np.maximum(atol, rtol * s.max(-1, initial=0))[..., None]).sum(-1)


def exponents(make: Make) -> Iterator[Sample]:
    yield at(make(3, 3, low=-0.5, high=0.5))
    yield at(make(2, 2, 2, low=-3, high=3))
    yield at(make(1, 1))
    yield at(make(0, 2, 2))


def exponential(a: Array) -> Array:
    """A long series of a small part, squared."""
    n = a.shape[-1]
    small = a / 256
    x = np.broadcast_to(np.eye(n), a.shape)
    for k in range(20, 0, -1):
        x = np.eye(n) + small @ x / k
    for _ in range(8):
        x = x @ x
    return x


def again(op: Any, a: Any, **named: Any) -> Any:
    """U S V^H; with all singular values it is the matrix."""
    u, s, v = op(a, **named)
    return (u * s.unsqueeze(-2)) @ v.mT


def centred(a: Array, q: int, center: bool = True) -> Array:
    return a - a.mean(-2, keepdims=True) if center else a


def some_values(make: Make) -> Iterator[Sample]:
    yield at(regular(make, 4, 3), q=3)
    yield at(regular(make, 2, 2, 4), q=2)


def components(make: Make) -> Iterator[Sample]:
    yield at(regular(make, 5, 3), q=3)
    yield at(regular(make, 2, 3, 3), q=3, center=False)


def extreme_systems(make: Make) -> Iterator[Sample]:
    yield at(definite(make, 8, 8), k=2)
    yield at(definite(make, 2, 6, 6), k=1, largest=False)
    yield at(definite(make, 8, 8), k=2, B=definite(make, 8, 8))


def extreme_parts(op: Any, a: Any, B: Any = None, **named: Any) -> Any:
    values, vectors = op(
        (a + a.mT) / 2, B=None if B is None else (B + B.mT) / 2, tol=0.0, niter=40, **named
    )
    return values, projections(vectors)


def extremes(a: Array, k: int, largest: bool = True, B: Array | None = None) -> Any:
    a = (a + t(a)) / 2
    lower = np.eye(a.shape[-1]) if B is None else np.linalg.cholesky((B + t(B)) / 2)
    values, vectors = np.linalg.eigh(np.linalg.inv(lower) @ a @ t(np.linalg.inv(lower)))
    order = [-1 - i if largest else i for i in range(k)]
    vectors = t(np.linalg.inv(lower)) @ vectors[..., order]
    return values[..., order], projections(vectors)


FUNCTIONS = [
    row("svd_lowrank", lambda a, q: a, some_values, again),
    row("lobpcg", extremes, extreme_systems, extreme_parts),
    row("pca_lowrank", centred, components, again),
    row("linalg_pinv", lambda a, hermitian=False: np.linalg.pinv(a), over(regular, RECTANGLES[:3])),
    row("pinverse", np.linalg.pinv, over(regular, RECTANGLES)),
    row("linalg_matrix_norm", matrix_norm, norms),
    row(
        "nuclear_norm",
        lambda a, dim, keepdim=False: matrix_norm(a, "nuc", dim, keepdim),
        older_norms,
    ),
    row(
        "frobenius_norm",
        lambda a, dim, keepdim=False: matrix_norm(a, "fro", dim, keepdim),
        older_norms,
    ),
    row("linalg_norm", norm_of, any_norms),
    row("linalg_cond", condition, conditions),
    row("linalg_matrix_rank", rank, ranks, result=always(int64), differentiable=False),
    row("matrix_exp", exponential, exponents),
]

ROWS = [*DECOMPOSITIONS, *FUNCTIONS]
