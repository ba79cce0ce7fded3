"""PyTorch's older dtype classes: FloatTensor(2, 3), isinstance(x, LongTensor)."""

from __future__ import annotations

import math
from typing import Any

from rushlight.core import dtypes
from rushlight.core.dtypes import DType
from rushlight.core.errors import RushlightError
from rushlight.core.shapes import Size
from rushlight.ops.create import creation
from rushlight.ops.registry import stores
from rushlight.tape.record.source_line import warn
from rushlight.tensor import Tensor, tensor


class _Kind(type):
    """A class per dtype, of the tensors on "cuda" or of all others."""

    dtype: DType
    where: str  # "cpu" or "cuda"

    def __instancecheck__(cls, given: Any) -> bool:
        on_card = isinstance(given, Tensor) and given.device.type == "cuda"
        alike = isinstance(given, Tensor) and given.dtype is cls.dtype
        return alike and on_card is (cls.where == "cuda")

    def __call__(cls, *args: Any, device: Any = None) -> Any:
        """Memory of a shape (sizes), or a copy of data (a list, an array, a tensor)."""
        if device is not None and creation.device_name(device) != creation.device_name(cls.where):
            raise RushlightError(
                f"{cls.__name__}: makes tensors on the {cls.where}, got {device!r}; use "
                "tensor(..., device=)"
            )
        if len(args) == 1 and not isinstance(args[0], (int, Size)):
            return tensor(args[0], dtype=cls.dtype, device=cls.where)
        return creation.empty(*(args or (0,)), dtype=cls.dtype, device=cls.where)


def kind_of(dtype: DType, where: str = "cpu") -> Any:
    """The class of a dtype's tensors on the host, or on "cuda"."""
    doc = f"Tensors of {dtype.name}{' on a card' if where == 'cuda' else ''}."
    own = {"dtype": dtype, "where": where, "__doc__": doc}
    return _Kind(f"{dtypes.WORDS[dtype]}Tensor", (), own)


BoolTensor = kind_of(dtypes.bool_)
ByteTensor = kind_of(dtypes.uint8)
CharTensor = kind_of(dtypes.int8)
ShortTensor = kind_of(dtypes.int16)
IntTensor = kind_of(dtypes.int32)
LongTensor = kind_of(dtypes.int64)
HalfTensor = kind_of(dtypes.float16)
BFloat16Tensor = kind_of(dtypes.bfloat16)
FloatTensor = kind_of(dtypes.float32)
DoubleTensor = kind_of(dtypes.float64)

_DEVICES: list[str] = []  # the device of new tensors, where a class or its name has chosen it


def set_default_tensor_type(t: Any) -> None:
    """Set the dtype of new float tensors, and "cuda" as their device, by a class or its name.

    Args:
        t (class or str): A class such as `torch.DoubleTensor`, or its name; of "cuda" also the
            device is set, and one of the host takes that back.
    """
    on_card = ".cuda." in t if isinstance(t, str) else t.where == "cuda"
    dtype = dtypes.by_word(t) if isinstance(t, str) else t.dtype
    if on_card or _DEVICES:
        creation.set_default_device("cuda" if on_card else None)
    dtypes.set_default(dtype)
    _DEVICES[:] = ["cuda"] if on_card else []


@stores("line")
def range(start: float = 0, end: Any = None, step: float = 1, **named: Any) -> Tensor:
    """Numbers from start to end, the end included where a step hits it; `arange` excludes it."""
    if end is None:
        start, end = 0, start
    if not all(math.isfinite(n) for n in (start, end, step)):
        raise RushlightError(
            f"range: start, end and step must be finite, got {start}, {end} and {step}"
        )
    if step == 0 or (end - start) * step < 0:
        raise RushlightError(
            f"range: from {start} to {end} no step of {step} leads; turn its sign or exchange the "
            "ends"
        )
    steps = (end - start) / step
    if not steps < 1 << 62:
        raise RushlightError(
            f"range: from {start} to {end} by {step} are more elements than can be addressed"
        )
    warn(
        "torch.range is deprecated: it gives the end, too, and one element more than Python's; use "
        "torch.arange, which gives [start, end)"
    )
    count = math.floor(steps) + 1
    places = creation.arange(count, dtype=dtypes.float64, device=named.get("device"))
    named["dtype"] = named.get("dtype") or dtypes.get_default()
    requires_grad = named.pop("requires_grad", False)
    return (places * step + start).to(**named).requires_grad_(requires_grad)


def _gone(name: str, instead: str) -> Any:
    def function(*args: Any, **named: Any) -> Any:
        raise RushlightError(f"{name}: PyTorch removed this function in 1.13; use {instead}")

    function.__name__ = name
    function.__doc__ = f"""Removed, also from PyTorch: use {instead}.

Args:
    args: Any; the call raises.
    named: Any; the call raises.
"""
    return function


eig = _gone("eig", "linalg.eig, which gives complex numbers")
lstsq = _gone("lstsq", "linalg.lstsq, with its arguments exchanged")
matrix_rank = _gone("matrix_rank", "linalg.matrix_rank")
solve = _gone("solve", "linalg.solve, with its arguments exchanged")
symeig = _gone("symeig", "linalg.eigh, or linalg.eigvalsh for the values alone")


def int_mm(self: Tensor, mat2: Tensor, *, out: Any = None) -> Tensor:
    """The product of two int8 matrices in int32: `_int_mm`, for quantised networks."""
    for given in (self, mat2):
        if given.dtype is not dtypes.int8 or given.ndim != 2:
            raise RushlightError(
                f"_int_mm: takes two int8 matrices, got {self._spec!r} and {mat2._spec!r}"
            )
    made = self.to(dtypes.int32).matmul(mat2.to(dtypes.int32))
    return made if out is None else out.resize_(made.shape).copy_(made)
