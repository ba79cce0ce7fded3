"""PyTorch's `torch._inductor`: its compiler, of which there is none here."""

from __future__ import annotations

from rushlight.compat._inductor import config as config
