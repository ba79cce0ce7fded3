"""PyTorch's module of the wrapper and its settings."""

from __future__ import annotations

from rushlight.distributed.fsdp.api import *  # noqa: F403
from rushlight.distributed.fsdp.policies import OptimStateKeyType as OptimStateKeyType
from rushlight.distributed.fsdp.wrapper import FullyShardedDataParallel as FullyShardedDataParallel
