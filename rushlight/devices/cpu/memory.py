"""Blocks of host memory, aligned to 64 bytes; large ones on pages of their own.

A block of MAPPED bytes or more has its own mapping: `free` of the C library keeps its memory, and a
process inside a budget would grow beyond it. Parts of it that are whole pages can be freed as
blocks, and neighbours as one. A block of LARGE bytes or more lies on huge pages where the system
has them: few page faults. A budget frees blocks to take others: `join` moves their pages to the new
block, since new pages would cost a fault each.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
import mmap
import os
import sys
from pathlib import Path
from typing import Any

from rushlight.core.errors import OutOfMemoryError
from rushlight.core.interrupts import unheard

ALIGNMENT = 64
MAPPED = 1 << 16
HUGE_PAGE = 1 << 21
LARGE = 1 << 22
MADV_HUGEPAGE = 14

library = ctypes.CDLL("msvcrt" if sys.platform == "win32" else None, use_errno=True)
_size, _pointer, _int = ctypes.c_size_t, ctypes.c_void_p, ctypes.c_int


def _bind(name: str, result: Any, *types: Any) -> Any:
    function = getattr(library, name)
    function.restype, function.argtypes = result, types
    return function


def _refuse(nbytes: int) -> OutOfMemoryError:
    return OutOfMemoryError(f"cpu: the system refused {nbytes} bytes")


@functools.cache
def capacity() -> int:
    """The bytes of memory that this process can ever have.

    A very large number where it is not known.
    """
    found = [1 << 62]
    with contextlib.suppress(AttributeError, OSError, ValueError):
        found.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
        lines = Path("/proc/meminfo").read_text().splitlines()
        found[-1] += sum(
            int(line.split()[1]) << 10 for line in lines if line.startswith("SwapTotal")
        )
    with contextlib.suppress(OSError, ValueError):  # no such file, or "max"
        found.append(int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return min(found)


def free_bytes() -> int:
    """The bytes that the system can give without swapping, within the process's group."""
    found = [capacity()]
    with contextlib.suppress(AttributeError, OSError, ValueError):
        found.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES"))
    with contextlib.suppress(OSError, KeyError, ValueError):  # Linux: the page cache is free too
        found[1:] = [_table("/proc/meminfo")["MemAvailable:"] << 10]
    with contextlib.suppress(OSError, KeyError, ValueError):  # no such file, or "max"
        group = Path("/sys/fs/cgroup")
        used = int((group / "memory.current").read_text())
        cached = _table(str(group / "memory.stat"))["inactive_file"]
        found.append(int((group / "memory.max").read_text()) - used + cached)
    return max(min(found), 0)


def _table(path: str) -> dict[str, int]:
    """The first number of each line of a file, by the line's first word."""
    rows = [line.split() for line in Path(path).read_text().splitlines()]
    return {row[0]: int(row[1]) for row in rows if len(row) > 1}


if sys.platform == "win32":
    _aligned_malloc = _bind("_aligned_malloc", _pointer, _size, _size)
    _aligned_free = _bind("_aligned_free", None, _pointer)

    def allocate(nbytes: int) -> int:
        address = _aligned_malloc(nbytes, ALIGNMENT)
        if not address:
            raise _refuse(nbytes)
        return int(address)

    def release(address: int, nbytes: int) -> None:
        _aligned_free(address)

else:
    _memalign = _bind("posix_memalign", _int, ctypes.POINTER(_pointer), _size, _size)
    _madvise = _bind("madvise", _int, _pointer, _size, _int)
    _free = _bind("free", None, _pointer)
    _mmap = _bind("mmap", _pointer, _pointer, _size, _int, _int, _int, ctypes.c_long)
    _munmap = _bind("munmap", _int, _pointer, _size)
    _mprotect = _bind("mprotect", _int, _pointer, _size, _int)
    _OPEN = mmap.PROT_READ | mmap.PROT_WRITE
    _CLOSED = 0
    _FAILED = ctypes.c_void_p(-1).value

    def map_pages(nbytes: int, readable: bool = True) -> int | None:
        """Fresh pages of zeros; None where the system has none."""
        protection = _OPEN if readable else _CLOSED
        found: list[int | None] = []
        call = itertools.starmap(
            _mmap, ((None, nbytes, protection, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0),)
        )
        try:
            # One call: Ctrl-C comes before or after it, when the address is stored.
            found.extend(call)
        except BaseException:
            if found and found[0] not in (None, _FAILED):
                unmap_pages(found[0], nbytes)
            raise
        return None if found[0] in (None, _FAILED) else found[0]

    @unheard
    def unmap_pages(address: int, nbytes: int) -> None:
        _munmap(address, nbytes)

    def protect(address: int, nbytes: int, readable: bool) -> bool:
        """Unprotect or protect pages; False where the system refuses."""
        return _mprotect(address, nbytes, _OPEN if readable else _CLOSED) == 0

    # The C library's blocks of whole pages that would begin a page: they begin ALIGNMENT later.
    # So a block of whole pages that begins a page is part of a mapping.
    _late: set[int] = set()

    def allocate(nbytes: int) -> int:
        if nbytes >= MAPPED:
            return _allocate_pages(nbytes)
        block = _pointer()
        spare = 0 if nbytes % mmap.PAGESIZE else ALIGNMENT
        try:
            failed = _memalign(ctypes.byref(block), ALIGNMENT, nbytes + spare)
            if not failed and block.value and spare and not block.value % mmap.PAGESIZE:
                _late.add(block.value + spare)
                return block.value + spare
        except BaseException:  # Ctrl-C
            if block.value:
                _late.discard(block.value + spare)
                _free(block.value)
            raise
        if failed or not block.value:
            raise _refuse(nbytes)
        return block.value

    def _allocate_pages(nbytes: int) -> int:
        if nbytes > capacity():
            raise OutOfMemoryError(
                f"cpu: {nbytes} bytes were asked for, and the machine has {capacity()}"
            )
        slack = HUGE_PAGE if nbytes >= LARGE else 0
        whole = _whole(nbytes)
        start = map_pages(whole + slack)
        if start is None:
            raise _refuse(nbytes)
        if not slack:
            return start
        address = -(-start // slack) * slack
        try:
            if address > start:
                unmap_pages(start, address - start)
            if start + slack > address:
                unmap_pages(address + whole, start + slack - address)
            if sys.platform == "linux":
                _madvise(address, whole, MADV_HUGEPAGE)  # a hint: the system may decline
        except BaseException:  # Ctrl-C; only the block is certainly still ours
            unmap_pages(address, whole)
            raise
        return address

    def _whole(nbytes: int) -> int:
        return -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE

    @unheard
    def release(address: int, nbytes: int) -> None:
        """Free a block of `nbytes`, the size it was allocated with, or part of a mapping."""
        if nbytes >= MAPPED or not (address % mmap.PAGESIZE or nbytes % mmap.PAGESIZE):
            _munmap(address, _whole(nbytes))
        elif address in _late:
            try:
                _late.remove(address)
            finally:  # Ctrl-C
                _free(address - ALIGNMENT)
        else:
            _free(address)


_mremap: Any = None
if sys.platform == "linux" and mmap.PAGESIZE == 1 << 12:
    _mremap = _bind("mremap", _pointer, _pointer, _size, _size, _int, _pointer)
_MOVED = 3  # MREMAP_MAYMOVE and MREMAP_FIXED
joins = _mremap is not None


def join(blocks: list[tuple[int, int]], nbytes: int) -> int:
    """One block on the pages of others, in order. See `protocol.Join`.

    The caller defers signals.
    """
    address = at = _allocate_pages(nbytes)
    end = address + nbytes
    while blocks:
        old, room = blocks[0]
        kept = min(room, end - at)
        if _mremap(old, kept, kept, _MOVED, at) in (None, _FAILED):
            # Its pages lie in several mappings, and the system moves one at a time. The pages at
            # `at` may be gone, and belong to another.
            _munmap(address, at - address)
            _munmap(at + kept, end - at - kept)
            for block in blocks:
                _munmap(*block)
            blocks.clear()
            return _allocate_pages(nbytes)
        if room > kept:
            _munmap(old + kept, room - kept)
        del blocks[0]
        at += kept
    return address
