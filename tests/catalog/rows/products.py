"""Catalog rows: products of vectors and matrices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tests.catalog.row import (
    ALL,
    CONTRACTED,
    FLOAT,
    NUMBER,
    ROUNDED,
    SIGNED,
    Make,
    Row,
    Sample,
    Tolerance,
    at,
)


def of_shapes(*cases: tuple[tuple[int, ...], ...]) -> Callable[[Make], Iterator[Sample]]:
    """A sample for each tuple of operand shapes."""

    def samples(make: Make) -> Iterator[Sample]:
        for shapes in cases:
            yield at(*(make(*shape) for shape in shapes))

    return samples


def scaled(input: Any, product: Any, beta: float, alpha: float) -> Any:
    return (0 if beta == 0 else beta * input) + alpha * product


def plus(product: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    return lambda input, a, b, beta=1, alpha=1: scaled(input, product(a, b), beta, alpha)


def added(
    target: tuple[int, ...], a: tuple[int, ...], b: tuple[int, ...]
) -> Callable[[Make], Iterator[Sample]]:
    def samples(make: Make) -> Iterator[Sample]:
        yield at(make(*target), make(*a), make(*b))
        yield at(make(*target), make(*a), make(*b), beta=2, alpha=3)
        yield at(make(), make(*a), make(*b))
        yield at(make(target[-1]), make(*a), make(*b), alpha=-1)
        if make.floats:
            yield at(make(*target), make(*a), make(*b), beta=0.5, alpha=0.25)

    return samples


def tensordots(make: Make) -> Iterator[Sample]:
    yield at(make(2, 3, 4), make(3, 4, 5))
    yield at(make(2, 3), make(4), dims=0)
    yield at(make(3, 4), make(4, 2), dims=1)
    yield at(make(2, 3, 4), make(4, 5, 2), dims=([0, 2], [2, 0]))
    yield at(make(2, 3, 4), make(3, 2), dims=([-2], [0]))
    yield at(make(3, 0), make(0, 2), dims=1)


def tensordot(a, b, dims=2):
    return np.tensordot(a, b, dims)


def einsums(make: Make) -> Iterator[Sample]:
    for equation, *shapes in (
        ("ij,jk->ik", (3, 4), (4, 5)),
        ("ij,jk", (3, 4), (4, 5)),
        ("ij->ji", (3, 4)),
        ("ii", (4, 4)),
        ("ii->i", (4, 4)),
        ("iij->j", (3, 3, 2)),
        ("i,j->ij", (3,), (4,)),
        ("ij->", (3, 4)),
        ("bij,bjk->bik", (2, 3, 4), (2, 4, 5)),
        ("...ij,...jk->...ik", (2, 3, 4), (4, 5)),
        ("...i,...i->...", (2, 3, 4), (1, 4)),
        ("bn,anm,bm->ba", (2, 5), (3, 5, 4), (2, 4)),
        ("i...,j->...j", (3, 2, 2), (4,)),
        ("ba,b", (2, 3), (2,)),
        ("Aa,aB->BA", (2, 3), (3, 4)),
        ("ij,ij,ij->i", (3, 4), (3, 4), (3, 4)),
        ("i,i->", (0,), (0,)),
    ):
        # Those are sums, which integers make in int64.
        if make.floats or equation not in (
            "ii",
            "iij->j",
            "ij->",
        ):
            yield at(equation, *(make(*shape) for shape in shapes))


def powers(make: Make) -> Iterator[Sample]:
    for n in (2, 1, 3, 5):
        yield at(make(3, 3, low=-1, high=1), n)
    yield at(make(2, 3, 3, low=-1, high=1), 2)


def matrix_power(x, n):
    out = x
    for _ in range(n - 1):
        out = out @ x
    return out


def crosses(make: Make) -> Iterator[Sample]:
    yield at(make(4, 3), make(4, 3))
    yield at(make(3, 4), make(3, 4))
    yield at(make(3, 4), make(3, 4), 0)
    yield at(make(2, 4, 3), make(1, 4, 3), dim=-1)
    yield at(make(0, 3), make(0, 3))


def cross(a, b, dim=None):
    shape = np.broadcast_shapes(a.shape, b.shape)
    axis = shape.index(3) if dim is None else dim
    a, b = (np.moveaxis(np.broadcast_to(v, shape), axis, 0) for v in (a, b))
    rows = [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]]
    return np.moveaxis(np.stack(rows), 0, axis)


def bilinear(x, y, weight, bias=None):
    return np.einsum("...i,oij,...j->...o", x, weight, y) + (0 if bias is None else bias)


def bilinears(make: Make) -> Iterator[Sample]:
    yield at(make(5, 3), make(5, 4), make(2, 3, 4), make(2))
    yield at(make(3), make(4), make(2, 3, 4))
    yield at(make(2, 5, 3), make(2, 5, 4), make(1, 3, 4), make(1))


def matmuls(*matrices):
    out = matrices[0]
    for m in matrices[1:]:
        out = out @ m
    return out


CHAINED = Tolerance(
    "a product of products: each rounds in halves, and the next multiplies its errors", 128, 16
)

ROWS = [
    Row(
        "mm",
        np.matmul,
        of_shapes(((3, 4), (4, 5)), ((37, 70), (70, 33)), ((0, 4), (4, 3)), ((3, 0), (0, 2))),
        NUMBER,
        CONTRACTED,
    ),
    Row(
        "bmm",
        np.matmul,
        of_shapes(((2, 3, 4), (2, 4, 5)), ((1, 3, 7), (1, 7, 2)), ((0, 3, 4), (0, 4, 5))),
        NUMBER,
        CONTRACTED,
    ),
    Row(
        "mv",
        np.matmul,
        of_shapes(((3, 4), (4,)), ((37, 70), (70,)), ((3, 0), (0,))),
        NUMBER,
        CONTRACTED,
    ),
    Row("dot", np.dot, of_shapes(((4,), (4,)), ((70,), (70,)), ((0,), (0,))), NUMBER, CONTRACTED),
    Row("vdot", np.dot, of_shapes(((4,), (4,)), ((70,), (70,)), ((0,), (0,))), NUMBER, CONTRACTED),
    Row(
        "inner",
        np.inner,
        of_shapes(((4,), (4,)), ((2, 3, 4), (5, 4)), ((), (3,)), ((2, 3), ())),
        NUMBER,
        CONTRACTED,
    ),
    Row("outer", np.outer, of_shapes(((4,), (3,)), ((0,), (3,)), ((70,), (33,))), ALL, ROUNDED),
    Row("ger", np.outer, of_shapes(((4,), (3,)), ((0,), (3,)), ((70,), (33,))), ALL, ROUNDED),
    Row("addmm", plus(np.matmul), added((3, 5), (3, 4), (4, 5)), NUMBER, CONTRACTED, small=SIGNED),
    Row("addmv", plus(np.matmul), added((3,), (3, 4), (4,)), NUMBER, CONTRACTED, small=SIGNED),
    Row("addr", plus(np.outer), added((3, 4), (3,), (4,)), NUMBER, CONTRACTED, small=SIGNED),
    Row(
        "baddbmm",
        plus(np.matmul),
        added((2, 3, 5), (2, 3, 4), (2, 4, 5)),
        NUMBER,
        CONTRACTED,
        small=SIGNED,
    ),
    Row(
        "addbmm",
        plus(lambda a, b: np.matmul(a, b).sum(0)),
        added((3, 5), (2, 3, 4), (2, 4, 5)),
        NUMBER,
        CONTRACTED,
        small=SIGNED,
    ),
    Row("tensordot", tensordot, tensordots, NUMBER, CONTRACTED),
    Row("einsum", np.einsum, einsums, NUMBER, CHAINED),
    Row(
        "kron",
        np.kron,
        of_shapes(((2, 3), (4, 2)), ((3,), (2, 2)), ((), (3,)), ((2, 3, 2), (2, 1, 3))),
        NUMBER,
        ROUNDED,
    ),
    Row("cross", cross, crosses, NUMBER, CONTRACTED),
    Row("chain_matmul", matmuls, of_shapes(((3, 4), (4, 5), (5, 2)), ((3, 4),)), NUMBER, CHAINED),
    Row("matrix_power", matrix_power, powers, NUMBER, CHAINED),
    Row("bilinear", bilinear, bilinears, FLOAT, CHAINED),
]
