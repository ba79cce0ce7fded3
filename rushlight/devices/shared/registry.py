"""Devices by name: a folder `devices/<name>/` with an `open_device()` is the registration."""

from __future__ import annotations

import importlib
from pathlib import Path

from rushlight.core import config, locks
from rushlight.core.errors import DeviceUnavailable
from rushlight.devices.shared.allocator import Pool
from rushlight.devices.shared.protocol import Device

_DEVICES = Path(__file__).parent.parent
_POOLS: dict[str, Pool] = {}
_OPENING = locks.reentrant_lock()


def names() -> list[str]:
    """Every device the package knows, available or not."""
    found = [p.parent.name for p in _DEVICES.glob("*/__init__.py")]
    return sorted(n for n in found if n != "shared")


def pool_of(name: str) -> Pool:
    """The opened device's pool. Raises DeviceUnavailable."""
    pool = _POOLS.get(name)
    return _open(name) if pool is None else pool


def _open(name: str) -> Pool:
    with _OPENING:  # one pool per device, whoever asks first
        found = _POOLS.get(name)
        if found is not None:
            return found
        known = names()
        if name not in known:
            raise DeviceUnavailable(name, "there is no such device", f"Known: {', '.join(known)}.")
        module = importlib.import_module(f"rushlight.devices.{name}")
        pool = _POOLS[name] = _pool(module.open_device())
        return pool


def _pool(device: Device) -> Pool:
    if not config.is_checking():
        return Pool(device)
    # Imported here: rarely needed, and it needs the CPU's parts.
    checking = importlib.import_module("rushlight.devices.shared.checking")
    checked: Pool = checking.checked_pool(device)
    return checked


def reopen(name: str) -> None:
    """Forget the device, as after a lost GPU: the next request opens it anew.

    Tensors on the old one stay there.
    """
    _POOLS.pop(name, None)


def opened() -> list[Pool]:
    """The pools of the devices in use."""
    return list(_POOLS.values())
