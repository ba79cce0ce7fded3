"""PyTorch's older place of `fully_shard`."""

from __future__ import annotations

from rushlight.distributed.fsdp.sharded_module import fully_shard as fully_shard
