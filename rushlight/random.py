"""Streams of random numbers: seeds, states, and a block that restores the stream."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from rushlight.lazy import shown
from rushlight.ops.random.random import (
    Generator as Generator,
    default_generator as default_generator,
    get_rng_state as get_rng_state,
    manual_seed as manual_seed,
    set_rng_state as set_rng_state,
)
from rushlight.tensor import device

__all__ = [
    "Generator",
    "default_generator",
    "fork_rng",
    "get_rng_state",
    "initial_seed",
    "manual_seed",
    "seed",
    "set_rng_state",
]


def __dir__() -> list[str]:
    return shown(__name__)


Generator.device = property(lambda generator: device(generator.device_name))  # type: ignore[attr-defined]


def seed() -> int:
    """Start the default stream at a random seed, which is returned."""
    return default_generator.seed()


def initial_seed() -> int:
    """The seed of the default stream."""
    return default_generator.initial_seed()


@contextlib.contextmanager
def fork_rng(
    devices: Any = None,
    enabled: bool = True,
    _caller: str = "fork_rng",
    _devices_kw: str = "devices",
    device_type: str = "cuda",
) -> Iterator[None]:
    """Restore the default stream after the block; it serves all devices, so none need be named."""
    before = default_generator.clone_state()
    try:
        yield
    finally:
        if enabled:
            default_generator.graphsafe_set_state(before)
