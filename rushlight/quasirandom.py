"""Quasirandom numbers: `SobolEngine`, whose points fill a cube evenly.

Owns: Sobol's sequence and its scrambling. Takes: SciPy's direction numbers, random numbers.
Gives: tensors of points. Never: a point that depends on the device or on those drawn before it.

# Note [Sobol points]
1. Point n is the exclusive or of the direction numbers at the set bits of n ^ (n >> 1), and of the
   shift, so any point is made without those before it.
2. Scrambling multiplies the bits of each direction number by a random lower triangular matrix with
   ones on its diagonal, modulo 2, and draws the shift.
"""

from __future__ import annotations

import importlib
from typing import Any

from rushlight.core.dtypes import DType, int64
from rushlight.core.errors import RushlightError
from rushlight.lazy import shown
from rushlight.ops.create.creation import arange, eye, zeros
from rushlight.ops.random.random import Generator, randint
from rushlight.settings import get_default_dtype
from rushlight.tensor import Tensor, tensor

__all__ = ["SobolEngine"]


def __dir__() -> list[str]:
    return shown(__name__)


def _directions(dimension: int, bits: int) -> Any:
    """The direction numbers of each dimension: an array (dimension, bits)."""
    try:
        qmc = importlib.import_module("scipy.stats.qmc")
        return qmc.Sobol(dimension, scramble=False, bits=bits)._sv.astype("int64")
    except (ImportError, AttributeError, TypeError):
        raise RushlightError(
            "SobolEngine: its direction numbers are those of SciPy 1.9 or later: pip install scipy"
        ) from None


class SobolEngine:
    """Points of Sobol's sequence in the unit cube.

    Args:
        dimension (int): Of the points, at most 21201.
        scramble (bool): Whether the sequence is scrambled, at random.
        seed (int): Of the scrambling; without one, the default generator's numbers are used.
    """

    MAXBIT = 30
    MAXDIM = 21201

    def __init__(self, dimension: int, scramble: bool = False, seed: int | None = None) -> None:
        if not 1 <= dimension <= self.MAXDIM:
            raise ValueError(
                f"SobolEngine: the dimension lies between 1 and {self.MAXDIM}, got {dimension}"
            )
        self.dimension = dimension
        self.scramble = scramble
        self.seed = seed
        self.sobolstate = tensor(_directions(dimension, self.MAXBIT), dtype=int64, device="cpu")
        self.shift = zeros(dimension, dtype=int64, device="cpu")
        if scramble:
            self._scramble()
        self.num_generated = 0

    def _scramble(self) -> None:
        """See Note [Sobol points] 2."""
        bits = self.MAXBIT
        source = None if self.seed is None else Generator().manual_seed(self.seed)
        named: dict[str, Any] = {"generator": source, "dtype": int64, "device": "cpu"}
        places = arange(bits, dtype=int64, device="cpu")
        self.shift = (randint(2, (self.dimension, bits), **named) << places).sum(-1)
        rows = randint(2, (self.dimension, bits, bits), **named).tril(-1)
        rows = rows + eye(bits, dtype=int64, device="cpu")
        downwards = places.flip(0)  # a matrix's first row makes the highest bit
        digits = (self.sobolstate.unsqueeze(-1) >> downwards) & 1
        mixed = (digits.unsqueeze(-2) * rows.unsqueeze(1)).sum(-1) & 1
        self.sobolstate = (mixed << downwards).sum(-1)

    def draw(self, n: int = 1, out: Tensor | None = None, dtype: DType | None = None) -> Tensor:
        """The next points: n of them, one in a row.

        Args:
            n (int): How many.
            out (Tensor): Takes the points.
            dtype (DType): Of the points; the default dtype without one.
        """
        if self.num_generated + n > 2**self.MAXBIT:
            raise ValueError(f"SobolEngine: the sequence has {2**self.MAXBIT} points")
        at = arange(self.num_generated, self.num_generated + n, dtype=int64, device="cpu")
        gray = at ^ (at >> 1)
        points = self.shift.expand(n, -1)
        for j in range(max(1, (self.num_generated + n - 1).bit_length())):
            points = points ^ (self.sobolstate[:, j] * ((gray >> j) & 1).unsqueeze(-1))
        self.num_generated += n
        made: Tensor = points.to(get_default_dtype() if dtype is None else dtype) * (
            2.0**-self.MAXBIT
        )
        if out is None:
            return made
        out.resize_(made.shape).copy_(made)
        return out

    def draw_base2(self, m: int, out: Tensor | None = None, dtype: DType | None = None) -> Tensor:
        """The next 2**m points, where so many are balanced: all drawn must be a power of two.

        Args:
            m (int): The exponent.
            out (Tensor): Takes the points.
            dtype (DType): Of the points.
        """
        total = self.num_generated + 2**m
        if total & (total - 1):
            raise ValueError(
                f"SobolEngine.draw_base2: {self.num_generated} points were drawn, and 2**{m} more "
                "are no power of 2; use draw"
            )
        return self.draw(2**m, out=out, dtype=dtype)

    def reset(self) -> SobolEngine:
        """Begin again with the first point."""
        self.num_generated = 0
        return self

    def fast_forward(self, n: int) -> SobolEngine:
        """Leave n points out."""
        self.num_generated += n
        return self

    def __repr__(self) -> str:
        shown = f"SobolEngine(dimension={self.dimension}"
        if self.scramble:
            shown += ", scramble=True"
        if self.seed is not None:
            shown += f", seed={self.seed}"
        return f"{shown})"
