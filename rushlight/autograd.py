"""Gradients by function: PyTorch's `torch.autograd`."""

from __future__ import annotations

from rushlight.tape.state import enable_grad, no_grad, set_grad_enabled
from rushlight.tensor import backward, grad

__all__ = ["backward", "enable_grad", "grad", "no_grad", "set_grad_enabled"]
