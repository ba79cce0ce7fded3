"""Named formulas: an emitter may print one that an expression contains several times as a function.

`@named` does not change the expression that a formula makes; USES maps the expression to its
formula. `skippable` does not either: SKIPPABLE lists results that are selected under a condition,
so that an emitter may branch around the formula.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from rushlight.core.dtypes import DType
from rushlight.scalar.ir import Expr, make

FIRST = 10_000  # the number of the first placeholder, above those of any kernel's inputs


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
    """The origin of an expression: a formula and its operands."""

    named: Named
    given: tuple[Expr, ...]

    @property
    def dtypes(self) -> tuple[DType, ...]:
        return tuple(g.dtype for g in self.given)


USES: dict[Expr, Use] = {}
named = Named


@cache
def template(named: Named, dtypes: tuple[DType, ...]) -> tuple[Expr, tuple[Expr, ...]]:
    """The formula applied to placeholders, and the placeholders."""
    given = tuple(make("arg", (), dtype, FIRST + i) for i, dtype in enumerate(dtypes))
    return named.formula(*given), given


@dataclass(frozen=True, eq=False)
class Skippable:
    """Results of a formula that are used only where `unless` is false.

    The use is select(unless, other, result).
    """

    formula: Callable[..., tuple[Expr, ...]]
    given: tuple[Expr, ...]
    unless: Expr
    made: tuple[Expr, ...]


SKIPPABLE: dict[Expr, Skippable] = {}


def skippable(
    unless: Expr, formula: Callable[..., tuple[Expr, ...]], *given: Expr
) -> tuple[Expr, ...]:
    made = formula(*given)
    found = Skippable(formula, given, unless, made)
    for expr in made:
        SKIPPABLE.setdefault(expr, found)
    return made


@cache
def skippable_template(
    formula: Callable[..., tuple[Expr, ...]], dtypes: tuple[DType, ...]
) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
    """The formula's results for placeholders, and the placeholders."""
    given = tuple(make("arg", (), dtype, FIRST + i) for i, dtype in enumerate(dtypes))
    return formula(*given), given
