"""Which parts of a formula are written as calls.

In a very long formula, named formulas that occur several times; in any formula, skippable ones.
"""

from __future__ import annotations

from collections import Counter
from functools import cache

from rushlight.core.dtypes import DType
from rushlight.scalar.elementary import lower
from rushlight.scalar.ir import Expr, topological
from rushlight.scalar.named import (
    SKIPPABLE,
    USES,
    Named,
    Skippable,
    Use,
    skippable_template,
    template,
)

VERY_LONG = 500  # instructions above which building costs more than calls
LEAST = 12  # instructions of a function


@cache
def lowered_template(named: Named, dtypes: tuple[DType, ...]) -> tuple[Expr, tuple[Expr, ...]]:
    """The formula of placeholders, lowered to basic instructions."""
    made, given = template(named, dtypes)
    return lower((made,), fused=True)[0], given


def uses_in(every: tuple[Expr, ...]) -> dict[Expr, Use]:
    """The expressions that may become calls, if `is_use`."""
    if len(every) < VERY_LONG:
        return {}
    inside = set(every)
    found = {e: USES[e] for e in every if e in USES and inside.issuperset(USES[e].given)}
    counts = Counter((use.named, use.dtypes) for use in found.values())
    return {e: use for e, use in found.items() if counts[use.named, use.dtypes] > 1}


def is_use(expr: Expr, use: Use) -> bool:
    """Whether the expression is exactly what the function computes, and long enough for a call."""
    made, placeholders = lowered_template(use.named, use.dtypes)
    if len(topological((made,))) < LEAST:
        return False
    return _is_instance((made,), placeholders, (expr,), use.given)


def _is_instance(
    made: tuple[Expr, ...],
    placeholders: tuple[Expr, ...],
    exprs: tuple[Expr, ...],
    given: tuple[Expr, ...],
) -> bool:
    """Whether the expressions are those of placeholders, with the operands substituted."""
    found = dict(zip(placeholders, given, strict=True))
    pairs = list(zip(made, exprs, strict=True))
    while pairs:
        general, special = pairs.pop()
        other = found.get(general)
        if other is None and general is not special:
            if (
                general.op != special.op
                or general.dtype is not special.dtype
                or len(general.args) != len(special.args)
            ):
                return False
            if not general.args:
                return False
            found[general] = special
            pairs += zip(general.args, special.args, strict=True)
        elif other is not None and other is not special:
            return False
    return True


def skippable_in(every: tuple[Expr, ...], roots: tuple[Expr, ...]) -> list[Skippable]:
    """Skippable formulas whose results only selects by their condition use."""
    found = list({id(SKIPPABLE[e]): SKIPPABLE[e] for e in every if e in SKIPPABLE}.values())
    if not found:
        return []
    users: dict[Expr, list[Expr]] = {e: [] for part in found for e in part.made}
    for expr in every:
        for operand in expr.args:
            if operand in users:
                users[operand].append(expr)
    return [part for part in found if _is_guarded(part, users, roots) and _is_made(part)]


def _is_guarded(part: Skippable, users: dict[Expr, list[Expr]], roots: tuple[Expr, ...]) -> bool:
    for made in part.made:
        for user in users[made]:
            chosen = user.op == "select" and user.args[0] is part.unless and user.args[2] is made
            if not chosen or user.args[1] is made:
                return False
    return not any(made in roots for made in part.made)


def _is_made(part: Skippable) -> bool:
    """Whether the results are exactly what the function computes."""
    made, placeholders = skippable_template(part.formula, tuple(g.dtype for g in part.given))
    return _is_instance(made, placeholders, part.made, part.given)
