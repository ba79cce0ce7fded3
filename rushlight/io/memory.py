"""The memory of tensors that are saved: which of its bytes go into a file.

# Note [What a file holds]
1. Tensors are layouts in memory: strides and offsets are kept. Each memory is written once, from
   its beginning to the last byte that a saved tensor uses. So what is behind a small part of a
   large tensor is not in the file; what is before it is, as in PyTorch.
2. Bytes that no saved tensor uses are written as zeros: a block may hold old data.
3. Memory of a type that PyTorch knew from its beginning is written as numbers of that type. What
   several types share, and memory of its newer types, is written as bytes.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import Any

from rushlight import interop
from rushlight.core import dtypes
from rushlight.core.dtypes import DType
from rushlight.core.shapes import Spec
from rushlight.devices.shared.allocator import Storage
from rushlight.tape.anomaly import asynchronous
from rushlight.tape.record import call
from rushlight.tape.record.value import Value

# Types that PyTorch writes as bytes.
_NEWER = (dtypes.uint16, dtypes.uint32, dtypes.uint64, *dtypes.FLOAT8)


def _dense_part(spec: Spec) -> tuple[int, list[tuple[int, int]]]:
    """The number of elements without a gap at a layout's beginning, and the other dimensions.

    Those are strides and sizes: the dense part is repeated along them.
    """
    dims = sorted(
        (step, n) for n, step in zip(spec.shape, spec.strides, strict=True) if n > 1 and step
    )
    run = 1
    # The next dimension continues at the end of the last, or before.
    while dims and dims[0][0] <= run:
        step, n = dims.pop(0)
        run += step * (n - 1)
    return run, dims


def _elements_seen(spec: Spec) -> Any:
    """For each position from a layout's first element to its last, whether an element is there."""
    import numpy as np

    run, dims = _dense_part(spec)
    seen = np.zeros(run + sum(step * (n - 1) for step, n in dims), dtype=bool)
    seen[:run] = True
    for step, n in dims:  # n copies, each `step` after the one before, doubled each time
        have = 1
        while have < n:
            more = min(have, n - have)
            seen[step * more :] |= seen[: -step * more].copy()
            have += more
    return seen


def _is_whole(layouts: Iterable[tuple[Spec, int]], end: int) -> bool:
    """Whether layouts without gaps cover all bytes from 0 to `end`."""
    dense = [(start, start + s.high) for s, start in layouts if s.numel and not _dense_part(s)[1]]
    at = 0
    for start, stop in sorted(dense):
        if start > at:
            return False
        at = max(at, stop)
    return at >= end


class Memory:
    """Memory that is written once: the layouts in it, and a key by which a file asks for it."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.key = ""
        self.layouts: set[tuple[Spec, int]] = set()  # and their offsets
        self.dtypes: set[DType] = set()
        self.end = 0

    def add(self, spec: Spec, offset: int) -> None:
        """Note a layout that is saved."""
        self.dtypes.add(spec.dtype)
        self.layouts.add((spec, offset))
        if spec.numel:
            self.end = max(self.end, offset + spec.high)

    @property
    def dtype(self) -> DType | None:
        """The type of all of its numbers; None where they are written as bytes."""
        only = next(iter(self.dtypes)) if len(self.dtypes) == 1 else None
        return None if only in _NEWER else only

    @property
    def device(self) -> str:
        name: str = self.storage.pool.device.name
        return name

    def content(self) -> Any:
        """The bytes, read where they are if the host can and all of them are used."""
        if not self.end:
            return b""
        if _is_whole(self.layouts, self.end):
            return self._read()
        import numpy as np

        raw = bytearray(self._read())
        seen = np.zeros(self.end, dtype=bool)
        for spec, start in self.layouts:
            if not spec.numel:
                continue
            places, size = _elements_seen(spec), spec.dtype.itemsize
            seen[start : start + size * len(places)] |= np.repeat(places, size)
        np.frombuffer(raw, np.uint8)[~seen] = 0
        return raw

    def _read(self) -> Any:
        pool: Any = self.storage.pool
        address = self.storage.address
        if address is None or not pool.device.limits.host_memory:
            spec = Spec.of(pool, dtypes.uint8, (self.end,))
            return interop.to_bytes(call.lay(spec, self.storage))
        if asynchronous.LOGS:
            asynchronous.read_all()
        return memoryview((ctypes.c_char * self.end).from_address(address)).cast("B")


def storage_of(value: Any) -> Storage | None:
    """The memory of a tensor, None where it is none: a sparse tensor, or one without a shape."""
    try:
        return value._memory if isinstance(value, Value) and value._spec is not None else None
    except Exception:  # it has no spec
        return None
