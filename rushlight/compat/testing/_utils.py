"""PyTorch's `torch.testing._utils`: blocks that leave random numbers as they were."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from typing import Any

import numpy

from rushlight.ops.random.random import manual_seed
from rushlight.random import fork_rng


@contextlib.contextmanager
def freeze_rng_state() -> Iterator[None]:
    """A block after which the generators stand where they stood."""
    with fork_rng():
        yield


def wrapper_set_seed(op: Any, *args: Any, **kwargs: Any) -> Any:
    """Call a function with all generators at seed 42, which stand afterwards where they stood.

    Args:
        op (callable): The function.
        *args: Its arguments.
        **kwargs: Its named arguments.
    """
    before, of_numpy = random.getstate(), numpy.random.get_state()
    try:
        with fork_rng():
            manual_seed(42)
            random.seed(42)
            numpy.random.seed(42)
            return op(*args, **kwargs)
    finally:
        random.setstate(before)
        numpy.random.set_state(of_numpy)
