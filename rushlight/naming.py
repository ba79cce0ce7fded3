"""Devices by name: `device("cuda")`, and blocks in which new tensors are made there."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from rushlight.core.dtypes import SHOWN_PACKAGE
from rushlight.core.interrupts import unheard
from rushlight.devices.shared.registry import parted
from rushlight.ops.create import creation

_AROUND: list[list[str]] = []  # the default outside of each `with device(...)`


class device:
    """A device by name, as in PyTorch: device("cuda"), device("cuda:0"), device("webgpu", 1)."""

    __slots__ = ("index", "type")

    def __init__(self, type: Any, index: int | None = None) -> None:
        name = type if index is None else f"{type}:{index}"
        own = creation.device_name(name)
        kind, number = parted(own)
        self.type = creation.shown_name(own)
        # Without a number the name that a program sees means the current device.
        is_other = self.type != kind and creation.device_name(self.type) != own
        is_given = isinstance(name, int) or ":" in str(name)
        self.index = number if number or is_other or is_given else None
        creation.check_device(kind)

    def __repr__(self) -> str:
        return (
            f"device(type={self.type!r})"
            if self.index is None
            else f"device(type={self.type!r}, index={self.index})"
        )

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __eq__(self, other: object) -> bool:
        return creation.device_name(self) == creation.device_name(other)

    def __enter__(self) -> device:
        """Make new tensors here until the block ends."""
        before, depth = list(creation.chosen_device), len(_AROUND)
        try:
            _AROUND.append(before)
            creation.set_default_device(self)
        except BaseException:  # no such device, or Ctrl-C
            creation.chosen_device[:] = before
            del _AROUND[depth:]
            raise
        return self

    @unheard
    def __exit__(self, *_: object) -> None:
        creation.chosen_device[:] = _AROUND[-1]
        del _AROUND[-1]

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function whose new tensors are made here."""

        @functools.wraps(function)
        def called(*args: Any, **named: Any) -> Any:
            with self:
                return function(*args, **named)

        return called

    def __hash__(self) -> int:
        return hash(creation.device_name(self))

    def __reduce__(self) -> Any:
        return _device, (self.type, self.index)


def device_of(memory: str) -> device:
    """A tensor's device, by its own name. PyTorch's says which card, also where there is one."""
    made = device(memory)
    if made.index is None and made.type == "cuda" and SHOWN_PACKAGE[-1] == "torch":
        made.index = parted(memory)[1]
    return made


def _device(kind: str, index: int | None) -> device:
    return device(kind, index)


def get_default_device() -> device:
    """The device on which new tensors are made."""
    return device(creation.default_pool().device.name)
