"""PyTorch's `torch.types`: names for annotations."""

from __future__ import annotations

import builtins
import os
from collections.abc import Sequence
from typing import Any

from rushlight.core.dtypes import DType
from rushlight.naming import device
from rushlight.ops.create.creation import strided
from rushlight.tensor import Size, Tensor

_bool, _bytes, _complex = builtins.bool, builtins.bytes, builtins.complex
_float, _int, _str = builtins.float, builtins.int, builtins.str
_dtype = DType
_device = device
_layout = type(strided)
_qscheme = Any
_size = Size | list[int] | tuple[int, ...]
_symsize = _size
_dispatchkey = str | Any
Number = int | float | bool
_Number = (int, float, bool)
FileLike = str | os.PathLike[str] | Any
Device = device | str | int | None
PySymType = Any
IntLikeType = int
FloatLikeType = float
BoolLikeType = bool
py_sym_types: tuple[Any, ...] = ()
Storage = Any
_TensorOrTensors = Tensor | Sequence[Tensor]
_TensorOrTensorsOrGradEdge = _TensorOrTensors
# Of `torch.nn.common_types`: one number, or one for each dimension.
_scalar_or_tuple_any_t = _size_any_t = int | tuple[int, ...]
_size_1_t = int | tuple[int]
_size_2_t = int | tuple[int, int]
_size_3_t = int | tuple[int, int, int]
_size_4_t = int | tuple[int, int, int, int]
_size_5_t = int | tuple[int, int, int, int, int]
_size_6_t = int | tuple[int, int, int, int, int, int]
_size_any_opt_t = tuple[int | None, ...]
_size_2_opt_t = tuple[int | None, int | None]
_size_3_opt_t = tuple[int | None, int | None, int | None]
_ratio_2_t = float | tuple[float, float]
_ratio_3_t = float | tuple[float, float, float]
_ratio_any_t = float | tuple[float, ...]
_tensor_list_t = Tensor | list[Tensor]
