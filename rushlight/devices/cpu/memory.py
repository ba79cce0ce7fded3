"""Blocks of host memory, aligned to 64 bytes; large ones on huge pages, so that they cost few page faults."""

from __future__ import annotations

import ctypes
import sys
from typing import Any

from rushlight.core.errors import OutOfMemoryError

ALIGNMENT = 64
HUGE_PAGE = 1 << 21
LARGE = 1 << 22
MADV_HUGEPAGE = 14

library = ctypes.CDLL("msvcrt" if sys.platform == "win32" else None)
_size, _pointer = ctypes.c_size_t, ctypes.c_void_p


def _bind(name: str, result: Any, *types: Any) -> Any:
    function = getattr(library, name)
    function.restype, function.argtypes = result, types
    return function


if sys.platform == "win32":
    _aligned_malloc = _bind("_aligned_malloc", _pointer, _size, _size)
    release = _bind("_aligned_free", None, _pointer)

    def allocate(nbytes: int) -> int:
        address = _aligned_malloc(nbytes, ALIGNMENT)
        if not address:
            raise OutOfMemoryError(f"cpu: the system refused {nbytes} bytes")
        return int(address)

else:
    _memalign = _bind("posix_memalign", ctypes.c_int, ctypes.POINTER(_pointer), _size, _size)
    _madvise = _bind("madvise", ctypes.c_int, _pointer, _size, ctypes.c_int)
    release = _bind("free", None, _pointer)

    def allocate(nbytes: int) -> int:
        block = _pointer()
        large = nbytes >= LARGE
        failed = _memalign(ctypes.byref(block), HUGE_PAGE if large else ALIGNMENT, nbytes)
        if failed or not block.value:
            raise OutOfMemoryError(f"cpu: the system refused {nbytes} bytes")
        if large and sys.platform == "linux":
            _madvise(block.value, nbytes, MADV_HUGEPAGE)  # a wish: the system may decline
        return block.value
