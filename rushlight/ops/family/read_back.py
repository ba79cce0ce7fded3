"""Reading elements on the host: the one way in which an op's result size depends on elements.

# Note [Reading counts]
The size of `nonzero`, `masked_select`, `x[mask]` and `repeat_interleave` depends on elements. The
count is one number that is copied to the host; `interop` gives the function that does it
(`provide_reader`), so it is counted as every other transfer. Ops whose result has a size known
beforehand (`nonzero_static`, `where`, assigning a number under a mask, `repeat_interleave` with
output_size) read nothing; an output_size is checked where the host can read the memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rushlight.tape.record import call
from rushlight.tape.record.value import Value

_reader: list[Callable[[Value], list[Any]]] = []


def provide_reader(reader: Callable[[Value], list[Any]]) -> None:
    _reader[:] = [reader]


def read(x: Value) -> list[Any]:
    """All elements as Python numbers, on the host. See Note [Reading counts]."""
    return _reader[0](call.detached(x))
