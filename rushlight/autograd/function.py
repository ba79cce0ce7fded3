"""User functions by PyTorch's longer path, `torch.autograd.function`."""

from rushlight.tape.function import Context as FunctionCtx, Function, once_differentiable

__all__ = ["Function", "FunctionCtx", "once_differentiable"]
