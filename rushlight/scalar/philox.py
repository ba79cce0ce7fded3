"""Philox-4x32-10 as an expression: the n-th random word of a seed, the same on every device.

Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3 (SC 2011).
"""

from __future__ import annotations

import math

from rushlight.core.dtypes import DType, float32, int64, uint32
from rushlight.scalar import build as s
from rushlight.scalar.ir import Expr, const

ROUNDS = 10
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)

Words = tuple[Expr, Expr, Expr, Expr]


def philox(counter: Words, key: tuple[Expr, Expr]) -> Words:
    """Ten rounds over four uint32 words under a key of two."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    m0, m1 = (const(m, uint32) for m in MULTIPLIERS)
    for number in range(ROUNDS):
        if number:
            k0, k1 = k0 + WEYL[0], k1 + WEYL[1]
        high0, low0 = s.mulhi(m0, c0), m0 * c0
        high1, low1 = s.mulhi(m1, c2), m1 * c2
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
    return c0, c1, c2, c3


def _halves(x: Expr) -> tuple[Expr, Expr]:
    return s.cast(x, uint32), s.cast(x >> 32, uint32)


def random_word(seed: Expr, position: Expr) -> Expr:
    """Word number `position` (int64) of the stream of `seed` (int64): four words per counter."""
    low, high = _halves(position >> 2)
    zero = const(0, uint32)
    words = philox((low, high, zero, zero), _halves(seed))
    lane = s.cast(position, uint32) & 3
    pair0 = s.where((lane & 1).eq(0), words[0], words[1])
    pair1 = s.where((lane & 1).eq(0), words[2], words[3])
    return s.where(lane < 2, pair0, pair1)


def uniform(seed: Expr, position: Expr, dtype: DType = float32) -> Expr:
    """A number in [0, 1) with 24 random bits, in the compute type of `dtype`."""
    word = random_word(seed, position)
    # 24 bits fit int32 and float32 exactly, so every device converts them alike.
    return s.cast(s.cast(word >> 8, int64), dtype) * (1.0 / (1 << 24))


def normal(seed: Expr, position: Expr, dtype: DType = float32) -> Expr:
    """Box-Muller over the words 2p and 2p+1; the first number is taken from (0, 1]."""
    first = uniform(seed, position + position, dtype)
    second = uniform(seed, position + position + 1, dtype)
    radius = s.sqrt(s.log(1 - first) * -2.0)
    return radius * s.cos(second * (2 * math.pi))
