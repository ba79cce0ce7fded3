"""The accelerator, by PyTorch's names: a CUDA card, else a WebGPU GPU, else none.

A software adapter of WebGPU computes on the host, so it is none; device="webgpu" selects it. Where
"cuda" stands for a device (`rushlight run --device webgpu`), that device is the accelerator.
"""

from __future__ import annotations

from typing import Any

from rushlight.core.errors import DeviceUnavailable
from rushlight.devices.shared.registry import accelerators, count_of, numbered, parted, pool_of
from rushlight.lazy import Names, shown
from rushlight.ops.create.creation import CURRENT, STANDS_FOR, device_name, make_current
from rushlight.tensor import device as Device

__all__ = [
    "current_accelerator",
    "current_device_idx",
    "current_device_index",
    "device_count",
    "device_index",
    "is_available",
    "set_device_idx",
    "set_device_index",
    "synchronize",
]


_NAMES = Names(__name__)
_NAMES.defined(
    {
        "rushlight.cuda": (
            "current_stream empty_cache get_device_capability max_memory_allocated "
            "max_memory_reserved mem_get_info=get_memory_info memory_allocated memory_reserved "
            "memory_stats reset_accumulated_memory_stats reset_peak_memory_stats set_stream"
        )
    }
)
__all__ += sorted(_NAMES.sources)


def __getattr__(name: str) -> Any:
    return _NAMES.find(name)


def __dir__() -> list[str]:
    return sorted({*shown(__name__), *_NAMES.sources})


def found() -> str | None:
    """The name of the current one; None where there is none."""
    chosen = STANDS_FOR.get("cuda")
    if chosen is None:
        kind = best()
        return None if kind is None else numbered(kind, CURRENT.get(kind, 0))
    name = chosen()
    try:
        pool_of(name)
    except DeviceUnavailable:
        return None
    return name


def best() -> str | None:
    """The first kind of accelerator that this machine has as hardware; None where it has none."""
    for name in accelerators():
        try:
            if not pool_of(name).device.limits.software:
                return name
        except DeviceUnavailable:
            continue
    return None


def is_available() -> bool:
    """Whether there is one."""
    return found() is not None


def current_accelerator(check_available: bool = False) -> Any:
    """The accelerator as a device; None where there is none.

    Args:
        check_available (bool): Has no effect: only a device that can be used is returned.
    """
    name = found()
    return None if name is None else Device(name)


def device_count() -> int:
    """How many there are of its kind."""
    name = found()
    return 0 if name is None else count_of(parted(name)[0])


def current_device_index() -> int:
    """The number of the current one."""
    return parted(found() or "")[1]


def set_device_index(device: Any) -> None:
    """Choose the current accelerator.

    Args:
        device (device or int): The device or its number.
    """
    kind = parted(found() or accelerators()[0])[0]
    number = device if isinstance(device, int) else Device(device).index or 0
    name = device_name(Device(kind, number))
    make_current(kind, parted(name)[1])


class device_index:
    """A block with another accelerator as the current one.

    Args:
        device (int): Its number; None changes nothing.
    """

    def __init__(self, device: int | None) -> None:
        self.idx = device
        self.before: list[int] = []  # of blocks that run

    def __enter__(self) -> None:
        if self.idx is not None:
            self.before.append(current_device_index())
            set_device_index(self.idx)

    def __exit__(self, *_: object) -> None:
        if self.idx is not None:
            set_device_index(self.before.pop())


current_device_idx, set_device_idx = current_device_index, set_device_index  # the older names


def synchronize(device: Any = None) -> None:
    """Wait until the accelerator has finished all work.

    Args:
        device (device): A device, its name or number; None for the current one.
    """
    name = found()
    if name is not None and device is not None:
        number = device if isinstance(device, int) else Device(device).index or 0
        name = numbered(parted(name)[0], number)
    if name is not None:
        pool_of(name).device.synchronize()
