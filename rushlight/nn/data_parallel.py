"""DataParallel, for scripts that wrap their models in it."""

from __future__ import annotations

from typing import Any

from rushlight.nn.module import Module


class DataParallel(Module):
    """A module on all devices of its kind: there is one of each kind, so it runs unsplit.

    The wrapped module is `.module`, and the names in its state begin with "module.", as in PyTorch.
    """

    def __init__(
        self, module: Module, device_ids: Any = None, output_device: Any = None, dim: int = 0
    ) -> None:
        super().__init__()
        self.module = module
        self.device_ids = device_ids
        self.output_device = output_device
        self.dim = dim

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        return self.module(*inputs, **kwargs)
