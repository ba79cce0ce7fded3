"""The layout of a block (outer, axis, inner): its vectors, and the inputs to copy."""

from __future__ import annotations

from collections.abc import Sequence

from rushlight.core.shapes import Shape, Spec, broadcast_strides, collapse, numel
from rushlight.ops.family.build import step_of

Strides = tuple[int, int, int]
UNIT = (0, 1)
SCATTERED = 1 << 12  # elements above which a copy takes less time than scalar reads


def axis_strides(spec: Spec, shape: Shape, dim: int) -> Strides | None:
    """The (outer, axis, inner) strides of an operand broadcast to `shape`.

    None if dimensions do not merge.
    """
    if 0 in shape:  # no element is read, so any strides do
        return 0, 0, 0
    full = broadcast_strides(spec.shape, spec.strides, shape)
    sides = []
    for part in (slice(0, dim), slice(dim + 1, None)):
        sizes, (steps,) = collapse(shape[part], (full[part],))
        if len(sizes) > 1:
            return None
        sides.append(steps[0] if sizes else 0)
    along = full[dim] if shape and shape[dim] != 1 else 0
    return sides[0], along, sides[1]


def result_strides(out: Spec, kind: str, shape: Shape, dim: int) -> Strides:
    axis = shape[dim] if kind == "element" and shape else 1
    inner = numel(shape[dim + 1 :])
    return axis * inner, inner if kind == "element" else 0, 1


def scattered(
    kinds: tuple[str, ...], ins: Sequence[Spec], shape: Shape, dim: int
) -> dict[int, Shape]:
    """The inputs to copy, and their shapes.

    They are those whose dimensions do not merge around the axis, and large ones that vectors cannot
    read.
    """
    strides = [axis_strides(spec, shape, dim) for spec in ins]
    apart = {i: shape for i, st in enumerate(strides) if st is None}
    if numel(shape) < SCATTERED:
        return apart
    inner, together = numel(shape[dim + 1 :]), [st for st in strides if st is not None]
    if (
        inner == 1
        and "element" not in kinds
        and not apart
        and _across_rows(numel(shape[:dim]), together)
    ):
        return {}
    place = 2 if inner > 1 else 1
    strided = [i for i, st in enumerate(strides) if st is not None and st[place] not in UNIT]
    return apart | {i: ins[i].shape for i in strided}


def _across_rows(outer: int, strides: Sequence[Strides]) -> bool:
    """Whether neighbouring rows are adjacent, as in a transposed matrix: they are columns."""
    return (
        outer > 1
        and all(st[0] in UNIT for st in strides)
        and not all(st[1] in UNIT for st in strides)
    )


def row_layout(
    block: tuple[int, int, int], strides: Sequence[Strides]
) -> tuple[str, tuple[str, ...], tuple[int, ...]]:
    """The dimension of the vectors, each operand's step along it, and the numbers of a launch."""
    outer, axis, inner = block
    if inner == 1 and _across_rows(outer, strides):
        outer, inner = 1, outer
        strides = [(0, st[1], st[0]) for st in strides]
    along = [st[1] for st in strides]
    across = [st[2] for st in strides]
    if inner == 1 and all(st in UNIT for st in along):
        vector, steps = "axis", tuple(step_of(st) for st in along)
    elif inner > 1 and all(st in UNIT for st in across):
        vector, steps = "inner", tuple(step_of(st) for st in across)
    else:
        vector, steps = "any", ("n",) * len(strides)
    return vector, steps, (outer, axis, inner, *(step for st in strides for step in st))
