"""Counted copies between host and devices: see Note [Transfers]."""

from __future__ import annotations

from rushlight.devices.shared.protocol import Device


class Transfers:
    """Copies between the host and devices whose memory it cannot read, since the start."""

    to_device = 0
    to_host = 0
    bytes_to_device = 0
    bytes_to_host = 0


def count_copy(device: Device, nbytes: int, to_host: bool) -> None:
    """Count one copy; where the host reads the device's memory, nothing is counted."""
    if device.limits.host_memory:
        return
    if to_host:
        Transfers.to_host += 1
        Transfers.bytes_to_host += nbytes
    else:
        Transfers.to_device += 1
        Transfers.bytes_to_device += nbytes
