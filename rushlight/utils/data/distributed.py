"""PyTorch's other path of DistributedSampler."""

from __future__ import annotations

from rushlight.utils.data.sampler import DistributedSampler as DistributedSampler

__all__ = ["DistributedSampler"]
