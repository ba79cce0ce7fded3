"""What PyTorch's scripts ask of `torch.cpu`, and how many threads the host's kernels may use."""

from __future__ import annotations

from typing import Any

from rushlight.devices.shared.registry import pool_of

__all__ = [
    "current_device",
    "device_count",
    "is_available",
    "is_initialized",
    "set_device",
    "synchronize",
]

_apart = [1]  # what set_num_interop_threads said


def is_available() -> bool:
    """Always: the host is a device."""
    return True


def is_initialized() -> bool:
    """Always."""
    return True


def device_count() -> int:
    """1."""
    return 1


def current_device() -> str:
    """The host's name as a device."""
    return "cpu"


def set_device(device: Any) -> None:
    """Nothing: there is one host."""


def synchronize(device: Any = None) -> None:
    """Nothing to wait for; an index out of range that was not told of yet raises here."""
    pool_of("cpu").device.synchronize()


# ---- threads ----


def _check(name: str, count: Any) -> int:
    if isinstance(count, bool) or not isinstance(count, int):
        raise RuntimeError(f"{name} expects an int, but got {type(count).__name__}")
    if count < 1:
        raise RuntimeError(f"{name} expects a positive number of threads, got {count}")
    return count


def set_num_threads(num: int) -> None:
    """How many threads a large kernel may use on the host from now on. The bits do not depend on it."""
    device: Any = pool_of("cpu").device
    device.set_num_threads(_check("set_num_threads", num))


def get_num_threads() -> int:
    """How many threads a large kernel may use on the host."""
    device: Any = pool_of("cpu").device
    count: int = device.num_threads
    return count


def set_num_interop_threads(num: int) -> None:
    """Taken: independent parts of a backward pass run at once where `backward(workers=)` says so."""
    _apart[0] = _check("set_num_interop_threads", num)


def get_num_interop_threads() -> int:
    """What `set_num_interop_threads` said, 1 before."""
    return _apart[0]
