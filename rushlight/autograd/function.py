"""User functions by PyTorch's longer path, `torch.autograd.function`."""

from rushlight.lazy import shown
from rushlight.tape.function import Context as FunctionCtx, Function, once_differentiable

__all__ = ["Function", "FunctionCtx", "InplaceFunction", "once_differentiable"]


def __dir__() -> list[str]:
    return shown(__name__)


class InplaceFunction(Function):
    """PyTorch's older base of functions that may write into their input."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace
