"""Memory that the ranks of one host share: each puts its bytes in, and all read them there.

# Note [Arenas]
1. Each rank of a group has a block in a file without a name, which the others open through /proc
   and map. A block counts in its owner's pool. A process that is killed leaves nothing behind.
2. A block has two halves, used in turn. All meet after they wrote to a half, and read it then. Who
   writes to a half again has met all others after they wrote to the other one, so they have read
   this one before.
3. Ranks meet by a word in each block: how often its owner came, and the mark of its call, so that
   ranks in different calls notice. Who waits sleeps in the kernel until the word changes (futex),
   since another rank may need the core. x86 makes writes visible in their order; on other machines
   ranks meet by messages of the transport.
4. Where one rank cannot map another's block (another host, another container, no room in its
   budget), none does, and bytes go by the transport. Either way sums have the same order.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import secrets
import struct
import sys
from collections.abc import Callable, Sequence
from typing import Any

from rushlight import interop
from rushlight.core.dtypes import DType, uint8
from rushlight.core.errors import RushlightError
from rushlight.distributed.transport import MARK_BITS, Span
from rushlight.ops.create.creation import empty
from rushlight.sharing import block_of
from rushlight.tensor import Tensor

HALF = 4 << 20  # bytes of a half at most; 0 makes no arenas
_LEAST = 1 << 18
_HEAD = 4096  # bytes before the halves: the block's name and word
_NAME = struct.Struct("=qq16s")  # process, descriptor, random word
_WORD = 64  # where the word is by which ranks meet
_TIMES = 1 << 32 - MARK_BITS
_FUTEX, _WAIT, _WAKE, _ALL = 202, 0, 1, 1 << 30  # of Linux on x86
MEETS = platform.machine() in ("x86_64", "AMD64")  # see rule 3


class Arena:
    """Blocks of all ranks of a group, as this rank sees them. See Note [Arenas]."""

    def __init__(self, own: Tensor, maps: Sequence[Any], rank: int) -> None:
        self._own = own  # counts in the pool
        self._bytes: list[Any] = [interop.from_numpy(_array(one)) for one in maps]
        self._rows: dict[tuple[DType, int], list[Tensor]] = {}
        self.addresses = [one.data_ptr() + _HEAD for one in self._bytes]
        self.rank = rank
        self.size = (own.numel() - _HEAD) // 2  # of a half
        self.turn = 0
        starts = [one.data_ptr() + _WORD for one in self._bytes]
        self._words = [ctypes.c_uint32.from_address(start) for start in starts]
        self._others = [n for n in range(len(maps)) if n != rank]
        self._came = 0

    def meet(self, mark: int) -> Meeting:
        """Come here with the mark of a call, and wait for all others."""
        self._came = (self._came + 1) % _TIMES
        mine = self._words[self.rank]
        mine.value = self._came << MARK_BITS | mark
        _futex(mine, _WAKE, _ALL, None)
        return Meeting(self._words, list(self._others), mine.value)

    def next(self) -> None:
        """Go on with the other half."""
        self.turn ^= 1

    def at(self, rank: int, start: int = 0) -> int:
        """The address of a byte of a rank's half."""
        return self.addresses[rank] + self.turn * self.size + start

    def put(self, address: int, nbytes: int, start: int = 0) -> None:
        """Copy bytes into this rank's half."""
        ctypes.memmove(self.at(self.rank, start), address, nbytes)

    def get(self, rank: int, address: int, nbytes: int, start: int = 0) -> None:
        """Copy bytes of a rank's half out."""
        ctypes.memmove(address, self.at(rank, start), nbytes)

    def rows(self, dtype: DType) -> list[Tensor]:
        """The halves of all ranks as tensors of a dtype."""
        key = dtype, self.turn
        if key not in self._rows:
            start = _HEAD + self.turn * self.size
            self._rows[key] = [one[start : start + self.size].view(dtype) for one in self._bytes]
        return self._rows[key]


class Meeting:
    """Ranks that are to come."""

    __slots__ = ("_words", "_missing", "_mine", "others")
    eager = 0.02

    def __init__(self, words: Sequence[Any], missing: list[int], mine: int) -> None:
        self._words, self._missing, self._mine = words, missing, mine
        self.others: list[int] = []  # ranks that came with another call

    def done(self) -> bool:
        """Whether all have come, or one with another call."""
        missing = self._missing
        while missing:
            found, mine = self._words[missing[-1]].value, self._mine
            ahead = ((found >> MARK_BITS) - (mine >> MARK_BITS)) % _TIMES
            if ahead > 1:  # it has not come yet; one that is ahead has seen this rank's mark
                return False
            rank = missing.pop()
            if not ahead and found != mine:
                self.others.append(rank)
        return True

    def rest(self) -> None:
        """Sleep until the next rank may have come, a moment at most."""
        if self._missing:
            word = self._words[self._missing[-1]]
            seen = word.value
            if ((seen >> MARK_BITS) - (self._mine >> MARK_BITS)) % _TIMES > 1:
                _futex(word, _WAIT, seen, ctypes.byref(_MOMENT))


class _Time(ctypes.Structure):
    """A time of the system's interface."""

    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


_MOMENT = _Time(0, 20_000_000)


def _futex(word: Any, what: int, number: int, limit: Any) -> None:
    _System.call(_FUTEX, ctypes.byref(word), what, number, limit, None, 0)


class _System:
    """The system's calls by number."""

    call: Any = ctypes.CDLL(None).syscall if sys.platform.startswith("linux") else None


def _array(mapped: Any) -> Any:
    import numpy as np

    return np.frombuffer(mapped, np.uint8)


def _own(half: int) -> tuple[Tensor | None, bytes]:
    """This rank's block, and what others need to find it."""
    if not sys.platform.startswith("linux"):
        return None, bytes(_NAME.size)
    try:
        made = empty(_HEAD + 2 * half, dtype=uint8, device="cpu").share_memory_()
    except (RushlightError, OSError):  # a budget, or the system, has no room
        return None, bytes(_NAME.size)
    block: Any = block_of(made._memory)
    name = _NAME.pack(os.getpid(), block.descriptor, secrets.token_bytes(16))
    block.mapped[:_HEAD] = name.ljust(_HEAD, b"\0")  # the pool's blocks are not empty
    return made, name


def _mapped(name: bytes, room: int) -> Any:
    """Another rank's block; None where it is not to be found from here."""
    process, descriptor, _ = _NAME.unpack(name)
    path = f"/proc/{process}/fd/{descriptor}"
    try:
        if not os.readlink(path).startswith("/memfd:rushlight"):
            return None
        opened = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            made = mmap.mmap(opened, room)
        finally:
            os.close(opened)
    except (OSError, ValueError):
        return None
    return made if made[: _NAME.size] == name else None


def half_for(nbytes: int) -> int:
    """The bytes of a half for so many bytes of a rank: a power of two up to `HALF`."""
    return min(HALF, max(_LEAST, 1 << (nbytes - 1).bit_length()))


def make(
    rank: int, size: int, half: int, spread: Callable[[Span, Sequence[Span]], None]
) -> Arena | None:
    """An arena of all ranks, who make this call together; None on all where one has none."""
    own, name = _own(half)
    sent, received = bytearray(name), bytearray(_NAME.size * size)
    _spread(spread, sent, received, rank)
    names = [bytes(received[n * _NAME.size : (n + 1) * _NAME.size]) for n in range(size)]
    room = _HEAD + 2 * half
    maps = [_mapped(one, room) if any(one) else None for one in names]
    sent, received = bytearray([all(one is not None for one in maps)]), bytearray(size)
    _spread(spread, sent, received, rank)
    if own is None or not all(received):
        return None
    return Arena(own, maps, rank)


def _spread(spread: Any, sent: bytearray, received: bytearray, rank: int) -> None:
    step = len(sent)
    source = ctypes.addressof(ctypes.c_char.from_buffer(sent))
    target = ctypes.addressof(ctypes.c_char.from_buffer(received))
    rows = [Span(target + n * step, step, received) for n in range(len(received) // step)]
    spread(Span(source, step, sent), rows)
