"""Kernels on complex elements, made of kernels on real and imaginary parts.

# Note [Complex kernels]
1. A complex element in memory is its real part and then its imaginary part. No device and no
   emitter knows more of it: a kernel with a complex type is built as one or more on the real and
   imaginary parts, which are real operands of the same memory with doubled strides, the imaginary
   one half an element further on.
2. The launch takes the same numbers as the complex kernel would (Note [Kernel arguments]); a
   complex parameter is one number.
3. An elementwise formula that treats the real and imaginary parts alike runs over twice as many
   real elements.
4. A product of complex matrices is one of real ones: a's rows in memory order, (re, im, re, im
   ...), times b with each element b as the block ((re, im), (-im, re)).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any

from rushlight.core.dtypes import DType, compute_type, real_type
from rushlight.core.errors import DTypeError
from rushlight.devices.shared.allocator import Scratch, room_for
from rushlight.kernel.shapes import (
    Contract,
    Gather,
    Kernel,
    Library,
    Map,
    Reduce,
    Rowwise,
    Scan,
    Scatter,
)
from rushlight.scalar.complex import lower
from rushlight.scalar.ir import Expr, arg, param, rebuild, row, topological

Build = Callable[[Any, Kernel], Callable[..., None]]


def is_complex(kernel: Kernel) -> bool:
    """Whether a kernel names a complex type; a library's function takes complex elements itself."""
    if isinstance(kernel, Library):
        return False
    for field in fields(kernel):
        value = getattr(kernel, field.name)
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, DType) and item.kind == "c":
                return True
            body = item.body if isinstance(item, Reduce) else item
            if isinstance(body, Expr) and any(e.dtype.kind == "c" for e in topological([body])):
                return True
    return False


def build(pool: Any, kernel: Kernel, built: Build) -> Callable[..., None]:
    """A launch for a kernel on complex elements. See Note [Complex kernels]."""
    if isinstance(kernel, Map):
        return _map(pool, kernel, built)
    if isinstance(kernel, Rowwise):
        return _rowwise(pool, kernel, built)
    if isinstance(kernel, Contract):
        return _contract(pool, kernel, built)
    if isinstance(kernel, Scan):
        return _scan(pool, kernel, built)
    if isinstance(kernel, Gather | Scatter):
        return _indexed(pool, kernel, built)
    raise DTypeError("sort: complex numbers have no order; sort their .abs() or .real")


def _part_types(types: Sequence[DType]) -> tuple[DType, ...]:
    """The types of the operands' real and imaginary parts, in order."""
    return tuple(real_type(d) for d in types for _ in range(2 if d.kind == "c" else 1))


def _leaves(make: Callable[[int, DType], Expr], types: Sequence[DType]) -> dict[Expr, Any]:
    """Arguments or parameters as numbers: one each, or two where they are complex."""
    leaves: dict[Expr, Any] = {}
    at = 0
    for i, dtype in enumerate(types):
        part = compute_type(real_type(dtype))
        if dtype.kind == "c":
            leaves[make(i, dtype)] = (make(at, part), make(at + 1, part))
        else:
            leaves[make(i, part)] = make(at, part)
        at += 2 if dtype.kind == "c" else 1
    return leaves


def _flat(values: Sequence[Any]) -> tuple[Expr, ...]:
    return tuple(v for value in values for v in (value if isinstance(value, tuple) else (value,)))


def _split_numbers(values: Sequence[Any], types: Sequence[DType]) -> list[Any]:
    """Launch parameters with complex ones as two."""
    out: list[Any] = []
    for value, dtype in zip(values, types, strict=True):
        out += [float(value.real), float(value.imag)] if dtype.kind == "c" else [value]
    return out


def _halves(types: Sequence[DType]) -> list[int]:
    """Per operand the bytes from the real to the imaginary part; 0 for a real one."""
    return [d.itemsize // 2 if d.kind == "c" else 0 for d in types]


def _addresses(given: Sequence[int], halves: Sequence[int]) -> list[int]:
    out = []
    for address, half in zip(given, halves, strict=True):
        out.append(address)
        if half:
            out.append(address + half)
    return out


def _strides(given: Sequence[int], each: int, halves: Sequence[int]) -> list[int]:
    """Strides in real elements, operand by operand, those of a complex one twice."""
    out: list[int] = []
    for i, half in enumerate(halves):
        steps = given[i * each : (i + 1) * each]
        out += [2 * st for st in steps] * 2 if half else steps
    return out


# ---- maps ----

_PART_STEPS = {"1": ("e", "o"), "0": ("0", "0"), "n": ("n", "n"), "r": ("n", "n")}


def _map(pool: Any, kernel: Map, built: Build) -> Callable[..., None]:
    leaves = _leaves(arg, kernel.inputs) | _leaves(param, kernel.params)
    bodies = lower(kernel.body, leaves)
    alike = _alike(kernel, leaves, bodies)
    if alike is not None:
        return _twice(built(pool, alike), len(kernel.outputs) + len(kernel.inputs))
    types = (*kernel.outputs, *kernel.inputs)
    halves, count = _halves(types), len(types)
    steps = tuple(
        step
        for step, half in zip(kernel.steps, halves, strict=True)
        for step in (_PART_STEPS[step] if half else (step,))
    )
    rank = max(kernel.rank, 1)
    real = Map(
        _part_types(kernel.outputs),
        _part_types(kernel.inputs),
        _part_types(kernel.params),
        _flat(bodies),
        rank,
        steps,
    )
    run, params = built(pool, real), kernel.params
    known = _strides([int(step) for step in kernel.steps], 1, halves) if kernel.rank == 0 else None
    end = count + rank

    def launch(*given: Any) -> None:
        addresses = _addresses(given[:count], halves)
        if known is not None:
            run(*addresses, given[count], *known, *_split_numbers(given[end:], params))
            return
        last = end + count * rank
        strides = _strides(given[end:last], rank, halves)
        run(*addresses, *given[count:end], *strides, *_split_numbers(given[last:], params))

    return launch


def _alike(kernel: Map, leaves: dict[Expr, Any], bodies: Sequence[Any]) -> Map | None:
    """The flat real kernel that treats real and imaginary parts alike, or None."""
    types = (*kernel.outputs, *kernel.inputs)
    if (
        kernel.rank
        or kernel.params
        or any(d.kind != "c" for d in types)
        or any(st != "1" for st in kernel.steps)
    ):
        return None
    first = {leaves[e][0]: leaves[e][0] for e in leaves}
    swap = {leaves[e][0]: leaves[e][1] for e in leaves}
    for re, im in bodies:
        inside = topological([re])
        if any(e.op == "index" or (e.op == "arg" and e not in first) for e in inside):
            return None
        if rebuild([re], swap)[0] is not im:
            return None
    renumber = {leaves[arg(i, d)][0]: arg(i, real_type(d)) for i, d in enumerate(kernel.inputs)}
    body = rebuild([re for re, _ in bodies], renumber)
    outputs, inputs = (
        tuple(real_type(d) for d in group) for group in (kernel.outputs, kernel.inputs)
    )
    return Map(outputs, inputs, (), body, 0, kernel.steps)


def _twice(run: Callable[..., None], count: int) -> Callable[..., None]:
    def launch(*given: int) -> None:
        run(*given[:count], 2 * given[count])

    return launch


# ---- along an axis ----


def _rowwise(pool: Any, kernel: Rowwise, built: Build) -> Callable[..., None]:
    leaves = _leaves(arg, kernel.inputs) | _leaves(param, kernel.params)
    passes: list[Reduce] = []
    for k, step in enumerate(kernel.passes):
        (body,) = lower([step.body], leaves)
        if isinstance(body, tuple):
            if step.kind != "sum":
                raise DTypeError(f"{step.kind} along an axis is not defined for complex numbers")
            at, part = len(passes), body[0].dtype
            leaves[row(k, step.body.dtype)] = (row(at, part), row(at + 1, part))
            passes += [Reduce("sum", body[0]), Reduce("sum", body[1])]
        else:
            leaves[row(k, body.dtype)] = row(len(passes), body.dtype)
            passes.append(Reduce(step.kind, body))
    stores = _flat(lower(kernel.stores, leaves))
    types = (*kernel.outputs, *kernel.inputs)
    halves, count = _halves(types), len(types)
    kinds = tuple(
        k for k, d in zip(kernel.kinds, kernel.outputs, strict=True) for _ in _part_types([d])
    )
    run = built(
        pool,
        Rowwise(
            _part_types(kernel.outputs),
            kinds,
            _part_types(kernel.inputs),
            _part_types(kernel.params),
            tuple(passes),
            stores,
            "any",
            ("n",) * len(_part_types(types)),
        ),
    )
    end = count + 3

    def launch(*given: Any) -> None:
        last = end + 3 * count
        strides = _strides(given[end:last], 3, halves)
        params = _split_numbers(given[last:], kernel.params)
        run(*_addresses(given[:count], halves), *given[count:end], *strides, *params)

    return launch


def _scan(pool: Any, kernel: Scan, built: Build) -> Callable[..., None]:
    """A running sum is two.

    Other folds of complex numbers do not separate into real and imaginary parts.
    """
    leaves = _leaves(arg, kernel.inputs)
    state = row(0, kernel.body.dtype)
    part = real_type(kernel.body.dtype)
    ((re, im),) = lower([kernel.body], leaves | {state: (row(0, part), row(1, part))})
    ((start, _),) = lower([kernel.start], {})
    alone = all(e.value == 0 for e in topological([re]) if e.op == "row")
    swap = {row(0, part): row(1, part)} | {
        v[0]: v[1] for v in leaves.values() if isinstance(v, tuple)
    }
    if not alone or rebuild([re], swap)[0] is not im or any(d.kind != "c" for d in kernel.inputs):
        raise DTypeError("this running fold is not defined for complex numbers")
    renumber = {leaves[arg(i, d)][0]: arg(i, real_type(d)) for i, d in enumerate(kernel.inputs)}
    inputs = tuple(real_type(d) for d in kernel.inputs)
    run = built(pool, Scan(real_type(kernel.output), inputs, start, rebuild([re], renumber)[0]))
    count, half = 1 + len(inputs), kernel.output.itemsize // 2
    return _each_part(run, tuple(range(count)), count, 3, half)


def _each_part(
    run: Callable[..., None], operands: Sequence[int], count: int, sizes: int, half: int
) -> Callable[..., None]:
    """Run for both parts of the named operands: at once along the third size, else in turn."""
    places = set(operands)

    def launch(*given: int) -> None:
        at = count + sizes
        steps = given[at:]
        inner = given[count + 2]
        if inner == 1 or all(
            steps[k] == (1 if k // 3 in places else 0) for k in range(2, len(steps), 3)
        ):
            dense = [
                st
                for k in range(0, len(steps), 3)
                for st in (
                    (2 * steps[k], 2 * steps[k + 1], 1)
                    if k // 3 in places
                    else (*steps[k : k + 2], 0)
                )
            ]
            run(*given[: count + 2], 2 * inner, *given[count + 3 : at], *dense)
            return
        strides = [2 * st if k // 3 in places else st for k, st in enumerate(steps)]
        for skip in (0, half):
            addresses = [a + skip if i in places else a for i, a in enumerate(given[:count])]
            run(*addresses, *given[count:at], *strides)

    return launch


# ---- indices ----


def _indexed(pool: Any, kernel: Gather | Scatter, built: Build) -> Callable[..., None]:
    if isinstance(kernel, Scatter) and kernel.kind not in ("add", "set"):
        raise DTypeError(
            f"scatter: no {kernel.kind} of complex numbers; scatter with sum, or without a "
            "reduction"
        )
    run = built(pool, replace(kernel, dtype=real_type(kernel.dtype)))
    # Addresses are out, source, index, status; the strides are those of the first three.
    return _each_part(run, (0, 1), 4, 4, kernel.dtype.itemsize // 2)


# ---- contractions ----


def _contract(pool: Any, kernel: Contract, built: Build) -> Callable[..., None]:
    part = real_type(kernel.dtype)
    multiply = built(pool, Contract(part, part))
    a0 = arg(0, part)
    copy = built(pool, Map((part,), (part,), (), (a0,), 5, ("1", "n")))
    # Row 2k is (re, im) of b's row k, row 2k + 1 is (-im, re).
    blocks = built(
        pool,
        Map(
            (part,) * 4,
            (part,) * 2,
            (),
            (a0, arg(1, part), -arg(1, part), a0),
            4,
            (*"eoeo", "n", "n"),
        ),
    )
    size, half = part.itemsize, part.itemsize

    def launch(out: int, a: int, b: int, *numbers: int) -> None:
        x, y, m, n, k = numbers[:5]
        out_steps, a_steps, b_steps = (numbers[5 + 4 * i : 9 + 4 * i] for i in range(3))
        if not x * y * m * n:
            return
        # A matrix that serves a whole batch is converted once.
        ax, ay = (c if st else 1 for c, st in zip((x, y), a_steps[:2], strict=True))
        bx, by = (c if st else 1 for c, st in zip((x, y), b_steps[:2], strict=True))
        a_room, b_room = (
            room_for(count * size) for count in (ax * ay * m * k * 2, bx * by * k * n * 4)
        )
        copied = a_steps[3] != 1
        rooms = (a_room, b_room) if copied else (b_room,)
        with Scratch(pool, *rooms) as (*copies, right):
            left = copies[0] if copied else a
            if k:
                source = (*(2 * st for st in a_steps), 1)
                target = (ay * m * k * 2, m * k * 2, k * 2, 2, 1)
                if copied:
                    copy(left, a, ax, ay, m, k, 2, *target, *source)
                steps = (by * k * n * 4, k * n * 4, n * 4, 2)
                at = right + n * 2 * size
                blocks(
                    right, right + half, at, at + half, b, b + half,
                    bx, by, k, n, *steps * 4, *[2 * st for st in b_steps] * 2,
                )  # fmt: skip
            a_lead = (
                (ay * m * k * 2, m * k * 2, k * 2)
                if copied
                else tuple(2 * st for st in a_steps[:3])
            )
            a_final = tuple(
                0 if st == 0 else lead for st, lead in zip(a_steps[:2], a_lead, strict=False)
            )
            b_final = tuple(
                0 if st == 0 else lead
                for st, lead in zip(b_steps[:2], (by * k * n * 4, k * n * 4), strict=True)
            )
            final = (
                *(2 * st for st in out_steps[:3]), 1,
                *a_final, a_lead[2], 1,
                *b_final, n * 2, 1,
            )  # fmt: skip
            multiply(out, left, right, x, y, m, n * 2, k * 2, *final)

    return launch
