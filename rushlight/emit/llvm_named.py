"""Which parts of a very long formula are written as calls: named formulas that it contains several times."""

from __future__ import annotations

from collections import Counter
from functools import cache

from rushlight.core.dtypes import DType
from rushlight.scalar.elementary import lower
from rushlight.scalar.ir import Expr, rebuild, topological
from rushlight.scalar.named import USES, Named, Use, template

VERY_LONG = 500  # instructions from which on building takes longer than calls are worth
LEAST = 12  # instructions of a function


@cache
def lowered_template(named: Named, dtypes: tuple[DType, ...]) -> tuple[Expr, tuple[Expr, ...]]:
    """The formula of placeholders, of basic instructions."""
    made, given = template(named, dtypes)
    return lower((made,))[0], given


def uses_in(every: tuple[Expr, ...]) -> dict[Expr, Use]:
    """The expressions that may be calls, if `is_use`."""
    if len(every) < VERY_LONG:
        return {}
    inside = set(every)
    found = {e: USES[e] for e in every if e in USES and inside.issuperset(USES[e].given)}
    counts = Counter((use.named, use.dtypes) for use in found.values())
    return {e: use for e, use in found.items() if counts[use.named, use.dtypes] > 1}


def is_use(expr: Expr, use: Use) -> bool:
    """Whether the expression is, instruction by instruction, what the function computes, and that is worth a call."""
    made, placeholders = lowered_template(use.named, use.dtypes)
    if len(topological((made,))) < LEAST:
        return False
    return rebuild((made,), dict(zip(placeholders, use.given, strict=True)))[0] is expr
