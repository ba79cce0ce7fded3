"""Catalog rows: even steps, tensors like others, windows.

Random ones are tested in test_creation_and_fills.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tests.catalog.row import (
    ALL,
    COMPOSED,
    EXACT,
    FLOAT,
    NUMBER,
    SIGNED,
    Make,
    Row,
    Sample,
    Tolerance,
    at,
    bool_,
)

POWERS = Tolerance(
    "a power of a rounded exponent: 1000 ** x makes 7 roundings of each one in the exponent", 64, 2
)


def made(
    name: str,
    reference: Callable[..., Any] | None,
    *calls: Sample,
    dtypes=FLOAT,
    tolerance=COMPOSED,
) -> Row:
    return Row(
        name,
        reference,
        lambda make: iter(calls),
        dtypes,
        tolerance,
        differentiable=False,
        makes=True,
    )


def random(name: str, dtypes=FLOAT, makes: bool = False) -> Row:
    return Row(
        name, None, lambda make: iter(()), dtypes, differentiable=False, random=True, makes=makes
    )


def of_tensors(make: Make) -> Iterator[Sample]:
    for shape in ((3, 4), (), (0, 2), (1037,)):
        yield at(make(*shape))


def fills(make: Make) -> Iterator[Sample]:
    for shape in ((3, 4), (), (0, 2), (1037,)):
        yield at(make(*shape), True if make.dtype is bool_ else -3)


def filled(make: Make) -> Iterator[Sample]:
    yield from fills(make)
    yield at(make(3, 4), make())


def vectors(make: Make) -> Iterator[Sample]:
    yield at(make(3))
    yield at(make(4), 3)
    yield at(make(3), N=5, increasing=True)
    yield at(make(0), 2)


def vander(x, N=None, increasing=False):
    return np.vander(x, N, increasing)


def angles(length: int, periodic: bool) -> Any:
    return 2 * math.pi * np.arange(length) / max(length if periodic else length - 1, 1)


def cosines(*default: float) -> Callable[..., Any]:
    def reference(length, periodic=True, *weights):
        if length == 1:
            return np.ones(1)
        turned = angles(length, periodic)
        parts = [w * (-1) ** k * np.cos(k * turned) for k, w in enumerate(weights or default)]
        return np.sum(parts, axis=0).reshape(length)

    return reference


def bartlett(length, periodic=True):
    return np.ones(1) if length == 1 else 1 - np.abs(angles(length, periodic) / math.pi - 1)


LENGTHS = (at(7), at(8, False), at(1), at(0), at(33, True))
LINES = (at(0, 1, 5), at(-2, 3.5, 12), at(4, -4, 9), at(3, 7, 1), at(0, 5, 0), at(0, 1036, 1037))


def linspace(start, end, steps):
    return np.linspace(start, end, steps)


def logspace(start, end, steps, base=10.0):
    return base ** linspace(start, end, steps)


ROWS = [
    made("linspace", linspace, *LINES),
    Row(
        "linspace",
        lambda *args: np.trunc(linspace(*args)),
        lambda make: iter((at(0, 10, 11), at(-6, 6, 4), at(3, 7, 1))),
        NUMBER,
        EXACT,
        differentiable=False,
        makes=True,
        variant="whole",
    ),
    made(
        "logspace",
        logspace,
        at(0, 1, 5),
        at(-2, 2, 9),
        at(0, 3, 4, 2.0),
        at(1, 2, 1),
        at(0, 1, 0),
        tolerance=POWERS,
    ),
    Row("vander", vander, vectors, (*FLOAT,), COMPOSED),
    Row("full_like", np.full_like, fills, ALL, EXACT, differentiable=False, small=SIGNED),
    Row("fill", np.full_like, filled, ALL, EXACT, small=SIGNED),
    Row("empty_like", None, of_tensors, ALL, EXACT, differentiable=False),
    made(
        "empty_strided",
        None,
        at((2, 3), (3, 1)),
        at((2, 3), (1, 2)),
        at((0, 2), (2, 1)),
        dtypes=ALL,
    ),
    made("empty_permuted", None, at((2, 3), (1, 0)), at((2, 3, 4), (0, 2, 1)), dtypes=ALL),
    made("scalar_tensor", np.array, at(1), at(True), dtypes=ALL, tolerance=EXACT),
    made("hann_window", cosines(0.5, 0.5), *LENGTHS),
    made("blackman_window", cosines(0.42, 0.5, 0.08), *LENGTHS),
    made("hamming_window", cosines(0.54, 0.46), *LENGTHS, at(9, False, 0.6, 0.4)),
    made("bartlett_window", bartlett, *LENGTHS),
    random("rand_like"),
    random("randn_like"),
    random("randint_like", NUMBER),
    random("normal"),
    random("multinomial"),
]
