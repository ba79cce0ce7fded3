"""PyTorch's older constructors of sparse tensors: sparse.FloatTensor(indices, values, size)."""

from __future__ import annotations

from typing import Any

from rushlight.core import dtypes
from rushlight.core.dtypes import DType
from rushlight.sparse.coo import SparseTensor, sparse_coo_tensor
from rushlight.tensor import Tensor


class _Kind(type):
    """A class per dtype; every sparse tensor of the dtype is an instance of it."""

    dtype: DType

    def __instancecheck__(cls, given: Any) -> bool:
        return isinstance(given, SparseTensor) and given.dtype is cls.dtype

    def __call__(cls, *args: Any) -> Any:
        """From indices, values and an optional size; or from sizes alone, without values."""
        if args and isinstance(args[0], Tensor):
            return sparse_coo_tensor(*args)
        sizes = args[0] if len(args) == 1 and not isinstance(args[0], int) else args or (0,)
        return sparse_coo_tensor(sizes, dtype=cls.dtype)


def _kind(dtype: DType) -> Any:
    return _Kind(
        f"{dtypes.WORDS[dtype]}Tensor",
        (),
        {"dtype": dtype, "__doc__": f"Sparse tensors of {dtype.name}."},
    )


ByteTensor = _kind(dtypes.uint8)
CharTensor = _kind(dtypes.int8)
ShortTensor = _kind(dtypes.int16)
IntTensor = _kind(dtypes.int32)
LongTensor = _kind(dtypes.int64)
HalfTensor = _kind(dtypes.float16)
BFloat16Tensor = _kind(dtypes.bfloat16)
FloatTensor = _kind(dtypes.float32)
DoubleTensor = _kind(dtypes.float64)
