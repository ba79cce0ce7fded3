"""Positions of selected elements, by running counts. `family/read_back.py` reads the counts."""

from __future__ import annotations

from rushlight.core.dtypes import int64
from rushlight.core.errors import ShapeError
from rushlight.core.shapes import Spec
from rushlight.ops.create import creation
from rushlight.ops.create.creation import full_spec
from rushlight.ops.family.read_back import read
from rushlight.ops.index import gather
from rushlight.ops.index.scatter import scattered
from rushlight.ops.pointwise import arithmetic as e
from rushlight.ops.reduce import reductions
from rushlight.ops.reduce.cumulative import BLOCK, cumsum, in_blocks
from rushlight.ops.view import views
from rushlight.tape.program.memo import memo
from rushlight.tape.record.value import Value

_RARE = 1024  # elements per selected one
# Elements of a mask whose positions are all computed before they are counted: one size for every
# count.
_FEW = 1 << 14


def running(x: Value) -> Value:
    """Running sums of a vector of integers or bools, in int64."""
    return cumsum(x, 0)


def places(mask: Value, count: int, fill: int = 0) -> Value:
    """The row-major positions of the first `count` true elements; `fill` where there are fewer."""
    flat = views.reshape(mask, (mask._spec.numel,))
    device = mask._spec.device
    out = full_spec(Spec.of(device, int64, (count + 1,)), fill)
    if flat._spec.numel and count:
        number = e.sub(running(flat), 1)
        # Elements that are not selected, or beyond the count, go to an extra last position that is
        # cut off.
        target = e.select(e.bitwise_and(flat, e.lt(number, count)), number, count)
        where = creation.arange(flat._spec.numel, device=device.device.name)
        out = scattered("set", out, 0, target, where)
    return views.slice_dim(out, 0, 0, count)


def count_of(mask: Value) -> int:
    """The number of true elements, read from the device."""
    return int(read(reductions.sum(mask))[0]) if mask._spec.numel else 0


@memo
def _ranked(mask: Value) -> tuple[Value, Value]:
    """The row-major positions of the true elements, in room for all, and their number."""
    size, device = mask._spec.numel, mask._spec.device
    flat = views.reshape(mask, (size,))
    upto = running(flat)
    # Elements that are not selected go to an extra last position that is cut off.
    target = e.select(flat, e.sub(upto, 1), size)
    where = creation.arange(size, device=device.device.name)
    out = scattered("set", full_spec(Spec.of(device, int64, (size + 1,)), 0), 0, target, where)
    return out, views.slice_dim(upto, 0, size - 1, 1)


def chosen(mask: Value) -> Value:
    """The row-major positions of the true elements."""
    if 0 < mask._spec.numel <= _FEW and not mask._spec.hidden:
        every, total = _ranked(mask)
        return views.slice_dim(every, 0, 0, int(read(total)[0]))
    count = count_of(mask)
    return (
        _few_places(mask, count) if 0 < count * _RARE <= mask._spec.numel else places(mask, count)
    )


def _few_places(mask: Value, count: int) -> Value:
    """The same where they are few: blocks are counted, and only nonempty ones are searched."""
    table = in_blocks(views.reshape(mask, (mask._spec.numel,)))
    totals = reductions.sum(table, 1)
    block = _counted_places(totals, count)
    before = gather.gather(e.sub(running(totals), totals), 0, block)
    rank = e.sub(creation.arange(count, device=mask._spec.device.device.name), before)
    inside = cumsum(gather.rows(table, block), 1)
    return e.add(
        e.mul(block, BLOCK), reductions.sum(e.le(inside, views.reshape(rank, (count, 1))), 1)
    )


def repeated_places(counts: Value, output_size: int | None) -> Value:
    """0 counts[0] times, 1 counts[1] times, ...; the user's counts are checked."""
    spec = counts._spec
    if len(spec.shape) != 1 or spec.dtype.kind != "i":
        raise ShapeError(f"repeat_interleave: repeats must be an integer vector, got {spec!r}")
    if output_size is not None and output_size < 0:
        raise ShapeError(f"repeat_interleave: output_size must not be negative, got {output_size}")
    limits = spec.device.device.limits
    if output_size is None or (limits.host_memory and limits.computes and not spec.hidden):
        total = _total(counts)
        if output_size not in (None, total):
            raise ShapeError(
                f"repeat_interleave: output_size is {output_size}, but the repeats add up to "
                f"{total}"
            )
        output_size = total
    if not spec.numel:
        return full_spec(Spec.of(spec.device, spec.dtype, (0,)), 0)
    return e.cast(_counted_places(e.cast(counts, int64), output_size), spec.dtype)


def _total(counts: Value) -> int:
    """The sum of counts, none of them negative."""
    if not counts._spec.numel:
        return 0
    whole = e.cast(counts, int64)
    least, most = (int(read(extreme(whole))[0]) for extreme in (reductions.amin, reductions.amax))
    if least < 0:
        raise ShapeError(
            f"repeat_interleave: repeats must not be negative, but one of {counts._spec!r} is "
            f"{least}"
        )
    # A sum beyond int64 is beyond memory too.
    if most * counts._spec.numel >= 1 << 63:
        raise ShapeError(
            f"repeat_interleave: {most} repeats, among {counts._spec!r}, are more than can be "
            "addressed"
        )
    return int(read(reductions.sum(whole))[0])


def runs(counts: Value, total: int) -> tuple[Value, Value]:
    """For each of `total` elements in runs, the index of its run and its position in it."""
    which = _counted_places(counts, total)
    before = gather.rows(e.sub(running(counts), counts), which)
    return which, e.sub(creation.arange(total, device=counts._spec.device.device.name), before)


def _counted_places(counts: Value, total: int) -> Value:
    """0 counts[0] times, 1 counts[1] times, ...

    The device refuses an index if they exceed `total`.
    """
    device = counts._spec.device
    ends = running(counts)
    marks = gather.scatter_add(
        full_spec(Spec.of(device, int64, (total + 1,)), 0),
        0,
        ends,
        full_spec(Spec.of(device, int64, ends._spec.shape), 1),
    )
    return views.slice_dim(running(marks), 0, 0, total)
