"""The arguments of `Module.to`."""

from __future__ import annotations

from typing import Any, NamedTuple

from rushlight.core import dtypes
from rushlight.core.dtypes import DType
from rushlight.ops.create import creation
from rushlight.tensor import Tensor, device as Device


class Conversion(NamedTuple):
    """A device, a dtype and a memory format, each None where it stays."""

    where: Any
    dtype: DType | None
    memory_format: Any

    def convert(self, value: Tensor) -> Tensor:
        dtype = self.dtype if value.dtype.kind in "fc" else None
        if self.memory_format is not None and value.ndim in (4, 5):
            return value.to(device=self.where, dtype=dtype, memory_format=self.memory_format)
        return value.to(device=self.where, dtype=dtype)


def _refuse(given: tuple[Any, ...]) -> TypeError:
    kinds = ", ".join(type(part).__name__ for part in given)
    return TypeError(
        "Module.to: takes a device and a type, a type, or a tensor, and then non_blocking; got "
        f"({kinds})"
    )


def parse_to(
    *args: Any,
    device: Any = None,
    dtype: Any = None,
    tensor: Any = None,
    non_blocking: bool = False,
    copy: bool = False,
    memory_format: Any = None,
) -> Conversion:
    """Parse the arguments of `Module.to`; `non_blocking` has no effect."""
    if copy:
        raise RuntimeError(
            "Module.to: a module is changed in place; copy.deepcopy(module).to(...) makes another"
        )
    rest = list(args)
    if rest and isinstance(rest[0], Tensor):
        tensor = rest.pop(0)
    elif rest and (isinstance(rest[0], DType) or rest[0] in dtypes.PYTHON):
        dtype = rest.pop(0)
    elif rest:
        device = rest.pop(0)
        if device is not None and (
            isinstance(device, bool) or not isinstance(device, (str, int, Device))
        ):
            raise _refuse(args)
        if rest:
            dtype = rest.pop(0)
            if dtype is not None and not isinstance(dtype, DType) and dtype not in dtypes.PYTHON:
                raise _refuse(args)
    if len(rest) > 2 or not all(isinstance(flag, bool) for flag in rest):
        raise _refuse(args)
    if isinstance(tensor, Tensor):
        device, dtype = tensor.device, tensor.dtype
    dtype = dtypes.PYTHON.get(dtype, dtype)
    if dtype is not None and dtype.kind not in "fc":
        raise TypeError(f"Module.to: parameters are floating-point or complex, got dtype {dtype!r}")
    if device is not None and not isinstance(device, Device):
        device = creation.device_name(device)
    return Conversion(device, dtype, memory_format)
