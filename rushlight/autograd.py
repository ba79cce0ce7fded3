"""Gradients by function: PyTorch's `torch.autograd`."""

from __future__ import annotations

from rushlight.tape.roots import backward, grad
from rushlight.tape.state import enable_grad, no_grad, set_grad_enabled

__all__ = ["backward", "enable_grad", "grad", "no_grad", "set_grad_enabled"]
