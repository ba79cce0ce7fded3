"""PyTorch's `torch.distributed.checkpoint.api`: what a failed save or load raises."""

from __future__ import annotations

from rushlight.core.errors import RushlightError

# Every rank raises the first rank's problem, which is its text.
CheckpointException = RushlightError
