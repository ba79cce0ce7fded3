"""Sort for devices without a kernel of their own: a bitonic network of Map kernels over scratch.

# Note [Sorting network]
1. Each row becomes records in scratch, padded to a power of two with records above all others. A
   record is a signed key in the elements' order, and the position; keys of 32 bits share one int64
   with it (key above position), wider ones have an array beside that of the positions. No two
   records are equal, so the order is the stable one.
2. A stage compares records `far` apart. Several stages, of distances 4d, 2d and d say, are one
   kernel over the views (runs of 8d, one of the 8 pieces, d) of the scratch, in place. `index`
   counts positions of the walk; blocks of twice the runs being merged are ascending and descending
   in turn, by the bit `turn` of it (0 in the last merge: all ascending).
3. Where few are kept, runs of that length (a power of two) are sorted, ascending and descending in
   turn; then, until one run per row is left, the smaller halves of pairs of runs go to the other
   part of the scratch and are merged.
4. Stages follow each other on the device's stream; scratch is freed as soon as the last is queued.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rushlight.core.dtypes import DType, compute_type, int32, int64
from rushlight.devices.shared.allocator import Pool, Scratch, room_for
from rushlight.devices.shared.protocol import Device, Launch
from rushlight.kernel.shapes import Gather, Kernel, Map, Sort
from rushlight.scalar import build as s
from rushlight.scalar.ir import Expr, arg, const, index, param

_INFINITY = {4: 0x7F800000, 8: 0x7FF << 52}  # the bits of it
_LAST = (1 << 63) - 1
_LAST_PLACE = (1 << 31) - 1


def _key(x: Expr, descending: bool) -> Expr:
    """An element as a signed integer in the elements' order.

    Decided by bits: a driver's fast arithmetic does not matter.
    """
    kind = x.dtype.kind
    if kind == "b":
        key = s.cast(x, int32)
    elif kind == "f":
        whole = int32 if x.dtype.itemsize == 4 else int64
        width = 8 * whole.itemsize
        bits = s.bits_to(x, whole)
        most = const((1 << (width - 1)) - 1, whole)
        size = bits & most
        key = s.where(bits < const(0, whole), -size, size)
        key = s.where(const(_INFINITY[whole.itemsize], whole) < size, most, key)
    elif kind == "u":
        key = s.bits_to(
            x ^ (1 << (8 * x.dtype.itemsize - 1)), int32 if x.dtype.itemsize == 4 else int64
        )
    else:
        key = x
    return ~key if descending else key


def _is_wide(dtype: DType) -> bool:
    return dtype.itemsize == 8


def _start_kernel(kernel: Sort) -> Map:
    """Records of elements; sizes (outer, inner, axis), the axis again as a parameter."""
    dtype = kernel.dtype
    place = s.remainder_c(index(), param(0, int64))
    key = _key(arg(0, compute_type(dtype)), kernel.descending)
    if _is_wide(dtype):
        return Map(
            (int64, int32), (dtype,), (int64,), (key, s.cast(place, int32)), 3, ("1", "1", "n")
        )
    return Map((int64,), (dtype,), (int64,), ((s.cast(key, int64) << 32) | place,), 3, ("1", "n"))


def _pad_kernel(wide: bool) -> Map:
    last, place = const(_LAST, int64), const(_LAST_PLACE, int32)
    return (
        Map((int64, int32), (), (), (last, place), 2, ("1", "1"))
        if wide
        else Map((int64,), (), (), (last,), 2, ("1",))
    )


def _stage_kernel(wide: bool, stages: int, step: str) -> Map:
    """The smaller of two records first, or last where the bit of `index` says so.

    Distances are halved.
    """
    count = 1 << stages
    down = (index() & param(0, int64)).ne(const(0, int64))
    keys = [arg(i, int64) for i in range(count)]
    places = [arg(count + i, int32) for i in range(count)] if wide else []
    for stage in reversed(range(stages)):
        far = 1 << stage
        for a in range(count):
            b = a + far
            if a & far:
                continue
            less = keys[b] < keys[a]
            if wide:
                less = less | (keys[b].eq(keys[a]) & (places[b] < places[a]))
                places[a], places[b] = _swapped(less.ne(down), places[a], places[b])
            keys[a], keys[b] = _swapped(less.ne(down), keys[a], keys[b])
    types = (int64,) * count + (int32,) * len(places)
    return Map(types, types, (int64,), (*keys, *places), 2, (step,) * (2 * len(types)))


def _swapped(swap: Expr, a: Expr, b: Expr) -> tuple[Expr, Expr]:
    return s.where(swap, b, a), s.where(swap, a, b)


def _half_kernel(wide: bool) -> Map:
    """The smaller of two records."""
    a, b = arg(0, int64), arg(1, int64)
    if not wide:
        return Map((int64,), (int64,) * 2, (), (s.minimum(a, b),), 2, ("1",) * 3)
    at_a, at_b = arg(2, int32), arg(3, int32)
    less = (b < a) | (b.eq(a) & (at_b < at_a))
    types = (int64, int64, int32, int32)
    return Map(
        (int64, int32), types, (), (s.where(less, b, a), s.where(less, at_b, at_a)), 2, ("1",) * 6
    )


def _end_kernel(wide: bool) -> Map:
    """Positions out of records; sizes (outer, keep, inner)."""
    if wide:
        return Map((int64,), (int32,), (), (s.cast(arg(0, int32), int64),), 3, ("n", "n"))
    return Map((int64,), (int64,), (), (arg(0, int64) & 0xFFFFFFFF,), 3, ("n", "n"))


def _most_stages(wide: bool) -> int:
    """Stages of one kernel: more take more registers and operands."""
    return 2 if wide else 3


def kernels_of(kernel: Sort) -> tuple[Kernel, ...]:
    """The kernels of the network: start, padding, end, halves, the copy of values, and stages."""
    wide = _is_wide(kernel.dtype)
    stages = [
        _stage_kernel(wide, n, step) for step in "n1" for n in range(1, _most_stages(wide) + 1)
    ]
    first = _start_kernel(kernel), _pad_kernel(wide), _end_kernel(wide), _half_kernel(wide)
    return *first, Gather(kernel.dtype, int64), *stages


class Network:
    """A built Sort; stages are built on first use, once for all element types of a width."""

    def __init__(self, kernel: Sort, device: Device, pool: Callable[[], Pool]) -> None:
        self.wide = _is_wide(kernel.dtype)
        self.device = device
        self.pool = pool
        self.start, self.pad, self.end, self.half, self.gather = (
            _built(device, part) for part in kernels_of(kernel)[:5]
        )
        self.stages: dict[tuple[int, str], Launch] = {}
        self.status = device.status_word("sort")

    def stage(self, stages: int, step: str) -> Launch:
        found = self.stages.get((stages, step))
        if found is None:
            found = self.stages[stages, step] = _built(
                self.device, _stage_kernel(self.wide, stages, step)
            )
        return found

    def __call__(self, values: int, positions: int, source: int, *numbers: int) -> None:
        outer, axis, inner, keep = numbers[:4]
        if not outer * inner * keep:
            return
        padded, kept = (1 << (n - 1).bit_length() for n in (axis, keep))
        kept = kept if 4 * kept <= padded else padded
        count = outer * inner * padded
        pool, each = self.pool(), 12 if self.wide else 8
        room = room_for(count * each * (3 if kept < padded else 2) // 2)
        with Scratch(pool, room) as (scratch,):
            records = self._records(scratch, count)
            self._fill(records, source, (outer, axis, inner), numbers[10:13], padded)
            for run in _doubling(1, kept):
                self._merge(records, count, run, turning=2 * run < padded)
            spare = self._records(scratch + count * each, count // 2)
            for length in reversed(list(_doubling(kept, padded))):  # of a row afterwards
                count //= 2
                self._halve(spare, records, count, kept)
                records, spare = spare, records
                self._merge(records, count, kept // 2, turning=length > kept)
            steps = (inner * kept, 1, kept)
            self.end(positions, records[-1], outer, keep, inner, *numbers[7:10], *steps)
        strides = (*numbers[4:7], *numbers[10:13], *numbers[7:10])
        self.gather(values, source, positions, self.status, outer, keep, inner, axis, *strides)

    def _records(self, start: int, count: int) -> tuple[int, ...]:
        """The addresses of the keys and, where they are separate, of the positions."""
        return (start, start + 8 * count) if self.wide else (start,)

    def _fill(
        self,
        records: tuple[int, ...],
        source: int,
        sizes: tuple[int, int, int],
        steps: tuple[int, ...],
        padded: int,
    ) -> None:
        outer, axis, inner = sizes
        own = (inner * padded, padded, 1) * len(records)
        self.start(*records, source, outer, inner, axis, *own, steps[0], steps[2], steps[1], axis)
        if padded > axis:
            ends = (a + axis * size for a, size in zip(records, (8, 4), strict=False))
            self.pad(*ends, outer * inner, padded - axis, *(padded, 1) * len(records))

    def _merge(self, records: tuple[int, ...], count: int, run: int, turning: bool) -> None:
        """Merge pairs of sorted runs, one ascending and one descending.

        The results are ascending, or ascending and descending in turn.
        """
        left = run.bit_length()  # stages
        while left:
            stages = min(left, _most_stages(self.wide))
            left -= stages
            pieces, apart = 1 << stages, 1 << left
            turn = 2 * run // pieces if turning else 0
            operands = [
                a + i * apart * size
                for a, size in zip(records, (8, 4), strict=False)
                for i in range(pieces)
            ]
            runs, times = count // (pieces * apart), 2 * len(operands)
            if apart == 1:  # one long row of adjacent pieces
                self.stage(stages, "n")(*operands, *operands, 1, runs, *(0, pieces) * times, turn)
            else:
                self.stage(stages, "1")(
                    *operands, *operands, runs, apart, *(pieces * apart, 1) * times, turn
                )

    def _halve(self, out: tuple[int, ...], records: tuple[int, ...], count: int, run: int) -> None:
        """The smaller halves of pairs of sorted runs, one ascending and one descending."""
        halves = [
            a + i * run * size for a, size in zip(records, (8, 4), strict=False) for i in range(2)
        ]
        self.half(
            *out, *halves, count // run, run, *(run, 1) * len(out), *(2 * run, 1) * len(halves)
        )


def _doubling(first: int, end: int) -> Iterator[int]:
    while first < end:
        yield first
        first *= 2


_BUILT: dict[tuple[Device, Kernel], Launch] = {}


def _built(device: Device, kernel: Kernel) -> Launch:
    found = _BUILT.get((device, kernel))
    if found is None:
        found = _BUILT[device, kernel] = device.build(kernel)
    return found


def build(kernel: Sort, device: Device, pool: Callable[[], Pool]) -> Launch:
    return Network(kernel, device, pool)
