"""PyTorch's `torch.nn.parallel.distributed`: one process, so gradients need no sum."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from rushlight.nn.module import Module


class DistributedDataParallel(Module):
    """A module in every process of a group: there is one process, so it runs as it is.

    The wrapped module is `.module`, and the names in its state begin with "module.", as in PyTorch.
    """

    def __init__(self, module: Module, device_ids: Any = None, **named: Any) -> None:
        super().__init__()
        self.module = module
        self.device_ids = device_ids

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        return self.module(*inputs, **kwargs)

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """A block in which gradients are not summed over processes: nothing changes."""
        yield
