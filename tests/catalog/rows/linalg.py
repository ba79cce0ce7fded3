"""Rows of linear systems, and helpers for rows of matrices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

import rushlight
from tests.catalog.row import Array, Make, Row, Sample, Tolerance, at, float32, float64

SOLVED = Tolerance("elimination of matrices up to 5 x 5 with condition below 100", 2000, 0)
TYPES = (float32, float64)
SHAPES = ((3, 3), (2, 4, 4), (2, 1, 1), (0, 0), (0, 3, 3))


def t(a: Array) -> Array:
    return np.swapaxes(a, -1, -2)


def regular(make: Make, *shape: int) -> Array:
    """Matrices far from singular, with singular values far from each other."""
    m, n = shape[-2:]
    spread = np.zeros((m, n))
    np.fill_diagonal(spread, 2.0 + 1.5 * np.arange(min(m, n)))
    return make(*shape, low=-0.5, high=0.5) + spread


def definite(make: Make, *shape: int) -> Array:
    a = regular(make, *shape)
    return (a + t(a)) / 2


def triangle(make: Make, *shape: int) -> Array:
    return np.tril(regular(make, *shape))


def over(
    draw: Callable[..., Array], shapes: Any = SHAPES, **named: Any
) -> Callable[[Make], Iterator[Sample]]:
    """A sample of each shape."""

    def samples(make: Make) -> Iterator[Sample]:
        for shape in shapes:
            yield at(draw(make, *shape), **named)

    return samples


def row(
    name: str,
    reference: Callable[..., Any],
    samples: Callable[[Make], Iterator[Sample]],
    call: Callable[..., Any] | None = None,
    **more: Any,
) -> Row:
    found = Row(name, reference, samples, TYPES, SOLVED, **more)
    return found if call is None else replace(found, call=call)


def first(op: Any, *args: Any, **named: Any) -> Any:
    return op(*args, **named)[0]


def both(
    samples: Callable[[Make], Iterator[Sample]], **named: Any
) -> Callable[[Make], Iterator[Sample]]:
    """The samples, and once more with keywords."""

    def doubled(make: Make) -> Iterator[Sample]:
        yield from samples(make)
        for sample in samples(make):
            yield Sample(sample.args, sample.named | named, sample.smooth)

    return doubled


# ---- solving ----


def systems(make: Make) -> Iterator[Sample]:
    yield at(regular(make, 3, 3), make(3, 2))
    yield at(regular(make, 2, 4, 4), make(4, 3))
    yield at(regular(make, 3, 3), make(3))
    yield at(regular(make, 2, 3, 3), make(2, 3, 2))
    yield at(regular(make, 0, 0), make(0, 2))


def solved(a: Array, b: Array, left: bool = True) -> Array:
    if b.ndim == 1 or (a.ndim == 3 and b.ndim == 2 and b.shape == a.shape[:-1]):
        return np.linalg.solve(a, b[..., None])[..., 0]
    return np.linalg.solve(a, b) if left else t(np.linalg.solve(t(a), t(b)))


def triangles(make: Make) -> Iterator[Sample]:
    for upper in (False, True):
        for unit in (False, True):
            yield at(regular(make, 3, 3), make(2, 3, 2), upper=upper, unitriangular=unit)
    yield at(regular(make, 3, 3), make(2, 3), upper=True, left=False)


def triangle_solved(
    a: Array, b: Array, upper: bool, left: bool = True, unitriangular: bool = False
) -> Array:
    kept = np.triu(a) if upper else np.tril(a)
    if unitriangular:
        kept = np.where(np.eye(kept.shape[-1], dtype=bool), 1.0, kept)
    return np.linalg.solve(kept, b) if left else t(np.linalg.solve(t(kept), t(b)))


def old_triangles(make: Make) -> Iterator[Sample]:
    yield at(make(3, 2), regular(make, 3, 3))
    yield at(make(2, 3, 2), regular(make, 3, 3), upper=False, transpose=True)


def old_triangle_solved(b: Array, a: Array, upper: bool = True, transpose: bool = False) -> Array:
    kept = np.triu(a) if upper else np.tril(a)
    return np.linalg.solve(t(kept) if transpose else kept, b)


def eliminated(a: Array, **_: Any) -> tuple[Array, Array]:
    """LU with the largest pivot of each column, and the order of the rows."""
    if a.ndim > 2:
        parts = [eliminated(matrix) for matrix in a]
        return np.stack([p[0] for p in parts]), np.stack([p[1] for p in parts])
    a = a.copy()
    order = np.arange(len(a))
    for k in range(min(a.shape)):
        best = k + int(np.abs(a[k:, k]).argmax())
        a[[k, best]], order[[k, best]] = a[[best, k]], order[[best, k]]
        a[k + 1 :, k] /= a[k, k]
        a[k + 1 :, k + 1 :] -= np.outer(a[k + 1 :, k], a[k, k + 1 :])
    return a, order


def parts_of(a: Array, **_: Any) -> tuple[Array, Array, Array]:
    lu, order = eliminated(a)
    k = min(a.shape[-2:])
    p = (
        np.eye(a.shape[-2])[..., order]
        if a.ndim == 2
        else np.stack([np.eye(a.shape[-2])[:, o] for o in order])
    )
    return p, np.tril(lu[..., :k], -1) + np.eye(a.shape[-2], k), np.triu(lu[..., :k, :])


SQUARE = ((3, 3), (2, 4, 4))
FACTORED = ((3, 3), (2, 4, 4), (2, 2, 4), (4, 2))


def packed(make: Make) -> Iterator[Sample]:
    for shape in FACTORED:
        lu, _ = eliminated(regular(make, *shape))
        yield at(
            lu,
            np.broadcast_to(
                np.arange(1, min(shape[-2:]) + 1, dtype=np.int32), (*shape[:-2], min(shape[-2:]))
            ),
        )


def unpacked(lu: Array, pivots: Array) -> tuple[Array, Array, Array]:
    k = min(lu.shape[-2:])
    p = np.broadcast_to(np.eye(lu.shape[-2]), (*lu.shape[:-2], *[lu.shape[-2]] * 2))
    return p, np.tril(lu[..., :k], -1) + np.eye(lu.shape[-2], k), np.triu(lu[..., :k, :])


EXCHANGED = np.array([3, 2, 3], np.int32)  # row 1 with 3


def with_lu(make: Make) -> Iterator[Sample]:
    yield at(regular(make, 3, 3), EXCHANGED, make(3, 2))
    yield at(regular(make, 3, 3), EXCHANGED, make(2, 3, 2), adjoint=True)
    yield at(regular(make, 3, 3), EXCHANGED, make(2, 3), left=False)
    yield at(regular(make, 3, 3), EXCHANGED, make(2, 3), left=False, adjoint=True)


def lu_solved(
    lu: Array, pivots: Array, b: Array, left: bool = True, adjoint: bool = False
) -> Array:
    a = np.eye(3)[:, [2, 1, 0]] @ (np.tril(lu, -1) + np.eye(3)) @ np.triu(lu)
    return solved(t(a) if adjoint else a, b, left)


def symmetric_systems(make: Make) -> Iterator[Sample]:
    yield at(definite(make, 3, 3), make(3, 2))
    yield at(definite(make, 2, 4, 4), make(2, 4, 1))


def from_ldl(op: Any, a: Any, b: Any) -> Any:
    return op(*rushlight.linalg.ldl_factor(a), b)


def ldl_product(op: Any, a: Any) -> Any:
    """A again; these matrices need no exchanges, so D is a diagonal."""
    ld = op(a).LD
    lower = ld.tril(-1) + rushlight.eye(ld.shape[-1], dtype=ld.dtype, device=ld.device)
    return lower @ ld.diagonal(0, -2, -1).diag_embed() @ lower.mT


def tensors(make: Make) -> Iterator[Sample]:
    yield at(regular(make, 6, 6).reshape(2, 3, 3, 2))


def tensor_systems(make: Make) -> Iterator[Sample]:
    yield at(regular(make, 6, 6).reshape(2, 3, 3, 2), make(2, 3))
    yield at(np.moveaxis(regular(make, 6, 6).reshape(2, 3, 6), 1, 2), make(2, 3), dims=(1,))


def tensor_solved(a: Array, b: Array, dims: tuple[int, ...] | None = None) -> Array:
    a = a if dims is None else np.moveaxis(a, dims[0], -1)
    return np.linalg.solve(a.reshape(b.size, b.size), b.ravel()).reshape(a.shape[b.ndim :])


def least(make: Make) -> Iterator[Sample]:
    yield at(regular(make, 4, 2), make(4, 3))
    yield at(regular(make, 2, 2, 4), make(2, 2, 1))
    yield at(regular(make, 3, 3), make(3))


def least_squares(a: Array, b: Array) -> Array:
    return np.linalg.pinv(a) @ b


SOLVING = [
    row("linalg_solve", solved, systems),
    row("linalg_solve_ex", solved, systems, first),
    row("linalg_inv", np.linalg.inv, over(regular)),
    row("linalg_inv_ex", np.linalg.inv, over(regular), first),
    row("inverse", np.linalg.inv, over(regular)),
    row("linalg_solve_triangular", triangle_solved, triangles),
    row("triangular_solve", old_triangle_solved, old_triangles, first),
    row("linalg_lu_factor", lambda a: eliminated(a)[0], over(regular, FACTORED), first),
    row("linalg_lu_factor_ex", lambda a: eliminated(a)[0], over(regular, FACTORED), first),
    row("lu", lambda a: eliminated(a)[0], over(regular, FACTORED), first),
    row("linalg_lu", parts_of, over(regular, FACTORED)),
    row("lu_unpack", unpacked, packed),
    row("linalg_lu_solve", lu_solved, with_lu),
    row(
        "lu_solve",
        lambda b, lu, pivots: lu_solved(lu, pivots, b),
        lambda make: iter([at(make(3, 2), regular(make, 3, 3), EXCHANGED)]),
    ),
    row("det", np.linalg.det, over(regular)),
    row("slogdet", lambda a: tuple(np.linalg.slogdet(a)), over(regular)),
    row("logdet", lambda a: np.linalg.slogdet(a)[1], over(regular)),
    row("linalg_lstsq", least_squares, least, first),
    row(
        "linalg_ldl_factor", lambda a: a, over(definite, SQUARE), ldl_product, differentiable=False
    ),
    row(
        "linalg_ldl_factor_ex",
        lambda a: a,
        over(definite, SQUARE),
        ldl_product,
        differentiable=False,
    ),
    row("linalg_ldl_solve", solved, symmetric_systems, from_ldl, differentiable=False),
    row("linalg_tensorinv", np.linalg.tensorinv, tensors),
    row("linalg_tensorsolve", tensor_solved, tensor_systems),
]

ROWS = SOLVING
