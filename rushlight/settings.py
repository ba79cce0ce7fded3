"""Small functions of the package with PyTorch's names: promotion, conversion, switches.

float32 products are always computed in float32: the switch for it is accepted, for compatibility,
and has no effect.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from typing import Any

from rushlight import dlpack, interop
from rushlight.core.dtypes import (
    DType,
    castable,
    get_default,
    promote,
    result_type as _common,
    scalar_dtype,
    set_default,
    uint8,
)
from rushlight.core.errors import DTypeError, KindError, ShapeError
from rushlight.ops.arguments import dtype_of, public
from rushlight.ops.create import creation
from rushlight.ops.pointwise import arithmetic as e
from rushlight.ops.registry import stores
from rushlight.ops.surface import metadata_methods
from rushlight.storage import TypedStorage, UntypedStorage
from rushlight.tape.record.value import Value
from rushlight.tensor import Tensor, tensor


def result_type(*operands: Any, **named: Any) -> DType:
    """The dtype of an operator's result for two operands, tensors or numbers."""
    operands = (*operands, *named.values())
    if len(operands) != 2 or not set(named) <= {"tensor", "other", "scalar", "scalar1", "scalar2"}:
        raise TypeError(f"result_type() takes two operands (tensor, other), got {len(operands)}")
    tensors = [(v._spec.dtype, len(v._spec.shape)) for v in operands if isinstance(v, Value)]
    numbers = [v for v in operands if not isinstance(v, Value)]
    for number in numbers:
        if not isinstance(number, complex) and not hasattr(number, "__float__"):
            raise KindError(
                f"result_type(): operands are tensors and numbers, got {type(number).__name__}"
            )
    return _common(tensors, [scalar_dtype(v) for v in numbers])


def can_cast(from_: DType, to: DType) -> bool:
    """Whether a result may be cast without losing its category (bool, integer, float, complex)."""
    return castable(dtype_of("can_cast", "from_", from_), dtype_of("can_cast", "to", to))


def promote_types(type1: DType, type2: DType) -> DType:
    """The smallest dtype that both dtypes can be cast to."""
    return promote(
        dtype_of("promote_types", "type1", type1), dtype_of("promote_types", "type2", type2)
    )


def get_default_dtype() -> DType:
    """The dtype of tensors that are made of Python floats, or without data and without a dtype."""
    return get_default()


def set_default_dtype(d: DType) -> None:
    """Set the dtype that `get_default_dtype` returns; float32 at the start.

    Args:
        d: A floating-point dtype.
    """
    set_default(dtype_of("set_default_dtype", "d", d))


def is_nonzero(input: Tensor) -> bool:
    """Whether the one element is nonzero."""
    return metadata_methods.is_nonzero(input)


def is_same_size(input: Tensor, other: Tensor) -> bool:
    """Whether two tensors have the same shape."""
    return metadata_methods.is_same_size(input, other)


def is_signed(input: Tensor) -> bool:
    """Whether the elements can be negative."""
    return metadata_methods.is_signed(input)


def detach(input: Tensor) -> Tensor:
    """The same memory without a record."""
    return input.detach()


@stores("cast")
def detach_copy(input: Tensor) -> Tensor:
    """A copy without a record."""
    return e.clone(input.detach())


def get_device(input: Tensor) -> int:
    """The number of the device: 0, and -1 for the host."""
    return metadata_methods.get_device(input)


def is_storage(obj: Any) -> bool:
    """Whether an object is a storage.

    Args:
        obj: Any object.
    """
    return isinstance(obj, (UntypedStorage, TypedStorage))


def typename(obj: Any) -> str:
    """The type of an object as text; of a tensor with its dtype.

    Args:
        obj: Any object.
    """
    if isinstance(obj, Tensor):
        return str(obj.type())
    kind = obj if isinstance(obj, type) else type(obj)
    return f"{kind.__module__}.{kind.__qualname__}"


# ---- data ----


def asarray(
    obj: Any,
    *,
    dtype: DType | None = None,
    device: Any = None,
    copy: bool | None = None,
    requires_grad: bool | None = None,
) -> Tensor:
    """Data as a tensor: the same memory where dtype and device allow.

    copy=True always copies; copy=False raises where a copy would be needed.
    """
    made: Any
    if isinstance(obj, Value):
        made = obj
    elif isinstance(obj, (UntypedStorage, TypedStorage)):
        made = obj.untyped().elements(getattr(obj, "dtype", uint8))
    elif hasattr(obj, "__array_interface__") and getattr(obj, "ndim", False):
        made = interop.from_numpy(obj)
    elif hasattr(obj, "__dlpack__") or type(obj).__name__ == "PyCapsule":
        made = dlpack.take(obj)
    elif isinstance(obj, (bytes, bytearray, memoryview)):
        made = frombuffer(obj, dtype=dtype or get_default())
    else:
        if copy is False:
            raise ShapeError(
                f"asarray: {type(obj).__name__} has no memory to share; leave copy at None"
            )
        made, copy = tensor(obj, dtype=dtype, device=device), None
    moved = made.to(device, dtype)
    if copy is False and moved is not made:
        raise ValueError(
            f"asarray: {made._spec!r} as {moved._spec!r} needs a copy; leave copy at None"
        )
    if copy and moved is made:
        moved = e.clone(made)
    if requires_grad is False and moved.requires_grad:
        return moved.detach()
    if requires_grad and not moved.requires_grad:
        return moved.detach().requires_grad_() if moved is obj else moved.requires_grad_()
    return moved


@public
def frombuffer(
    buffer: Any, *, dtype: DType, count: int = -1, offset: int = 0, requires_grad: bool = False
) -> Tensor:
    """The bytes of a buffer as a 1-dimensional tensor; the same memory where it is writable."""
    import numpy as np

    size = dtype.itemsize
    try:
        length = memoryview(buffer).nbytes
    except TypeError:
        raise ValueError(
            f"frombuffer: {type(buffer).__name__} is no buffer of bytes; use tensor(...)"
        ) from None
    if not 0 <= offset < length:
        raise ValueError(f"frombuffer: offset {offset} is not within a buffer of {length} bytes")
    if count < 0 and (length - offset) % size:
        raise ValueError(
            f"frombuffer: {length - offset} bytes are not a whole number of {dtype.name}; give "
            "count"
        )
    if count == 0 or (count > 0 and offset + count * size > length):
        raise ValueError(
            f"frombuffer: {count} elements from {offset} do not lie in a buffer of {length} bytes"
        )
    array = np.frombuffer(buffer, interop.numpy_dtype(dtype), count, offset)
    made: Any = interop.from_numpy(array)
    return creation.requiring(made, requires_grad)  # type: ignore[return-value]


@public
def from_file(
    filename: str,
    shared: bool | None = None,
    size: int | None = 0,
    *,
    dtype: DType | None = None,
    requires_grad: bool = False,
    **named: Any,
) -> Tensor:
    """The numbers in a file as a vector.

    With `shared`, writes go to the file, which is extended to the needed size.
    """
    import numpy as np

    creation.take("from_file", named)
    if size is not None and size < 0:
        raise ShapeError(f"from_file: size must not be negative, got {size}")
    kind = interop.numpy_dtype(dtype or get_default())
    mode: Any = "c" if not shared else "r+" if os.path.exists(filename) else "w+"
    array = np.memmap(filename, kind, mode, shape=(size or 0,))
    made: Any = interop.from_numpy(np.asarray(array))
    return creation.requiring(made, requires_grad)  # type: ignore[return-value]


def foreach_copy_(
    self: Sequence[Tensor], src: Sequence[Tensor], non_blocking: bool = False
) -> None:
    """Copy each tensor of the second list into the one at the same index of the first."""
    if len(self) != len(src):
        raise ValueError(
            f"_foreach_copy_: lists of one length are needed, got {len(self)} and {len(src)}"
        )
    for target, source in zip(self, src, strict=True):
        target.copy_(source)


# ---- switches ----


def get_float32_matmul_precision() -> str:
    """Products of float32 are computed in float32."""
    return "highest"


def set_float32_matmul_precision(precision: str) -> None:
    """Accepted; products of float32 are computed in float32, which is within every precision.

    Args:
        precision (str): 'highest', 'high' or 'medium'.
    """
    if precision not in ("highest", "high", "medium"):
        raise DTypeError(
            f"set_float32_matmul_precision: 'highest', 'high' or 'medium', got {precision!r}"
        )


_WARNS_ALWAYS: list[bool] = []


def set_warn_always(b: bool, /) -> None:
    """Set what `is_warn_always_enabled` gives.

    Args:
        b (bool): Has no other effect: Python's filters say which warnings are shown again.
    """
    _WARNS_ALWAYS[:] = [True] if b else []


def is_warn_always_enabled() -> bool:
    """Whether `set_warn_always` was called with True."""
    return bool(_WARNS_ALWAYS)


def set_flush_denormal(mode: bool) -> bool:
    """False: numbers below the smallest normal one are kept on every device that keeps them.

    Args:
        mode (bool): Has no effect.
    """
    return False


def get_device_module(device: Any = None) -> Any:
    """The module of a device: `torch.cuda` or `torch.cpu`.

    Args:
        device (device or str): The device; the default one if None.
    """
    on_host = creation.resolve_pool(device).device.name in ("cpu", "reference", "null")
    return importlib.import_module("rushlight.cpu" if on_host else "rushlight.cuda")
