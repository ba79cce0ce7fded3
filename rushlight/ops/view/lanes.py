"""Aligned operands: the batch's dimensions first, size 1 where one is missing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from rushlight.core.errors import InplaceError
from rushlight.core.shapes import Shape, numel
from rushlight.ops.view import views
from rushlight.tape.record.value import Value
from rushlight.tape.vmap.batched import BatchPlan, BatchSpec, Levels, levels_of, physical_of


def lined(plan: BatchPlan | Lanes, value: Value, rank: int | None = None) -> Value:
    """The physical value with a dimension per level, then one example's, at least `rank`."""
    spec = value._spec
    pad = max(0, rank - len(spec.shape)) if rank is not None else 0
    if not isinstance(spec, BatchSpec):
        return views.reshape(value, (1,) * (len(plan.hidden) + pad) + spec.shape)
    whole = physical_of(value)
    if spec.hidden == plan.hidden and not pad:
        return whole
    sizes = tuple(
        [n if depth in spec.hidden else 1 for depth, n in zip(plan.hidden, plan.sizes, strict=True)]
    )
    return views.reshape(whole, (*sizes, *(1,) * pad, *spec.shape))


def full(plan: BatchPlan, value: Value, rank: int | None = None) -> Value:
    """The same, expanded without a copy where a level is missing."""
    line = lined(plan, value, rank)
    return views.expand(line, (*plan.sizes, *line._spec.shape[len(plan.sizes) :]))


def flat(plan: BatchPlan, value: Value) -> Value:
    """The same, with all levels as one dimension."""
    whole = full(plan, value)
    if len(plan.sizes) == 1:
        return whole
    return views.reshape(whole, (numel(plan.sizes), *value._spec.shape))


def unflat(plan: BatchPlan, value: Value) -> Value:
    """The inverse of `flat`: one dimension per level."""
    return views.reshape(value, (*plan.sizes, *value._spec.shape[1:]))


def is_batched(value: Value) -> bool:
    return bool(value._spec.hidden)


def top_rank(values: Sequence[Value]) -> int:
    return max([len(v._spec.shape) for v in values])


def spread(value: Value, levels: Levels) -> Value:
    """The physical value of a value, batched at all these levels."""
    own = value._spec.hidden
    line = tuple([level.size if level.depth in own else 1 for level in levels])
    shape: Shape = value._spec.shape
    whole = views.reshape(physical_of(value), (*line, *shape))
    return views.expand(whole, (*[level.size for level in levels], *shape))


class Lanes(NamedTuple):
    """The attributes of a `BatchPlan` about its levels."""

    hidden: tuple[int, ...]
    sizes: Shape


def lanes_of(levels: Levels) -> Lanes:
    return Lanes(tuple([level.depth for level in levels]), tuple([level.size for level in levels]))


def written(op: str, target: Value, others: Sequence[Any]) -> tuple[Value, list[Any]]:
    """Target and operands of an in-place write, physical and aligned.

    The target must have all levels.
    """
    levels = levels_of(target)
    for other in others:
        if isinstance(other, Value) and any(level not in levels for level in levels_of(other)):
            raise InplaceError(
                f"{op}: a tensor that vmap maps over ({other._spec!r}) is written in place into "
                f"{target._spec!r}, which has no place for every example; use the op without the "
                "underscore, or make the target from a mapped tensor (zeros_like, new_zeros)"
            )
    lanes, rank = lanes_of(levels), len(target._spec.shape)
    ready = [
        lined(lanes, v, rank) if isinstance(v, Value) and v._spec.hidden else v for v in others
    ]
    return physical_of(target), ready
