"""Blocks of host memory, aligned to 64 bytes; large ones on pages of their own.

A block of MAPPED bytes or more has its own mapping: `free` of the C library keeps its memory, and a
process inside a budget would grow beyond it. A block of LARGE bytes or more lies on huge pages
where the system has them: few page faults. The pages of the last freed block, and KEPT bytes of
others, are kept for the next requests: a budget frees blocks to take others, and new pages would
cost a fault each.
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
KEPT = 1 << 22
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

    def allocate(nbytes: int) -> int:
        if nbytes >= MAPPED:
            return _allocate_pages(nbytes)
        block = _pointer()
        try:
            failed = _memalign(ctypes.byref(block), ALIGNMENT, nbytes)
        except BaseException:  # Ctrl-C
            if block.value:
                _free(block.value)
            raise
        if failed or not block.value:
            raise _refuse(nbytes)
        return block.value

    # Pages of freed blocks: those of the last one, and KEPT bytes of others. Entries are removed
    # and added without a call between the test and the change, so that one thread alone gets each:
    # see Note [Counting and threads].
    _spare: list[tuple[int, int]] = []
    _mremap: Any = (
        _bind("mremap", _pointer, _pointer, _size, _size, _int) if sys.platform == "linux" else None
    )
    _MAY_MOVE = 1

    def _from_spare(whole: int) -> int | None:
        """`nbytes` of spare pages, the rest of which stay spare; None where there are too few."""
        at = -1
        try:
            for i, (_, room) in enumerate(_spare):  # the smallest that suffices, else the largest
                best = _spare[at][1] if at >= 0 else 0
                if at < 0 or (room < best if room >= whole <= best else room > best):
                    at = i
            if at < 0 or 2 * _spare[at][1] < whole:
                return None
            address, room = _spare[at]
            if room > whole:
                _spare[at] = (address + whole, room - whole)
                return address
            del _spare[at]
        except IndexError:  # another thread took some
            return None
        if room == whole:
            return address
        found: list[Any] = []
        try:
            # As in `map_pages`.
            found.extend(itertools.starmap(_mremap, ((address, room, whole, _MAY_MOVE),)))
        except BaseException:
            moved = found[0] if found else None
            unmap_pages(
                address if moved in (None, _FAILED) else moved,
                room if moved in (None, _FAILED) else whole,
            )
            raise
        if found[0] in (None, _FAILED):
            unmap_pages(address, room)
            return None
        return int(found[0])

    @unheard
    def _keep_spare(most: int) -> None:
        """Free spare pages, the oldest first, until at most so many bytes are left."""
        while sum([room for _, room in _spare]) > most:
            try:
                address, room = _spare[0]
                del _spare[0]
            except IndexError:  # another thread took them
                return
            _munmap(address, room)

    def _allocate_pages(nbytes: int) -> int:
        if nbytes > capacity():
            raise OutOfMemoryError(
                f"cpu: {nbytes} bytes were asked for, and the machine has {capacity()}"
            )
        slack = HUGE_PAGE if nbytes >= LARGE else 0
        whole = _whole(nbytes)
        spare = _from_spare(whole) if _spare else None
        try:
            _keep_spare(KEPT)
        except BaseException:  # Ctrl-C
            if spare is not None:
                unmap_pages(spare, whole)
            raise
        if spare is not None:
            return spare
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
        """Free a block of `nbytes`, the size it was allocated with."""
        if nbytes < MAPPED:
            _free(address)
            return
        pages = -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
        if _mremap is None:
            _munmap(address, pages)
            return
        _spare.append((address, pages))
        _keep_spare(KEPT + pages)
