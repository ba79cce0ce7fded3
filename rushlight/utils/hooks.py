"""Handles that remove hooks, by PyTorch's name `torch.utils.hooks`."""

from rushlight.tape.record.hook_tables import Handle as RemovableHandle

__all__ = ["RemovableHandle"]
