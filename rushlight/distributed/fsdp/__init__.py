"""Parameters, gradients and optimiser state shared out over ranks.

Owns: units of parameters that are whole only while they are used, their gathers and sums,
`fully_shard`, `FullyShardedDataParallel`, wrapping policies.
Takes: modules, meshes of ranks.
Gives: `torch.distributed.fsdp`'s names.
Never: other bits than DistributedDataParallel gives; a collective that only some ranks make.
"""

from __future__ import annotations

from typing import Any

from rushlight.lazy import Names

_NAMES = Names(__name__)
_NAMES.modules("wrap")
_NAMES.defined(
    {
        "rushlight.distributed.fsdp.sharded_module": (
            "FSDPModule UnshardHandle fully_shard register_fsdp_forward_method share_comm_ctx"
        ),
        "rushlight.distributed.fsdp.policies": (
            "BackwardPrefetch CPUOffload CPUOffloadPolicy DataParallelMeshDims "
            "FullOptimStateDictConfig FullStateDictConfig LocalOptimStateDictConfig "
            "LocalStateDictConfig MixedPrecision MixedPrecisionPolicy OffloadPolicy "
            "OptimStateDictConfig OptimStateKeyType ShardedOptimStateDictConfig "
            "ShardedStateDictConfig ShardingStrategy StateDictConfig StateDictSettings "
            "StateDictType"
        ),
        "rushlight.distributed.fsdp.wrapper": "FullyShardedDataParallel",
    }
)
__all__ = sorted(name for name in _NAMES.sources if name[0] != "_")


def __getattr__(name: str) -> Any:
    return _NAMES.find(name)


def __dir__() -> list[str]:
    return _NAMES.listed()
