"""A row of the catalog: samples, tolerances, and the constructors that families share.

Note [Catalog samples]
1. `Make` draws arrays from a seeded generator for one dtype. Floats come as float64 holding values
   that the dtype represents exactly, so the reference and the op get the same numbers; a float64
   array becomes a tensor of the dtype under test, every other array keeps its own type (indices are
   int64, masks bool).
2. A sample with `smooth=True` is away from kinks by far more than a difference step: gradients are
   checked there.
3. Integers of an unsigned type are drawn from 0 on.
4. References are NumPy in float64, or exact integers. They share no code with the package.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from rushlight.core.dtypes import (
    FLOAT,
    DType,
    bfloat16,
    bool_,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)

Array = np.ndarray
# Dtypes that rows name; a row with int32 runs on one of these too, by turns over devices
# (`run.dtypes_on`).
INTEGER = (int32, int64)
NUMBER = INTEGER + FLOAT
ALL = (bool_, *NUMBER)
SMALL = (uint8, uint64, int8, uint32, int16, uint16)
MIXED = tuple(d for d in SMALL if d is not uint64)  # for rows that meet int64: no type holds both
SIGNED = (int8, int16)  # for rows with negative numbers among their arguments
EPSILON = {float16: 2.0**-10, bfloat16: 2.0**-7, float32: 2.0**-23, float64: 2.0**-52}
LARGEST = {
    float16: 65504.0,
    bfloat16: 3.3895313892515355e38,
    float32: 3.4028234663852886e38,
    float64: 1.797e308,
}
GAP = 0.1  # how far smooth samples stay from a kink


@dataclass(frozen=True)
class Tolerance:
    """|result - expected| <= units * epsilon(result type) * (1 + |expected|)."""

    reason: str
    full: float  # units for float32 and float64
    half: (
        float  # units for float16 and bfloat16, which compute in float32 and round when they store
    )

    def units(self, dtype: DType) -> float:
        return self.half if dtype.itemsize == 2 else self.full


EXACT = Tolerance("moves or selects elements, so every bit is known", 0, 0)
ROUNDED = Tolerance("one operation; WGSL allows 2.5 ulp for a division, 1 ulp for others", 3, 1)
ELEMENTARY = Tolerance(
    "polynomials of our own: a few ulp; WGSL's own functions are no better", 8, 1
)
COMPOSED = Tolerance("a handful of rounded operations; halves round after each of them", 16, 4)
SUMMED = Tolerance("sums of up to a thousand terms of size 1, in a fixed order", 64, 4)
CONTRACTED = Tolerance(
    "dot products of up to 70 terms, then few operations; halves round between", 64, 8
)


@dataclass(frozen=True)
class Sample:
    """One call: positional and keyword arguments; arrays (also in lists) become tensors."""

    args: tuple[Any, ...]
    named: dict[str, Any]
    smooth: bool = True

    def __repr__(self) -> str:
        shown = [_show(a) for a in self.args] + [f"{k}={_show(v)}" for k, v in self.named.items()]
        return f"({', '.join(shown)})"


def _show(value: Any) -> str:
    if isinstance(value, Array):
        return f"{value.dtype}{list(value.shape)}"
    return f"[{', '.join(map(_show, value))}]" if isinstance(value, list) else repr(value)


def at(*args: Any, smooth: bool = True, **named: Any) -> Sample:
    return Sample(args, named, smooth)


def rough(*args: Any, **named: Any) -> Sample:
    """A sample on a kink or with special values: forward only."""
    return Sample(args, named, False)


def round_to(values: Any, dtype: DType) -> Array:
    """float64 values rounded to `dtype`, to nearest even.

    bfloat16, which NumPy lacks, by its bits.
    """
    wide = np.asarray(values, np.float64)
    with np.errstate(over="ignore"):
        if dtype is not bfloat16:
            return wide.astype(dtype.name).astype(np.float64)
        single = wide.astype(np.float32)
    bits = single.view(np.uint32).astype(np.uint64)
    kept = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16 << 16).astype(np.uint32).view(np.float32)
    return np.where(np.isfinite(single), kept, single).astype(np.float64)


class Make:
    """Draws arrays for one dtype."""

    def __init__(self, seed: int, dtype: DType) -> None:
        self.random = np.random.default_rng(seed)
        self.dtype = dtype

    def __call__(
        self,
        *shape: int,
        low: float = -2,
        high: float = 2,
        kink: Callable[[Array], Array] | None = None,
    ) -> Array:
        """Uniform between low and high; `kink(x)` is the distance to the nearest kink.

        For floats it is kept above GAP.
        """
        if self.dtype is bool_:
            return self.mask(*shape)
        if self.dtype.kind in "iu":
            first = int(np.ceil(low)) if self.dtype.kind == "i" else max(0, int(np.ceil(low)))
            whole = self.random.integers(first, max(first, int(np.floor(high))) + 1, shape)
            return np.asarray(whole).astype(self.dtype.name)
        values = round_to(self.random.uniform(low, high, shape), self.dtype)
        while kink is not None and (near := kink(values) < GAP).any():
            values = np.where(
                near, round_to(self.random.uniform(low, high, shape), self.dtype), values
            )
        return values

    def nonzero(self, *shape: int, high: float = 3) -> Array:
        """Between 0.5 and high, with either sign; of integers from 1."""
        sizes = self(*shape, low=0.5 if self.floats else 1, high=high)
        if self.dtype.kind in "bu":
            return sizes | True if self.dtype is bool_ else sizes
        return sizes * np.asarray(self.random.choice([-1, 1], shape), sizes.dtype)

    def lattice(self, *shape: int, shift: float = 0) -> Array:
        """Small integers plus `shift`, so that lattices of different shifts are never near each
        other.
        """
        if self.dtype.kind != "f":
            return self(*shape, low=-3, high=3)
        return np.asarray(self.random.integers(-3, 4, shape) + shift, np.float64)

    def distinct(self, *shape: int) -> Array:
        """Distinct elements: steps of 1/8 in random order.

        Every float type holds up to 256 of them exactly.
        """
        count = int(np.prod(shape))
        order = np.asarray(
            self.random.permutation(count).reshape(shape)
            - (0 if self.dtype.kind == "u" else count // 2)
        )
        return np.asarray(order / 8.0) if self.dtype.kind == "f" else order.astype(self.dtype.name)

    def index(self, *shape: int, limit: int) -> Array:
        return np.asarray(self.random.integers(0, limit, shape))

    def mask(self, *shape: int) -> Array:
        return np.asarray(self.random.random(shape) < 0.5)

    def special(self) -> Array:
        """Special values for elementwise ops."""
        if self.dtype.kind != "f":
            return self(9, low=-9, high=9)
        return np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 2.5, -2.5])

    @property
    def floats(self) -> bool:
        return self.dtype.kind == "f"


Samples = Callable[[Make], Iterator[Sample]]


@dataclass(frozen=True)
class Row:
    """One public op and all that a test must know of it."""

    name: str
    reference: Callable[..., Any] | None  # None: the result is random or unspecified
    samples: Samples
    dtypes: tuple[DType, ...] = FLOAT
    tolerance: Tolerance = ROUNDED
    result: Callable[[DType], DType] = field(default=lambda dtype: dtype)
    differentiable: bool = True
    random: bool = False
    makes: bool = False  # a creation: gets dtype= and device=, takes no tensor
    call: Callable[..., Any] = field(default=lambda op, *args, **named: op(*args, **named))
    layouts: bool = True  # also run on transposed and strided tensors
    small: tuple[DType, ...] = SMALL  # further integers that are as good as int32
    unrounded: Callable[..., Any] | None = (
        None  # what differences are taken of, where the reference rounds
    )
    variant: str = ""  # a second row of an op whose result type depends on an argument

    def __repr__(self) -> str:
        return f"{self.name}-{self.variant}" if self.variant else self.name


def always(dtype: DType) -> Callable[[DType], DType]:
    return lambda _: dtype


def as_float(dtype: DType) -> DType:
    return dtype if dtype.kind == "f" else float32


def as_int64(dtype: DType) -> DType:
    return dtype if dtype.kind == "f" else int64


SHAPES = ((3, 4), (), (0, 3), (1037,))  # 1037: several vectors and a rest
PAIRS = (((3, 4), (3, 4)), ((3, 1), (4,)), ((), (2, 3)), ((0, 3), (3,)), ((1037,), (1037,)))


def unary(
    name: str,
    reference: Callable[..., Any],
    tolerance: Tolerance = ELEMENTARY,
    dtypes: tuple[DType, ...] = ALL,
    result: Callable[[DType], DType] = as_float,
    low: float = -2,
    high: float = 2,
    kink: Callable[[Array], Array] | None = None,
    special: bool = True,
    differentiable: bool = True,
) -> Row:
    """A function of one tensor, element by element."""

    def samples(make: Make) -> Iterator[Sample]:
        for shape in SHAPES:
            yield at(make(*shape, low=low, high=high, kink=kink))
        if special:
            yield rough(make.special())

    return Row(name, reference, samples, dtypes, tolerance, result, differentiable)


def binary(
    name: str,
    reference: Callable[..., Any],
    operands: Callable[[Make, tuple[int, ...], tuple[int, ...]], tuple[Array, Array]] | None = None,
    tolerance: Tolerance = ROUNDED,
    dtypes: tuple[DType, ...] = NUMBER,
    result: Callable[[DType], DType] = lambda dtype: dtype,
    special: bool = True,
    differentiable: bool = True,
    scalars: tuple[int | float, ...] = (2, 0.75),
) -> Row:
    """A function of two tensors that broadcast; a Python number may stand for the second."""
    draw = operands or (lambda make, a, b: (make(*a), make(*b)))

    def samples(make: Make) -> Iterator[Sample]:
        for pair in PAIRS:
            yield at(*draw(make, *pair))
        for number in scalars:
            if make.floats or (isinstance(number, int) and make.dtype is not bool_):
                yield at(draw(make, (5,), ())[0], number)
        if special and make.floats:
            values = make.special()
            yield rough(values[:, None], values)

    return Row(name, reference, samples, dtypes, tolerance, result, differentiable)


def alias(row: Row, name: str) -> Row:
    return replace(row, name=name)


__all__ = [
    "ALL",
    "COMPOSED",
    "CONTRACTED",
    "ELEMENTARY",
    "EPSILON",
    "EXACT",
    "FLOAT",
    "INTEGER",
    "LARGEST",
    "MIXED",
    "NUMBER",
    "ROUNDED",
    "SIGNED",
    "SMALL",
    "SUMMED",
    "Array",
    "DType",
    "Make",
    "Row",
    "Sample",
    "Samples",
    "Tolerance",
    "alias",
    "always",
    "as_float",
    "as_int64",
    "at",
    "binary",
    "bool_",
    "float32",
    "float64",
    "int32",
    "int64",
    "rough",
    "round_to",
    "unary",
]
