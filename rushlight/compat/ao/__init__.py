"""PyTorch's `torch.ao`: the markers of quantisation that models contain."""

from __future__ import annotations

from rushlight.compat.ao import quantization as quantization
