"""PyTorch's older names of mixed precision: `torch.cuda.amp`."""

from __future__ import annotations

from rushlight.amp import GradScaler, autocast as _autocast
from rushlight.core.dtypes import DType, float16

__all__ = ["GradScaler", "autocast"]


class autocast(_autocast):
    """`amp.autocast` for a card: float16 unless another type is given."""

    def __init__(self, enabled: bool = True, dtype: DType = float16, cache_enabled: bool = True) -> None:
        super().__init__("cuda", dtype, enabled)
