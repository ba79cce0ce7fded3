"""Which values of a long formula wait in memory for their next use, where there are more than the processor has registers.

LLVM finds that out by itself, value by value, and that takes longer than all the rest of a build. Here, when there are too many
at once, the one is stored whose next use is farthest away. A constant that is used several times takes a register too, and
need not be stored.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rushlight.core.dtypes import bool_
from rushlight.scalar.ir import Expr

ROOM = 24  # of 32 registers: LLVM moves instructions, and constants of one use take some too
MANY = 48  # from which on it is worth it


@dataclass
class Spills:
    """What is stored after an expression has been written, and loaded before; `last` is loaded when all is done."""

    stores: dict[Expr, list[Expr]] = field(default_factory=lambda: defaultdict(list))
    loads: dict[Expr, list[Expr]] = field(default_factory=lambda: defaultdict(list))
    last: list[Expr] = field(default_factory=list)


def plan(order: Sequence[Expr], operands: Callable[[Expr], tuple[Expr, ...]], roots: tuple[Expr, ...]) -> Spills:
    """For expressions that are written in this order."""
    given = [[o for o in dict.fromkeys(operands(expr)) if o.dtype is not bool_] for expr in order]
    uses: dict[Expr, list[int]] = defaultdict(list)  # the next one is the last of the list
    for root in roots:
        uses[root].append(len(order))
    for at in range(len(order) - 1, -1, -1):
        for operand in given[at]:
            uses[operand].append(at)
    given = [[o for o in line if o.op != "const" or len(uses[o]) > 1] for line in given]
    return _walk(order, given, uses) if _most_at_once(order, given, uses) > MANY else Spills()


def _most_at_once(order: Sequence[Expr], given: list[list[Expr]], uses: dict[Expr, list[int]]) -> int:
    live = most = 0
    for at, expr in enumerate(order):
        live += sum(operand.op == "const" and uses[operand][-1] == at for operand in given[at])
        most = max(most, live)
        live -= sum(uses[operand][0] == at for operand in given[at])
        live += _takes_register(expr, uses)
    return most


def _takes_register(expr: Expr, uses: dict[Expr, list[int]]) -> bool:
    """From when it is written; constants do from their first use on."""
    return expr.op != "const" and expr.dtype is not bool_ and bool(uses.get(expr))


def _walk(order: Sequence[Expr], given: list[list[Expr]], uses: dict[Expr, list[int]]) -> Spills:
    spills, held, stored = Spills(), set[Expr](), set[Expr]()
    for at, expr in enumerate(order):
        for operand in given[at]:
            if operand in stored and operand not in held:
                spills.loads[expr].append(operand)
            held.add(operand)
            uses[operand].pop()
            if not uses[operand]:
                held.discard(operand)
        if _takes_register(expr, uses):
            held.add(expr)
        while len(held) > ROOM:
            farthest = max(held, key=lambda e: uses[e][-1])
            held.discard(farthest)
            if farthest not in stored:
                stored.add(farthest)
                if farthest.op != "const":
                    spills.stores[expr].append(farthest)
    spills.last = [expr for expr in stored if uses[expr] and expr not in held]
    return spills
