"""Sort for devices that have no kernel of their own for it: a bitonic network of Map kernels over scratch memory.

# Note [Sorting network]
1. Each row becomes records in scratch, padded to a power of two with records above all others. A record is a signed key in the
   elements' order, and the position; keys of 32 bits share one int64 with it (key above position), wider ones have an array
   beside that of the positions. No two records are equal, so the order is the stable one.
2. A stage compares places `far` apart: views (pairs of runs, far) of the scratch, in place. `index` counts the pairs; blocks of
   twice the runs being merged go up and down in turn, told by the bit `turn` of it (0 in the last merge: all go up).
3. Stages follow each other on the device's stream; scratch goes back to the pool as soon as the last is asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rushlight.core.dtypes import DType, compute_type, int32, int64
from rushlight.devices.allocator import Pool, room_for
from rushlight.devices.protocol import Device, Launch
from rushlight.kernel.shapes import Gather, Kernel, Map, Sort
from rushlight.scalar import build as s
from rushlight.scalar.ir import Expr, arg, const, index, param

_INFINITY = {4: 0x7F800000, 8: 0x7FF << 52}  # the bits of it
_LAST = (1 << 63) - 1
_LAST_PLACE = (1 << 31) - 1


def _key(x: Expr, descending: bool) -> Expr:
    """An element as a signed integer in the elements' order; decided by bits, so that no driver's fast arithmetic matters."""
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
        key = s.bits_to(x ^ (1 << (8 * x.dtype.itemsize - 1)), int32 if x.dtype.itemsize == 4 else int64)
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
        return Map((int64, int32), (dtype,), (int64,), (key, s.cast(place, int32)), 3, ("1", "1", "n"))
    return Map((int64,), (dtype,), (int64,), ((s.cast(key, int64) << 32) | place,), 3, ("1", "n"))


def _pad_kernel(wide: bool) -> Map:
    last, place = const(_LAST, int64), const(_LAST_PLACE, int32)
    return (
        Map((int64, int32), (), (), (last, place), 2, ("1", "1")) if wide else Map((int64,), (), (), (last,), 2, ("1",))
    )


def _stage_kernel(wide: bool, step: str) -> Map:
    """The smaller record first, or last where the bit of `index` says so."""
    down = (index() & param(0, int64)).ne(const(0, int64))
    a, b = arg(0, int64), arg(1, int64)
    if not wide:
        swap = (b < a).ne(down)
        pair = (s.where(swap, b, a), s.where(swap, a, b))
        return Map((int64,) * 2, (int64,) * 2, (int64,), pair, 2, (step,) * 4)
    at_a, at_b = arg(2, int32), arg(3, int32)
    swap = ((b < a) | (b.eq(a) & (at_b < at_a))).ne(down)
    bodies = (s.where(swap, b, a), s.where(swap, a, b), s.where(swap, at_b, at_a), s.where(swap, at_a, at_b))
    types = (int64, int64, int32, int32)
    return Map(types, types, (int64,), bodies, 2, (step,) * 8)


def _end_kernel(wide: bool) -> Map:
    """Positions out of records; sizes (outer, keep, inner)."""
    if wide:
        return Map((int64,), (int32,), (), (s.cast(arg(0, int32), int64),), 3, ("n", "n"))
    return Map((int64,), (int64,), (), (arg(0, int64) & 0xFFFFFFFF,), 3, ("n", "n"))


def parts(kernel: Sort) -> tuple[Kernel, ...]:
    """The kernels that the network is made of: start, padding, near stages, far stages, end, and the copy of values."""
    wide = _is_wide(kernel.dtype)
    stages = _stage_kernel(wide, "n"), _stage_kernel(wide, "1")
    return _start_kernel(kernel), _pad_kernel(wide), *stages, _end_kernel(wide), Gather(kernel.dtype, int64)


@dataclass(frozen=True)
class Network:
    """A built Sort."""

    wide: bool
    start: Launch
    pad: Launch
    near: Launch
    far: Launch
    end: Launch
    gather: Launch
    status: int
    pool: Callable[[], Pool]

    def __call__(self, values: int, positions: int, source: int, *numbers: int) -> None:
        outer, axis, inner, keep = numbers[:4]
        if not outer * inner * keep:
            return
        padded = 1 << (axis - 1).bit_length()
        count = outer * inner * padded
        pool, room = self.pool(), room_for(count * (12 if self.wide else 8))
        scratch = pool.take(room)
        records = (scratch, scratch + 8 * count) if self.wide else (scratch,)
        try:
            self._fill(records, source, (outer, axis, inner), numbers[10:13], padded)
            self._sort(records, count, padded)
            steps = (inner * padded, 1, padded)
            self.end(positions, records[-1], outer, keep, inner, *numbers[7:10], *steps)
        finally:
            pool.give(scratch, room)
        strides = (*numbers[4:7], *numbers[10:13], *numbers[7:10])
        self.gather(values, source, positions, self.status, outer, keep, inner, axis, *strides)

    def _fill(
        self, records: tuple[int, ...], source: int, sizes: tuple[int, int, int], steps: tuple[int, ...], padded: int
    ) -> None:
        outer, axis, inner = sizes
        own = (inner * padded, padded, 1) * len(records)
        self.start(*records, source, outer, inner, axis, *own, steps[0], steps[2], steps[1], axis)
        if padded > axis:
            ends = (a + axis * size for a, size in zip(records, (8, 4), strict=False))
            self.pad(*ends, outer * inner, padded - axis, *(padded, 1) * len(records))

    def _sort(self, records: tuple[int, ...], count: int, padded: int) -> None:
        run = 1  # sorted so far
        while run < padded:
            turn = run if 2 * run < padded else 0
            far = run
            while far:
                both = [a for start, size in zip(records, (8, 4), strict=False) for a in (start, start + far * size)]
                launch = self.far if far > 1 else self.near
                launch(*both, *both, count // (2 * far), far, *(2 * far, 1) * (2 * len(both)), turn)
                far //= 2
            run *= 2


def build(kernel: Sort, device: Device, pool: Callable[[], Pool]) -> Launch:
    start, pad, near, far, end, gather = (device.build(part) for part in parts(kernel))
    return Network(_is_wide(kernel.dtype), start, pad, near, far, end, gather, device.status_word("sort"), pool)
