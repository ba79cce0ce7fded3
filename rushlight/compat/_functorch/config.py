"""PyTorch's `torch._functorch.config`: settings of its compiler, which have no effect."""

from __future__ import annotations

donated_buffer = False
enable_autograd_cache = False
activation_memory_budget = 1.0
