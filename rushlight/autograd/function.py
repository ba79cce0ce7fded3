"""User functions by PyTorch's longer path, `torch.autograd.function`."""

from rushlight.lazy import shown
from rushlight.tape.function import Context as FunctionCtx, Function, once_differentiable

__all__ = ["Function", "FunctionCtx", "once_differentiable"]


def __dir__() -> list[str]:
    return shown(__name__)
