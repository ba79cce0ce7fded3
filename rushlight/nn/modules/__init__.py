"""PyTorch's `torch.nn.modules`, as far as scripts name it: what is said of modules as such.

Owns: nothing. Takes and gives: `nn.Module` and hooks of every module. Never: layers, which are in `nn`.
"""

from rushlight.nn.module import Module
from rushlight.nn.modules import module

__all__ = ["Module", "module"]
