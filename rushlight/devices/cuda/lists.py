"""Launches over lists of operands: the table of Note [Lists on CUDA], packed on the host."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from itertools import accumulate, chain
from typing import Any

from rushlight.core.dtypes import DType, compute_type
from rushlight.devices.cuda.grid import SCRATCH_SLOTS
from rushlight.emit.cuda.lists import span_of, stride_of, threads_of
from rushlight.kernel.shapes import Map, Rowwise

LARGE_TABLE = 3968  # words; with CUDA 12.1 arguments may have 32,764 bytes
SMALL_TABLE = 448  # arguments of 4096 bytes, params included

_NUMBERS: dict[str, Callable[[Any], Any]] = {
    "float32": ctypes.c_float,
    "float64": ctypes.c_double,
    "int32": ctypes.c_int32,
    "uint32": ctypes.c_uint32,
    "int64": ctypes.c_int64,
    "uint64": ctypes.c_uint64,
    "bool": ctypes.c_bool,
}


class CudaList:
    """See ListActs. `launch` is a builtin of make_packed_launcher."""

    def __init__(
        self,
        kernel: Map | Rowwise,
        launch: Callable[..., None],
        words: int,
        scratch: tuple[int, int],
    ) -> None:
        self.launch = launch
        self.words = words
        self.stride, self.span = stride_of(kernel), span_of(kernel)
        self.threads = threads_of(kernel)
        self.params: tuple[DType, ...] = kernel.params
        self.scratch = scratch if isinstance(kernel, Rowwise) else ()
        self.most = words // self.stride
        # A fold has a partial result for each block and pass.
        passes = len(kernel.passes) if isinstance(kernel, Rowwise) else 0
        self.most_blocks = SCRATCH_SLOTS // passes if passes else 1 << 30

    def __call__(
        self, items: Sequence[tuple[int, ...]], params: Sequence[float]
    ) -> list[tuple[Any, ...]]:
        numbers = [
            _NUMBERS[compute_type(d).name](p) for d, p in zip(self.params, params, strict=True)
        ]
        span, least = self.span, 1 if self.scratch else 0  # a fold of nothing gives its identity
        counts = [max(least, -(-item[-1] // span)) for item in items]
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
        rows = [(first, item[-1], *item[:-1]) for first, item in zip(firsts, items, strict=False)]
        table = (ctypes.c_uint64 * self.words)(*chain.from_iterable(rows))
        values = [table, ctypes.c_int64(len(items)), *numbers, *map(ctypes.c_uint64, self.scratch)]
        packed = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
        return self.launch, firsts[-1], self.threads, ctypes.addressof(packed), (packed, values)
