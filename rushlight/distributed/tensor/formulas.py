"""What follows from the scalar formula of an op: whether it is linear, and how it reads an index.

# Note [Formulas on shards]
1. A formula is linear in some operands if it is a sum of them times what does not depend on them:
   then it may be computed on summands of these operands, and the results summed.
2. A formula that reads its position (random numbers, ranges) reads the position in the whole tensor
   instead: the shard's position is taken apart along the sharded dimensions. So a shard has the
   bits that the whole tensor has there.
3. A reduction whose passes do not read one another is a map that makes the passes' elements, their
   reductions, which can be put together over ranks, and a map that makes the results of these.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from rushlight.core.cache import cached
from rushlight.core.dtypes import int64
from rushlight.core.shapes import Spec, numel
from rushlight.distributed.tensor.layout import Layout
from rushlight.ops.create.creation import Constant
from rushlight.ops.family.map import Formula, MapOp
from rushlight.ops.family.rowwise import DeclaredRow, RowFormula
from rushlight.scalar.ir import Expr, arg, binary, index, param, rebuild, row, topological
from rushlight.tape.record.op import Static

_FREE, _LINEAR, _OTHER = range(3)


def is_linear(bodies: Sequence[Expr], operands: Sequence[int]) -> bool:
    """Whether formulas are linear in these operands together. See Note [Formulas on shards] 1."""
    kinds: dict[Expr, int] = {}
    for x in topological(list(bodies)):
        kinds[x] = _kind(x, [kinds[a] for a in x.args], operands)
    return all(kinds[body] == _LINEAR for body in bodies)


def _kind(x: Expr, args: list[int], operands: Sequence[int]) -> int:
    if x.op == "arg":
        return _LINEAR if x.value in operands else _FREE
    if all(kind == _FREE for kind in args):
        return _FREE
    if x.op in ("add", "sub", "neg"):
        return _LINEAR if all(kind == _LINEAR for kind in args) else _OTHER
    if x.op == "mul":
        return _LINEAR if sorted(args) == [_FREE, _LINEAR] else _OTHER
    if x.op == "div":
        return _LINEAR if args == [_LINEAR, _FREE] else _OTHER
    if x.op == "cast":
        is_float = x.dtype.kind == "f" and x.args[0].dtype.kind == "f"
        return args[0] if is_float else _OTHER
    if x.op == "select" and args[0] == _FREE:
        kept = [k for k, a in zip(args[1:], x.args[1:], strict=True) if not _is_zero(a)]
        return _LINEAR if kept and all(kind == _LINEAR for kind in kept) else _OTHER
    return _OTHER


def _is_zero(x: Expr) -> bool:
    return x.op == "const" and x.value == 0


def reads_index(bodies: Sequence[Expr]) -> bool:
    """Whether an element depends on its position."""
    return any(x.op == "index" for x in topological(list(bodies)))


# ---- positions in the whole ----


class Cut(NamedTuple):
    """One sharded dimension: elements of a block here and in the whole, and those before ours."""

    block: int
    whole: int
    skip: int


def cuts_of(layout: Layout) -> tuple[Cut, ...]:
    """The sharded dimensions, the last first."""
    found = []
    for d, part in reversed(list(enumerate(layout.pieces()))):
        if part.length != layout.shape[d]:
            inner = numel(layout.shape[d + 1 :])
            found.append(Cut(part.length * inner, layout.shape[d] * inner, part.start * inner))
    return tuple(found)


def _in_whole(bodies: Sequence[Expr], first: int, count: int) -> list[Expr]:
    """Formulas that read the position in the whole; the numbers of `count` cuts are params."""
    at = index()
    for n in range(count):
        block, whole, skip = (param(first + 3 * n + k, int64) for k in range(3))
        at = (at / block) * whole + skip + binary("rem", at, block)
    return list(rebuild(list(bodies), {index(): at}))


class MapOfShard(MapOp):
    """A map on a shard, whose formula reads positions in the whole. `static` ends with the cuts."""

    __slots__ = ("whole",)

    batching = ""

    def __init__(self, whole: MapOp) -> None:
        super().__init__(whole.name, whole.doc)
        self.whole = whole

    def formula(self, ins: Any, static: Static) -> Formula:
        made = self.whole.formula(ins, static[:-1])
        first = len(made.params)
        body = _in_whole(made.body, first, static[-1])
        params = made.params + (int64,) * (3 * static[-1])
        return Formula(made.inputs, params, made.outputs, tuple(body))


@cached
def map_of_shard(op: MapOp) -> MapOfShard:
    """The op on a shard."""
    return MapOfShard(op)


@cached
def constant_of_shard(op: Constant, count: int) -> Constant:
    """A constant op for a shard with `count` cuts, whose numbers come last."""
    first = len(op.kinds)

    def body(compute: Any, *numbers: Expr) -> Expr:
        return _in_whole([op.body(compute, *numbers[:first])], first, count)[0]

    return Constant(op.name, body, (*op.kinds, *(int64,) * (3 * count)), op.doc)


# ---- reductions in two ----


def reduces_apart(formula: RowFormula) -> list[str]:
    """The kinds of passes, where none reads another or a position; else nothing."""
    bodies = [one.body for one in formula.passes]
    inside = topological(bodies) if bodies else []
    if not bodies or any(kind != "row" for kind in formula.kinds):
        return []
    if any(x.op in ("row", "index", "extent") for x in inside):
        return []
    if any(x.op in ("arg", "index", "extent") for x in topological(list(formula.stores))):
        return []
    return [one.kind for one in formula.passes]


class Passes(NamedTuple):
    """A reduction in three: elements, their reductions, and what is made of these."""

    kinds: tuple[str, ...]
    elements: tuple[MapOp | int, ...]  # of each pass: a map, or the number of an operand
    rest: MapOp | None  # None: the reductions are the results


class _Formed(MapOp):
    """A map that is known by its formula."""

    __slots__ = ("made",)

    batching = ""

    def __init__(self, name: str, made: Formula) -> None:
        super().__init__(name, "A part of a reduction.")
        self.made = made

    def formula(self, ins: Sequence[Spec], static: Static) -> Formula:
        return self.made


@cached
def passes_of(op: DeclaredRow, ins: tuple[Spec, ...], dim: int) -> Passes | None:
    """See Note [Formulas on shards] 3; None where it does not hold."""
    formula = op.formula(ins, op.moving(ins, dim))
    kinds = reduces_apart(formula)
    if not kinds:
        return None
    elements: list[MapOp | int] = []
    for one in formula.passes:
        read = [x.value for x in topological([one.body]) if x.op == "arg"]
        if not any(formula.moving[int(n or 0)] for n in read):
            return None
        if one.body.op == "arg":
            elements.append(int(one.body.value or 0))
        else:
            made = Formula(formula.inputs, (), (one.body.dtype,), (one.body,))
            elements.append(_Formed(op.name, made))
    types = [one.body.dtype for one in formula.passes]
    stored = {row(k, kind): arg(k, kind) for k, kind in enumerate(types)}
    stores = rebuild(formula.stores, stored)
    if stores == tuple(stored.values()) and formula.outputs == tuple(types):
        return Passes(tuple(kinds), tuple(elements), None)
    rest = Formula(tuple(types), (), formula.outputs, stores)
    return Passes(tuple(kinds), tuple(elements), _Formed(op.name, rest))
