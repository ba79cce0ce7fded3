"""What hooks are taken off with, by PyTorch's name `torch.utils.hooks`."""

from rushlight.tape.hook_tables import Handle as RemovableHandle

__all__ = ["RemovableHandle"]
