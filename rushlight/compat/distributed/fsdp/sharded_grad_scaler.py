"""PyTorch's `torch.distributed.fsdp.sharded_grad_scaler`: one decision of all ranks."""

from __future__ import annotations

from typing import Any

from rushlight.amp import GradScaler
from rushlight.distributed.collectives import all_reduce
from rushlight.distributed.process_groups import is_initialized, resolved
from rushlight.distributed.reducing import ReduceOp


class ShardedGradScaler(GradScaler):
    """A GradScaler of gradients in parts: a step is skipped on all ranks, or on none.

    Args:
        device (str): As GradScaler's.
        init_scale (float): The first scale.
        backoff_factor (float): Of the scale, after a skipped step.
        growth_factor (float): Of the scale, after many good steps.
        growth_interval (int): How many.
        enabled (bool): Whether anything is done.
        process_group (ProcessGroup): The ranks; the default group without it.
    """

    def __init__(
        self,
        device: str = "cuda",
        init_scale: float = 2.0**16,
        backoff_factor: float = 0.5,
        growth_factor: float = 2.0,
        growth_interval: int = 2000,
        enabled: bool = True,
        process_group: Any = None,
    ) -> None:
        super().__init__(
            device, init_scale, growth_factor, backoff_factor, growth_interval, enabled
        )
        self.process_group = process_group

    def unscale_(self, optimizer: Any) -> None:
        """Divide the gradients by the scale, and ask all ranks whether theirs are finite."""
        super().unscale_(optimizer)
        if not self._enabled or (self.process_group is None and not is_initialized()):
            return
        key = id(optimizer)
        found: Any = self._found[key].clone()
        all_reduce(found, ReduceOp.MAX, resolved(self.process_group))
        self._found[key] = found
        if key in self._finite:
            self._finite[key] = found.item() == 0
