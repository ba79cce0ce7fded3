"""Formulas with more values at once than registers: some wait in memory, and the bits are the same."""

from __future__ import annotations

import rushlight as rl
from rushlight.emit import llvm, llvm_spill
from rushlight.kernel.shapes import Map
from rushlight.scalar.ir import Expr, arg, topological


def _wide(count: int) -> Expr:
    """A sum of `count` products that are all made before the first is added, each used twice."""
    x = arg(0, rl.float64)
    values = [x * (1.0 + 0.01 * k) + x * x for k in range(count)]
    first, second = values[0], values[0]
    for value in values[1:]:
        first = first + value * value
    for value in values[1:]:
        second = second * 0.5 + value
    return first - second


def _text(count: int) -> str:
    return llvm.emit(Map((rl.float64,), (rl.float64,), (), (_wide(count),), 0, ("1", "1")))


def test_only_where_there_are_many() -> None:
    assert "volatile" not in _text(20)
    text = _text(90)
    assert text.count("store volatile") >= 90 - llvm_spill.MANY
    assert text.count("load volatile") >= text.count("store volatile")


def test_every_value_is_loaded_before_it_is_used_again() -> None:
    body = _wide(90)
    order = topological((body,))
    spills = llvm_spill.plan(order, lambda e: e.args, (body,))
    at = {expr: i for i, expr in enumerate(order)}
    held: set[Expr] = set()
    for expr in order:
        held.update(spills.loads.get(expr, ()))
        missing = [a for a in expr.args if a.op != "const" and a not in held]
        assert not missing, f"{missing} at {at[expr]}"
        held.add(expr)
        held.difference_update(spills.stores.get(expr, ()))
    assert body in held or body in spills.last
