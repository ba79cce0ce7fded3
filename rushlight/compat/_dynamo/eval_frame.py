"""PyTorch's `torch._dynamo.eval_frame`: the class of compiled modules."""

from __future__ import annotations

from rushlight.nn.module import Module


class OptimizedModule(Module):
    """The class of compiled modules in PyTorch; nothing here is an instance of it."""
