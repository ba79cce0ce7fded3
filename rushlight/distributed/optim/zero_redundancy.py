"""ZeroRedundancyOptimizer: each rank has the optimiser's state of some of the parameters.

# Note [Zero redundancy]
1. All ranks have all parameters and, by DDP, the same gradients. A parameter belongs to one rank,
   as a whole: the largest first, to whoever has fewest elements. That rank steps it, so its bits
   are those of one optimiser, and sends it to the others.
2. `param_groups` are those of all parameters; their options go to the optimiser inside before each
   step, so schedules work. State that is consolidated is an ordinary optimiser's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from rushlight.core.errors import RushlightError
from rushlight.distributed.algorithms.join import Join, Joinable, JoinHook
from rushlight.distributed.collectives import broadcast
from rushlight.distributed.objects import gather_object
from rushlight.distributed.process_groups import ProcessGroup, resolved
from rushlight.ops.view.views import cat
from rushlight.optim.optimizer import Optimizer
from rushlight.tape.record.state import enable_grad, no_grad
from rushlight.tensor import Tensor

Group = dict[str, Any]


class ZeroRedundancyOptimizer(Optimizer, Joinable):
    """An optimiser whose state is shared out over ranks. See Note [Zero redundancy].

    Args:
        params (iterable): Parameters, or groups of them; the same on all ranks.
        optimizer_class (type): The optimiser of a rank's own parameters.
        process_group (ProcessGroup): The ranks; the default group without it.
        parameters_as_bucket_view (bool): Whether each rank's parameters lie in one buffer, which
            is sent without a copy.
        overlap_with_ddp (bool): Refused: a step begins when all gradients are there.
        **defaults: Options of the optimiser.
    """

    def __init__(
        self,
        params: Iterable[Any],
        optimizer_class: type[Optimizer],
        process_group: Any = None,
        parameters_as_bucket_view: bool = False,
        overlap_with_ddp: bool = False,
        **defaults: Any,
    ) -> None:
        if overlap_with_ddp:
            raise NotImplementedError(
                "ZeroRedundancyOptimizer: overlap_with_ddp=True is not there; a step begins when "
                "all gradients are. Leave it out"
            )
        self.process_group: ProcessGroup = resolved(process_group)
        self.rank, self.world_size = self.process_group.rank(), self.process_group.size()
        self.parameters_as_bucket_view = parameters_as_bucket_view
        self._constructor, self._options = optimizer_class, defaults
        self._owner: dict[int, int] = {}  # the rank of each parameter, by identity
        self._buckets: list[list[tuple[Tensor | None, list[Tensor]]]] = []
        self._whole: dict[str, Any] | None = None  # of the last consolidation
        self.optim: Optimizer | None = None
        super().__init__(params, {})
        self._make()

    # ---- parts ----

    def _make(self) -> None:
        """Deal the parameters out, and make the optimiser of this rank's own."""
        self._owner = _dealt(self.param_groups, self.world_size)
        own = []
        for group in self.param_groups:
            mine = [p for p in group["params"] if self._owner[id(p)] == self.rank]
            own.append({**group, "params": mine})
        self.optim = self._constructor(own, **self._options)
        for group, inside in zip(self.param_groups, self.optim.param_groups, strict=True):
            for name, value in inside.items():
                group.setdefault(name, value)
        self.state = self.optim.state
        self._fill_buckets()

    def _fill_buckets(self) -> None:
        """What each rank sends: its parameters, by dtype and device."""
        self._buckets = []
        for rank in range(self.world_size):
            kinds: dict[Any, list[Tensor]] = {}
            for group in self.param_groups:
                for p in group["params"]:
                    if self._owner[id(p)] == rank and p.numel():
                        kinds.setdefault((p.dtype, p.device), []).append(p)
            self._buckets.append([(self._bucket(same), same) for same in kinds.values()])

    def _bucket(self, same: list[Tensor]) -> Tensor | None:
        """One buffer that parameters are moved to, where that was asked for."""
        if not self.parameters_as_bucket_view:
            return None
        with no_grad():
            flat = cat([p.detach().reshape(-1) for p in same])
            for p, part in zip(same, flat.split([p.numel() for p in same]), strict=True):
                p.data = part.view(p.shape)
        return flat

    def add_param_group(self, param_group: Group) -> None:
        """Add parameters, the same on all ranks; parameters are dealt out anew.

        Args:
            param_group (dict): "params", and options where they differ.
        """
        super().add_param_group(param_group)
        if self.optim is not None:
            kept, before = dict(self.optim.state), dict(self._owner)
            self._make()
            moved = [
                p
                for group in self.param_groups
                for p in group["params"]
                if id(p) in before and before[id(p)] != self._owner[id(p)]
            ]
            if moved and any(p in kept for p in moved):
                raise RushlightError(
                    "ZeroRedundancyOptimizer.add_param_group: parameters with state would belong "
                    "to other ranks; add groups before the first step"
                )
            own: Any = self.optim
            own.state.update({p: state for p, state in kept.items() if p not in moved})
            self.state = own.state

    # ---- a step ----

    def _send_options(self) -> None:
        inside: Any = self.optim
        for group, own in zip(self.param_groups, inside.param_groups, strict=True):
            own.update({name: value for name, value in group.items() if name != "params"})

    def step(self, closure: Callable[[], Any] | None = None, **named: Any) -> Any:
        """Step this rank's own parameters, and exchange all; all ranks make this call.

        Args:
            closure (callable): Computes the loss first; its result is returned.
            **named: Arguments of the optimiser's own step.
        """
        Join.notify_join_context(self)
        inside: Any = self.optim
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        self._send_options()
        self._whole = None
        if any(group["params"] for group in inside.param_groups):
            inside.step(**named)
        self._exchange()
        return loss

    def join_hook(self, **kwargs: Any) -> JoinHook:
        """What a rank without inputs does in a block of `Join`: it steps its own parameters.

        Their gradients must be there, as DistributedDataParallel's hook brings them.
        """
        return _Stepping(self)

    @property
    def join_device(self) -> Any:
        """Where the block of `Join` counts."""
        return self.param_groups[0]["params"][0].device

    @property
    def join_process_group(self) -> Any:
        """The ranks of a block of `Join`."""
        return self.process_group

    def _exchange(self) -> None:
        """Every rank's parameters come to all."""
        with no_grad():
            for rank, buckets in enumerate(self._buckets):
                for kept, same in buckets:
                    flat = cat([p.detach().reshape(-1) for p in same]) if kept is None else kept
                    broadcast(flat, group=self.process_group, group_src=rank)
                    if kept is None and rank != self.rank:
                        parts = flat.split([p.numel() for p in same])
                        for p, part in zip(same, parts, strict=True):
                            p.detach().copy_(part.view(p.shape))

    # ---- state ----

    def _numbers(self) -> dict[int, int]:
        """The number of each parameter among all, by identity."""
        listed = [p for group in self.param_groups for p in group["params"]]
        return {id(p): number for number, p in enumerate(listed)}

    def consolidate_state_dict(self, to: int = 0) -> None:
        """Bring the state of all ranks to one; all ranks make this call.

        Args:
            to (int): The rank that gets it.
        """
        self._send_options()
        inside: Any = self.optim
        numbers, state = self._numbers(), inside.state_dict()
        own = [p for group in inside.param_groups for p in group["params"]]
        mine = {
            numbers[id(own[number])]: {name: _on_host(value) for name, value in kept.items()}
            for number, kept in state["state"].items()
        }
        found: list[Any] | None = [None] * self.world_size if self.rank == to else None
        gather_object(mine, found, group=self.process_group, group_dst=to)
        if found is None:
            self._whole = None
            return
        whole: dict[int, Any] = {}
        for part in found:
            whole.update(part)
        groups = [
            {**group, "params": [numbers[id(p)] for p in group["params"]]}
            for group in self.param_groups
        ]
        self._whole = {
            "state": {number: whole[number] for number in sorted(whole)},
            "param_groups": groups,
        }

    def state_dict(self) -> dict[str, Any]:
        """The state of all parameters, as one optimiser's; after `consolidate_state_dict` only."""
        if self._whole is None:
            raise RuntimeError(
                "Optimizer state has not been consolidated on this rank. Please call "
                f"`consolidate_state_dict(to={self.rank})` on all ranks beforehand if you meant "
                "to save the global state."
            )
        return self._whole

    def load_state_dict(self, state_dict: Any) -> None:
        """Load the state of all parameters; each rank keeps that of its own.

        Args:
            state_dict (dict): An ordinary optimiser's, or what `state_dict` gave.
        """
        mine = [len(group["params"]) for group in self.param_groups]
        given = [len(group["params"]) for group in state_dict["param_groups"]]
        if mine != given:
            raise RushlightError(
                f"load_state_dict: the state has groups of {given} parameters, this optimiser of "
                f"{mine}; make it with the same parameters in the same order"
            )
        inside: Any = self.optim
        state: dict[int, Any] = {}
        groups: list[Group] = []
        count = 0
        for own, told in zip(self.param_groups, state_dict["param_groups"], strict=True):
            kept = []
            for p, number in zip(own["params"], told["params"], strict=True):
                if self._owner[id(p)] == self.rank:
                    if number in state_dict["state"]:
                        state[count] = state_dict["state"][number]
                    kept.append(count)
                    count += 1
            groups.append({**told, "params": kept})
        inside.load_state_dict({"state": state, "param_groups": groups})
        for own, told in zip(self.param_groups, state_dict["param_groups"], strict=True):
            own.update({name: value for name, value in told.items() if name != "params"})
        self.state = inside.state
        self._whole = None


class _Stepping(JoinHook):
    """A step of an optimiser on a rank without inputs."""

    def __init__(self, optimizer: ZeroRedundancyOptimizer) -> None:
        self.optimizer = optimizer

    def main_hook(self) -> None:
        """Step, as the others do."""
        self.optimizer.step()


def _dealt(groups: Iterable[Group], ranks: int) -> dict[int, int]:
    """The rank of each parameter: the largest first, to whoever has fewest elements."""
    held = [0] * ranks
    owner: dict[int, int] = {}
    for group in groups:
        for p in sorted(group["params"], key=lambda p: -p.numel()):
            rank = held.index(min(held))
            owner[id(p)] = rank
            held[rank] += p.numel()
    return owner


def _on_host(value: Any) -> Any:
    return value.detach().cpu() if isinstance(value, Tensor) else value
