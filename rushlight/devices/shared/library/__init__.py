"""Kernels that a host library computes: the same way for every device.

A module here (`lapack`, ...) has `FUNCTIONS`, a table of `function(outputs, inputs, *options)` over
NumPy arrays: it fills the outputs and does not write to the inputs. Where the host reads a device's
memory the arrays lie over it; elsewhere inputs are copied out and outputs in, which is counted
(Note [Transfers]) and said once per function and device.

# Note [Memory of libraries]
1. A library takes memory of its own while a call runs: copies in double precision, factors, work.
   `scratch_bytes` of its module bounds it from the operands; the host's pool counts it (`Taken`)
   and drops values for it.
2. The C library may keep what a call frees. Inside a budget it is given back to the system.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib
import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from rushlight.core.dtypes import DType
from rushlight.core.errors import RushlightWarning
from rushlight.core.interrupts import unheard
from rushlight.devices.shared.allocator import room_for
from rushlight.devices.shared.protocol import Device, Launch
from rushlight.devices.shared.registry import pool_of
from rushlight.devices.shared.transfers import count_copy
from rushlight.kernel.interpret import sort_arguments
from rushlight.kernel.shapes import Library

_SAID: set[tuple[str, str]] = set()  # (device, function) of the warnings given


def build(device: Device, kernel: Library) -> Launch:
    """A callable for the kernel: addresses and sizes in, nothing out.

    See Note [Kernel arguments]. What follows from the sizes is found once for calls of the same.
    """
    function: Callable[..., None] = _module(kernel).FUNCTIONS[kernel.function]
    arrays = _over_memory if device.limits.host_memory else _copies
    count = len(kernel.outputs) + len(kernel.inputs)
    last: tuple[tuple[int, ...], int, list[Operand]] = (), -1, []

    def launch(*numbers: int) -> None:
        nonlocal last
        sizes, room, operands = last
        if room < 0 or sizes != numbers[count:]:
            sizes, room, operands = last = _described(device, kernel, numbers)
        with Taken(room) if room else _NOTHING:
            arrays(device, kernel, function, numbers[:count], operands)

    return launch


_NOTHING = contextlib.nullcontext()


def _described(
    device: Device, kernel: Library, numbers: Sequence[int]
) -> tuple[tuple[int, ...], int, list[Operand]]:
    """The sizes of a call, the bytes that it takes, and the types of its operands' memory."""
    import numpy as np

    dtypes = kernel.outputs + kernel.inputs
    sizes = sort_arguments(kernel, numbers).sizes
    shapes = shapes_of(kernel, sizes)
    room = scratch_room(kernel, shapes)
    if not device.limits.host_memory:
        room += sum(map(nbytes, dtypes, shapes))
    operands = [
        Operand(shape, np.dtype(dtype.name), ctypes.c_char * max(1, nbytes(dtype, shape)))
        for dtype, shape in zip(dtypes, shapes, strict=True)
    ]
    return sizes, room, operands


def _module(kernel: Library) -> Any:
    return importlib.import_module(f"rushlight.devices.shared.library.{kernel.library}")


def scratch_room(kernel: Library, shapes: Sequence[tuple[int, ...]]) -> int:
    """A bound of the bytes that the library takes for itself in a call."""
    count = len(kernel.outputs)
    operands = list(zip(kernel.outputs + kernel.inputs, shapes, strict=True))
    found: int = _module(kernel).scratch_bytes(
        kernel.function, operands[:count], operands[count:], kernel.options
    )
    return room_for(found) if found else 0


def nbytes(dtype: DType, shape: tuple[int, ...]) -> int:
    return dtype.itemsize * math.prod(shape)


class Taken:
    """`with Taken(room):` bytes that a library takes from the system, counted in the host's pool.

    See Note [Memory of libraries].
    """

    __slots__ = ("is_counted", "pool", "room")

    def __init__(self, room: int) -> None:
        self.pool = pool_of("cpu")
        self.room = room
        self.is_counted = False

    @unheard
    def __enter__(self) -> None:
        self.pool.borrow(self.room)
        self.is_counted = True

    @unheard
    def __exit__(self, *_: object) -> None:
        if not self.is_counted:
            return
        self.is_counted = False
        self.pool.repay(self.room)
        if self.room >= _LARGE and self.pool.limit is not None:
            _give_back()(0)


_LARGE = 1 << 24  # bytes that are worth the 10 ms of giving them back to the system


@functools.cache
def _give_back() -> Callable[[int], object]:
    """The C library's function that returns what it caches to the system; glibc has one."""
    with contextlib.suppress(OSError, AttributeError):
        found: Callable[[int], object] = ctypes.CDLL(None).malloc_trim
        return found
    return lambda spare: None


def shapes_of(kernel: Library, sizes: Sequence[int]) -> list[tuple[int, ...]]:
    """The shape of each operand."""
    shapes = []
    at = 0
    for rank in kernel.ranks:
        shapes.append(tuple(sizes[at : at + rank]))
        at += rank
    return shapes


class Operand(NamedTuple):
    """An operand but for its address."""

    shape: tuple[int, ...]
    dtype: Any  # NumPy's
    memory: type[ctypes.Array[ctypes.c_char]]


def _run(kernel: Library, function: Callable[..., None], arrays: list[Any]) -> None:
    import numpy as np

    count = len(kernel.outputs)
    with np.errstate(all="ignore"):
        function(arrays[:count], arrays[count:], *kernel.options)


def _over_memory(
    device: Device,
    kernel: Library,
    function: Callable[..., None],
    addresses: Sequence[int],
    operands: list[Operand],
) -> None:
    import numpy as np

    arrays: list[Any] = []
    for address, (shape, dtype, memory) in zip(addresses, operands, strict=True):
        place: Any = None if 0 in shape else memory.from_address(address)
        arrays.append(np.ndarray(shape, dtype, place))
    _run(kernel, function, arrays)


def _copies(
    device: Device,
    kernel: Library,
    function: Callable[..., None],
    addresses: Sequence[int],
    operands: list[Operand],
) -> None:
    import numpy as np

    _say(device, kernel)
    count = len(kernel.outputs)
    arrays = [np.empty(shape, dtype) for shape, dtype, _ in operands]
    for address, array in zip(addresses[count:], arrays[count:], strict=True):
        if array.nbytes:
            device.copy_out(address, _bytes(array))
            count_copy(device, array.nbytes, to_host=True)
    _run(kernel, function, arrays)
    for address, array in zip(addresses[:count], arrays[:count], strict=True):
        if array.nbytes:
            device.copy_in(address, _bytes(array))
            count_copy(device, array.nbytes, to_host=False)


def _bytes(array: Any) -> memoryview:
    return memoryview(array.reshape(-1).view("u1").data)


def _say(device: Device, kernel: Library) -> None:
    key = (device.name, kernel.function)
    if key not in _SAID:
        _SAID.add(key)
        warnings.warn(
            f"{kernel.library}.{kernel.function}: computed by the host, as {device.name} has no "
            "such library: its "
            "operands are copied out and its results in (counted in "
            "rushlight.memory.transfers()); "
            f"move them with .to('cpu') to do it once",
            RushlightWarning,
            stacklevel=2,
        )
