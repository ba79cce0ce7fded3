"""PyTorch's `torch.quasirandom`: Sobol points, with the direction numbers that SciPy has."""

from __future__ import annotations

import importlib
import warnings
from typing import Any

from rushlight.core.dtypes import DType, get_default
from rushlight.core.errors import RushlightError
from rushlight.ops.random.random import randint
from rushlight.tensor import Tensor, tensor

__all__ = ["SobolEngine"]


def _sequence(dimension: int, scramble: bool, seed: int) -> Any:
    try:
        qmc: Any = importlib.import_module("scipy.stats.qmc")
    except ImportError as error:
        raise RushlightError(
            "SobolEngine: SciPy has the direction numbers and is not installed: pip install scipy"
        ) from error
    return qmc.Sobol(dimension, scramble=scramble, bits=SobolEngine.MAXBIT, seed=seed)


class SobolEngine:
    """Points that fill the unit cube evenly. The first is the origin, unless they are scrambled.

    Unscrambled points are PyTorch's; scrambled ones are others, as random numbers are.

    Args:
        dimension (int): The dimension of the points, at most 21201.
        scramble (bool): Permute digits at random.
        seed (int): Of the permutation; without one the default generator gives it.
    """

    MAXBIT = 30
    MAXDIM = 21201

    def __init__(self, dimension: int, scramble: bool = False, seed: int | None = None) -> None:
        if not 1 <= dimension <= self.MAXDIM:
            raise ValueError(
                f"SobolEngine: the dimension lies between 1 and {self.MAXDIM}, got {dimension}"
            )
        self.dimension, self.scramble, self.seed = dimension, scramble, seed
        drawn = 0 if not scramble else int(randint(2**31, (1,))) if seed is None else seed
        self._sequence = _sequence(dimension, scramble, drawn)

    @property
    def num_generated(self) -> int:
        """How many points were drawn, or skipped."""
        count: int = self._sequence.num_generated
        return count

    def draw(self, n: int = 1, out: Tensor | None = None, dtype: DType | None = None) -> Tensor:
        """The next points, n x dimension.

        Args:
            n (int): How many.
            out (Tensor): Where to write them.
            dtype (dtype): Their type.
        """
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of counts that are no powers of 2
            points = tensor(self._sequence.random(n)).to(dtype or get_default())
        return points if out is None else out.resize_(points.shape).copy_(points)

    def draw_base2(self, m: int, out: Tensor | None = None, dtype: DType | None = None) -> Tensor:
        """The next 2 ** m points; as many as were drawn before must be a multiple.

        Args:
            m (int): The power of 2.
            out (Tensor): Where to write them.
            dtype (dtype): Their type.
        """
        n = 2**m
        total = self.num_generated + n
        if total & (total - 1):
            raise ValueError(
                f"SobolEngine.draw_base2: {self.num_generated} points were drawn, and with {n} "
                "more they are no power of 2; use draw"
            )
        return self.draw(n, out, dtype)

    def reset(self) -> SobolEngine:
        """Begin again."""
        self._sequence.reset()
        return self

    def fast_forward(self, n: int) -> SobolEngine:
        """Skip points.

        Args:
            n (int): How many.
        """
        self._sequence.fast_forward(n)
        return self

    def __repr__(self) -> str:
        notes = [f"dimension={self.dimension}"]
        if self.scramble:
            notes.append("scramble=True")
        if self.seed is not None:
            notes.append(f"seed={self.seed}")
        return f"SobolEngine({', '.join(notes)})"
