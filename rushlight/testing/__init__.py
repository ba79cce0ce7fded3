"""For tests of programs: comparisons that tell where values differ, and tensors to try things with. PyTorch's `torch.testing`.

Owns: `assert_close`, `assert_allclose`, `make_tensor`.
Takes: tensors, arrays, numbers, and sequences and mappings of them.
Gives: nothing where they agree; an AssertionError that names the elements where they do not.
Never: computes with a record, or changes what it is given.
"""

from rushlight.testing.comparing import assert_allclose, assert_close
from rushlight.testing.making import make_tensor

__all__ = ["assert_allclose", "assert_close", "make_tensor"]
