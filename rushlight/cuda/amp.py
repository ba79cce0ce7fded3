"""PyTorch's older names of mixed precision: `torch.cuda.amp`."""

from __future__ import annotations

import functools

from rushlight.amp import (
    GradScaler as _GradScaler,
    autocast as _autocast,
    custom_bwd as _custom_bwd,
    custom_fwd as _custom_fwd,
)
from rushlight.core.dtypes import DType, float16
from rushlight.lazy import shown

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd"]


def __dir__() -> list[str]:
    return shown(__name__)


custom_fwd = functools.partial(_custom_fwd, device_type="cuda")
custom_bwd = functools.partial(_custom_bwd, device_type="cuda")


class autocast(_autocast):
    """`amp.autocast` for a card: float16 unless another dtype is given."""

    def __init__(
        self, enabled: bool = True, dtype: DType = float16, cache_enabled: bool = True
    ) -> None:
        super().__init__("cuda", dtype, enabled, cache_enabled)


class GradScaler(_GradScaler):
    """`amp.GradScaler` of a card, whose first argument is the scale."""

    def __init__(
        self,
        init_scale: float = 65536.0,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        super().__init__(
            "cuda", init_scale, growth_factor, backoff_factor, growth_interval, enabled
        )
