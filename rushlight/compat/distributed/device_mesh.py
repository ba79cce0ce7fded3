"""PyTorch's `torch.distributed.device_mesh`: grids of devices, of which there is none."""

from __future__ import annotations

from typing import Any

from rushlight.core.errors import RushlightError


class DeviceMesh:
    """The class of grids of devices in PyTorch; making one is refused."""

    def __init__(self, *args: Any, **named: Any) -> None:
        raise RushlightError("distributed: a grid of devices is not supported; there is one")


init_device_mesh = DeviceMesh
