"""Gradients by function: PyTorch's `torch.autograd`."""

from __future__ import annotations

from rushlight.tape.function import Function, once_differentiable
from rushlight.tape.roots import backward, grad
from rushlight.tape.state import enable_grad, inference_mode, no_grad, set_grad_enabled

__all__ = [
    "Function",
    "backward",
    "enable_grad",
    "grad",
    "inference_mode",
    "no_grad",
    "once_differentiable",
    "set_grad_enabled",
]
