"""Calls for gradcheck: linear algebra, Fourier transforms, complex elementwise functions.

Vectors of svd and eigh are unique up to sign or phase, so the checked results do not depend on
those. See Note [Gradcheck samples].
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import rushlight as rl
from tests.autograd.gradcheck_samples import Case, Draw

la = rl.linalg
INF = float("inf")


def rank_one(rows: int, columns: int) -> np.ndarray:
    return np.asarray(np.outer(np.arange(1.0, rows + 1), np.linspace(1, 2, columns)))


def hermitian(a: Any) -> Any:
    return (a + a.mH) / 2


def ramp(n: int, like: Any) -> Any:
    return rl.arange(1, n + 1, dtype=rl.float64).to(like.dtype)


def over_columns(vectors: Any) -> Any:
    """Columns times a number each times their adjoints: independent of their phases."""
    return (vectors * ramp(vectors.shape[-1], vectors)) @ vectors.mH


# ---- factors ----


def factors() -> Iterator[Case]:
    draw = Draw(21)
    for kind, make in (("real", draw), ("complex", draw.complex)):
        square, tall, wide = make(3, 3) + 2 * np.eye(3), make(4, 3), make(3, 4)
        cases: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
            "cholesky": (lambda a: la.cholesky(a @ a.mH + rl.eye(3)), (square,)),
            "cholesky upper": (lambda a: la.cholesky(a @ a.mH + rl.eye(3), upper=True), (square,)),
            "cholesky_inverse": (lambda a: rl.cholesky_inverse(la.cholesky(a @ a.mH)), (square,)),
            "cholesky_solve": (
                lambda b, a: rl.cholesky_solve(b, la.cholesky(a @ a.mH)),
                (make(3, 2), square),
            ),
            "lu": (lambda a: tuple(la.lu(a))[1:], (square,)),
            "lu tall": (lambda a: tuple(la.lu(a))[1:], (tall,)),
            "lu wide": (lambda a: tuple(la.lu(a))[1:], (wide,)),
            "lu_factor": (lambda a: la.lu_factor(a).LU, (square,)),
            "qr": (lambda a: tuple(la.qr(a)), (tall,)),
            "qr square": (lambda a: tuple(la.qr(a, mode="complete")), (square,)),
            "qr wide": (lambda a: tuple(la.qr(a)), (wide,)),
            "qr r of wide": (lambda a: la.qr(a).R, (wide,)),
            "svdvals": (la.svdvals, (tall,)),
            "svd U": (lambda a: over_columns(la.svd(a, False).U), (tall,)),
            "svd V": (lambda a: over_columns(la.svd(a, False).Vh.mH), (wide,)),
            "svd": (lambda a: _put_together(*la.svd(a, False)), (wide,)),
            "eigvalsh": (lambda a: la.eigvalsh(hermitian(a)), (square,)),
            "eigh": (lambda a: over_columns(la.eigh(hermitian(a)).eigenvectors), (square,)),
            "eigvals": (lambda a: (la.eigvals(a) ** 3).sum(), (square,)),
            "eig": (lambda a: over_columns(la.eig(a).eigenvectors), (square,)),
            "householder": (la.householder_product, (make(4, 2), make(2))),
            "ormqr": (lambda a, t, c: rl.ormqr(a, t, c), (make(4, 2), make(2), make(4, 2))),
        }
        for name, (function, arrays) in cases.items():
            yield Case(f"{name} {kind}", function, arrays)
    yield Case("cholesky batched", lambda a: la.cholesky(a @ a.mT + rl.eye(2)), (draw(2, 2, 2),))
    yield Case(
        "eigh batched", lambda a: over_columns(la.eigh(hermitian(a)).eigenvectors), (draw(2, 2, 2),)
    )


def _put_together(u: Any, values: Any, vh: Any) -> Any:
    return (u * (values**2).to(u.dtype)) @ vh


def solutions() -> Iterator[Case]:
    draw = Draw(22)
    for kind, make in (("real", draw), ("complex", draw.complex)):
        a, b = make(3, 3) + 2 * np.eye(3), make(3, 2)
        cases: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
            "inv": (la.inv, (a,)),
            "solve": (la.solve, (a, b)),
            "solve a vector": (la.solve, (a, make(3))),
            "solve right": (lambda a, b: la.solve(a, b.mT, left=False), (a, b)),
            "solve_triangular": (lambda a, b: la.solve_triangular(a, b, upper=True), (a, b)),
            "solve_triangular unit": (_unit_lower, (a, b)),
            "lstsq tall": (lambda a, b: la.lstsq(a, b).solution, (make(4, 2), make(4, 2))),
            "lstsq wide": (lambda a, b: la.lstsq(a, b).solution, (make(2, 4), make(2, 2))),
            "lstsq residuals": (
                lambda a, b: la.lstsq(a, b, driver="gels").residuals,
                (make(4, 2), make(4, 2)),
            ),
            "pinv tall": (la.pinv, (make(4, 2),)),
            "pinv wide": (la.pinv, (make(2, 4),)),
            "pinv hermitian": (lambda a: la.pinv(hermitian(a), hermitian=True), (a,)),
            "det": (la.det, (a,)),
            "slogdet": (lambda a: la.slogdet(a).logabsdet, (a,)),
            "matrix_exp": (rl.matrix_exp, (make(3, 3),)),
            "matrix_power": (lambda a: la.matrix_power(a, 3), (a,)),
            "matrix_power below 0": (lambda a: la.matrix_power(a, -2), (a,)),
            "tensorinv": (lambda a: la.tensorinv(a.reshape(3, 1, 3), ind=2), (a,)),
            "tensorsolve": (lambda a, b: la.tensorsolve(a, b), (a, make(3))),
            "vander": (lambda x: la.vander(x, N=3), (make(3),)),
        }
        for left, adjoint in itertools.product((True, False), (True, False)):
            call = lambda a, b, lf=left, ad=adjoint: _lu_solved(a, b, lf, ad)  # noqa: E731
            cases[f"lu_solve left={left} adjoint={adjoint}"] = (
                call,
                (a, b if left else make(2, 3)),
            )
        for name, (function, arrays) in cases.items():
            yield Case(f"{name} {kind}", function, arrays)
    # The second derivative takes the inverse. (PyTorch's first is wrong already at rank n - 1.)
    yield Case("det of rank 1", la.det, (rank_one(3, 3),), second=False)
    yield Case("det of rank n - 1", la.det, (np.diag([1.5, -0.7, 0.0]),), second=False)
    for name in ("svd_lowrank", "pca_lowrank"):
        yield Case(name, lambda u, v, n=name: _seeded(n, u @ v), (draw(4, 2), draw(2, 3)))
    yield Case("pinv of rank 1", lambda u, v: la.pinv(rl.outer(u, v)), (draw(3), draw(2)))
    yield Case("matrix_exp of 0", rl.matrix_exp, (np.zeros((2, 2)),))


def _seeded(name: str, matrix: Any) -> Any:
    """Norms of a random factorisation of a matrix that it factors exactly."""
    rl.manual_seed(3)
    return getattr(rl, name)(matrix, q=2)[1]


def _unit_lower(a: Any, b: Any) -> Any:
    return la.solve_triangular(a, b, upper=False, unitriangular=True)


def _lu_solved(a: Any, b: Any, left: bool, adjoint: bool) -> Any:
    lu, pivots = la.lu_factor(a)
    return la.lu_solve(lu, pivots, b, left=left, adjoint=adjoint)


def matrix_norms() -> Iterator[Case]:
    draw = Draw(23)
    for kind, make in (("real", draw), ("complex", draw.complex)):
        a = make(3, 4)
        for order in ("fro", "nuc", INF, -INF, 1, -1, 2, -2):
            yield Case(f"matrix_norm {order} {kind}", lambda a, o=order: la.matrix_norm(a, o), (a,))
        for order in (0.5, 1, 2, 3, -1, INF, -INF):
            yield Case(
                f"vector_norm {order} {kind}", lambda a, o=order: la.vector_norm(a, o, 1), (a,)
            )
        for order in (None, 2, -2, "fro", "nuc", 1, INF):
            yield Case(
                f"cond {order} {kind}",
                lambda a, o=order: la.cond(a, o),
                (make(3, 3) + 2 * np.eye(3),),
            )
        yield Case(f"norm {kind}", lambda a: rl.norm(a, dim=(0, 1)), (a,))
        yield Case(f"vecdot {kind}", la.vecdot, (a, make(3, 4)))
    yield Case("matrix_norm batched", lambda a: la.matrix_norm(a, 2, (0, 2)), (draw(2, 2, 3),))


# ---- Fourier ----


def transforms() -> Iterator[Case]:
    draw = Draw(24)
    ft = rl.fft
    for norm in (None, "ortho", "forward"):
        for name in ("fft", "ifft", "rfft", "ihfft"):
            for n in (None, 3, 6):
                call = lambda x, f=name, n=n, norm=norm: getattr(ft, f)(x, n, norm=norm)  # noqa: E731
                yield Case(f"{name} n={n} norm={norm}", call, (draw(2, 5),))
        for name in ("fft", "ifft", "irfft", "hfft"):
            for n in (None, 4, 7):
                call = lambda x, f=name, n=n, norm=norm: getattr(ft, f)(x, n, norm=norm)  # noqa: E731
                yield Case(f"{name} complex n={n} norm={norm}", call, (draw.complex(2, 5),))
    for name in ("fft2", "ifft2", "fftn", "ifftn", "irfft2", "irfftn", "hfft2", "hfftn"):
        yield Case(name, lambda x, f=name: getattr(ft, f)(x), (draw.complex(2, 3, 3),))
    for name in ("rfft2", "rfftn", "ihfft2", "ihfftn", "fftshift", "ifftshift"):
        yield Case(name, lambda x, f=name: getattr(ft, f)(x), (draw(2, 3, 4),))
    yield Case("rfftn some", lambda x: ft.rfftn(x, s=(2, 5), dim=(0, 1)), (draw(3, 4, 2),))
    window = rl.hann_window(4, dtype=rl.float64) + 0.1

    def spectrogram(x: Any) -> Any:
        return rl.stft(x, 4, 2, window=window, return_complex=True)

    yield Case("stft", spectrogram, (draw(9),))
    yield Case(
        "istft", lambda x: rl.istft(spectrogram(x) * (1 + 0.1j), 4, 2, window=window), (draw(9),)
    )


def complex_functions() -> Iterator[Case]:
    draw = Draw(25)
    z = draw.complex(4) + 0.1
    names = [
        "exp",
        "exp2",
        "expm1",
        "log",
        "log2",
        "log10",
        "log1p",
        "sqrt",
        "rsqrt",
        "reciprocal",
        "square",
        "sin",
        "cos",
        "tan",
        "sinh",
        "cosh",
        "tanh",
        "asin",
        "acos",
        "atan",
        "asinh",
        "acosh",
        "atanh",
        "sigmoid",
        "abs",
        "angle",
        "real",
        "imag",
        "conj",
        "conj_physical",
        "sgn",
        "neg",
        "cumsum",
        "sinc",
        "view_as_real",
    ]
    for name in names:
        call = lambda z, n=name: getattr(rl, n)(z, *((0,) if n == "cumsum" else ()))  # noqa: E731
        yield Case(f"{name} of complex", call, (z,))
    w = draw.complex(4) + 2
    for op in (rl.add, rl.sub, rl.mul, rl.div, rl.pow, rl.dot, rl.vdot, rl.outer):
        yield Case(f"{op.__name__} of complex", op, (w, z))
    mixed = lambda x, z: (x * z, x + z, z / x, z - x, z**x)  # noqa: E731
    yield Case("real with complex", mixed, (draw(4, low=1.5, high=2), w))
    for p in (2, 3, 0.5, -1, 1j):
        yield Case(f"complex ** {p}", lambda z, p=p: z**p, (w,))
    more: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
        "complex": (rl.complex, (draw(3), draw(3))),
        "polar": (rl.polar, (draw(3) + 2, draw(3))),
        "view_as_complex": (rl.view_as_complex, (draw(3, 2),)),
        "prod": (lambda z: z.prod(), (z,)),
        "mean": (lambda z: z.mean(), (z,)),
        "var": (lambda z: z.var(), (z,)),
        "std": (lambda z: z.std(), (z,)),
        "matmul": (rl.matmul, (draw.complex(2, 3), draw.complex(3, 2))),
        "bmm": (rl.bmm, (draw.complex(2, 2, 2), draw.complex(2, 2, 2))),
        "index": (lambda z: z[rl.tensor([0, 2, 2])], (z,)),
        "where": (lambda z, w: rl.where(rl.tensor([True, False, True, True]), z, w), (z, w)),
        "written real part": (_written_part, (z, draw(4))),
        "cat": (lambda z, w: rl.cat([z, w]).flip(0), (z, w)),
        "lerp": (lambda z, w: rl.lerp(z, w, 0.3 + 0.2j), (z, w)),
        "addcmul": (lambda z, w: rl.addcmul(z, w, w, value=0.5), (z, w)),
        "masked_fill": (lambda z: z.masked_fill(rl.tensor([True, False, False, True]), 1j), (z,)),
        "scatter_add": (lambda z, w: z.scatter_add(0, rl.tensor([0, 0, 1, 3]), w), (z, w)),
        "conv1d": (
            lambda z, w: rl.nn.functional.conv1d(z.reshape(1, 1, 4), w.reshape(1, 1, 4)[..., :2]),
            (z, w),
        ),
        "linear": (rl.nn.functional.linear, (draw.complex(2, 3), draw.complex(2, 3))),
        "diag_embed": (lambda z: rl.diag_embed(z, 1), (z,)),
        "kron": (rl.kron, (z[:2], w[:2])),
        "tril": (rl.tril, (draw.complex(3, 3),)),
        "logsumexp": (lambda z: rl.logsumexp(z, 0), (z,)),
    }
    for name, (function, arrays) in more.items():
        yield Case(f"{name} of complex", function, arrays)


def _written_part(z: Any, x: Any) -> Any:
    y = z.clone()
    y.real.mul_(x)
    y.imag.copy_(x * 2)
    return y * y


GROUPS = (factors, solutions, matrix_norms, transforms, complex_functions)
