"""PyTorch's `torch.types`: names for annotations."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from rushlight.naming import device as _device
from rushlight.ops.create.creation import strided as _strided
from rushlight.tensor import Size, Tensor

_layout = type(_strided)
_qscheme = Any
_size = Size | list[int] | tuple[int, ...]
_symsize = _size
_dispatchkey = str | Any
Number = int | float | bool
_Number = (int, float, bool)
FileLike = str | os.PathLike[str] | Any
Device = _device | str | int | None
PySymType = Any
IntLikeType = int
FloatLikeType = float
BoolLikeType = bool
py_sym_types: tuple[Any, ...] = ()
Storage = Any
_TensorOrTensors = Tensor | Sequence[Tensor]
_TensorOrTensorsOrGradEdge = _TensorOrTensors
