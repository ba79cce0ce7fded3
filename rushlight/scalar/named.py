"""Formulas by name: what a long expression contains several times, an emitter may write once, as a function.

`@named` changes nothing about the expression that a formula makes; it is remembered in USES whose it is. `seldom` neither:
it is remembered in SELDOM where nobody looks at a formula's results, so that an emitter may leave it out there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from rushlight.core.dtypes import DType
from rushlight.scalar.ir import Expr, make

FIRST = 10_000  # the number of the first placeholder: above those of any kernel's inputs


class Named:
    """A formula of one result."""

    def __init__(self, formula: Callable[..., Expr]) -> None:
        self.formula, self.name = formula, f"{formula.__module__}.{formula.__qualname__}"
        self.__doc__ = formula.__doc__

    def __call__(self, *given: Expr) -> Expr:
        made = self.formula(*given)
        if made.args:
            USES.setdefault(made, Use(self, given))
        return made


@dataclass(frozen=True)
class Use:
    """What an expression is: a formula of operands."""

    named: Named
    given: tuple[Expr, ...]

    @property
    def dtypes(self) -> tuple[DType, ...]:
        return tuple(g.dtype for g in self.given)


USES: dict[Expr, Use] = {}
named = Named


@cache
def template(named: Named, dtypes: tuple[DType, ...]) -> tuple[Expr, tuple[Expr, ...]]:
    """The formula of placeholders, and these."""
    given = tuple(make("arg", (), dtype, FIRST + i) for i, dtype in enumerate(dtypes))
    return named.formula(*given), given


@dataclass(frozen=True, eq=False)
class Seldom:
    """The results of a formula, which are chosen only where `unless` does not hold: select(unless, other, result)."""

    formula: Callable[..., tuple[Expr, ...]]
    given: tuple[Expr, ...]
    unless: Expr
    made: tuple[Expr, ...]


SELDOM: dict[Expr, Seldom] = {}


def seldom(
    unless: Expr, formula: Callable[..., tuple[Expr, ...]], *given: Expr
) -> tuple[Expr, ...]:
    made = formula(*given)
    found = Seldom(formula, given, unless, made)
    for expr in made:
        SELDOM.setdefault(expr, found)
    return made


@cache
def seldom_template(
    formula: Callable[..., tuple[Expr, ...]], dtypes: tuple[DType, ...]
) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
    """The formula's results of placeholders, and these."""
    given = tuple(make("arg", (), dtype, FIRST + i) for i, dtype in enumerate(dtypes))
    return formula(*given), given
