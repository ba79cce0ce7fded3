"""Philox-4x32-10 as an expression: the n-th random word of a seed, the same on every device.

Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3 (SC 2011).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rushlight.core.dtypes import DType, float32, float64, int64, uint32
from rushlight.scalar import build as s
from rushlight.scalar.ir import Expr, const

ROUNDS = 10
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)

Words = tuple[Expr, Expr, Expr, Expr]


@dataclass(frozen=True)
class Block:
    """Four words and what they were made from: counter and key."""

    counter: Words
    key: tuple[Expr, Expr]
    made: Words

    @property
    def given(self) -> tuple[Expr, ...]:
        return *self.counter, *self.key


BLOCKS: dict[Expr, Block] = {}  # by each of its words: an emitter may print ten rounds as a loop


def philox(counter: Words, key: tuple[Expr, Expr]) -> Words:
    """Ten rounds over four uint32 words under a key of two."""
    made = _rounds(counter, key)
    BLOCKS.update(dict.fromkeys(made, Block(counter, key, made)))
    return made


def _rounds(counter: Words, key: tuple[Expr, Expr]) -> Words:
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


def word_pair(seed: Expr, position: Expr) -> tuple[Expr, Expr]:
    """Words number `position` (even) and `position + 1`, of one counter."""
    zero = const(0, uint32)
    words = philox((*_halves(position >> 2), zero, zero), _halves(seed))
    first = (s.cast(position, uint32) & 2).eq(0)
    return s.where(first, words[0], words[2]), s.where(first, words[1], words[3])


def _four_words(seed: Expr, position: Expr) -> list[Expr]:
    """Words number `position` to `position + 3`, of one counter or of two."""
    zero = const(0, uint32)
    found: list[Expr] = []
    for last in (position, position + 3):
        found += philox((*_halves(last >> 2), zero, zero), _halves(seed))
    lane = s.cast(position, uint32)
    for step in (2, 1):
        skip = (lane & step).ne(0)
        found = [s.where(skip, found[i + step], found[i]) for i in range(3 + step)]
    return found[:4]


def element_words(seed: Expr, position: Expr, number: Expr | int) -> Words:
    """Four words, `number` of the stream of one position alone; `random_word` never gives them."""
    low, high = _halves(position)
    own = const(number, uint32) if isinstance(number, int) else s.cast(number, uint32)
    return philox((low, high, own, const(1, uint32)), _halves(seed))


def words_of(dtype: DType) -> int:
    """The number of words that a number in [0, 1) takes."""
    return 2 if dtype is float64 else 1


def fraction(words: Sequence[Expr], dtype: DType) -> Expr:
    """A number in [0, 1): in float32 24 random bits of one word, in float64 53 of two."""
    # 24 bits fit int32 and float32 exactly, so every device converts them alike.
    first = s.cast(words[0], int64)
    if dtype is not float64:
        return s.cast(first >> 8, float32) * (1.0 / (1 << 24))
    return s.cast(((first >> 5) << 26) | (s.cast(words[1], int64) >> 6), float64) * (
        1.0 / (1 << 53)
    )


def uniform(seed: Expr, position: Expr, dtype: DType = float32) -> Expr:
    """A number in [0, 1) of the word at `position`; in float64 of that word and the next."""
    return fraction([random_word(seed, position + k) for k in range(words_of(dtype))], dtype)


def bell(first: Expr, second: Expr) -> Expr:
    """A normal number of two in [0, 1), by Box and Muller; the logarithm is of one in (0, 1]."""
    return s.sqrt(s.log(1 - first) * -2.0) * s.cos(second * (2 * math.pi))


def normal(seed: Expr, position: Expr, dtype: DType = float32) -> Expr:
    """A normal number of the words from `position` on, twice as many as a uniform one takes."""
    if dtype is float64:
        words = _four_words(seed, position)
        return bell(fraction(words[:2], dtype), fraction(words[2:], dtype))
    return bell(uniform(seed, position, dtype), uniform(seed, position + 1, dtype))
