"""PyTorch's `torch.fx.experimental`: names that libraries ask."""

from __future__ import annotations

from rushlight.compat.fx.experimental import proxy_tensor as proxy_tensor
