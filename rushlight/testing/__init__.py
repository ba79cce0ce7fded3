"""Comparisons and random tensors for tests: PyTorch's `torch.testing`.

Owns: `assert_close`, `assert_allclose`, `make_tensor`.
Takes: tensors, arrays, numbers, and sequences and mappings of them.
Gives: nothing where they agree; else an AssertionError that names the elements that differ.
Never: computes with a record, or changes its arguments.
"""

from rushlight.lazy import shown
from rushlight.testing.comparing import assert_allclose, assert_close
from rushlight.testing.making import make_tensor

__all__ = ["assert_allclose", "assert_close", "make_tensor"]


def __dir__() -> list[str]:
    return shown(__name__)
