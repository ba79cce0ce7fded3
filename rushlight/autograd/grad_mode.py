"""Grad modes by PyTorch's longer path, `torch.autograd.grad_mode`."""

from rushlight.lazy import shown
from rushlight.tape.record.state import enable_grad, inference_mode, no_grad, set_grad_enabled

__all__ = ["enable_grad", "inference_mode", "no_grad", "set_grad_enabled"]


def __dir__() -> list[str]:
    return shown(__name__)
