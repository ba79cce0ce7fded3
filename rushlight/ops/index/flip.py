"""Flips, rotations, rolls, and copies whose dimensions are concatenated runs of the input.

# Note [Runs]
1. A run (count, start, step) stands for the elements start, start + step, ... of a dimension; step
   is 1, -1 or 0 (one element repeated). The runs of a dimension follow one another; the dimensions
   without runs come first and stay.
2. Each combination of runs is one strided copy, so nothing is gathered by index and nothing is
   copied twice.
3. The gradient goes dimension by dimension: runs are reversed or summed, and overlapping ones are
   added in their order.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from rushlight.core.errors import ShapeError
from rushlight.core.shapes import Shape, Spec, numel, order_of, strides_in_order, wrap_dim
from rushlight.ops.create.creation import full_spec
from rushlight.ops.family.kernel_op import KernelOp
from rushlight.ops.pointwise import arithmetic as e
from rushlight.ops.reduce import reductions
from rushlight.ops.registry import composite
from rushlight.ops.view import views
from rushlight.ops.view.laid import copy_into
from rushlight.ops.view.reshaping import Dims, given, ravel, two_dims, unshared
from rushlight.tape.record import call
from rushlight.tape.record.op import Op, Plan, Static, check_devices
from rushlight.tape.record.value import Value

Run = tuple[int, int, int]
Runs = tuple[Run, ...]


def _plan(op: Op, ins: Sequence[Spec], static: Static) -> Plan:
    (x,) = ins
    every: tuple[Runs, ...] = static[0]
    pool = check_devices(op.name, ins)
    lead = len(x.shape) - len(every)
    shape: Shape = (*x.shape[:lead], *(sum(count for count, _, _ in runs) for runs in every))
    strides = x.strides if x.contiguous and shape == x.shape else None
    if not x.contiguous:
        strides = strides_in_order(shape, order_of(x.shape, [x.strides]))
    out = Spec.of(pool, x.dtype, shape, strides)
    size, copies = x.dtype.itemsize, []
    for chosen in itertools.product(*map(_with_starts, every)):
        shape = (*x.shape[:lead], *(count for _, (count, _, _) in chosen))
        if not numel(shape):
            continue
        skip_out = (
            sum(at * st for (at, _), st in zip(chosen, out.strides[lead:], strict=True)) * size
        )
        skip_in = (
            sum(run[1] * st for (_, run), st in zip(chosen, x.strides[lead:], strict=True)) * size
        )
        steps = (
            *x.strides[:lead],
            *(run[2] * st for (_, run), st in zip(chosen, x.strides[lead:], strict=True)),
        )
        copy, tail = copy_into(pool, x.dtype, shape, out.strides, steps)
        copies.append((copy, skip_out, skip_in, tail))

    def launch(target: int, source: int) -> None:
        for copy, skip_out, skip_in, tail in copies:
            copy(target + skip_out, source + skip_in, *tail)

    return Plan(op, ins, [out], launch, static)


def _with_starts(runs: Runs) -> list[tuple[int, Run]]:
    """Each run with its start in the result."""
    ends = itertools.accumulate((count for count, _, _ in runs), initial=0)
    return list(zip(ends, runs, strict=False))


def _turns(n: int, runs: Runs) -> bool:
    """Whether a dimension is unchanged, or reversed as a whole: then it is its own inverse."""
    return runs in (((n, 0, 1),), ((n, n - 1, -1),))


def _grad(g: Value, out: Any, x: Any, every: tuple[Runs, ...]) -> Value:
    lead = len(x.shape) - len(every)
    if all(itertools.starmap(_turns, zip(x.shape[lead:], every, strict=True))):
        return arranged(g, every)
    for dim, runs in enumerate(every, lead):
        if runs != ((x.shape[dim], 0, 1),):
            g = _gathered(g, dim, x.shape[dim], runs)
    return g


def _gathered(g: Value, dim: int, n: int, runs: Runs) -> Value:
    """One dimension of n elements, each the sum of its occurrences in the runs."""
    summands: list[tuple[int, int, Value]] = []
    for at, (count, start, step) in _with_starts(runs):
        part = views.slice_dim(g, dim, at, count)
        if step == 0:
            summands.append((start, start + 1, reductions.sum(part, dim, True)))
        elif step < 0:
            summands.append((start - count + 1, start + 1, flipped(part, (dim,))))
        else:
            summands.append((start, start + count, part))
    ends = sorted({0, n, *(first for first, _, _ in summands), *(end for _, end, _ in summands)})
    parts = []
    for begin, end in itertools.pairwise(ends):
        total: Value | None = None
        for first, last, part in summands:
            if first <= begin and end <= last:
                here = views.slice_dim(part, dim, begin - first, end - begin)
                total = here if total is None else e.add(total, here)
        parts.append(_zeros(g._spec, dim, end - begin) if total is None else total)
    return views.cat(parts, dim)


def _zeros(spec: Spec, dim: int, count: int) -> Value:
    shape: Shape = (*spec.shape[:dim], count, *spec.shape[dim + 1 :])
    return full_spec(Spec.of(spec.device, spec.dtype, shape), 0)


_arranged = KernelOp(
    "arranged",
    _plan,
    [_grad],
    [()],
    "The last dimensions put together of runs of the input.",
    batching="view.same",
)


def arranged(x: Value, every: Sequence[Runs]) -> Value:
    """The last dimensions by their runs, at least one of them not empty; see Note [Runs]."""
    kept = tuple(tuple(run for run in runs if run[0]) for runs in every)
    return call.call(_arranged, (x,), (kept,))


def flipped(x: Value, dims: Sequence[int]) -> Value:
    """A copy with some dimensions reversed."""
    first, shape = min(dims), x._spec.shape
    return arranged(
        x,
        [
            ((n, n - 1, -1) if dim in dims else (n, 0, 1),)
            for dim, n in enumerate(shape[first:], first)
        ],
    )


@composite("flip", pure=True)
def flip(input: Value, *axes: Dims, dims: Dims | None = None) -> Value:
    """Dimensions in reversed order, given one by one or as `dims`; a copy.

    Example:
        >>> torch.flip(torch.tensor([[1, 2], [3, 4]]), (1,))
        tensor([[2, 1],
                [4, 3]])
    """
    rank = len(input._spec.shape)
    if not axes and dims is None:
        raise TypeError("flip() needs the dimensions to reverse: flip(x, dims)")
    turned = [wrap_dim(d, rank, "flip") for d in given(axes, dims)]
    if len(set(turned)) != len(turned):
        raise ShapeError(f"flip: a dimension is named twice in {list(turned)}")
    moved = [dim for dim in turned if rank and input._spec.shape[dim] > 1]
    return flipped(input, moved) if moved and input._spec.numel else e.clone(input)


@composite("fliplr")
def fliplr(input: Value) -> Value:
    """The second dimension reversed."""
    if len(input._spec.shape) < 2:
        raise ShapeError(f"fliplr: at least 2 dimensions are needed, got {input._spec!r}")
    return flip(input, 1)


@composite("flipud")
def flipud(input: Value) -> Value:
    """The first dimension reversed."""
    if not input._spec.shape:
        raise ShapeError(f"flipud: at least 1 dimension is needed, got {input._spec!r}")
    return flip(input, 0)


@composite("rot90", pure=True)
def rot90(input: Value, k: int = 1, dims: Sequence[int] = (0, 1)) -> Value:
    """Rotated by k quarters from the first of `dims` to the second; a copy.

    Args:
        k: The number of quarter turns.

    Example:
        >>> torch.rot90(torch.tensor([[1, 2], [3, 4]]))
        tensor([[2, 4],
                [1, 3]])
    """
    rank = len(input._spec.shape)
    if len(dims) != 2 or rank < 2:
        raise ShapeError(
            f"rot90: takes two dimensions of at least two, got {list(dims)} of {input._spec!r}"
        )
    first, second = two_dims("rot90", dims[0], dims[1], rank)
    turns = k % 4
    if turns == 0:
        return e.clone(input)
    if turns == 2:
        return flip(input, first, second)
    return views.transpose(flip(input, second if turns == 1 else first), first, second)


def _rolled(x: Value, shift: int, dim: int) -> Value:
    size = x._spec.shape[dim]
    start = -shift % size if size else 0
    if start == 0:
        return x
    return views.cat(
        [views.slice_dim(x, dim, start, size - start), views.slice_dim(x, dim, 0, start)], dim
    )


@composite("roll", pure=True)
def roll(input: Value, shifts: Dims, dims: Dims | None = None) -> Value:
    """Elements shifted along dimensions, wrapping around; without dims, of the flattened tensor.

    Example:
        >>> torch.roll(torch.tensor([1, 2, 3, 4]), 1)
        tensor([4, 1, 2, 3])
    """
    steps = [shifts] if isinstance(shifts, int) else list(shifts)
    axes = [] if dims is None else [dims] if isinstance(dims, int) else list(dims)
    if not steps:
        raise ShapeError("roll: shifts must not be empty")
    if not axes and len(steps) == 1:
        flat = ravel(input)
        return views.reshape(unshared(_rolled(flat, steps[0], 0), input), input._spec.shape)
    if len(steps) != len(axes):
        raise ShapeError(f"roll: shifts {steps} and dims {axes} must have equally many entries")
    if not input._spec.shape:
        raise IndexError(f"roll: dims {axes} are given but {input._spec!r} has no dimensions")
    out = input
    for shift, dim in zip(steps, axes, strict=True):
        out = _rolled(out, shift, wrap_dim(dim, len(input._spec.shape), "roll"))
    return unshared(out, input)
