"""Contract kernels as plain loops, for every type; devices override them by a library."""

from __future__ import annotations

from rushlight.core.dtypes import compute_type
from rushlight.emit.llvm.body import cast, load, pointer, store
from rushlight.emit.llvm.text import COMPUTE, Arguments, Writer, constant
from rushlight.kernel.shapes import Contract


def write_counts(writer: Writer) -> tuple[str, str]:
    """A task is one row (x, y, m) of the output."""
    arguments = Arguments(writer)
    arguments.next = 3
    x, y, m, n, k = arguments.words(5)
    tasks = writer.mul(writer.mul(x, y), m)
    # k + 1, so that k = 0, which writes zeros, does not count as no work.
    return tasks, writer.mul(writer.mul(tasks, n), writer.add(k, "1"))


def write_kernel(writer: Writer, kernel: Contract) -> None:
    arguments = Arguments(writer)
    bases = [arguments.address() for _ in range(3)]
    _, y, m, n, k = arguments.words(5)
    strides = [arguments.words(4) for _ in range(3)]
    factors = [arguments.param(dtype) for dtype in kernel.params]
    dtype, compute = kernel.dtype, kernel.compute
    name = COMPUTE[compute]
    float_ = compute.kind == "f"
    with writer.loop("%begin", "%end") as task:
        row = writer.value(f"srem i64 {task}, {m}")
        batch = writer.value(f"sdiv i64 {task}, {m}")
        where = (writer.value(f"sdiv i64 {batch}, {y}"), writer.value(f"srem i64 {batch}, {y}"))
        places = []
        for base, steps in zip(bases, strides, strict=True):
            offset = writer.add(writer.mul(where[0], steps[0]), writer.mul(where[1], steps[1]))
            places.append(pointer(writer, base, dtype, offset))
        out, a, b = places
        out = pointer(writer, out, dtype, writer.mul(row, strides[0][2]))
        a = pointer(writer, a, dtype, writer.mul(row, strides[1][2]))
        with writer.loop("0", n) as column:
            total = writer.slot(name, constant(0, compute, 1))
            with writer.loop("0", k) as t:
                left = pointer(writer, a, dtype, writer.mul(t, strides[1][3]))
                offset = writer.add(writer.mul(t, strides[2][2]), writer.mul(column, strides[2][3]))
                right = pointer(writer, b, dtype, offset)
                x1, x2 = (
                    cast(
                        writer,
                        load(writer, p, dtype, "1", "1", 1, None),
                        compute_type(dtype),
                        compute,
                        1,
                    )
                    for p in (left, right)
                )
                product = writer.value(f"{'fmul' if float_ else 'mul'} {name} {x1}, {x2}")
                writer.set(
                    total,
                    writer.value(
                        f"{'fadd' if float_ else 'add'} {name} {writer.get(total)}, {product}"
                    ),
                )
            place = pointer(writer, out, dtype, writer.mul(column, strides[0][3]))
            made = writer.get(total)
            if factors:
                before = load(writer, place, dtype, "1", "1", 1, None)
                before = cast(writer, before, compute_type(dtype), compute, 1)
                both = [
                    writer.value(f"fmul {name} {factor}, {value}")
                    for factor, value in zip(factors, (made, before), strict=True)
                ]
                made = writer.value(f"fadd {name} {both[0]}, {both[1]}")
            value = cast(writer, made, compute, compute_type(dtype), 1)
            store(writer, value, place, dtype, "1", "1", 1, None)
