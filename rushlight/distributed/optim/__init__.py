"""Optimisers of many ranks, under `torch.distributed.optim`'s names."""

from __future__ import annotations

from rushlight.distributed.optim.post_local_sgd import (
    PostLocalSGDOptimizer as PostLocalSGDOptimizer,
)
from rushlight.distributed.optim.zero_redundancy import (
    ZeroRedundancyOptimizer as ZeroRedundancyOptimizer,
)
