"""Handles that remove hooks, by PyTorch's name `torch.utils.hooks`."""

from rushlight.lazy import shown
from rushlight.tape.record.hook_tables import RemovableHandle as RemovableHandle

__all__ = ["RemovableHandle"]


def __dir__() -> list[str]:
    return shown(__name__)
