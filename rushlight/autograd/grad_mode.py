"""Grad modes by PyTorch's longer path, `torch.autograd.grad_mode`."""

from rushlight.lazy import shown
from rushlight.tape.record.state import enable_grad, inference_mode, no_grad, set_grad_enabled

__all__ = [
    "enable_grad",
    "inference_mode",
    "no_grad",
    "set_grad_enabled",
    "set_multithreading_enabled",
]


def __dir__() -> list[str]:
    return shown(__name__)


class set_multithreading_enabled:
    """Accepted, as a call and for a block: `backward(workers=N)` says how many threads there are.

    Args:
        mode (bool): Whether a backward pass may use several threads.
    """

    def __init__(self, mode: bool) -> None:
        self.mode = mode

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None
