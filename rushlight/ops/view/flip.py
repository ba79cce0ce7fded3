"""Copies whose dimensions are concatenated runs of the input: flips, and padding by its elements.

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

from rushlight.core.shapes import Shape, Spec, numel
from rushlight.ops.create.creation import full_spec
from rushlight.ops.family.kernel_op import KernelOp
from rushlight.ops.pointwise import arithmetic as e
from rushlight.ops.reduce import reductions
from rushlight.ops.view import views
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
    out = Spec.of(
        pool, x.dtype, (*x.shape[:lead], *(sum(count for count, _, _ in runs) for runs in every))
    )
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
        copy, tail = views.copy_into(pool, x.dtype, shape, out.strides, steps)
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
    given: list[tuple[int, int, Value]] = []
    for at, (count, start, step) in _with_starts(runs):
        part = views.slice_dim(g, dim, at, count)
        if step == 0:
            given.append((start, start + 1, reductions.sum(part, dim, True)))
        elif step < 0:
            given.append((start - count + 1, start + 1, flipped(part, (dim,))))
        else:
            given.append((start, start + count, part))
    ends = sorted({0, n, *(first for first, _, _ in given), *(end for _, end, _ in given)})
    parts = []
    for begin, end in itertools.pairwise(ends):
        total: Value | None = None
        for first, last, part in given:
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
