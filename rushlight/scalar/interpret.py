"""Evaluation of expressions by an arithmetic that the caller supplies.

The walk is the same for Python numbers, NumPy arrays or anything else: this file knows none of
them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rushlight.scalar.ir import LEAVES, Expr, topological

# Called as function(dtype of the result, *operands).
Arithmetic = Mapping[str, Callable[..., Any]]


def evaluate(
    roots: Sequence[Expr], leaf: Callable[[Expr], Any], arithmetic: Arithmetic
) -> list[Any]:
    """The value of each root. `leaf` gives the values of leaves, constants included."""
    values: dict[Expr, Any] = {}
    for expr in topological(list(roots)):
        if expr.op in LEAVES:
            values[expr] = leaf(expr)
        else:
            values[expr] = arithmetic[expr.op](expr.dtype, *[values[a] for a in expr.args])
    return [values[r] for r in roots]
