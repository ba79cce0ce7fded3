"""The order in which stages compute microbatches.

# Note [Pipeline schedules]
1. A schedule is a list of actions for this rank: forward or backward of one microbatch of one of
   its stages. A stage's backward passes come in the order of the microbatches, so gradients are
   added as in one process that takes the microbatches one after another: the same bits.
2. GPipe computes all forwards first, so a stage holds the activations of all microbatches. 1F1B
   begins a microbatch's backward as soon as its gradient is there: stage k of S holds S - k.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from rushlight.core.errors import RushlightError, ShapeError
from rushlight.distributed.pipelining.stages import PipelineStage
from rushlight.ops.view.views import cat
from rushlight.tape.record.state import no_grad
from rushlight.tensor import Tensor
from rushlight.utils._pytree import tree_flatten, tree_unflatten

Loss = Callable[[Any, Any], Any]


class Action(NamedTuple):
    """One forward or backward."""

    is_forward: bool
    stage: int
    chunk: int


def split(name: str, tree: Any, count: int) -> list[Any]:
    """Microbatches of arguments: tensors are cut along dimension 0, all else is given to each."""
    leaves, shape = tree_flatten(tree)
    cut = []
    for leaf in leaves:
        if not isinstance(leaf, Tensor):
            cut.append([leaf] * count)
            continue
        if not leaf.dim() or leaf.shape[0] % count or not leaf.shape[0]:
            raise ShapeError(
                f"{name}: {list(leaf.shape)} is cut into {count} microbatches along dimension 0, "
                "which must be a multiple"
            )
        cut.append(list(leaf.chunk(count)))
    return [tree_unflatten([column[n] for column in cut], shape) for n in range(count)]


class _Schedule:
    """Runs the actions of a step on this rank's stages."""

    def __init__(
        self,
        stages: Sequence[PipelineStage],
        n_microbatches: int,
        loss_fn: Loss | None,
        scale_grads: bool,
    ) -> None:
        if n_microbatches < 1:
            raise ValueError(f"{type(self).__name__}: {n_microbatches} microbatches")
        self.stages = {stage.stage_index: stage for stage in stages}
        self.n_microbatches = n_microbatches
        self.loss_fn = loss_fn
        self.scale_grads = scale_grads
        for stage in stages:
            stage.meet(stages)

    def actions(self) -> list[Action]:
        """This rank's forwards and backwards, in order."""
        raise NotImplementedError(type(self).__name__)

    def step(
        self,
        *args: Any,
        target: Any = None,
        losses: list[Any] | None = None,
        return_outputs: bool = True,
        **kwargs: Any,
    ) -> Any:
        """One batch: forward and backward of all microbatches; gradients are summed in `.grad`.

        Args:
            args: The batch, on the rank of the first stage.
            target: What the loss compares with, on the rank of the last stage.
            losses (list): Filled with the microbatches' losses, on the rank of the last stage.
            return_outputs (bool): Whether the last stage's outputs are returned, there.
            kwargs: Arguments by name for this rank's stages.
        """
        trains = self.loss_fn is not None
        if trains and any(s.is_last for s in self.stages.values()) and target is None:
            raise RushlightError(f"{type(self).__name__}.step: the last stage needs `target`")
        chosen = self.actions() if trains else [a for a in self.actions() if a.is_forward]
        if trains:
            made = self._run(chosen, args, kwargs, target, losses, return_outputs)
            if self.scale_grads:
                for stage in self.stages.values():
                    stage.scale_grads(self.n_microbatches)
            return made
        with no_grad():
            return self._run(chosen, args, kwargs, None, None, return_outputs)

    def eval(
        self, *args: Any, target: Any = None, losses: list[Any] | None = None, **kwargs: Any
    ) -> Any:
        """One batch without gradients; arguments as in `step`."""
        with no_grad():
            chosen = [action for action in self.actions() if action.is_forward]
            return self._run(chosen, args, kwargs, target, losses, True)

    def _run(
        self,
        actions: Sequence[Action],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        target: Any,
        losses: list[Any] | None,
        wanted: bool,
    ) -> Any:
        name, count = type(self).__name__, self.n_microbatches
        if args and 0 not in self.stages:
            raise RushlightError(f"{name}.step: inputs are given on the rank of the first stage")
        batches = split(name, args, count)
        named = split(name, kwargs, count)
        targets = split(name, target, count)
        found: dict[int, Any] = {}
        outputs: dict[int, Any] = {}
        try:
            for action in actions:
                stage = self.stages[action.stage]
                n = action.chunk
                if not action.is_forward:
                    stage.backward_one_chunk(n, found.get(n) if stage.is_last else None)
                    continue
                made = stage.forward_one_chunk(n, batches[n] if stage.is_first else (), named[n])
                if stage.is_last:
                    result = made if len(made) > 1 else made[0]
                    if self.loss_fn is not None and target is not None:
                        found[n] = self.loss_fn(result, targets[n])
                    if wanted:
                        outputs[n] = [t.detach() if isinstance(t, Tensor) else t for t in made]
            for stage in self.stages.values():
                stage.end_step()
        finally:
            for stage in self.stages.values():
                stage.chunks.clear()
        if losses is not None:
            losses[:] = [found[n].detach() for n in sorted(found)]
        return _merged([outputs[n] for n in sorted(outputs)])


def _merged(rows: list[Any]) -> Any:
    """The outputs of all microbatches as those of the batch; None where there are none."""
    if not rows:
        return None
    made = [
        cat(list(column))
        if all(isinstance(t, Tensor) and t.dim() for t in column)
        else list(column)
        for column in zip(*rows, strict=True)
    ]
    return made[0] if len(made) == 1 else tuple(made)


class _Single(_Schedule):
    """A schedule of one stage on each rank.

    Args:
        stage (PipelineStage): This rank's stage.
        n_microbatches (int): Into how many a batch is cut.
        loss_fn (callable): Called as `loss_fn(output, target)`; without it there is no backward.
        args_chunk_spec: Must be None: tensors are cut along dimension 0.
        kwargs_chunk_spec: Must be None.
        output_merge_spec: Must be None.
        scale_grads (bool): Whether gradients are divided by the number of microbatches.
    """

    def __init__(
        self,
        stage: PipelineStage,
        n_microbatches: int,
        loss_fn: Loss | None = None,
        args_chunk_spec: Any = None,
        kwargs_chunk_spec: Any = None,
        output_merge_spec: Any = None,
        scale_grads: bool = True,
    ) -> None:
        if not (args_chunk_spec is kwargs_chunk_spec is output_merge_spec is None):
            raise RushlightError(f"{type(self).__name__}: tensors are cut along dimension 0 only")
        super().__init__([stage], n_microbatches, loss_fn, scale_grads)
        if stage.num_stages != stage.group_size:
            raise ValueError(
                f"{type(self).__name__}: {stage.num_stages} stages on {stage.group_size} ranks; "
                "one on each is needed"
            )
        self._stage = stage


class ScheduleGPipe(_Single):
    """All forwards, then all backwards. See Note [Pipeline schedules] 2."""

    __doc__ += (_Single.__doc__ or "").partition("\n")[2]

    def actions(self) -> list[Action]:
        own, count = self._stage.stage_index, self.n_microbatches
        return [Action(way, own, n) for way in (True, False) for n in range(count)]


class Schedule1F1B(_Single):
    """One forward, one backward, once there is a gradient. See Note [Pipeline schedules] 2."""

    __doc__ += (_Single.__doc__ or "").partition("\n")[2]

    def actions(self) -> list[Action]:
        stage, count = self._stage, self.n_microbatches
        ahead = min(count, stage.num_stages - stage.stage_index)
        return _alternated(
            [Action(True, stage.stage_index, n) for n in range(count)],
            [Action(False, stage.stage_index, n) for n in range(count)],
            ahead,
        )


def _alternated(forwards: list[Action], backwards: list[Action], ahead: int) -> list[Action]:
    """So many forwards first, then a backward and a forward in turn."""
    made = forwards[:ahead]
    for n, action in enumerate(backwards):
        made.append(action)
        made += forwards[ahead + n : ahead + n + 1]
    return made


class ScheduleInterleaved1F1B(_Schedule):
    """1F1B of several stages on each rank, which lie on ranks in turn.

    Args:
        stages (list): This rank's stages, in their order.
        n_microbatches (int): Into how many a batch is cut.
        loss_fn (callable): Called as `loss_fn(output, target)`; without it there is no backward.
        args_chunk_spec: Must be None: tensors are cut along dimension 0.
        kwargs_chunk_spec: Must be None.
        output_merge_spec: Must be None.
        scale_grads (bool): Whether gradients are divided by the number of microbatches.
    """

    def __init__(
        self,
        stages: Sequence[PipelineStage],
        n_microbatches: int,
        loss_fn: Loss | None = None,
        args_chunk_spec: Any = None,
        kwargs_chunk_spec: Any = None,
        output_merge_spec: Any = None,
        scale_grads: bool = True,
    ) -> None:
        if not (args_chunk_spec is kwargs_chunk_spec is output_merge_spec is None):
            raise RushlightError("ScheduleInterleaved1F1B: tensors are cut along dimension 0 only")
        super().__init__(stages, n_microbatches, loss_fn, scale_grads)
        first = stages[0]
        self.ranks, self.rank = first.group_size, first.group_rank
        if first.num_stages != self.ranks * len(stages):
            raise ValueError(
                f"ScheduleInterleaved1F1B: {first.num_stages} stages, but {self.ranks} ranks with "
                f"{len(stages)} each"
            )
        self.round = n_microbatches // max(1, n_microbatches // self.ranks)
        if n_microbatches % self.round:
            raise ValueError(
                f"ScheduleInterleaved1F1B: {n_microbatches} microbatches are no rounds of "
                f"{self.round}; take a multiple of {self.ranks}"
            )

    def actions(self) -> list[Action]:
        own = sorted(self.stages)
        many = len(own)
        total = many * self.n_microbatches
        seen = {(way, stage): 0 for way in (True, False) for stage in own}

        def action(way: bool, n: int) -> Action:
            local = n // self.round % many
            stage = own[local if way else many - 1 - local]
            seen[way, stage] += 1
            return Action(way, stage, seen[way, stage] - 1)

        ahead = (many - 1) * self.round + 2 * (self.ranks - 1 - self.rank) + 1
        return _alternated(
            [action(True, n) for n in range(total)],
            [action(False, n) for n in range(total)],
            min(total, ahead),
        )
