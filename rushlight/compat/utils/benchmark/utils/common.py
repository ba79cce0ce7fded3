"""Measurements, units and numbers of figures."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

from rushlight.compat.utils.benchmark.measurement import (
    Measurement,
    TaskSpec,
    rounded,
    select_unit,
)
from rushlight.cpu import get_num_threads, set_num_threads

__all__ = [
    "Measurement",
    "TaskSpec",
    "ordered_unique",
    "select_unit",
    "set_torch_threads",
    "trim_sigfig",
    "unit_to_english",
]

_WORDS = {"ns": "nanosecond", "us": "microsecond", "ms": "millisecond", "s": "second"}


def unit_to_english(u: str) -> str:
    """The word of a unit of time: "us" is "microsecond".

    Args:
        u (str): The unit.
    """
    return _WORDS[u]


def trim_sigfig(x: float, n: int) -> float:
    """A number with so many figures.

    Args:
        x (float): The number.
        n (int): How many figures.
    """
    return rounded(x, n)


def ordered_unique(elements: Iterable[Any]) -> list[Any]:
    """The elements, each once, in their order.

    Args:
        elements (iterable): The elements.
    """
    return list(dict.fromkeys(elements))


@contextlib.contextmanager
def set_torch_threads(n: int) -> Iterator[None]:
    """A block with so many threads.

    Args:
        n (int): How many.
    """
    before = get_num_threads()
    try:
        set_num_threads(n)
        yield
    finally:
        set_num_threads(before)
