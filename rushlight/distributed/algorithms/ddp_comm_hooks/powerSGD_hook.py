"""Hooks that average gradients by products of low rank (Vogels, Karimireddy and Jaggi, 2019).

# Note [Products of low rank]
1. A gradient matrix M is sent as P Q^T of rank r. Each rank computes P = M Q; the sum of all P over
   ranks, with orthonormal columns, is the same everywhere. Then Q = M^T P, whose mean gives P Q^T:
   the mean M projected on P's columns. (n + m) r elements travel for n m.
2. What the product leaves out is added to the rank's next gradient (error feedback), and the next
   step begins with this step's Q (warm start).
3. Matrices for which this saves too little, and vectors, are averaged as they are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from rushlight.compat.futures import Future
from rushlight.core.dtypes import float32
from rushlight.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from rushlight.distributed.collectives import all_reduce
from rushlight.distributed.process_groups import ProcessGroup, resolved
from rushlight.distributed.reducer import GradBucket
from rushlight.distributed.reducing import ReduceOp
from rushlight.ops.create.creation import zeros
from rushlight.ops.linalg.decompositions import qr
from rushlight.ops.random.random import randn
from rushlight.ops.view.views import cat
from rushlight.random import Generator
from rushlight.tape.record.state import no_grad
from rushlight.tensor import Tensor


class PowerSGDState:
    """Settings of the hooks, and what they keep from step to step.

    Args:
        process_group (ProcessGroup): The ranks; the default group without it.
        matrix_approximation_rank (int): The rank of the products.
        start_powerSGD_iter (int): Steps that average gradients as they are, before the others.
        min_compression_rate (float): How many times fewer elements must travel.
        use_error_feedback (bool): Whether what is left out is added to the next gradient.
        warm_start (bool): Whether a step begins with the last one's factors.
        orthogonalization_epsilon (float): Has no effect: columns of zeros are no division.
        random_seed (int): Of the first factors, the same on all ranks.
        compression_stats_logging_frequency (int): Has no effect; see `compression_stats`.
        batch_tensors_with_same_shape (bool): Has no effect: it changes no result.
    """

    def __init__(
        self,
        process_group: Any,
        matrix_approximation_rank: int = 1,
        start_powerSGD_iter: int = 1000,
        min_compression_rate: float = 2,
        use_error_feedback: bool = True,
        warm_start: bool = True,
        orthogonalization_epsilon: float = 0,
        random_seed: int = 0,
        compression_stats_logging_frequency: int = 10_000,
        batch_tensors_with_same_shape: bool = False,
    ) -> None:
        if (use_error_feedback or warm_start) and start_powerSGD_iter <= 1:
            raise ValueError(
                "PowerSGDState: start_powerSGD_iter must be above 1 with use_error_feedback or "
                f"warm_start, got {start_powerSGD_iter}"
            )
        self.process_group = process_group
        self.matrix_approximation_rank = matrix_approximation_rank
        self.start_powerSGD_iter = start_powerSGD_iter
        self.min_compression_rate = min_compression_rate
        self.use_error_feedback = use_error_feedback
        self.warm_start = warm_start
        self.orthogonalization_epsilon = orthogonalization_epsilon
        self.batch_tensors_with_same_shape = batch_tensors_with_same_shape
        self.compression_stats_logging_frequency = compression_stats_logging_frequency
        self.random_seed = random_seed
        self.iter = 0
        self.error_dict: dict[int, Tensor] = {}  # by bucket
        self.q_memory_dict: dict[int, list[Tensor]] = {}
        self.drawn = 0  # first factors, so that each differs
        self.total_numel_before_compression = 0
        self.total_numel_after_compression = 0

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "process_group"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, process_group=None)

    def maybe_increase_iter(self, bucket: GradBucket) -> None:
        """Count a step at its last bucket."""
        self.iter += bucket.is_last()

    def compression_stats(self) -> tuple[float, int, int]:
        """How many times fewer elements travelled; elements before and after."""
        before, after = self.total_numel_before_compression, self.total_numel_after_compression
        return before / after if after else 0, before, after

    def _first_factors(self, shapes: Sequence[tuple[int, int]], like: Tensor) -> list[Tensor]:
        made = []
        for shape in shapes:
            drawing = Generator().manual_seed(self.random_seed * 1_000_003 + self.drawn)
            made.append(randn(*shape, generator=drawing).to(like.device, like.dtype))
            self.drawn += 1
        return made


def _orthonormal(matrix: Tensor) -> Tensor:
    """Orthonormal columns that span the matrix's."""
    made: Tensor = qr(matrix.to(float32)).Q.to(matrix.dtype)
    return made


def _summed(parts: Sequence[Tensor], op: ReduceOp, group: ProcessGroup) -> list[Tensor]:
    """Tensors combined over ranks, in one message."""
    if not parts:
        return []
    flat = cat([part.reshape(-1) for part in parts])
    all_reduce(flat, op, group)
    pieces = flat.split([part.numel() for part in parts])
    return [piece.view(part.shape) for piece, part in zip(pieces, parts, strict=True)]


def _approximated(
    state: PowerSGDState, index: int, matrices: Sequence[Tensor], group: ProcessGroup
) -> list[Tensor]:
    """The mean of each matrix over ranks, of low rank. See Note [Products of low rank] 1."""
    q = state.q_memory_dict.get(index)
    if q is None or not state.warm_start:
        shapes = [(m.shape[1], _rank(state, m)) for m in matrices]
        q = state._first_factors(shapes, matrices[0]) if matrices else []
    q = [_orthonormal(one) for one in q]
    p = [m @ one for m, one in zip(matrices, q, strict=True)]
    p = [_orthonormal(one) for one in _summed(p, ReduceOp.SUM, group)]
    q = [m.t() @ one for m, one in zip(matrices, p, strict=True)]
    q = state.q_memory_dict[index] = _summed(q, ReduceOp.AVG, group)
    return [one @ other.t() for one, other in zip(p, q, strict=True)]


def _rank(state: PowerSGDState, matrix: Tensor) -> int:
    return min(*matrix.shape, state.matrix_approximation_rank)


def _pays(state: PowerSGDState, matrix: Tensor) -> bool:
    """Whether the product is small enough. See Note [Products of low rank] 3."""
    sent = sum(matrix.shape) * _rank(state, matrix)
    return sent * state.min_compression_rate < matrix.numel()


def _done(flat: Tensor) -> Future[Tensor]:
    future: Future[Tensor] = Future()
    future.set_result(flat)
    return future


def _fed(state: PowerSGDState, index: int, flat: Tensor) -> Tensor | None:
    """The gradient with what was left out before, in place; a copy to find what is now."""
    if not state.use_error_feedback:
        return None
    if index in state.error_dict:
        flat.add_(state.error_dict[index])
    return flat.clone()


def powerSGD_hook(state: PowerSGDState, bucket: GradBucket) -> Future[Tensor]:
    """The average of gradients, by a product of low rank for each parameter.

    It waits for its sums: buckets do not travel while backward goes on.

    Args:
        state (PowerSGDState): Settings, and what is kept.
        bucket (GradBucket): The gradients.
    """
    group, flat, index = resolved(state.process_group), bucket.buffer(), bucket.index()
    if state.iter < state.start_powerSGD_iter:
        state.maybe_increase_iter(bucket)
        return allreduce_hook(group, bucket)
    with no_grad():
        fed = _fed(state, index, flat)
        seen = [g.view(g.shape[0], -1) if g.dim() else g.view(1, 1) for g in bucket.gradients()]
        small = [m for m in seen if m.numel() and _pays(state, m)]
        rest = [m for m in seen if not (m.numel() and _pays(state, m))]
        state.total_numel_before_compression += flat.numel()
        state.total_numel_after_compression += sum([m.numel() for m in rest]) + sum(
            [sum(m.shape) * _rank(state, m) for m in small]
        )
        for target, made in zip(rest, _summed(rest, ReduceOp.AVG, group), strict=True):
            target.copy_(made)
        for target, made in zip(small, _approximated(state, index, small, group), strict=True):
            target.copy_(made)
        if fed is not None:
            state.error_dict[index] = fed.sub_(flat)
    state.maybe_increase_iter(bucket)
    return _done(flat)


def batched_powerSGD_hook(state: PowerSGDState, bucket: GradBucket) -> Future[Tensor]:
    """The average of gradients, by one product for a bucket: faster, and less exact.

    Args:
        state (PowerSGDState): Settings, and what is kept.
        bucket (GradBucket): The gradients, seen as one square matrix, padded with zeros.
    """
    group, flat, index = resolved(state.process_group), bucket.buffer(), bucket.index()
    if state.iter < state.start_powerSGD_iter:
        state.maybe_increase_iter(bucket)
        return allreduce_hook(group, bucket)
    with no_grad():
        fed, count = _fed(state, index, flat), flat.numel()
        side = math.ceil(math.sqrt(count))
        square = zeros(side * side, dtype=flat.dtype, device=flat.device)
        square[:count].copy_(flat)
        (made,) = _approximated(state, index, [square.view(side, side)], group)
        flat.copy_(made.reshape(-1)[:count])
        state.total_numel_before_compression += count
        state.total_numel_after_compression += 2 * side * state.matrix_approximation_rank
        if fed is not None:
            state.error_dict[index] = fed.sub_(flat)
    state.maybe_increase_iter(bucket)
    return _done(flat)
