"""PyTorch's `torch._functorch`: settings of its compiler."""

from __future__ import annotations

from rushlight.compat._functorch import config as config
