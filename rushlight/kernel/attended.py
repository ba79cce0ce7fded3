"""The meaning of Attend over an abstract array library."""

from __future__ import annotations

import math
from typing import Any

from rushlight.core.dtypes import bool_, compute_type, float32, int64
from rushlight.kernel.attend import DROPOUT, inner_sizes, kept, operands_of
from rushlight.kernel.machine import Call, Machine
from rushlight.kernel.shapes import Attend
from rushlight.scalar import build as s
from rushlight.scalar.interpret import evaluate
from rushlight.scalar.ir import Expr, arg, param


def attend(kernel: Attend, call: Call, machine: Machine) -> None:
    """Batch by batch. The gradients of a mask that is shared add up in the order of the batch."""
    x, y, z, rows, _ = call.sizes
    totals: dict[int, Any] = {}
    for place, at in enumerate((i, j, k) for i in range(x) for j in range(y) for k in range(z)):
        one = _Slice(kernel, call, machine, at, place)
        if kernel.of == "output":
            _output(one)
        elif kernel.of == "along":
            products = one.apply("mul", one.load("g", "column"), one.load("out", "column"))
            one.store("along", one.sum(products, rows, kernel.depth, 1))
        elif kernel.of == "mask":
            there, (_, slope) = one.address("dmask"), one.slopes(by_keys=False)
            totals[there] = one.apply("add", totals[there], slope) if there in totals else slope
            one.store("dmask", totals[there], "column")
        else:
            _gradients(one, by_keys=kernel.of == "keys")


def _output(one: _Slice) -> None:
    scores = one.scores(by_keys=False)
    rows, keys, depth = one.rows, one.keys, one.kernel.depth
    highest = one.machine.fold("max", one.compute, scores, (rows, keys, 1))
    top = one.choose(one.apply("eq", highest, one.number(-math.inf)), 0.0, highest)
    powers = one.apply("exp", one.apply("sub", scores, top))
    total = one.sum(powers, rows, keys, 1)
    (used,) = one.dropped(powers, by_keys=False)
    made = one.sum(one.apply("mul", used, one.load("v", "other")), rows, keys, depth)
    empty = one.apply("eq", total, one.number(0.0))
    one.store("out", one.choose(empty, 0.0, one.apply("div", made, total)))
    one.store("level", one.choose(empty, 0.0, one.apply("add", top, one.apply("log", total))))


def _gradients(one: _Slice, by_keys: bool) -> None:
    used, slope = one.slopes(by_keys)
    width, depth = one.kernel.width, one.kernel.depth
    own, other = (one.keys, one.rows) if by_keys else (one.rows, one.keys)
    products = one.apply("mul", slope, one.load("q" if by_keys else "k", "other"))
    total = one.apply("mul", one.sum(products, own, other, width), one.number(one.call.params[0]))
    one.store("dk" if by_keys else "dq", total)
    if by_keys:
        products = one.apply("mul", used, one.load("g", "other"))
        one.store("dv", one.sum(products, own, other, depth))


class _Slice:
    """One position of the batch. Arrays are (own, other, features): sums go along the second.

    The own dimension is that of the result: keys where it is by keys, else rows.
    """

    def __init__(
        self, kernel: Attend, call: Call, machine: Machine, at: tuple[int, int, int], place: int
    ) -> None:
        self.kernel, self.call, self.machine, self.at, self.place = kernel, call, machine, at, place
        self.rows, self.keys = call.sizes[3:]
        self.compute = compute_type(kernel.dtype)
        self.types = operands_of(kernel)
        self.numbers = {name: i for i, name in enumerate(self.types)}

    def address(self, name: str) -> int:
        number = self.numbers[name]
        moves = zip(self.at, self.call.strides[number], strict=False)
        offset = sum(i * step for i, step in moves) * self.types[name].itemsize
        return self.call.addresses[number] + offset

    def view(self, name: str, kind: str) -> Any:
        """Memory (n, m) as own (n, 1, m), other (1, n, m), column (n, m, 1), turned (m, n, 1)."""
        steps = self.call.strides[self.numbers[name]][3:]
        n, m = inner_sizes(self.kernel, name, self.rows, self.keys)
        sizes, strides = {
            "own": ((n, 1, m), (steps[0], 0, steps[1])),
            "other": ((1, n, m), (0, *steps)),
            "column": ((n, m, 1), (*steps, 0)),
            "turned": ((m, n, 1), (steps[1], steps[0], 0)),
        }[kind]
        return self.machine.view(self.address(name), self.types[name], sizes, strides)

    def load(self, name: str, kind: str) -> Any:
        return self.machine.load(self.types[name], self.view(name, kind))

    def store(self, name: str, values: Any, kind: str = "own") -> None:
        self.machine.store(self.types[name], self.view(name, kind), values)

    def number(self, value: float) -> Any:
        return self.machine.number(self.compute, value)

    def apply(self, op: str, *values: Any) -> Any:
        return self.machine.arithmetic[op](self.compute, *values)

    def choose(self, test: Any, yes: float, no: Any) -> Any:
        return self.apply("select", test, self.number(yes), no)

    def sum(self, values: Any, *sizes: int) -> Any:
        return self.machine.fold("sum", self.compute, values, sizes)

    def products(self, rows: str, keys: str, by_keys: bool) -> Any:
        own, other = (keys, rows) if by_keys else (rows, keys)
        return self.machine.contract(
            self.compute, self.load(other, "other"), self.load(own, "column")
        )

    def places(self, by_keys: bool) -> tuple[Any, Any]:
        """The row and the key of each score, int64."""
        own, other = (self.keys, self.rows) if by_keys else (self.rows, self.keys)
        here, there = self.machine.positions((own, 1, 1)), self.machine.positions((1, other, 1))
        return (there, here) if by_keys else (here, there)

    def scores(self, by_keys: bool) -> Any:
        """Scaled and masked."""
        found = self.apply(
            "mul", self.products("q", "k", by_keys), self.number(self.call.params[0])
        )
        if self.kernel.mask is not None:
            mask = self.load("mask", "turned" if by_keys else "column")
            if self.kernel.mask is bool_:
                found = self.apply("select", mask, found, self.number(-math.inf))
            else:
                found = self.apply("add", found, self.apply("cast", mask))
        if self.kernel.causal:
            row, key = self.places(by_keys)
            seen = self.apply("le", key, row)
            found = self.apply("select", seen, found, self.number(-math.inf))
        return found

    def dropped(self, *values: Any, by_keys: bool) -> tuple[Any, ...]:
        if not self.kernel.dropout:
            return values
        row, key = self.places(by_keys)
        position = (row + self.place * self.rows) * self.keys + key
        leaves = {arg(0, int64): position}
        for i, dtype in enumerate(DROPOUT):
            leaves[param(i, dtype)] = self.machine.number(dtype, self.call.params[1 + i])
        test = kept(param(0, int64), param(1, int64) + arg(0, int64), param(2, float32))
        bodies = (test, s.cast(param(3, float32), self.compute))

        def leaf(expr: Expr) -> Any:
            if expr.op == "const":
                assert expr.value is not None
                return self.machine.number(expr.dtype, expr.value)
            return leaves[expr]

        keeps, factor = evaluate(bodies, leaf, self.machine.arithmetic)
        zero = self.number(0.0)
        return tuple(
            self.apply("select", keeps, self.apply("mul", v, factor), zero) for v in values
        )

    def slopes(self, by_keys: bool) -> tuple[Any, Any]:
        """Probabilities after dropout, and the gradient of the scores before the scale."""
        kind = "other" if by_keys else "own"
        level, along = self.load("level", kind), self.load("along", kind)
        p = self.apply("exp", self.apply("sub", self.scores(by_keys), level))
        used, g = self.dropped(p, self.products("g", "v", by_keys), by_keys=by_keys)
        return used, self.apply("mul", p, self.apply("sub", g, along))
