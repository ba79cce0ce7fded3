"""Sparse tensors by coordinates and matrices by rows, under PyTorch's names.

Owns: `SparseTensor`, and the implementations of ops for it.
Takes: indices and values, or dense tensors. Gives: sparse tensors, or dense ones where an operand
is dense.
Never: computes otherwise than by ops on indices and values; makes a dense tensor that was not
requested.
"""

from __future__ import annotations

from rushlight.lazy import shown
from rushlight.ops.surface.public import checked_kinds, located
from rushlight.sparse import csr, gradients, low_rank
from rushlight.sparse.coo import SparseTensor, sparse_coo_tensor
from rushlight.sparse.csr import (
    CsrTensor,
    sampled_addmm,
    sparse_compressed_tensor,
    sparse_csr_tensor,
)
from rushlight.sparse.functions import addmm, install, log_softmax, mm, softmax, sum
from rushlight.sparse.legacy import (
    BFloat16Tensor,
    ByteTensor,
    CharTensor,
    DoubleTensor,
    FloatTensor,
    HalfTensor,
    IntTensor,
    LongTensor,
    ShortTensor,
)

__all__ = [
    "BFloat16Tensor",
    "ByteTensor",
    "CharTensor",
    "CsrTensor",
    "DoubleTensor",
    "FloatTensor",
    "HalfTensor",
    "IntTensor",
    "LongTensor",
    "ShortTensor",
    "SparseTensor",
    "addmm",
    "log_softmax",
    "mm",
    "sampled_addmm",
    "softmax",
    "sparse_compressed_tensor",
    "sparse_coo_tensor",
    "sparse_csr_tensor",
    "sum",
]


def __dir__() -> list[str]:
    return shown(__name__)


install()
csr.install()
low_rank.install()
mm, addmm, sum, softmax, log_softmax = (
    located(__name__, each.__name__, checked_kinds(csr.through(each)))
    for each in (mm, addmm, sum, softmax, log_softmax)
)
sampled_addmm, sparse_compressed_tensor, sparse_coo_tensor, sparse_csr_tensor = (
    located(__name__, each.__name__, checked_kinds(each))
    for each in (
        sampled_addmm,
        sparse_compressed_tensor,
        sparse_coo_tensor,
        sparse_csr_tensor,
    )
)
SparseTensor.check_as_gradient = gradients.check_gradient  # type: ignore[attr-defined]
