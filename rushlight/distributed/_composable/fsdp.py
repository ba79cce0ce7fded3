"""PyTorch's older module of `fully_shard` and its settings."""

from __future__ import annotations

from rushlight.distributed.fsdp.policies import (
    CPUOffloadPolicy as CPUOffloadPolicy,
    MixedPrecisionPolicy as MixedPrecisionPolicy,
    OffloadPolicy as OffloadPolicy,
)
from rushlight.distributed.fsdp.sharded_module import (
    FSDPModule as FSDPModule,
    UnshardHandle as UnshardHandle,
    fully_shard as fully_shard,
    register_fsdp_forward_method as register_fsdp_forward_method,
)
