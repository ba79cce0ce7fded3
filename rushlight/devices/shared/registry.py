"""Devices by name: a folder `devices/<name>/` with an `open_device()` is the registration.

Folders are found on the path of the package `rushlight.devices`, so a device may lie elsewhere.
`KIND`, where the folder has it, states what is known without the hardware.

# Note [Numbered devices]
1. A device's name is its kind, the folder, and for others than number 0 a number: "webgpu",
   "webgpu:1". Each has a pool of its own, so a value of one is no operand of another's calls.
2. A folder whose `KIND` says `several` has `open_device(number)` and `count_devices()`. The others
   have number 0 only.
3. A name says which device is meant wherever it is used. Only "cuda", where it stands for another
   kind, is the current one of that kind (`ops/create/creation.py`). Where it is a card itself it is
   number 0, since calls hand the names of devices on; another card cannot be made the current one.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import ModuleType
from typing import Any

from rushlight.core import config, locks
from rushlight.core.errors import DeviceUnavailable
from rushlight.devices.shared.allocator import Pool
from rushlight.devices.shared.protocol import Device, Kind

_DEVICES = "rushlight.devices"
_DIGITS = 4  # of a device's number, at most


class _Pools(dict[str, Pool]):
    """The pools of the devices in use, by name."""


_POOLS = _Pools()
_OPENING = locks.reentrant_lock()


def names() -> list[str]:
    """Every device the package knows, available or not."""
    return list(_folders(tuple(sys.modules[_DEVICES].__path__)))


@functools.cache
def _folders(path: tuple[str, ...]) -> tuple[str, ...]:
    found = (m.name for m in pkgutil.iter_modules(path) if m.ispkg)
    return tuple(sorted(name for name in found if name != "shared"))


def kind_of(name: str) -> Kind:
    """What is known of a device without the hardware. Raises DeviceUnavailable."""
    kind: Kind = getattr(_folder(name), "KIND", Kind())
    return kind


def parted(name: str) -> tuple[str, int]:
    """The kind and the number in a device's name. See Note [Numbered devices]."""
    kind, _, number = name.partition(":")
    return kind, int(number or 0)


def is_named(name: str) -> bool:
    """Whether it is a name of a device that the package knows, available or not."""
    kind, _, number = name.partition(":")
    return kind in names() and (not number or is_number(number))


def is_number(text: str) -> bool:
    """Whether it is a number that a device could have, in digits."""
    return text.isascii() and text.isdecimal() and len(text) <= _DIGITS


def numbered(kind: str, number: int) -> str:
    """The name of a device."""
    return f"{kind}:{number}" if number else kind


def count_of(kind: str) -> int:
    """How many devices of a kind there are."""
    try:
        if kind_of(kind).several:
            found: int = _folder(kind).count_devices()
            return found
        pool_of(kind)
    except DeviceUnavailable:
        return 0
    return 1


def accelerators() -> list[str]:
    """The names of accelerators, available or not, the preferred first."""
    ranks = {name: kind_of(name).rank for name in names()}
    return sorted((name for name in ranks if ranks[name]), key=lambda name: -ranks[name])


def pool_of(name: str) -> Pool:
    """The opened device's pool. Raises DeviceUnavailable."""
    pool = _POOLS.get(name)
    return _open(name) if pool is None else pool


def _open(name: str) -> Pool:
    with _OPENING:  # one pool per device, whoever asks first
        found = _POOLS.get(name)
        if found is not None:
            return found
        number = parted(name)[1]
        opened = _folder(name).open_device(*([number] if number else []))
        pool = _POOLS[name] = _pool(opened)
        return pool


def _folder(name: str) -> ModuleType:
    known, (kind, number) = names(), parted(name)
    if kind not in known:
        raise DeviceUnavailable(name, "there is no such device", f"Known: {', '.join(known)}.")
    found = importlib.import_module(f"{_DEVICES}.{kind}")
    if number and not getattr(found, "KIND", Kind()).several:
        raise DeviceUnavailable(name, "only number 0 of this kind is used", f"Write {kind!r}.")
    return found


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
    """The pools of the devices in use; inside an estimate, of stand-ins too."""
    return [*_POOLS.values(), *(() if _FINDING.get() is None else _STAND_INS.values())]


# ---- stand-ins ----

_STAND_INS: dict[str, Pool] = {}
_FINDING: ContextVar[Callable[[str], Pool] | None] = ContextVar("rushlight_stand_ins", default=None)


class _Standing(_Pools):
    """The pools while an estimate runs: in its context, stand-ins."""

    def get(self, name: str, default: Any = None) -> Any:
        find = _FINDING.get()
        return super().get(name, default) if find is None else find(name)


def stand_in_of(name: str) -> Pool:
    """The pool of a device's stand-in, without a tensor in it. See Note [Stand-ins].

    It is the same at each call, unless tensors were left behind in it. A device that is not
    available has the limits of `null`.
    """
    found = _STAND_INS.get(name)
    if found is None or found.live > found.device.limits.own:
        folder: Any = _folder("null")
        token = _FINDING.set(None)
        try:
            limits = pool_of(name).device.limits
        except DeviceUnavailable:
            limits = folder.NullDevice.limits
        finally:
            _FINDING.reset(token)
        device = folder.StandIn(limits, getattr(_folder(name), "scratch_of", None))
        found = device.pool = _STAND_INS[name] = Pool(device)  # no launch to check
    return found


@contextmanager
def standing_in(find: Callable[[str], Pool]) -> Iterator[None]:
    """A block in which, for the calling context, `pool_of(name)` is `find(name)`.

    One at a time: the caller holds a lock.
    """
    token = _FINDING.set(find)
    _POOLS.__class__ = _Standing
    try:
        yield
    finally:
        _POOLS.__class__ = _Pools
        _FINDING.reset(token)
