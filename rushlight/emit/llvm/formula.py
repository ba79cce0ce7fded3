"""Whole scalar expressions in LLVM: some parts as calls, the rest instruction by instruction."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from rushlight.core.dtypes import DType
from rushlight.emit.llvm.body import fenced, instruction
from rushlight.emit.llvm.named import is_use, lowered_template, skippable_in, uses_in
from rushlight.emit.llvm.random import blocks_in, call_blocks
from rushlight.emit.llvm.text import COMPUTE, Writer, constant, vector
from rushlight.scalar.ir import Expr, topological
from rushlight.scalar.named import Named, Skippable, Use, skippable_template

Leaf = Callable[[Expr], str]


def evaluate(
    writer: Writer,
    roots: tuple[Expr, ...],
    width: int,
    leaf: Leaf,
    known: dict[Expr, str] | None = None,
) -> list[str]:
    """Write `roots`; `leaf` names the leaves' values; `known` are written already."""
    if width == 1:
        made = Formula(writer, roots, width, leaf, known or {})
    else:
        made = VectorFormula(writer, roots, width, leaf, known or {})
    made.write(made.every)
    return [made.done[r] for r in roots]


class Formula:
    """Expressions being written."""

    def __init__(
        self,
        writer: Writer,
        roots: tuple[Expr, ...],
        width: int,
        leaf: Leaf,
        known: dict[Expr, str],
    ) -> None:
        self.writer, self.roots, self.width, self.leaf = writer, roots, width, leaf
        self.done: dict[Expr, str] = dict(known)
        self.every = topological(roots)
        self.needed: set[Expr] = set(roots)
        self._prepare()

    def _prepare(self) -> None:
        for expr in reversed(self.every):
            if expr in self.needed and expr not in self.done:
                self.needed.update(expr.args)

    def write(self, exprs: tuple[Expr, ...]) -> None:
        for expr in exprs:
            if expr in self.needed and expr not in self.done:
                self.write_one(expr)

    def write_one(self, expr: Expr) -> None:
        if expr.op == "const":
            assert expr.value is not None
            self.done[expr] = constant(expr.value, expr.dtype, self.width)
        elif not expr.args:
            self.done[expr] = self.leaf(expr)
        else:
            self.done[expr] = instruction(
                self.writer, expr, [self.done[a] for a in expr.args], self.width
            )


class VectorFormula(Formula):
    """Vector expressions: with calls and fences."""

    def _prepare(self) -> None:
        blocks = blocks_in(self.every)
        given = tuple(expr for block in blocks for expr in block.given)
        words = {word for block in blocks for word in block.made}
        named = uses_in(self.every)
        reached = self._reached()
        rare = [
            part
            for part in skippable_in(self.every, self.roots)
            if self.done.keys().isdisjoint(part.made) and not reached.isdisjoint(part.made)
        ]
        self.parts = {expr: part for part in rare for expr in part.made}
        self.uses: dict[Expr, Use] = {}
        self.needed.update(
            (*given, *(expr for part in rare for expr in (part.unless, *part.given)))
        )
        for expr in reversed(self.every):
            if (
                expr in self.needed
                and expr not in self.done
                and expr not in words
                and expr not in self.parts
            ):
                if expr in named and is_use(expr, named[expr]):
                    self.uses[expr] = named[expr]
                self.needed.update(self.uses[expr].given if expr in self.uses else expr.args)
        self.lengths: dict[Expr, int] = {}
        if blocks:
            self.write(topological(given))
            self.done.update(call_blocks(self.writer, blocks, self.done, self.width))

    def _reached(self) -> set[Expr]:
        """The expressions under the roots, down to the known ones."""
        reached = set(self.roots) - self.done.keys()
        for expr in reversed(self.every):
            if expr in reached:
                reached.update(a for a in expr.args if a not in self.done)
        return reached

    def write_one(self, expr: Expr) -> None:
        if expr in self.parts:
            part = self.parts[expr]
            self.write(topological((part.unless, *part.given)))
            wanted = [e for e in part.made if e in self.needed]
            self.done.update(_call_skippable(self.writer, part, wanted, self.done, self.width))
        elif expr in self.uses:
            use = self.uses[expr]
            self.done[expr] = _call_formula(
                self.writer, use, [self.done[g] for g in use.given], self.width
            )
        else:
            super().write_one(expr)
            if expr.args:
                self.done[expr] = _chained(
                    self.writer, expr, self.done[expr], self.lengths, self.width
                )


CHAIN = 6  # integer instructions in one chain
# An intrinsic with an opaque result, by bytes.
MIXING = {
    4: ("mulhi",),
    8: ("add", "sub", "mul", "or", "xor", "select"),
}


def _chained(writer: Writer, expr: Expr, value: str, lengths: dict[Expr, int], width: int) -> str:
    """The expression's value, fenced where it ends a long chain of integers.

    `lengths` has the chain lengths so far. Only 64-bit formulas: others have short chains, and the
    fence would slow them.
    """
    if expr.dtype.kind not in "iu" or width != 8:
        return value
    lengths[expr] = 1 + max(lengths.get(a, 0) for a in expr.args)
    if lengths[expr] < CHAIN or expr.op not in MIXING[expr.dtype.itemsize]:
        return value
    lengths[expr] = 0
    return fenced(writer, value, COMPUTE[expr.dtype], width)


FORMULA = (
    'define internal {result} @{name}({given}) noinline "prefer-vector-width"="512" '
    '"min-legal-vector-width"="512"'
)


def _call_formula(writer: Writer, use: Use, values: list[str], width: int) -> str:
    """A named formula's result, by a call of its function."""
    result, name, needed = _formula_function(use.named, use.dtypes, width)
    writer.declared.update(needed)
    given = [f"{vector(COMPUTE[d], width)} {v}" for d, v in zip(use.dtypes, values, strict=True)]
    return writer.value(f"call {result} @{name}({', '.join(given)})")


@cache
def _formula_function(
    named: Named, dtypes: tuple[DType, ...], width: int
) -> tuple[str, str, frozenset[str]]:
    """The function's result type, its name, its text and the declarations it needs."""
    made, placeholders = lowered_template(named, dtypes)
    writer = Writer(set())
    (value,) = evaluate(writer, (made,), width, lambda e: f"%given{placeholders.index(e)}")
    result, name = (
        vector(COMPUTE[made.dtype], width),
        f'"{named.name} {" ".join(d.name for d in dtypes)}"',
    )
    given = ", ".join(f"{vector(COMPUTE[d], width)} %given{i}" for i, d in enumerate(dtypes))
    text = writer.function(
        FORMULA.format(result=result, name=name, given=given), f"{result} {value}"
    )
    return result, name, frozenset({text, *writer.declared})


UNLIKELY = '!0 = !{!"branch_weights", i32 1, i32 1000}'


def _call_skippable(
    writer: Writer, part: Skippable, wanted: list[Expr], done: dict[Expr, str], width: int
) -> dict[Expr, str]:
    """The wanted results, by a function that is called where some lane needs them."""
    dtypes = tuple(g.dtype for g in part.given)
    result, name, needed = _skippable_function(
        part.formula, dtypes, tuple(part.made.index(e) for e in wanted), width
    )
    writer.declared.update((*needed, UNLIKELY))
    types = [vector(COMPUTE[e.dtype], width) for e in wanted]
    slots = [writer.slot(type_, "zeroinitializer") for type_ in types]
    other = writer.value(f"xor {vector('i1', width)} {done[part.unless]}, splat (i1 true)")
    lanes = writer.value(f"bitcast {vector('i1', width)} {other} to i{width}")
    given = [f"{vector(COMPUTE[g.dtype], width)} {done[g]}" for g in part.given]
    with writer.when(writer.value(f"icmp ne i{width} {lanes}, 0"), ", !prof !0"):
        made = writer.value(f"call {result} @{name}({', '.join(given)})")
        for i, slot in enumerate(slots):
            writer.set(slot, writer.value(f"extractvalue {result} {made}, {i}"))
    return {expr: writer.get(slot) for expr, slot in zip(wanted, slots, strict=True)}


@cache
def _skippable_function(
    formula: Callable[..., tuple[Expr, ...]],
    dtypes: tuple[DType, ...],
    which: tuple[int, ...],
    width: int,
) -> tuple[str, str, frozenset[str]]:
    """The function's result type, its name, its text and the declarations it needs."""
    every, placeholders = skippable_template(formula, dtypes)
    roots = tuple(every[i] for i in which)
    writer = Writer(set())
    values = evaluate(writer, roots, width, lambda e: f"%given{placeholders.index(e)}")
    types = [vector(COMPUTE[e.dtype], width) for e in roots]
    result, made = "{ " + ", ".join(types) + " }", "poison"
    for i, (type_, value) in enumerate(zip(types, values, strict=True)):
        made = writer.value(f"insertvalue {result} {made}, {type_} {value}, {i}")
    name = (
        f'"{formula.__module__}.{formula.__qualname__} {" ".join(d.name for d in dtypes)} {which}"'
    )
    given = ", ".join(f"{vector(COMPUTE[d], width)} %given{i}" for i, d in enumerate(dtypes))
    text = writer.function(
        FORMULA.format(result=result, name=name, given=given), f"{result} {made}"
    )
    return result, name, frozenset({text, *writer.declared})
