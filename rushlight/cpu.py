"""PyTorch's `torch.cpu`, and the number of threads of the host's kernels."""

from __future__ import annotations

import operator
from numbers import Integral
from typing import Any

from rushlight.devices.shared.registry import pool_of
from rushlight.lazy import shown

__all__ = [
    "current_device",
    "device_count",
    "is_available",
    "is_initialized",
    "set_device",
    "synchronize",
]


def __dir__() -> list[str]:
    return shown(__name__)


_apart = [1]  # set by set_num_interop_threads


def is_available() -> bool:
    """True: the host is a device."""
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
    """Has no effect: there is one host.

    Args:
        device (device): Has no effect.
    """


def synchronize(device: Any = None) -> None:
    """Raises for an index out of range that was not reported yet; nothing to wait for.

    Args:
        device (device): Has no effect.
    """
    pool_of("cpu").device.synchronize()


# ---- threads ----


def _check_thread_count(name: str, count: Any) -> int:
    if isinstance(count, bool) or not isinstance(count, Integral):
        raise RuntimeError(f"{name} expects an int, but got {type(count).__name__}")
    count = operator.index(count)  # of a NumPy integer too
    if count < 1:
        raise RuntimeError(f"{name} expects a positive number of threads, got {count}")
    return count


def set_num_threads(num: int) -> None:
    """Set how many threads a large kernel may use on the host. The bits do not depend on it.

    Args:
        num (int): The number of threads, at least 1.
    """
    device: Any = pool_of("cpu").device
    device.set_num_threads(_check_thread_count("set_num_threads", num))


def get_num_threads() -> int:
    """The number of threads a large kernel may use on the host."""
    device: Any = pool_of("cpu").device
    count: int = device.num_threads
    return count


def set_num_interop_threads(num: int) -> None:
    """Accepted; `backward(workers=)` runs independent branches of a backward pass in parallel.

    Args:
        num (int): Has no effect.
    """
    _apart[0] = _check_thread_count("set_num_interop_threads", num)


def get_num_interop_threads() -> int:
    """The number given to `set_num_interop_threads`, 1 by default."""
    return _apart[0]
