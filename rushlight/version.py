"""The version and build, under PyTorch's names."""

from __future__ import annotations

__version__ = "0.1.0"
cuda: str | None = None  # kernels are compiled for the present driver
hip: str | None = None
git_version = "unknown"
