"""Streams of random numbers: seeds, states, and a block that restores the stream."""

from __future__ import annotations

import contextlib
import random
import sys
from array import array
from collections.abc import Iterator, Mapping
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
    "get_rng_state_all",
    "initial_seed",
    "manual_seed",
    "seed",
    "set_rng_state",
    "set_rng_state_all",
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


def get_rng_state_all() -> dict[str, Any]:
    """The states of the default stream, of Python's `random` and of `numpy.random`.

    They are numbers and bytes, which `save` writes and `load` reads. NumPy's is None where NumPy is
    not imported. Generators that the program made, here or by NumPy, are not among them.
    """
    version, words, normal = random.getstate()
    numpy = sys.modules.get("numpy")
    kept = None
    if numpy is not None:
        name, key, *rest = numpy.random.get_state()
        kept = (name, key.tobytes(), *rest)
    return {
        "rushlight": (default_generator.seed_value, default_generator.position),
        "python": (version, array("I", words).tobytes(), normal),
        "numpy": kept,
    }


def set_rng_state_all(states: Mapping[str, Any]) -> None:
    """Restore the states of `get_rng_state_all`; a stream without one stays.

    Args:
        states (mapping): States by stream, as `get_rng_state_all` returns them.
    """
    seed, position = (int(word) for word in states["rushlight"])
    if states.get("python") is not None:
        version, words, normal = states["python"]
        random.setstate((version, tuple(array("I", words)), normal))
    if states.get("numpy") is not None:
        import numpy as np

        name, key, *rest = states["numpy"]
        np.random.set_state((name, np.frombuffer(key, np.uint32), *rest))
    default_generator.seed_value, default_generator.position = seed, position


@contextlib.contextmanager
def fork_rng(
    devices: Any = None,
    enabled: bool = True,
    _caller: str = "fork_rng",
    _devices_kw: str = "devices",
    device_type: str = "cuda",
) -> Iterator[None]:
    """Restore the default stream after the block; it serves all devices, so none need be named.

    Args:
        devices: Has no effect.
        enabled (bool): False leaves the stream as the block left it.
        device_type (str): Has no effect.
    """
    before = default_generator.clone_state()
    try:
        yield
    finally:
        if enabled:
            default_generator.graphsafe_set_state(before)
