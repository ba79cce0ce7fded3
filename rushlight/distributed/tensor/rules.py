"""How families of ops run on parts: which placements of operands give which of results.

# Note [Rules of families]
1. A rule gives choices along one dimension of the mesh: placements of the operands, and those that
   the results then have. Another dimension of the mesh is chosen by itself.
2. All operands replicated is a choice for every op. An op whose family has no rule has no other, so
   it is computed on whole tensors: right, and as slow as on one rank.
3. A rule is found by the batching rule that the op's family or declaration names (`Op.batching`),
   because both say the same: along which dimensions an op is many independent ones.
4. A choice may run otherwise than by the op itself on the parts; `run` says how.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from rushlight.core.shapes import Shape, Spec, broadcast_shapes, contiguous_strides, numel
from rushlight.distributed.tensor.formulas import is_linear, passes_of, reads_index
from rushlight.distributed.tensor.layout import Placements
from rushlight.distributed.tensor.placements import REPLICATE, SUM, Partial, Placement, Shard
from rushlight.ops.family.map import MapOp
from rushlight.ops.family.rowwise import DeclaredRow, RowOp
from rushlight.ops.family.view import View, Views
from rushlight.tape.program.program import Step

Outs = tuple[Placement, ...]


class Choice(NamedTuple):
    """Placements along one dimension of the mesh. See Note [Rules of families] 1, 4."""

    ins: Placements
    outs: Outs
    run: str = ""


class Asked(NamedTuple):
    """One call, and what is known of it along one dimension of the mesh."""

    step: Step
    now: Placements  # of the operands
    recorded: bool  # whether a gradient is wanted
    ranks: int  # of the whole mesh

    @property
    def ins(self) -> Sequence[Spec]:
        return self.step.plan.ins

    @property
    def outs(self) -> Sequence[Spec]:
        return self.step.outs

    @property
    def static(self) -> tuple[Any, ...]:
        return self.step.plan.static


Rule = Callable[[Asked], list[Choice]]


def choices(asked: Asked) -> list[Choice]:
    """All choices; the first is all operands replicated."""
    whole = Choice((REPLICATE,) * len(asked.ins), (REPLICATE,) * len(asked.outs))
    rule = _RULES.get(getattr(asked.step.plan.op, "batching", None) or "")
    return [whole] if rule is None else [whole, *rule(asked)]


# ---- dimensions that broadcast ----


def _aligned(spec: Spec, shape: Shape, dim: int) -> Placement | None:
    """The operand's placement where the broadcast `shape` is sharded along `dim`."""
    own = dim - (len(shape) - len(spec.shape))
    if own < 0 or spec.shape[own] == 1:
        return REPLICATE
    return Shard(own) if spec.shape[own] == shape[dim] else None


def _along(ins: Sequence[Spec], shape: Shape, dim: int) -> Placements | None:
    found = [_aligned(spec, shape, dim) for spec in ins]
    return None if None in found else tuple(found)  # type: ignore[arg-type]


def _linear(asked: Asked, bodies: Sequence[Any]) -> list[Choice]:
    """Sums over ranks stay sums through a linear formula. See Note [Formulas on shards] 1."""
    made = []
    partial = tuple(i for i, p in enumerate(asked.now) if p == SUM)
    every = tuple(i for i, spec in enumerate(asked.ins) if spec.differentiable)
    for operands in dict.fromkeys((partial, every)):
        if partial and operands and is_linear(bodies, operands):
            ins = tuple(SUM if i in operands else REPLICATE for i in range(len(asked.ins)))
            made.append(Choice(ins, (SUM,) * len(asked.outs)))
    return made


def _map(asked: Asked) -> list[Choice]:
    op = asked.step.plan.op
    assert isinstance(op, MapOp)
    shape = asked.outs[0].shape
    body = op.formula(asked.ins, asked.static).body
    indexed = reads_index(body)
    if indexed and any(spec.shape != shape for spec in asked.ins):
        return []
    made = []
    for d, size in enumerate(shape):
        ins = _along(asked.ins, shape, d) if size > 1 else None
        if ins is not None:
            outs = (Shard(d),) * len(asked.outs)
            made.append(Choice(ins, outs, "index" if indexed else ""))
    return made if indexed else made + _linear(asked, body)


def _row(asked: Asked) -> list[Choice]:
    op = asked.step.plan.op
    assert isinstance(op, RowOp)
    dim, keepdim = asked.static
    shape = broadcast_shapes([spec.shape for spec in asked.ins], op.name)
    moving = op.moving(asked.ins, dim)
    formula = op.formula(asked.ins, moving)
    made = []
    for d, size in enumerate(shape):
        ins = _along(asked.ins, shape, d)
        if ins is None or size < 2 or d == dim:
            continue
        kept = Shard(d if d < dim or keepdim else d - 1)
        outs = tuple(Shard(d) if kind == "element" else kept for kind in formula.kinds)
        made.append(Choice(ins, outs))
    # A declared derivative, which knows zeros and infinities, is none of the parts'.
    can_part = isinstance(op, DeclaredRow) and not (asked.recorded and op.vjp)
    apart = passes_of(op, tuple(asked.ins), dim) if can_part else None
    if apart is not None and len(shape) > dim and shape[dim] > 1:
        along = _along(asked.ins, shape, dim)
        smooth = set(apart.kinds) == {"sum"}
        full = not asked.recorded and shape[dim] % asked.ranks == 0  # no rank has nothing
        if along is not None and (smooth or full):
            if apart.rest is None and smooth:
                made.append(Choice(along, (SUM,) * len(asked.outs)))
            elif apart.rest is None and len(apart.kinds) == 1:
                kind = {"prod": "product"}.get(apart.kinds[0], apart.kinds[0])
                made.append(Choice(along, (Partial(kind),)))
            else:
                made.append(Choice(along, (REPLICATE,) * len(asked.outs), "passes"))
        if smooth and apart.rest is None:
            made += _linear(asked, [one.body for one in formula.passes])
    return made


def _other_dims(asked: Asked) -> list[Choice]:
    """Ops along the dimension `static[0]` of operands of one rank: scans, sorts, joins, gathers."""
    dim = asked.static[0]
    made = []
    for d in range(len(asked.ins[0].shape)):
        sizes = {spec.shape[d] for spec in (*asked.ins, *asked.outs) if len(spec.shape) > d}
        if d != dim and len(sizes) == 1 and sizes != {1}:
            made.append(Choice((Shard(d),) * len(asked.ins), (Shard(d),) * len(asked.outs)))
    return made


def _join(asked: Asked) -> list[Choice]:
    made = _other_dims(asked)
    if SUM in asked.now:
        made.append(Choice((SUM,) * len(asked.ins), (SUM,)))
    return made


# ---- views ----


def seen_by(op: Any, shape: Shape, static: Any) -> list[tuple[Shape, Shape]]:
    """What views show of a contiguous value: shapes and strides."""
    found = op.rule(shape, contiguous_strides(shape), *static)
    layouts = found if isinstance(op, Views) else [found]
    return [(tuple(shown), tuple(steps)) for shown, steps, _ in layouts]


def _shown_at(size: int, step: int, shown: Shape, steps: Shape) -> int | None:
    """Where a view shows a dimension: as itself, as the first of several, or as one with others."""
    for j, (n, t) in enumerate(zip(shown, steps, strict=True)):
        if (n, t) == (size, step):
            return j
    for j, (n, t) in enumerate(zip(shown, steps, strict=True)):
        if n > 1 and t and n * t == size * step:
            return j
    return None


def _view(asked: Asked) -> list[Choice]:
    op = asked.step.plan.op
    made = []
    if SUM in asked.now:
        made.append(Choice((SUM,), (SUM,) * len(asked.outs)))
    if not isinstance(op, (View, Views)) or getattr(op, "seen_as", None) is not None:
        return made
    shape = asked.ins[0].shape
    steps = contiguous_strides(shape)
    views = seen_by(op, shape, asked.static)
    for d, size in enumerate(shape):
        if size < 2 or not numel(shape):
            continue
        places = [_shown_at(size, steps[d], *view) for view in views]
        if None not in places:
            made.append(Choice((Shard(d),), tuple(Shard(j) for j in places if j is not None)))
    return made


# ---- contractions ----


def _batches(asked: Asked, a: Spec, b: Spec, more: Sequence[Spec] = ()) -> list[Choice]:
    """Choices along the leading dimensions of (*batch, rows, columns)."""
    (out,) = asked.outs
    made = []
    for d, size in enumerate(out.shape[:-2]):
        ins = _along((*more, a, b), out.shape, d)
        if ins is not None and size > 1:
            made.append(Choice(ins, (Shard(d),)))
    return made


def _matmul(asked: Asked) -> list[Choice]:
    a, b = asked.ins
    if min(len(a.shape), len(b.shape)) < 2:
        return []
    m, n = len(asked.outs[0].shape) - 2, len(asked.outs[0].shape) - 1
    rows, columns = len(a.shape) - 2, len(b.shape) - 1
    return [
        *_batches(asked, a, b),
        Choice((Shard(rows), REPLICATE), (Shard(m),)),
        Choice((REPLICATE, Shard(columns)), (Shard(n),)),
        Choice((Shard(rows + 1), Shard(columns - 1)), (SUM,)),
        Choice((SUM, REPLICATE), (SUM,)),
        Choice((REPLICATE, SUM), (SUM,)),
    ]


def _linear_layer(asked: Asked) -> list[Choice]:
    """x (*rows, k), weight (n, k) and perhaps a bias (n)."""
    x, _, *bias = asked.ins
    last = len(x.shape) - 1
    alone = (REPLICATE,) * len(bias)
    added = (SUM,) * len(bias)
    made = [
        Choice((Shard(d), REPLICATE, *alone), (Shard(d),))
        for d, size in enumerate(x.shape[:-1])
        if size > 1
    ]
    wide = tuple(Shard(0) for _ in bias)
    return [
        *made,
        Choice((REPLICATE, Shard(0), *wide), (Shard(last),)),
        Choice((Shard(last), Shard(1), *added), (SUM,)),
        Choice((SUM, REPLICATE, *added), (SUM,)),
        Choice((REPLICATE, SUM, *added), (SUM,)),
    ]


def _added(asked: Asked) -> list[Choice]:
    """c + a @ b, with factors; c broadcasts."""
    c, a, b = asked.ins
    shape = asked.outs[0].shape
    m, n = len(shape) - 2, len(shape) - 1
    rows, columns = len(a.shape) - 2, len(b.shape) - 1
    made = _batches(asked, a, b, (c,))
    for d, pair in ((m, (Shard(rows), REPLICATE)), (n, (REPLICATE, Shard(columns)))):
        own = _aligned(c, shape, d)
        if own is not None and shape[d] > 1:
            made.append(Choice((own, *pair), (Shard(d),)))
    made.append(Choice((SUM, Shard(rows + 1), Shard(columns - 1)), (SUM,)))
    return made


def _convolution(asked: Asked) -> list[Choice]:
    """Of images and weights: images are independent."""
    return [Choice((Shard(0), REPLICATE), (Shard(0),))] if asked.ins[0].shape[0] > 1 else []


# ---- tables, classes, attention ----


def _table(asked: Asked) -> list[Choice]:
    """Rows of a table (count, *row) at an index of any shape."""
    table, index = asked.ins
    rank = len(index.shape)
    made = [
        Choice((REPLICATE, Shard(d)), (Shard(d),)) for d, size in enumerate(index.shape) if size > 1
    ]
    for d, size in enumerate(table.shape[1:]):
        if size > 1:
            made.append(Choice((Shard(d + 1), REPLICATE), (Shard(rank + d),)))
    return [*made, Choice((Shard(0), REPLICATE), (SUM,), "table"), Choice((SUM, REPLICATE), (SUM,))]


def _classes(asked: Asked) -> list[Choice]:
    """Cross entropy of (rows, classes) at targets (rows, 1): its loss and logsumexp."""
    by_row = (Shard(0), Shard(0))
    whole = (REPLICATE, REPLICATE)
    return [Choice(by_row, by_row), Choice((Shard(1), REPLICATE), whole, "classes")]


def _attention(asked: Asked) -> list[Choice]:
    if asked.static[1]:  # dropout draws by the position among all scores
        return []
    shape = asked.outs[0].shape
    made = []
    for d, size in enumerate(shape[:-2]):
        ins = _along(asked.ins, shape, d)
        if ins is not None and size > 1:
            made.append(Choice(ins, (Shard(d),) * len(asked.outs)))
    return made


_RULES: dict[str, Rule] = {
    "elementwise.elementwise": _map,
    "elementwise.map": _map,
    "random.dropout": _map,
    "elementwise.row": _row,
    "elementwise.classes": _classes,
    "elementwise.scan": _other_dims,
    "elementwise.sort": _other_dims,
    "index.gather": _other_dims,
    "index.rows": _table,
    "view.view": _view,
    "view.expand": _view,
    "view.cat": _join,
    "contract.matmul": _matmul,
    "contract.linear": _linear_layer,
    "contract.added": _added,
    "contract.convolution": _convolution,
    "library.attention": _attention,
}


# ---- which choice ----


def _bytes(spec: Spec, now: Placement, to: Placement, ranks: int) -> float:
    """Bytes that a rank receives in a move; infinite where there is none."""
    if now == to or now.is_replicate():
        return 0.0
    share = spec.numel * spec.dtype.itemsize * (ranks - 1) / ranks
    if to.is_partial():
        return float("inf")
    if now.is_partial():
        return 2 * share if to.is_replicate() else share
    return share / ranks if to.is_shard() else share


def cheapest(asked: Asked, ranks: int) -> Choice:
    """The choice that moves the fewest bytes, the first of equal ones."""

    def cost(choice: Choice) -> float:
        moves = zip(asked.ins, asked.now, choice.ins, strict=True)
        return sum(_bytes(spec, now, to, ranks) for spec, now, to in moves)

    found = choices(asked)
    return min(found, key=functools.cache(cost))
