"""A hook that averages gradients over all ranks at first, and then over a part of them."""

from __future__ import annotations

from typing import Any

from rushlight.compat.futures import Future
from rushlight.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from rushlight.distributed.environment import local_size
from rushlight.distributed.joining import new_subgroups
from rushlight.distributed.process_groups import resolved
from rushlight.distributed.reducer import GradBucket
from rushlight.tensor import Tensor


class PostLocalSGDState:
    """Settings of the hook, and the steps that it has seen.

    Args:
        process_group (ProcessGroup): All ranks; the default group without it.
        subgroup (ProcessGroup): This rank's part; without it the ranks of its host.
        start_localSGD_iter (int): Steps that average over all ranks.
        post_local_gradient_allreduce (bool): Whether later ones average over the part; else each
            rank keeps its own gradients.
    """

    def __init__(
        self,
        process_group: Any,
        subgroup: Any,
        start_localSGD_iter: int,
        post_local_gradient_allreduce: bool = True,
    ) -> None:
        self.process_group, self.subgroup = process_group, subgroup
        self.start_localSGD_iter = start_localSGD_iter
        self.post_local_gradient_allreduce = post_local_gradient_allreduce
        self.iter = 0

    def maybe_increase_iter(self, bucket: GradBucket) -> None:
        """Count a step at its last bucket."""
        self.iter += bucket.is_last()


def post_localSGD_hook(state: PostLocalSGDState, bucket: GradBucket) -> Future[Tensor]:
    """The average over all ranks in the first steps, and over a part of them in later ones.

    Parameters are averaged now and then: `PeriodicModelAverager`, `PostLocalSGDOptimizer`.

    Args:
        state (PostLocalSGDState): Settings.
        bucket (GradBucket): The gradients.
    """
    group = resolved(state.process_group)
    if state.iter < state.start_localSGD_iter:
        state.maybe_increase_iter(bucket)
        return allreduce_hook(group, bucket)
    if not state.post_local_gradient_allreduce:
        future: Future[Tensor] = Future()
        future.set_result(bucket.buffer())
        return future
    if state.subgroup is None:
        state.subgroup, _ = new_subgroups(local_size(group.size()))
    return allreduce_hook(state.subgroup, bucket)
