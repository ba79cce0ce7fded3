"""The meaning of each loop shape, written once over an abstract array library.

A `Machine` supplies the arrays; the reference device's is NumPy. `signature` says how a kernel's
flat arguments are counted, for every caller that packs or checks them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rushlight.core.dtypes import compute_type, int32, int64
from rushlight.core.shapes import contiguous_strides
from rushlight.kernel.attend import operands_of, params_of
from rushlight.kernel.attended import attend
from rushlight.kernel.machine import Call, Machine, Sizes
from rushlight.kernel.shapes import (
    PANEL,
    Attend,
    Cell,
    Contract,
    Convolve,
    Gather,
    Kernel,
    Library,
    Map,
    Rowwise,
    Scan,
    Scatter,
    Search,
    Sort,
)
from rushlight.scalar.interpret import evaluate
from rushlight.scalar.ir import Expr, arg, param


@dataclass(frozen=True, slots=True)
class Signature:
    """The count of each sort of number in a launch, in the order of Note [Kernel arguments]."""

    addresses: int
    sizes: int
    strides: tuple[int, ...]  # per operand
    params: int

    @property
    def total(self) -> int:
        return self.addresses + self.sizes + sum(self.strides) + self.params


def signature(kernel: Kernel) -> Signature:
    if isinstance(kernel, Map):
        operands = len(kernel.outputs) + len(kernel.inputs)
        addresses = operands + (kernel.anomaly is not None)  # see Note [Anomaly kernels]
        return Signature(addresses, kernel.rank or 1, (kernel.rank,) * operands, len(kernel.params))
    if isinstance(kernel, Rowwise):
        operands = len(kernel.outputs) + len(kernel.inputs)
        addresses = operands + (kernel.anomaly is not None)
        return Signature(addresses, 3, (3,) * operands, len(kernel.params))
    if isinstance(kernel, Scan):
        operands = 1 + len(kernel.inputs)
        return Signature(operands, 3, (3,) * operands, 0)
    if isinstance(kernel, Contract):
        operands = 4 if kernel.added else 3
        return Signature(operands, 5, (4,) * operands, len(kernel.params))
    if isinstance(kernel, Attend):
        count = len(operands_of(kernel))
        return Signature(count, 5, (5,) * count, len(params_of(kernel)))
    if isinstance(kernel, Convolve):
        return Signature(2 if kernel.of == "turned" else 3, 5 + 6 * kernel.rank, (), 0)
    if isinstance(kernel, Sort):
        return Signature(3, 4, (3, 3, 3), 0)
    if isinstance(kernel, Search):
        return Signature(3, 3, (2, 2, 2), 0)
    if isinstance(kernel, Cell):
        outputs = len(kernel.body)
        strides = (1,) * (outputs + 1) + (0,) + (1,) * kernel.inputs
        return Signature(len(strides), 3, strides, 0)
    if isinstance(kernel, Library):
        return Signature(len(kernel.ranks), sum(kernel.ranks), (), 0)
    return Signature(4, 4, (3, 3, 3), 0)


def sort_arguments(kernel: Kernel, numbers: Sequence[Any]) -> Call:
    """Raises TypeError for a wrong count and for anything but numbers."""
    shape = signature(kernel)
    if len(numbers) != shape.total:
        name = type(kernel).__name__
        raise TypeError(f"{name} kernel takes {shape.total} numbers, got {len(numbers)}")
    numeric = len(numbers) - shape.params
    whole = [operator.index(n) for n in numbers[:numeric]]
    for n in numbers[numeric:]:
        if not isinstance(n, (bool, int, float)):
            raise TypeError(f"a kernel parameter must be a number, got {type(n).__name__}")
    position = shape.addresses + shape.sizes
    strides = []
    for count in shape.strides:
        strides.append(tuple(whole[position : position + count]))
        position += count
    sizes = tuple(whole[shape.addresses : shape.addresses + shape.sizes])
    return Call(tuple(whole[: shape.addresses]), sizes, tuple(strides), tuple(numbers[numeric:]))


def interpret(kernel: Kernel, call: Call, machine: Machine) -> None:
    """Run one launch."""
    if isinstance(kernel, Map):
        _map(kernel, call, machine)
    elif isinstance(kernel, Rowwise):
        _rowwise(kernel, call, machine)
    elif isinstance(kernel, Scan):
        _scan(kernel, call, machine)
    elif isinstance(kernel, Contract):
        _contract(kernel, call, machine)
    elif isinstance(kernel, Attend):
        if kernel.of == "operands":
            raise TypeError("all gradients of attention are composed of its other forms")
        attend(kernel, call, machine)
    elif isinstance(kernel, Cell):
        _cell(kernel, call, machine)
    elif isinstance(kernel, Sort):
        _sort(kernel, call, machine)
    elif isinstance(kernel, Search):
        _search(kernel, call, machine)
    elif isinstance(kernel, Convolve):
        _convolve(kernel, call, machine)
    elif isinstance(kernel, Library):
        raise TypeError(
            f"{kernel.function} is a library's function, which devices/library calls; it has no "
            "loop"
        )
    else:
        _indexed(kernel, call, machine)


def _map(kernel: Map, call: Call, machine: Machine) -> None:
    strides = call.strides if kernel.rank else tuple((int(step),) for step in kernel.steps)
    operands = zip(call.addresses, kernel.outputs + kernel.inputs, strides, strict=True)
    views = [machine.view(address, dtype, call.sizes, step) for address, dtype, step in operands]
    count = len(kernel.outputs)

    def leaf(expr: Expr) -> Any:
        if expr.op == "index":
            return machine.positions(call.sizes)
        if expr.op != "arg":
            return _number(expr, call, machine)
        number = int(expr.value or 0)
        return machine.load(kernel.inputs[number], views[count + number])

    # All bodies before any store: an output may share its memory with an input.
    results = evaluate(kernel.body, leaf, machine.arithmetic)
    for dtype, view, values in zip(kernel.outputs, views, results, strict=False):
        machine.store(dtype, view, values)


def _number(expr: Expr, call: Call, machine: Machine) -> Any:
    value = call.params[int(expr.value or 0)] if expr.op == "param" else expr.value
    assert value is not None
    return machine.number(compute_type(expr.dtype), value)


def _rowwise(kernel: Rowwise, call: Call, machine: Machine) -> None:
    outer, axis, inner = call.sizes
    count = len(kernel.outputs)
    rows: list[Any] = []

    def leaf_over(sizes: Sizes) -> Callable[[Expr], Any]:
        def leaf(expr: Expr) -> Any:
            if expr.op == "index":
                return machine.positions((1, sizes[1], 1))
            if expr.op == "extent":
                return machine.number(expr.dtype, axis)
            if expr.op not in ("row", "arg"):
                return _number(expr, call, machine)
            number = int(expr.value or 0)
            if expr.op == "row":
                return rows[number]
            address, strides = call.addresses[count + number], call.strides[count + number]
            if sizes[1] != axis and strides[1]:
                raise ValueError(f"a row store uses arg{number}, which moves along the axis")
            dtype = kernel.inputs[number]
            return machine.load(dtype, machine.view(address, dtype, sizes, strides))

        return leaf

    # Positions of the axis for passes and element stores; one position for row stores.
    along, once = leaf_over((outer, axis, inner)), leaf_over((outer, 1, inner))
    for step in kernel.passes:
        (values,) = evaluate((step.body,), along, machine.arithmetic)
        rows.append(machine.fold(step.kind, step.body.dtype, values, call.sizes))
    results = [
        evaluate((body,), along if kind == "element" else once, machine.arithmetic)[0]
        for body, kind in zip(kernel.stores, kernel.kinds, strict=True)
    ]
    for number, (dtype, kind) in enumerate(zip(kernel.outputs, kernel.kinds, strict=True)):
        sizes = call.sizes if kind == "element" else (outer, 1, inner)
        view = machine.view(call.addresses[number], dtype, sizes, call.strides[number])
        machine.store(dtype, view, results[number])


def _scan(kernel: Scan, call: Call, machine: Machine) -> None:
    outer, axis, inner = call.sizes
    dtypes = (kernel.output, *kernel.inputs)
    assert kernel.start.value is not None
    state = machine.number(kernel.start.dtype, kernel.start.value)

    def slice_at(number: int, a: int) -> Any:
        dtype, strides = dtypes[number], call.strides[number]
        place = call.addresses[number] + a * strides[1] * dtype.itemsize
        return machine.view(place, dtype, (outer, 1, inner), strides)

    def leaf(expr: Expr) -> Any:
        if expr.op == "row":
            return state
        if expr.op == "index":
            return machine.number(expr.dtype, a)
        if expr.op != "arg":
            return _number(expr, call, machine)
        number = int(expr.value or 0)
        return machine.load(kernel.inputs[number], slice_at(1 + number, a))

    for a in range(axis):
        (state,) = evaluate((kernel.body,), leaf, machine.arithmetic)
        machine.store(kernel.output, slice_at(0, a), state)


def _contract(kernel: Contract, call: Call, machine: Machine) -> None:
    x, y, m, n, k = call.sizes
    shapes = ((x, y, m, n), (x, y, m, k), (x, y, k, n), (x, y, m, n))
    operands = zip(call.addresses, shapes, call.strides, strict=False)
    out, *given = (
        machine.view(address, kernel.dtype, sizes, steps) for address, sizes, steps in operands
    )
    a, b, *added = (machine.load(kernel.dtype, view) for view in given)
    values = machine.contract(kernel.compute, a, b)
    if kernel.scaled:
        values = _sum_of_scaled(kernel, call, machine, values, machine.load(kernel.dtype, out))
    for more in added:
        values = machine.arithmetic["add"](kernel.compute, values, more)
    machine.store(kernel.dtype, out, values)


def _sum_of_scaled(kernel: Contract, call: Call, machine: Machine, values: Any, before: Any) -> Any:
    alpha, beta = (param(i, kernel.compute) for i in range(2))
    body = alpha * arg(0, kernel.compute) + beta * arg(1, kernel.compute)

    def leaf(expr: Expr) -> Any:
        if expr.op == "arg":
            return (values, before)[int(expr.value or 0)]
        return _number(expr, call, machine)

    return evaluate((body,), leaf, machine.arithmetic)[0]


def _cell(kernel: Cell, call: Call, machine: Machine) -> None:
    whole, rest = divmod(call.sizes[1], PANEL)
    for first, panels, columns in ((0, whole, PANEL), (whole, 1, rest)):
        _panels(kernel, call, machine, first, (panels, columns))


def _panels(kernel: Cell, call: Call, machine: Machine, first: int, sizes: tuple[int, int]) -> None:
    """Some panels from the first one on, of so many columns each.

    Every operand has the axes (panel, 1, row, column).
    """
    (rows, _, terms), (panels, columns) = call.sizes, sizes
    dtype, count = kernel.dtype, len(kernel.body)
    size, panel = dtype.itemsize, kernel.products * terms * PANEL

    def matrix(number: int) -> Any:
        place = call.addresses[number] + first * PANEL * size
        strides = (PANEL, 0, *call.strides[number], 1)
        return machine.view(place, dtype, (panels, 1, rows, columns), strides)

    def product(q: int) -> Any:
        place = call.addresses[count + 1] + (first * panel + q * terms * PANEL) * size
        weights = machine.view(place, dtype, (panels, 1, terms, columns), (panel, 0, PANEL, 1))
        steps = (0, 0, *call.strides[count], 1)
        state = machine.view(call.addresses[count], dtype, (panels, 1, rows, terms), steps)
        loaded = machine.load(dtype, state), machine.load(dtype, weights)
        return machine.contract(compute_type(dtype), *loaded)

    def leaf(expr: Expr) -> Any:
        if expr.op != "arg":
            return _number(expr, call, machine)
        number = int(expr.value or 0)
        if number < kernel.products:
            return product(number)
        return machine.load(dtype, matrix(count + 2 + number - kernel.products))

    for number, values in enumerate(evaluate(kernel.body, leaf, machine.arithmetic)):
        machine.store(dtype, matrix(number), values)


def _convolve(kernel: Convolve, call: Call, machine: Machine) -> None:
    if kernel.of not in ("image", "back", "weights"):
        raise TypeError(f"Convolve of {kernel.of} is a step of the CPU's, which others do not take")
    rank, (n, g, m, c) = kernel.rank, call.sizes[:4]
    geometry = [call.sizes[4 + rank * i : 4 + rank * (i + 1)] for i in range(6)]
    pixels, window, image = geometry[:3]
    x, y, w = (n, g, c, *image), (n, g, m, *pixels), (g, m, c, *window)
    shapes = {"image": (y, x, w), "back": (x, y, w), "weights": (w, y, x)}[kernel.of]
    out, a, b = (
        machine.view(address, kernel.dtype, shape, contiguous_strides(shape))
        for address, shape in zip(call.addresses, shapes, strict=True)
    )
    loaded = (machine.load(kernel.dtype, a), machine.load(kernel.dtype, b))
    values = machine.convolve(kernel.of, compute_type(kernel.dtype), *loaded, geometry)
    machine.store(kernel.dtype, out, values)


def _sort(kernel: Sort, call: Call, machine: Machine) -> None:
    outer, axis, inner, keep = call.sizes
    values = machine.view(call.addresses[0], kernel.dtype, (outer, keep, inner), call.strides[0])
    positions = machine.view(call.addresses[1], int64, (outer, keep, inner), call.strides[1])
    source = machine.view(call.addresses[2], kernel.dtype, (outer, axis, inner), call.strides[2])
    machine.store(
        int64, positions, machine.order(kernel.dtype, source, kernel.descending)[:, :keep]
    )
    machine.gather(values, source, positions)


def _search(kernel: Search, call: Call, machine: Machine) -> None:
    rows, count, length = call.sizes
    out = machine.view(call.addresses[0], int64, (rows, count), call.strides[0])
    line = machine.view(call.addresses[1], kernel.dtype, (rows, length), call.strides[1])
    wanted = machine.view(call.addresses[2], kernel.dtype, (rows, count), call.strides[2])
    line, wanted = machine.load(kernel.dtype, line), machine.load(kernel.dtype, wanted)
    machine.store(int64, out, machine.search(line, wanted, kernel.right))


def _indexed(kernel: Gather | Scatter, call: Call, machine: Machine) -> None:
    outer, count, inner, limit = call.sizes
    picked, whole = (outer, count, inner), (outer, limit, inner)
    sizes = (picked, whole) if isinstance(kernel, Gather) else (whole, picked)
    out = machine.view(call.addresses[0], kernel.dtype, sizes[0], call.strides[0])
    source = machine.view(call.addresses[1], kernel.dtype, sizes[1], call.strides[1])
    index = machine.view(call.addresses[2], kernel.index_dtype, picked, call.strides[2])
    if isinstance(kernel, Gather):
        bad = machine.gather(out, source, index)
    else:
        bad = machine.scatter(kernel.kind, kernel.dtype, out, source, index)
    if bad:
        status = machine.view(call.addresses[3], int32, (1,), (1,))
        machine.store(int32, status, machine.number(int32, 1))
