"""Batches in pinned memory: `DataLoader(pin_memory=True)`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def pin_memory(data: Any, device: Any = None) -> Any:
    """The batch with its tensors in pinned memory: containers of them, or what has `pin_memory`."""
    if isinstance(data, str | bytes):
        return data
    if isinstance(data, Mapping):
        return _alike(data, {key: pin_memory(value) for key, value in data.items()})
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*[pin_memory(value) for value in data])
    if isinstance(data, tuple):
        return tuple([pin_memory(value) for value in data])
    if isinstance(data, Sequence):
        return _alike(data, [pin_memory(value) for value in data])
    return data.pin_memory() if hasattr(data, "pin_memory") else data


def _alike(data: Any, pinned: Any) -> Any:
    """A container of the class of another, where that can be made from its elements."""
    try:
        return type(data)(pinned)
    except TypeError:
        return pinned
