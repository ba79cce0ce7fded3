"""DistributedDataParallel: a module in every process, with gradients averaged over them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from rushlight.distributed.algorithms.join import Join, Joinable, JoinHook
from rushlight.distributed.copying import copy_from
from rushlight.distributed.errors import DistributedError
from rushlight.distributed.graph_leaves import leaves_of
from rushlight.distributed.objects import all_gather_object
from rushlight.distributed.process_groups import ProcessGroup, default_group, resolved
from rushlight.distributed.reducer import Hook, Reducer
from rushlight.distributed.reducing import ReduceOp
from rushlight.distributed.shards import Shards
from rushlight.distributed.uneven import Uneven
from rushlight.nn.module import Module
from rushlight.tape.record.state import is_grad_enabled
from rushlight.tensor import Tensor

_MEBIBYTE = 1 << 20


class DistributedDataParallel(Module, Joinable):
    """A module in every process of a group; backward gives each the average of all gradients.

    The wrapped module is `.module`, and the names in its state begin with "module.", as in PyTorch.
    Without a group of processes the module runs as it is.

    Args:
        module (Module): The module, which gets rank 0's parameters and buffers.
        device_ids: Has no effect; a process has one device.
        output_device: Has no effect.
        dim (int): Has no effect.
        broadcast_buffers (bool): Whether rank 0's buffers come to all before each forward.
        init_sync (bool): Whether rank 0's parameters come to all at once.
        process_group (ProcessGroup): The ranks; the default group without it.
        bucket_cap_mb (float): Mebibytes of gradients that travel together; 25.
        find_unused_parameters (bool): Whether outputs may leave parameters out.
        check_reduction (bool): Has no effect.
        gradient_as_bucket_view (bool): Whether gradients stay in the buffers that travelled.
        static_graph (bool): Whether every pass uses the same parameters as the first.
        shards (int): Logical shards of a step's batch: bits that do not depend on the number of
            processes. See Note [Shards].
    """

    def __init__(
        self,
        module: Module,
        device_ids: Any = None,
        output_device: Any = None,
        dim: int = 0,
        broadcast_buffers: bool = True,
        init_sync: bool = True,
        process_group: Any = None,
        bucket_cap_mb: float | None = None,
        find_unused_parameters: bool = False,
        check_reduction: bool = False,
        gradient_as_bucket_view: bool = False,
        static_graph: bool = False,
        delay_all_reduce_named_params: Any = None,
        param_to_hook_all_reduce: Any = None,
        mixed_precision: Any = None,
        device_mesh: Any = None,
        skip_all_reduce_unused_params: bool = False,
        *,
        shards: int | None = None,
    ) -> None:
        super().__init__()
        self.module = module
        self.device_ids = device_ids
        self.broadcast_buffers = broadcast_buffers
        self.find_unused_parameters = find_unused_parameters
        self.static_graph = static_graph
        self.require_backward_grad_sync = True
        chosen = device_mesh.get_group() if device_mesh is not None else process_group
        group = default_group() if chosen is None else resolved(chosen)
        self.process_group = group
        ignored = set(getattr(module, "_ddp_params_and_buffers_to_ignore", ()))
        named = [(n, p) for n, p in module.named_parameters() if n not in ignored]
        self._kept = [(n, b) for n, b in module.named_buffers() if n not in ignored]
        self._names = [name for name, p in named if p.requires_grad]
        learned = [p for _, p in named if p.requires_grad]
        self._reducer: Reducer | None = None
        self._shards: Shards | None = None
        self._uneven: Uneven | None = None
        self._found: set[int] | None = None
        if group is not None and group.size() > 1:
            if not learned:
                raise RuntimeError("DistributedDataParallel: no parameter requires a gradient")
            self._check(group, [p for _, p in named])
            if init_sync:
                copy_from(group, [p for _, p in named], 0)
                copy_from(group, [b for _, b in self._kept], 0)
        if group is not None and group.size() > 1:
            limit = int((25 if bucket_cap_mb is None else bucket_cap_mb) * _MEBIBYTE)
            op = ReduceOp.AVG if shards is None else ReduceOp.SUM
            self._reducer = Reducer(learned, group, limit, gradient_as_bucket_view, op)
            self._reducer.looks = find_unused_parameters and not static_graph
        if shards is not None:
            self._shards = Shards(module, self._names, self._reducer, group, shards)
        elif self._reducer is not None:
            for number, parameter in enumerate(learned):
                parameter.register_post_accumulate_grad_hook(self._reporter(number))

    def _reporter(self, number: int) -> Any:
        reducer = self._reducer

        def report(parameter: Tensor) -> None:
            if reducer is not None and parameter.grad is not None:
                reducer.arrived(number, parameter.grad)

        return report

    def _check(self, group: ProcessGroup, parameters: Sequence[Tensor]) -> None:
        """Refuse modules that differ between ranks."""
        mine = [(tuple(p.shape), str(p.dtype), p.requires_grad) for p in parameters]
        found: list[Any] = [None] * group.size()
        all_gather_object(found, mine, group)
        for rank, other in zip(group.ranks, found, strict=True):
            if other != mine:
                n = next(
                    (n for n, (a, b) in enumerate(zip(mine, other, strict=False)) if a != b), -1
                )
                what = f"parameter {n}: {mine[n]} here, {other[n]} there" if n >= 0 else "in number"
                raise DistributedError(
                    f"DistributedDataParallel: the module of rank {rank} differs: {what}", rank
                )

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        reducer = self._reducer
        syncs = reducer is not None and self.require_backward_grad_sync and is_grad_enabled()
        if self._join_config.enable:
            Join.notify_join_context(self)
            if self._uneven is not None:
                self._uneven.announce(self.require_backward_grad_sync, syncs)
        elif reducer is not None:
            self._uneven, reducer.divisor = None, 0  # an error may have ended the block
        if self._shards is not None and self.training and is_grad_enabled():
            return self._shards.forward(inputs, kwargs, self.find_unused_parameters)
        group = self.process_group
        if group is not None and group.size() > 1 and self.require_backward_grad_sync:
            self._sync_buffers(group)
        outputs = self.module(*inputs, **kwargs)
        if reducer is not None and syncs:
            reducer.prepare(self._unused(outputs))
        return outputs

    def _sync_buffers(self, group: ProcessGroup) -> None:
        if self.broadcast_buffers and self._kept and self.training:
            root = 0 if self._uneven is None else self._uneven.source
            copy_from(group, [buffer for _, buffer in self._kept], root)

    def _unused(self, outputs: Any) -> set[int]:
        """The parameters that the outputs do not reach, where that may be."""
        if self.static_graph and self._found is not None:
            return self._found
        if not (self.find_unused_parameters or self.static_graph) or self._reducer is None:
            return set()
        reached = leaves_of(outputs)
        found = {
            n
            for n, parameter in enumerate(self._reducer.parameters)
            if id(parameter) not in reached
        }
        self._reducer.looks = bool(self.find_unused_parameters or found)
        self._found = found
        return found

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """A block whose gradients are summed up on each rank; the next pass averages them."""
        before = self.require_backward_grad_sync
        self.require_backward_grad_sync = False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

    def register_comm_hook(self, state: Any, hook: Hook) -> None:
        """Let `hook(state, bucket)` put a bucket's gradients together; it gives a future of them.

        Args:
            state: The hook's first argument.
            hook (callable): Gets a GradBucket, gives a Future of its new buffer.
        """
        if self._shards is not None:
            raise RuntimeError("register_comm_hook: sums of shards have one fixed order")
        if self._reducer is not None:
            if self._reducer.hook is not None:
                raise RuntimeError("register_comm_hook: there is a hook already")
            self._reducer.hook, self._reducer.hook_state = hook, state

    @contextlib.contextmanager
    def join(
        self,
        divide_by_initial_world_size: bool = True,
        enable: bool = True,
        throw_on_early_termination: bool = False,
    ) -> Iterator[None]:
        """A block in which ranks may have unequally many inputs. See Note [Uneven inputs].

        Args:
            divide_by_initial_world_size (bool): Whether averages are over all ranks, not over those
                that still have inputs.
            enable (bool): False leaves the module as it is.
            throw_on_early_termination (bool): Whether all ranks raise when one has no more.
        """
        group = self.process_group
        with Join(
            [self],
            enable and self._reducer is not None and group is not None and group.size() > 1,
            throw_on_early_termination,
            divide_by_initial_world_size=divide_by_initial_world_size,
        ):
            yield

    def join_hook(self, **kwargs: Any) -> JoinHook:
        """What a rank without inputs does in a block of `Join`. See Note [Uneven inputs].

        Args:
            **kwargs: `divide_by_initial_world_size`, True without it.
        """
        reducer, group = self._reducer, self.process_group
        if self._shards is not None:
            raise RuntimeError("join: each rank has its shards of every batch; use no shards")
        if reducer is None or group is None:
            return JoinHook()
        self._uneven = Uneven(
            reducer,
            group,
            kwargs.get("divide_by_initial_world_size", True),
            lambda: self._sync_buffers(group),
            lambda: self._sync_all(group),
        )
        return self._uneven

    def _sync_all(self, group: ProcessGroup) -> None:
        tensors = [p for _, p in self.module.named_parameters()]
        root = 0 if self._uneven is None else self._uneven.source
        copy_from(group, [*tensors, *(b for _, b in self._kept)], root)

    @property
    def reducer(self) -> Any:
        """What sums the gradients: `prepare_for_backward(outputs)` tells it of a pass.

        For programs that run backward where forward could not know of it.
        """
        return _Preparing(self)

    def _get_ddp_logging_data(self) -> dict[str, Any]:
        """Settings, by PyTorch's names."""
        return {
            "world_size": 1 if self.process_group is None else self.process_group.size(),
            "rank": 0 if self.process_group is None else self.process_group.rank(),
            "module_name": type(self.module).__name__,
            "broadcast_buffers": self.broadcast_buffers,
            "find_unused_parameters": self.find_unused_parameters,
            "static_graph": self.static_graph,
            "can_set_static_graph": False,
        }

    @property
    def join_device(self) -> Any:
        """Where the block of `Join` counts."""
        return next(self.module.parameters()).device

    @property
    def join_process_group(self) -> Any:
        """The ranks of a block of `Join`."""
        return self.process_group


class _Preparing:
    """A module's sums of gradients, as seen by a program that begins them itself."""

    def __init__(self, module: DistributedDataParallel) -> None:
        self._module = module

    def prepare_for_backward(self, outputs: Any) -> None:
        """The next backward is summed over ranks; unused parameters follow from its outputs."""
        reducer = self._module._reducer
        if reducer is not None and self._module._shards is None:
            reducer.prepare(self._module._unused(outputs) if outputs else set())

    def _rebuild_buckets(self) -> bool:
        return False
