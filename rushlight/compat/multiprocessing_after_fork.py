"""PyTorch's `torch.multiprocessing._atfork`."""

from __future__ import annotations

import os
from typing import Any


def register_after_fork(func: Any) -> None:
    """Call a function in every child that begins as a fork of this process.

    Args:
        func (callable): The function.
    """
    os.register_at_fork(after_in_child=func)
