"""Launches over lists of operands: the table of Note [Lists on CUDA], packed on the host."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from functools import cache
from itertools import accumulate, chain
from typing import Any

from rushlight.core.dtypes import compute_type
from rushlight.devices.cuda.grid import SCRATCH_SLOTS
from rushlight.emit.cuda.lists import span_of, stride_of, threads_of
from rushlight.kernel.shapes import Map, Rowwise

# Words of a table. The driver copies all of a launch's arguments, so a short list has a short one.
TABLES = (64, 448)  # arguments of 4096 bytes, params included
LARGE_TABLE = 3968  # with CUDA 12.1 arguments may have 32,764 bytes

_WORD = 8  # bytes of each of a launch's arguments but the table
_LARGEST = 3.4e38  # of the numbers that surely are no infinity in float32


def _single(x: float) -> float:
    return x if -_LARGEST < x < _LARGEST else ctypes.c_float(x).value


# By compute type: how a number is packed in a word, and cut to the type's range.
_NUMBERS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "float32": ("f4x", _single),
    "float64": ("d", float),
    "int32": ("i4x", lambda x: ctypes.c_int32(x).value),
    "uint32": ("I4x", lambda x: ctypes.c_uint32(x).value),
    "int64": ("q", lambda x: ctypes.c_int64(x).value),
    "uint64": ("Q", lambda x: ctypes.c_uint64(x).value),
    "bool": ("?7x", bool),
}


@cache
def _words(count: int) -> struct.Struct:
    """The packing of a launch's words; no more of them than a table has."""
    return struct.Struct(f"={count}Q")


class _Table:
    """The arguments of launches with tables of one length, and the launcher.

    In memory: the table, the number of items, the params, the scratch, and kernelParams, the
    address of each.
    """

    __slots__ = ("arguments", "count", "end", "launch", "places", "room", "words")

    def __init__(
        self, words: int, launch: Callable[..., None], params: Sequence[str], scratch: int
    ) -> None:
        self.words = words
        self.launch = launch
        self.arguments = struct.Struct("=Q" + "".join(params) + f"{scratch}Q")
        self.count = 2 + len(params) + scratch
        self.end = _WORD * (words + self.count - 1)
        self.places = (0, *range(_WORD * words, self.end, _WORD))
        self.room = ctypes.c_uint64 * (words + 2 * self.count - 1)

    def pack(self, table: Sequence[int], arguments: Sequence[Any]) -> tuple[int, Any]:
        """The address of kernelParams, and what keeps the memory."""
        room = self.room()
        at = ctypes.addressof(room)
        _words(len(table)).pack_into(room, 0, *table)
        self.arguments.pack_into(room, _WORD * self.words, *arguments)
        _words(self.count).pack_into(room, self.end, *[at + place for place in self.places])
        return at + self.end, room


class CudaList:
    """See ListActs. `build(words)` gives a builtin of make_packed_launcher."""

    def __init__(
        self,
        kernel: Map | Rowwise,
        build: Callable[[int], Callable[..., None]],
        tables: Sequence[int],
        scratch: tuple[int, int],
    ) -> None:
        self.build = build
        self.sizes = tuple(tables)
        self.tables: dict[int, _Table] = {}
        self.stride, self.span = stride_of(kernel), span_of(kernel)
        self.threads = threads_of(kernel)
        kinds = [_NUMBERS[compute_type(d).name] for d in kernel.params]
        self.kinds = [kind for kind, _ in kinds]
        self.cuts = [cut for _, cut in kinds]
        self.scratch = scratch if isinstance(kernel, Rowwise) else ()
        self.most = self.sizes[-1] // self.stride
        # A fold has a partial result for each block and pass.
        passes = len(kernel.passes) if isinstance(kernel, Rowwise) else 0
        self.most_blocks = SCRATCH_SLOTS // passes if passes else 1 << 30

    def __call__(
        self, items: Sequence[tuple[int, ...]], params: Sequence[float]
    ) -> list[tuple[Any, ...]]:
        numbers = [cut(x) for cut, x in zip(self.cuts, params, strict=True)]
        span, least = self.span, 1 if self.scratch else 0  # a fold of nothing gives its identity
        counts = [-(-item[-1] // span) or least for item in items]
        if len(items) <= self.most and sum(counts) <= self.most_blocks:
            return [self._act(items, counts, numbers)] if any(counts) else []
        acts, begin, blocks = [], 0, 0
        for place, more in enumerate(counts):
            if place - begin == self.most or blocks + more > self.most_blocks:
                if blocks:
                    acts.append(self._act(items[begin:place], counts[begin:place], numbers))
                begin, blocks = place, 0
            blocks += more
        if blocks:
            acts.append(self._act(items[begin:], counts[begin:], numbers))
        return acts

    def _act(
        self, items: Sequence[tuple[int, ...]], counts: list[int], numbers: list[Any]
    ) -> tuple[Any, ...]:
        """One launch; an item without blocks begins where the next one does, which is found."""
        firsts = [0, *accumulate(counts)]
        *addresses, sizes = zip(*items, strict=True)  # a loop over the items costs several times it
        words = [*chain.from_iterable(zip(firsts, sizes, *addresses, strict=False))]
        table = self._table(len(words))
        packed, room = table.pack(words, (len(items), *numbers, *self.scratch))
        return table.launch, firsts[-1], self.threads, packed, room

    def _table(self, words: int) -> _Table:
        """The shortest table for so many words."""
        size = next(size for size in self.sizes if words <= size)
        found = self.tables.get(size)
        if found is None:
            made = _Table(size, self.build(size), self.kinds, len(self.scratch))
            found = self.tables[size] = made
        return found
