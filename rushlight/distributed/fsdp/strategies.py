"""What the settings of `FullyShardedDataParallel` mean for groups, options and dtypes of a unit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rushlight.distributed import environment
from rushlight.distributed.device_mesh import DeviceMesh
from rushlight.distributed.fsdp.policies import (
    BackwardPrefetch,
    MixedPrecision,
    ShardingStrategy,
)
from rushlight.distributed.fsdp.sharded_module import Ranks, ranks_of
from rushlight.distributed.fsdp.unit import Options
from rushlight.distributed.process_groups import ProcessGroup, resolved
from rushlight.nn.module import Module
from rushlight.ops.create.creation import arange
from rushlight.tensor import Tensor

_HYBRID = (ShardingStrategy.HYBRID_SHARD, ShardingStrategy._HYBRID_SHARD_ZERO2)
KEPT_WHOLE = (ShardingStrategy.SHARD_GRAD_OP, ShardingStrategy._HYBRID_SHARD_ZERO2)


def groups_of(
    strategy: ShardingStrategy, process_group: Any, mesh: DeviceMesh | None, device: str
) -> Ranks:
    """The groups of a strategy."""
    if mesh is None and process_group is not None:
        if isinstance(process_group, (tuple, list)):
            parts, copies = (resolved(group) for group in process_group)
            ranks = [
                [other + copy - copies.ranks[copies.rank()] for other in parts.ranks]
                for copy in copies.ranks
            ]
            mesh = DeviceMesh(device, ranks, _groups=[copies, parts])
        else:
            group = resolved(process_group)
            mesh = DeviceMesh(device, group.ranks, _groups=[group])
    size = resolved().size()
    if mesh is None and strategy in _HYBRID:
        here = min(size, environment.local_size(size))
        whole: Any = arange(size)
        mesh = DeviceMesh(device, whole.view(size // here, here))
    if strategy in _HYBRID and (mesh is None or mesh.ndim != 2):
        raise ValueError(
            f"FullyShardedDataParallel: {strategy.name} takes a mesh of two dimensions (copies, "
            "parts), or two groups"
        )
    if strategy is ShardingStrategy.NO_SHARD:
        group = resolved() if mesh is None or mesh.ndim != 1 else mesh.get_group(0)
        if mesh is None or mesh.ndim != 2:
            mesh = _copies(device, group)
    return ranks_of(mesh, device)


_COPIES: dict[ProcessGroup, DeviceMesh] = {}


def _copies(device: str, group: ProcessGroup) -> DeviceMesh:
    """A mesh on which every rank has all elements."""
    if group not in _COPIES:
        rows = [[rank] for rank in group.ranks]
        _COPIES[group] = DeviceMesh(device, rows)
    return _COPIES[group]


def options_of(
    strategy: ShardingStrategy,
    precision: MixedPrecision | None,
    backward_prefetch: BackwardPrefetch | None,
    forward_prefetch: bool,
) -> Options:
    made = Options()
    made.reshard_after_forward = strategy not in KEPT_WHOLE
    made.ahead_forward = None if forward_prefetch else []
    made.ahead_backward = None if backward_prefetch is not None else []
    made.waits_to_gather = backward_prefetch is BackwardPrefetch.BACKWARD_POST
    made.casts_inputs = False
    if precision is not None:
        made.param_dtype = precision.param_dtype
        made.reduce_dtype = precision.reduce_dtype or precision.param_dtype
        made.casts_inputs = precision.cast_forward_inputs
        made.casts_root_inputs = precision.cast_root_forward_inputs
    return made


def set_precision(module: Module, precision: MixedPrecision, options: Options) -> None:
    """Cast buffers; modules of some classes keep their dtypes, and get inputs of these."""
    ignored = tuple(precision._module_classes_to_ignore)
    for part in module.modules():
        if ignored and isinstance(part, ignored):
            options.keeps.add(id(part))
            if precision.param_dtype is not None and "_keeps_dtype" not in part.__dict__:
                part.__dict__["_keeps_dtype"] = True
                part.register_forward_pre_hook(_as_its_own)
                part.register_forward_hook(_as_before(precision.param_dtype))
        elif precision.buffer_dtype is not None:
            for name, buffer in part._buffers.items():
                if buffer is not None and buffer.dtype.kind == "f":
                    part._buffers[name] = buffer.to(precision.buffer_dtype)


def _as_its_own(module: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    own = next((p.dtype for p in module._parameters.values() if p is not None), None)
    if own is None:
        return args
    return tuple(a.to(own) if isinstance(a, Tensor) and a.dtype.kind == "f" else a for a in args)


def _as_before(dtype: Any) -> Callable[..., Any]:
    def cast(module: Any, args: Any, result: Any) -> Any:
        return result.to(dtype) if isinstance(result, Tensor) else result

    return cast
