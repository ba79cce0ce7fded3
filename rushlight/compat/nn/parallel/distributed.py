"""PyTorch's `torch.nn.parallel.distributed`."""

from __future__ import annotations

from rushlight.distributed.data_parallel import (
    DistributedDataParallel as DistributedDataParallel,
)
