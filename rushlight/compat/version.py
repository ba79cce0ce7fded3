"""PyTorch's `torch.version`: the PyTorch whose names and behaviour are followed."""

from __future__ import annotations

from rushlight.compat.torch_version import TorchVersion

FOLLOWED = "2.13.0"
__version__ = TorchVersion(f"{FOLLOWED}+rushlight")
debug = False
cuda: str | None = None  # kernels are compiled for the present driver
hip: str | None = None
xpu: str | None = None
git_version = "unknown"
