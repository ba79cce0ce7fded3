"""One stage of a pipeline: forward and backward of microbatches, and messages to its neighbours.

# Note [Pipeline stages]
1. Stage k gets the outputs of stage k - 1 for each microbatch and gives its own to stage k + 1;
   gradients go back. Stages lie on the ranks of a group in turn: stage k on rank k modulo its size.
2. A stage says what its outputs are (shapes, dtypes, whether they need gradients) when it first
   sends; later microbatches must be alike. So shapes are inferred, and no message carries them.
3. Sends are not waited for until the step ends. A message's tag is the receiving stage, the
   direction and the number of the tensor. Messages of one tag come in the order in which they were
   sent, which is that of the microbatches.
4. A microbatch's activations live from its forward to its backward. `held` counts them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from rushlight.autograd import backward
from rushlight.core.errors import RushlightError, ShapeError
from rushlight.distributed.messages import Message, irecv, isend
from rushlight.distributed.objects import recv_object_list, send_object_list
from rushlight.distributed.process_groups import ProcessGroup, resolved
from rushlight.nn.module import Module
from rushlight.ops.create.creation import empty
from rushlight.tape.record.state import is_grad_enabled
from rushlight.tensor import Tensor

_TENSORS = 64  # whose tags are told apart


class Shown(NamedTuple):
    """What is known of a tensor that is sent."""

    shape: tuple[int, ...]
    dtype: Any
    recorded: bool


class Chunk(NamedTuple):
    """A microbatch between its forward and its backward."""

    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]


class PipelineStage:
    """One stage of a model on one rank. See Note [Pipeline stages].

    Args:
        submodule (Module): This stage's part of the model.
        stage_index (int): Its number, from 0.
        num_stages (int): How many there are.
        device (device): Where received tensors go.
        input_args: Has no effect: shapes are inferred.
        output_args: Has no effect: shapes are inferred.
        group (ProcessGroup): The ranks; the default group without it.
        dw_builder: Must be None.
    """

    def __init__(
        self,
        submodule: Module,
        stage_index: int,
        num_stages: int,
        device: Any = "cpu",
        input_args: Any = None,
        output_args: Any = None,
        group: Any = None,
        dw_builder: Any = None,
    ) -> None:
        if not 0 <= stage_index < num_stages:
            raise ValueError(f"PipelineStage: stage {stage_index} of {num_stages}")
        if dw_builder is not None:
            raise RushlightError("PipelineStage: gradients of weights are not put off: dw_builder")
        self.submod = submodule
        self.stage_index = stage_index
        self.num_stages = num_stages
        self.device = device
        self.group: ProcessGroup = resolved(group)
        self.group_rank, self.group_size = self.group.rank(), self.group.size()
        if stage_index % self.group_size != self.group_rank:
            raise ValueError(
                f"PipelineStage: stage {stage_index} lies on rank {stage_index % self.group_size} "
                f"of its group of {self.group_size}, this is rank {self.group_rank}"
            )
        self.chunks: dict[int, Chunk] = {}
        self.held = 0  # the most microbatches between forward and backward
        self._sending: list[Message] = []
        # What comes and what goes, with gradients and without.
        self._given: dict[bool, list[Shown]] = {}
        self._told: dict[bool, list[Shown]] = {}
        self._neighbours: dict[int, PipelineStage] = {}  # stages of this rank
        self._aside: dict[tuple[int, int, bool], Any] = {}  # of another stage of this rank

    is_first = property(lambda self: self.stage_index == 0)
    is_last = property(lambda self: self.stage_index == self.num_stages - 1)

    # ---- messages ----

    def _tag(self, stage: int, back: bool, number: int) -> int:
        return (2 * stage + back) * _TENSORS + number

    def _send(self, tensors: Sequence[Any], chunk: int, stage: int, back: bool) -> None:
        peer = stage % self.group_size
        if peer == self.group_rank:
            self._neighbours[stage]._aside[chunk, stage, back] = list(tensors)
            return
        for n, tensor in enumerate(tensors):
            tag = self._tag(stage, back, n)
            made = isend(tensor.detach().contiguous(), group=self.group, tag=tag, group_dst=peer)
            if made is not None:
                self._sending.append(made)
        self._sending = [one for one in self._sending if not one.is_completed()]

    def _receive(self, like: Sequence[Shown], chunk: int, source: int, back: bool) -> list[Any]:
        peer = source % self.group_size
        if peer == self.group_rank:
            parts: list[Any] = self._aside.pop((chunk, self.stage_index, back))
            return [part.detach() for part in parts]
        found, coming = [], []
        for n, shown in enumerate(like):
            made = empty(shown.shape, dtype=shown.dtype, device=self.device)
            tag = self._tag(self.stage_index, back, n)
            coming.append(irecv(made, group=self.group, tag=tag, group_src=peer))
            found.append(made)
        for message in coming:
            if message is not None:
                message.wait()
        return found

    def meet(self, stages: Sequence[PipelineStage]) -> None:
        """Know the other stages of this rank."""
        self._neighbours = {stage.stage_index: stage for stage in stages}

    def _ask(self) -> list[Shown]:
        """What the stage before sends: told once. See Note [Pipeline stages] 2."""
        mode = is_grad_enabled()
        if mode not in self._given:
            source = self.stage_index - 1
            if source % self.group_size == self.group_rank:
                self._given[mode] = self._neighbours[source]._told[mode]
            else:
                told: list[Any] = [None]
                recv_object_list(told, self.group.ranks[source % self.group_size], self.group)
                self._given[mode] = [Shown(*one) for one in told[0]]
        return self._given[mode]

    def _tell(self, outputs: Sequence[Any]) -> None:
        if len(outputs) > _TENSORS:
            raise RushlightError(
                f"PipelineStage {self.stage_index}: {len(outputs)} outputs; at most {_TENSORS} "
                "are sent"
            )
        mine = [Shown(tuple(t.shape), t.dtype, t.requires_grad) for t in outputs]
        mode = is_grad_enabled()
        known = self._told.setdefault(mode, mine)
        if known is not mine:
            if mine != known:
                raise ShapeError(
                    f"PipelineStage {self.stage_index}: outputs {mine}, but the first ones were "
                    f"{known}: microbatches must be alike; make new stages for other shapes"
                )
            return
        to = (self.stage_index + 1) % self.group_size
        if to != self.group_rank:
            told = [[tuple(one) for one in mine]]
            send_object_list(told, self.group.ranks[to], self.group)

    def end_step(self) -> None:
        """Wait until all that was sent has gone."""
        for message in self._sending:
            message.wait()
        self._sending = []

    # ---- computing ----

    def forward_one_chunk(
        self, chunk: int, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Any, ...]:
        """Compute a microbatch and send the outputs on."""
        inputs = args
        if not self.is_first:
            shown = self._ask()
            inputs = tuple(self._receive(shown, chunk, self.stage_index - 1, False))
            for tensor, one in zip(inputs, shown, strict=True):
                if one.recorded and is_grad_enabled():
                    tensor.requires_grad_()
        made = self.submod(*inputs, **kwargs)
        outputs = tuple(made) if isinstance(made, (tuple, list)) else (made,)
        if not self.is_last:
            if not all(isinstance(output, Tensor) for output in outputs):
                raise TypeError(
                    f"PipelineStage {self.stage_index}: its module gives tensors, got "
                    f"{[type(output).__name__ for output in outputs]}"
                )
            self._tell(outputs)
            self._send(outputs, chunk, self.stage_index + 1, False)
        if is_grad_enabled():
            self.chunks[chunk] = Chunk(inputs, outputs)
            self.held = max(self.held, len(self.chunks))
        return outputs

    def backward_one_chunk(self, chunk: int, loss: Any = None) -> None:
        """Differentiate a microbatch and send the gradients back."""
        inputs, outputs = self.chunks.pop(chunk)
        if self.is_last:
            backward([loss])
        else:
            known = self._told[True]
            recorded = [t for t, one in zip(outputs, known, strict=True) if one.recorded]
            like = [one for one in known if one.recorded]
            if recorded:
                grads = self._receive(like, chunk, self.stage_index + 1, True)
                backward(recorded, grads)
        if not self.is_first:
            asked = [t for t in inputs if isinstance(t, Tensor) and t.requires_grad]
            found = [t.new_zeros(t.shape) if t.grad is None else t.grad for t in asked]
            if asked:
                self._send(found, chunk, self.stage_index - 1, True)

    def scale_grads(self, divisor: int) -> None:
        """Divide the gradients of this stage's parameters."""
        for parameter in self.submod.parameters():
            if parameter.grad is not None:
                parameter.grad.detach().div_(divisor)
