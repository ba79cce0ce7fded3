"""Search kernels: a branch-free binary search per lane; several vectors overlap their loads."""

from __future__ import annotations

from rushlight.core.dtypes import compute_type, int64
from rushlight.emit.llvm.body import first_lanes, from_stored, load, pointer, splat, store
from rushlight.emit.llvm.text import COMPUTE, STORED, Arguments, Writer, suffix, vector
from rushlight.kernel.shapes import Search

BLOCK = 1024  # searches per task
WIDTH = 8
TOGETHER = 4  # vectors


def write_counts(writer: Writer, kernel: Search) -> tuple[str, str]:
    """A task is one row and a block of the searches in it."""
    arguments = Arguments(writer)
    arguments.next = 3
    rows, count, _ = arguments.words(3)
    return writer.mul(rows, writer.divided_up(count, BLOCK)), writer.mul(
        writer.mul(rows, count), "64"
    )


def write_kernel(writer: Writer, kernel: Search) -> None:
    arguments = Arguments(writer)
    bases = [arguments.address() for _ in range(3)]
    _, count, length = arguments.words(3)
    strides = [arguments.words(2) for _ in range(3)]
    blocks = writer.divided_up(count, BLOCK)
    with writer.loop("%begin", "%end") as task:
        row = writer.value(f"sdiv i64 {task}, {blocks}")
        begin = writer.mul(writer.value(f"srem i64 {task}, {blocks}"), str(BLOCK))
        end = writer.smaller(writer.add(begin, str(BLOCK)), count)
        dtypes = (int64, kernel.dtype, kernel.dtype)
        places = [
            pointer(writer, base, dtype, writer.mul(row, steps[0]))
            for base, dtype, steps in zip(bases, dtypes, strides, strict=True)
        ]
        with writer.loop(begin, end, str(WIDTH * TOGETHER)) as k:
            _write_searches(writer, kernel, places, [s[1] for s in strides], (k, end), length)


def _write_searches(
    writer: Writer,
    kernel: Search,
    places: list[str],
    steps: list[str],
    which: tuple[str, str],
    length: str,
) -> None:
    """`which` has the first of some searches and the end of all; lanes beyond the end search for 0.

    Their results are not stored.
    """
    dtype, longs = kernel.dtype, vector("i64", WIDTH)
    masks, wanted, found, numbers = [], [], [], []
    for part in range(TOGETHER):
        number = writer.add(which[0], str(part * WIDTH))
        numbers.append(number)
        masks.append(first_lanes(writer, writer.sub(which[1], number), WIDTH))
        place = pointer(writer, places[2], dtype, writer.mul(number, steps[2]))
        wanted.append(load(writer, place, dtype, "n", steps[2], WIDTH, masks[-1]))
        found.append(writer.slot(longs, "zeroinitializer"))
    stride, left = splat(writer, steps[1], int64, WIDTH), writer.slot("i64", length)
    head, body, done = writer.fresh("head"), writer.fresh("body"), writer.fresh("done")
    writer.line(f"br label %{head}")
    writer.label(head)
    rest = writer.get(left)
    writer.line(f"br i1 {writer.value(f'icmp sgt i64 {rest}, 0')}, label %{body}, label %{done}")
    writer.label(body)
    half = writer.value(f"lshr i64 {rest}, 1")
    step = writer.value(f"select i1 {writer.value(f'icmp eq i64 {half}, 0')}, i64 1, i64 {half}")
    writer.set(left, writer.sub(rest, step))
    steps_ahead, look_ahead = (
        splat(writer, n, int64, WIDTH) for n in (step, writer.sub(step, "1"))
    )
    for value, slot in zip(wanted, found, strict=True):
        place = writer.get(slot)
        look = writer.value(
            f"mul {longs} {writer.value(f'add {longs} {place}, {look_ahead}')}, {stride}"
        )
        stops = _stops(writer, kernel, _gathered(writer, kernel, places[1], look), value)
        ahead = writer.value(f"add {longs} {place}, {steps_ahead}")
        writer.set(
            slot,
            writer.value(f"select {vector('i1', WIDTH)} {stops}, {longs} {place}, {longs} {ahead}"),
        )
    writer.line(f"br label %{head}")
    writer.label(done)
    for number, slot, mask in zip(numbers, found, masks, strict=True):
        target = pointer(writer, places[0], int64, writer.mul(number, steps[0]))
        store(writer, writer.get(slot), target, int64, "n", steps[0], WIDTH, mask)


def _gathered(writer: Writer, kernel: Search, line: str, offsets: str) -> str:
    """The elements of the line at these offsets."""
    dtype, raw = kernel.dtype, STORED[kernel.dtype]
    where = writer.value(f"getelementptr {raw}, ptr {line}, {vector('i64', WIDTH)} {offsets}")
    name = f"llvm.masked.gather.{suffix(raw, WIDTH)}.{suffix('ptr', WIDTH)}"
    every = (vector("i1", WIDTH), "splat (i1 true)")
    kind = vector(raw, WIDTH)
    operands = [
        (vector("ptr", WIDTH), where),
        ("i32", str(dtype.itemsize)),
        every,
        (kind, "zeroinitializer"),
    ]
    return from_stored(writer, writer.call(kind, name, operands), dtype, WIDTH)


def _stops(writer: Writer, kernel: Search, element: str, wanted: str) -> str:
    """Float comparisons are ordered: they are false for NaN."""
    compute = compute_type(kernel.dtype)
    name = {"f": "fcmp o", "i": "icmp s", "u": "icmp u"}[compute.kind] + (
        "gt" if kernel.right else "ge"
    )
    return writer.value(f"{name} {vector(COMPUTE[compute], WIDTH)} {element}, {wanted}")
