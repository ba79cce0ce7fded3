"""Gradients of all ranks, summed in buckets while backward still runs.

# Note [Reducer]
1. Parameters are put into buckets in reverse order, about the order in which their gradients come.
   A parameter reports its gradient by a post-accumulate hook. A full bucket is copied into one
   buffer of the pool, whose sum over ranks runs in the thread of collectives; buckets go in their
   order, the same on all ranks.
2. The hook of the last gradient waits for all buckets and writes the results, so `.grad` is whole
   when backward returns. An error there undoes the pass, as any hook's does.
3. Parameters that the outputs do not reach (`find_unused_parameters`) give zeros, and keep their
   gradient where no rank used them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rushlight.compat.futures import Future
from rushlight.core.dtypes import int32
from rushlight.distributed.collectives import all_reduce
from rushlight.distributed.process_groups import ProcessGroup
from rushlight.distributed.reducing import ReduceOp
from rushlight.distributed.work import Work
from rushlight.ops.create.creation import empty, zeros
from rushlight.ops.view.views import cat
from rushlight.tensor import Tensor

FIRST_BYTES = 1 << 20


class GradBucket:
    """What a communication hook gets: gradients of some parameters in one buffer.

    Args:
        bucket (Bucket): The parameters.
        buffer (Tensor): Their gradients, one after another.
        last (bool): Whether it is the last of the pass.
    """

    def __init__(self, bucket: Bucket, buffer: Tensor, last: bool) -> None:
        self._bucket, self._buffer, self._last = bucket, buffer, last

    def index(self) -> int:
        """The bucket's number."""
        return self._bucket.index

    def buffer(self) -> Tensor:
        """The gradients, one after another."""
        return self._buffer

    def set_buffer(self, buffer: Tensor) -> None:
        """Exchange the buffer."""
        self._buffer = buffer

    def gradients(self) -> list[Tensor]:
        """A view per parameter."""
        return self._bucket.views(self._buffer)

    def parameters(self) -> list[Tensor]:
        """The parameters."""
        return list(self._bucket.parameters)

    def is_last(self) -> bool:
        """Whether it is the last of the pass."""
        return self._last


Hook = Callable[[Any, GradBucket], Future[Any]]


class Bucket:
    """Parameters of one dtype and device whose gradients travel together."""

    def __init__(self, index: int, numbers: Sequence[int], parameters: Sequence[Tensor]) -> None:
        self.index = index
        self.numbers = list(numbers)
        self.parameters = list(parameters)
        self.sizes = [parameter.numel() for parameter in parameters]
        self.missing = 0
        self.future: Future[Any] | None = None  # of a hook
        self.work: Work | None = None
        self.buffer: Tensor | None = None

    def views(self, flat: Tensor) -> list[Tensor]:
        """The part of each parameter, in its shape."""
        parts = flat.split(self.sizes)
        return [part.view(p.shape) for part, p in zip(parts, self.parameters, strict=True)]

    def empty(self) -> Tensor:
        """A buffer for all of it."""
        like = self.parameters[0]
        return empty(sum(self.sizes), dtype=like.dtype, device=like.device)


def buckets(parameters: Sequence[Tensor], limit: int) -> list[Bucket]:
    """Parameters in reverse order, cut by bytes; a small first bucket goes early."""
    made: list[list[int]] = []
    held, key = 0, None
    for number in reversed(range(len(parameters))):
        parameter = parameters[number]
        kind = parameter.dtype, parameter.device
        size = parameter.numel() * parameter.element_size()
        bound = min(FIRST_BYTES, limit) if len(made) <= 1 else limit
        if not made or kind != key or held + size > bound:
            made.append([])
            held, key = 0, kind
        made[-1].append(number)
        held += size
    return [
        Bucket(n, numbers, [parameters[number] for number in numbers])
        for n, numbers in enumerate(made)
    ]


class Reducer:
    """Sums gradients over a group. See Note [Reducer].

    Args:
        parameters (sequence): Those that need gradients.
        group (ProcessGroup): The ranks.
        limit (int): Bytes of a bucket.
        as_views (bool): Whether gradients stay views of the buckets.
        op (ReduceOp): AVG, or SUM for shards.
    """

    def __init__(
        self,
        parameters: Sequence[Tensor],
        group: ProcessGroup,
        limit: int,
        as_views: bool = False,
        op: ReduceOp = ReduceOp.AVG,
    ) -> None:
        self.parameters = list(parameters)
        self.group = group
        self.as_views = as_views
        self.op = op
        self.buckets = buckets(parameters, limit)
        self.place = {n: bucket for bucket in self.buckets for n in bucket.numbers}
        self.hook: Hook | None = None
        self.hook_state: Any = None
        self.given: list[Tensor | None] = []
        self.unused: set[int] = set()
        self.looks = False  # whether unused parameters are looked for
        self.active = False
        self.waiting = 0
        self.next = 0
        self.divisor = 0  # of uneven inputs, in place of the group's size
        self.write: Callable[[int, Tensor], None] = self._write

    # ---- one pass ----

    def prepare(self, unused: set[int], alone: bool = False) -> None:
        """Before a pass: which gradients will come.

        A forward may follow another one, and one backward take both, unless each is `alone`.
        """
        if self.active and (alone or any(gradient is not None for gradient in self.given)):
            names = sorted(n for bucket in self.buckets for n in bucket.numbers if not self._has(n))
            raise RuntimeError(
                f"DistributedDataParallel: {len(names)} parameters got no gradient in the last "
                f"pass (numbers {names} of parameters()). Where some are unused by design pass "
                "find_unused_parameters=True; all outputs of forward must be part of the loss"
            )
        self.active, self.next, self.unused = True, 0, unused
        self.given = [None] * len(self.parameters)
        for bucket in self.buckets:
            bucket.missing = len([n for n in bucket.numbers if n not in unused])
            bucket.future = bucket.work = bucket.buffer = None
        self.waiting = len(self.parameters) - len(unused)

    def _has(self, number: int) -> bool:
        return number in self.unused or self.given[number] is not None

    def arrived(self, number: int, gradient: Tensor) -> None:
        """A parameter's gradient is there."""
        if not self.active or self.given[number] is not None:
            return
        self.given[number] = gradient
        self.place[number].missing -= 1
        self.waiting -= 1
        last = not self.waiting
        while self.next < len(self.buckets) and not self.buckets[self.next].missing:
            self._start(self.buckets[self.next], last)
            self.next += 1
        if last:
            self.end_pass(self.unused)

    def _start(self, bucket: Bucket, alone: bool) -> None:
        """Send a bucket off; without anything to overlap with, in this thread."""
        parts = []
        for number, parameter in zip(bucket.numbers, bucket.parameters, strict=True):
            gradient = self.given[number]
            if gradient is None:
                gradient = zeros(parameter.numel(), dtype=parameter.dtype, device=parameter.device)
            parts.append(gradient.detach().reshape(-1))
        flat = bucket.buffer = cat(parts) if len(parts) > 1 else parts[0].clone()
        self.send(bucket, flat, alone)

    def send(self, bucket: Bucket, flat: Tensor, alone: bool) -> None:
        """Start the sum of a bucket's buffer over ranks."""
        last = bucket is self.buckets[-1]
        if self.hook is not None:
            bucket.future = self.hook(self.hook_state, GradBucket(bucket, flat, last))
            return
        op = ReduceOp.SUM if self.divisor else self.op
        bucket.work = all_reduce(flat, op, self.group, not alone)

    def end_pass(self, unused: set[int]) -> None:
        """Wait for all buckets and write the gradients; `unused` are those without one here."""
        used = self._used_somewhere(unused) if self.looks else None
        for bucket in self.buckets:
            flat = self.result(bucket)
            for number, view in zip(bucket.numbers, bucket.views(flat), strict=True):
                if used is None or used[number]:
                    self.write(number, view)
            bucket.buffer = None
        self.active = False
        self.given = []

    def result(self, bucket: Bucket) -> Tensor:
        """A bucket's sum over ranks."""
        flat: Any = bucket.buffer
        work, bucket.work = bucket.work, None
        if work is not None:
            work.wait()
        if bucket.future is not None:
            found = bucket.future.wait()
            found = found[0] if isinstance(found, (list, tuple)) else found
            flat = flat if found is None else found
        bucket.future = None
        if self.divisor and self.hook is None:
            flat.div_(self.divisor)
        made: Tensor = flat
        return made

    def _used_somewhere(self, unused: set[int]) -> list[bool]:
        """Which parameters some rank used."""
        bits = zeros(len(self.parameters), dtype=int32)
        for number in range(len(self.parameters)):
            if number not in unused:
                bits[number] = 1
        all_reduce(bits, ReduceOp.MAX, self.group)
        return [bool(bit) for bit in bits.tolist()]

    def _write(self, number: int, total: Tensor) -> None:
        parameter: Any = self.parameters[number]
        if parameter.grad is None or self.as_views:
            parameter.grad = total if self.as_views else total.clone()
        else:
            parameter.grad.detach().copy_(total)
