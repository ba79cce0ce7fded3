"""PyTorch's other place for the sampler of one process among several."""

from __future__ import annotations

from rushlight.utils.data.sampler import DistributedSampler as DistributedSampler

__all__ = ["DistributedSampler"]
