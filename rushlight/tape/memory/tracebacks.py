"""Memory that the traceback of an error holds: given back when it is needed.

# Note [Tracebacks]
A program that keeps an error (`sys.last_value` at a prompt and in a notebook, a variable, an
`except` block that tries again) keeps the frames of its traceback, and so the tensors in their
local variables. The frames of this package are cleared: those of a refused request where it leaves
its budget, and else before a value is dropped for another; before a request fails, and in
`memory.empty_cache()`, also those of the error that a prompt keeps. The user's own frames stay as
they are.
"""

from __future__ import annotations

import contextlib
import sys
import weakref
from types import CodeType, TracebackType
from typing import Any

from rushlight.core.errors import OutOfMemoryError
from rushlight.devices.shared.allocator import Pool
from rushlight.tape.record.source_line import OURS, is_ours


def note(error: OutOfMemoryError) -> None:
    """Remember the last error of a refused request."""
    Pool.refused = weakref.ref(error)


def release(pool: Pool) -> bool:
    """Clear this package's frames of errors that are kept; whether the pool got memory back."""
    before = pool.live
    reference, Pool.refused = Pool.refused, None
    for error in (None if reference is None else reference(), getattr(sys, "last_value", None)):
        clear(error)
    return pool.live < before


def clear(error: BaseException | None) -> None:
    """Clear this package's frames of an error, and of those that led to it."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        _clear(error.__traceback__)
        error = error.__cause__ or error.__context__


def last_resort(pool: Pool, error: OutOfMemoryError | None) -> bool:
    """`release`, before a request fails: by this error, or by one that is made then."""
    found = release(pool)
    if not found and error is not None:
        note(error)
    return found


def _clear(trace: TracebackType | None) -> None:
    while trace is not None:
        if is_own(trace.tb_frame.f_code):
            with contextlib.suppress(RuntimeError):  # it runs
                trace.tb_frame.clear()
        trace = trace.tb_next


def is_own(code: CodeType) -> bool:
    """Whether code is this package's."""
    ours: Any = OURS.get(code.co_filename)
    return is_ours(code.co_filename) if ours is None else bool(ours)


Pool.last_resort = staticmethod(last_resort)
