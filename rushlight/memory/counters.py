"""Counts of bytes, rebuilt calls and transfers."""

from __future__ import annotations

from typing import Any

from rushlight.devices.shared.transfers import Transfers
from rushlight.ops.create.creation import resolve_pool
from rushlight.tape.memory.offload import Offloaded
from rushlight.tape.memory.replay import COUNTERS
from rushlight.tape.memory.tracebacks import release_all


def allocated(device: Any = None) -> int:
    """Bytes in use: of tensors, of launches, and of the device itself.

    Args:
        device (device): A device or its name; None for the default device.
    """
    return resolve_pool(device).live


def reserved(device: Any = None) -> int:
    """Bytes taken from the device: allocated and cached.

    Args:
        device (device): A device or its name; None for the default device.
    """
    return resolve_pool(device).held


def given(device: Any = None) -> int:
    """Bytes that the device's driver holds for this process: `reserved`, and what lies between.

    On `cuda` the driver keeps memory between blocks.

    Args:
        device (device): A device or its name; None for the default device.
    """
    pool = resolve_pool(device)
    driver = pool.device.limits.driver
    return pool.held if driver is None else max(pool.held, driver.reserved())


def peak(device: Any = None) -> int:
    """The largest `allocated` since the start or `reset_peak`.

    Args:
        device (device): A device or its name; None for the default device.
    """
    return resolve_pool(device).peak


def reset_peak(device: Any = None) -> None:
    """Set the peak to the bytes in use.

    Args:
        device (device): A device or its name; None for the default device.
    """
    pool = resolve_pool(device)
    pool.peak = pool.live


def empty_cache(device: Any = None) -> None:
    """Free cached blocks, and what the frames of a kept error hold.

    Args:
        device (device): A device or its name; None for the default device.
    """
    pool = resolve_pool(device)
    release_all(pool)
    pool.trim()
    if pool.device.limits.driver is not None:
        pool.device.limits.driver.shrink()


def recomputed() -> dict[str, int]:
    """The number of calls repeated to rebuild dropped values, and the bytes they made."""
    return {"calls": COUNTERS.nodes, "bytes": COUNTERS.nbytes}


def offloaded() -> dict[str, int]:
    """The bytes of dropped values that were copied out and back, and those that copies hold."""
    return {"out": Offloaded.out, "back": Offloaded.back, "held": Offloaded.held}


def transfers() -> dict[str, int]:
    """Copies between the host and devices whose memory it cannot read."""
    return {
        "to_device": Transfers.to_device,
        "to_host": Transfers.to_host,
        "bytes_to_device": Transfers.bytes_to_device,
        "bytes_to_host": Transfers.bytes_to_host,
    }
