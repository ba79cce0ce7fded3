"""Attention by Attend kernels, on devices that build them.

A plan is a few launches: one forward, up to four backward. Dimensions of the batch that do not
merge into three are walked on the host.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from rushlight.core.shapes import Shape, Spec, collapse, numel
from rushlight.devices.shared.allocator import Scratch, room_for
from rushlight.kernel.attend import operands_of
from rushlight.kernel.shapes import Attend
from rushlight.ops.family.build import built
from rushlight.ops.nn.attention_tiles import Shapes
from rushlight.ops.view import views
from rushlight.tape.record.value import Value

Launch = Callable[..., None]
_BATCH = 3  # dimensions of a kernel's batch


def takes(shapes: Shapes, *operands: Spec, back: bool = False) -> bool:
    """Whether the device builds Attend for query, key and value, and it is the better way."""
    limits = operands[0].device.device.limits
    widest: int = dict(limits.attends).get(operands[0].dtype, 0)
    scores = shapes.rows * shapes.keys // (2 if shapes.causal else 1)
    return (
        max(shapes.width, shapes.depth, 1) <= widest
        and (limits.attends_most is None or scores <= limits.attends_most[back])
        and all(map(_reads, operands))
    )


def _reads(x: Spec) -> bool:
    """Whether Attend takes an operand as it lies."""
    dense = x.shape[-1] <= 1 or x.strides[-1] == 1
    return bool(dense or not x.device.device.limits.attends_dense)


def readable(x: Value) -> Value:
    return x if _reads(x._spec) else views.contiguous(x)


def laid_like(x: Spec, last: int) -> Spec:
    """A dense spec with the dimensions of x, the last one of size `last`, in the order of memory.

    So the transpose of a transposed projection is a view.
    """
    shape = (*x.shape[:-1], last)
    lead = range(len(shape) - 1)
    if any(x.shape[d] > 1 and x.strides[d] <= 0 for d in lead) or x.strides[-1] != 1:
        return Spec.of(x.device, x.dtype, shape)
    order = sorted((d for d in lead if x.shape[d] > 1), key=lambda d: -x.strides[d])
    steps, step = [1] * len(shape), last
    for d in reversed(order):
        steps[d] = step
        step *= shape[d]
    return Spec.of(x.device, x.dtype, shape, tuple(steps))


def slope_of_mask(shapes: Shapes, mask: Spec, ins: Sequence[Spec]) -> Spec:
    """The spec of a mask's gradient: like the mask, or like all scores.

    The latter where entries of the batch that share the mask are launches of their own.
    """
    own, count = laid_like(mask, mask.shape[-1]), len(shapes.batch)
    sizes, (steps, *_) = collapse(shapes.batch, [_steps(s, count)[0] for s in (own, *ins)])
    if all(steps[: max(0, len(sizes) - _BATCH)]):
        return own
    return Spec.of(mask.device, mask.dtype, (*shapes.batch, *mask.shape[-2:]))


def _kernel(shapes: Shapes, q: Spec, mask: Spec | None, of: str) -> Attend:
    masked = None if mask is None else mask.dtype
    if of == "along":
        return Attend(q.dtype, of, shapes.width, shapes.depth)
    return Attend(q.dtype, of, shapes.width, shapes.depth, masked, shapes.causal, shapes.dropout)


def _steps(spec: Spec, batch: int) -> tuple[Shape, Shape]:
    """Strides of the batch, 0 where one is shared, and of the last two dimensions."""
    found = tuple(0 if n == 1 else step for n, step in zip(spec.shape, spec.strides, strict=True))
    return found[:batch], found[batch:]


def launches(
    pool: Any, kernel: Attend, shapes: Shapes, specs: Sequence[Spec]
) -> tuple[Launch, tuple[int, ...]]:
    """What is called with the operands' addresses, these numbers, and the kernel's params."""
    run, count = built(pool, kernel), len(operands_of(kernel))
    walks = [_steps(spec, len(shapes.batch)) for spec in specs]
    sizes, steps = collapse(shapes.batch, [batch for batch, _ in walks])
    inner = (1,) * (_BATCH - len(sizes)) + sizes[-_BATCH:]
    tail = (*inner, shapes.rows, shapes.keys)
    for (_, last), own in zip(walks, steps, strict=True):
        tail += (*(0,) * (_BATCH - len(own)), *own[-_BATCH:], *last)
    lead = sizes[:-_BATCH]
    if not lead:
        return run, tail
    moves = [
        [sum(i * n for i, n in zip(at, own, strict=False)) * spec.dtype.itemsize
         for own, spec in zip(steps, specs, strict=True)]
        for at in itertools.product(*map(range, lead))
    ]  # fmt: skip
    each = numel(inner) * shapes.rows * shapes.keys

    def walk(*numbers: Any) -> None:
        params = list(numbers[count:])
        for move in moves:
            here = [a + m for a, m in zip(numbers, move, strict=False)]
            run(*here, *tail, *params)
            if kernel.dropout:
                params[2] += each

    return walk, ()


def forward(
    pool: Any, shapes: Shapes, outs: Sequence[Spec], ins: Sequence[Spec]
) -> tuple[Launch, tuple[int, ...]]:
    mask = ins[3] if len(ins) > 3 else None
    return launches(pool, _kernel(shapes, ins[0], mask, "output"), shapes, (*outs, *ins))


def backward(
    pool: Any, shapes: Shapes, outs: Sequence[Spec | None], ins: Sequence[Spec]
) -> tuple[Launch, tuple[int, ...]]:
    """For the gradients of query, key, value and mask, None where not asked.

    It is called with the addresses of the asked ones, of g, output, logsumexp and the operands,
    then these numbers and the params.
    """
    dq, dk, dv, dmask = outs
    if dq is None or dk is None or dv is None or dmask is not None:
        return Backward(pool, shapes, outs, ins), ()
    kernel = _kernel(shapes, ins[3], ins[6] if len(ins) > 6 else None, "operands")
    return launches(pool, kernel, shapes, (dq, dk, dv, *ins))


class Backward:
    """Some of the gradients, or a mask's: a launch for each kind."""

    def __init__(
        self, pool: Any, shapes: Shapes, outs: Sequence[Spec | None], ins: Sequence[Spec]
    ) -> None:
        self.pool, self.count = pool, len(ins)
        self.asked = [spec is not None for spec in outs]
        g, out, level, q, k, v, *rest = ins
        along = Spec.of(pool, level.dtype, level.shape)
        given = (g, level, along, *ins[3:])
        mask = rest[0] if rest else None

        def part(of: str, *specs: Spec) -> Launch:
            run, tail = launches(pool, _kernel(shapes, q, mask, of), shapes, specs)
            count = len(specs)
            return lambda *numbers: run(*numbers[:count], *tail, *numbers[count:])

        dq, dk, dv, dmask = outs
        self.along = part("along", along, g, out)
        self.query = None if dq is None else part("query", dq, *given)
        self.keys, unasked = None, 0
        if dk is not None or dv is not None:
            # The kernel writes both; one that is not asked goes to scratch.
            both = (dk or Spec.of(pool, k.dtype, k.shape), dv or Spec.of(pool, v.dtype, v.shape))
            unasked = sum(s.nbytes for s, own in zip(both, (dk, dv), strict=True) if own is None)
            self.keys = part("keys", *both, *given)
        self.mask = None if dmask is None else part("mask", dmask, *given)
        self.rooms = [room_for(max(room, 1)) for room in (along.nbytes, unasked)]
        self.scratch_taken = sum(self.rooms)

    def __call__(self, *numbers: Any) -> None:
        first = sum(self.asked)
        targets = iter(numbers[:first])
        dq, dk, dv, dmask = (next(targets) if asked else None for asked in self.asked)
        ins, params = numbers[first : first + self.count], numbers[first + self.count :]
        with Scratch(self.pool, *self.rooms) as (along, spare):
            self.along(along, *ins[:2])
            given = (ins[0], ins[2], along, *ins[3:])
            if self.query is not None:
                self.query(dq, *given, *params)
            if self.keys is not None:
                both = (spare if place is None else place for place in (dk, dv))
                self.keys(*both, *given, *params)
            if self.mask is not None:
                self.mask(dmask, *given, *params)
