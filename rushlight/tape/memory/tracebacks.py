"""Memory that the traceback of an error holds: given back when it is needed.

# Note [Tracebacks]
A program that keeps an error (`sys.last_value` at a prompt and in a notebook, a variable, an
`except` block that tries again) keeps the frames of its traceback, and so the tensors in their
local variables.
1. The frames of this package are cleared: those of a refused request where it leaves its budget,
   and else before a value is dropped for another; before a request fails, and in
   `memory.empty_cache()`, also those of the error that a prompt keeps. A frame keeps its function,
   and so the cells of a closure: the traceback then ends at the last frame of the user's.
2. The user's own frames are cleared where their memory is needed: before a request fails, before a
   write for which values are rebuilt, and in `memory.empty_cache()`. Those of generators and
   coroutines stay: to clear one that waits is to end it.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
import weakref
from types import CodeType, TracebackType
from typing import Any

from rushlight.core.errors import OutOfMemoryError
from rushlight.devices.shared.allocator import Pool
from rushlight.tape.record.source_line import OURS, is_ours

# Refused requests that the program may keep, until the frames of its own are cleared.
_KEPT: list[weakref.ref[OutOfMemoryError]] = []
_WAITING = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


def note(error: OutOfMemoryError) -> None:
    """Remember the last error of a refused request."""
    Pool.refused = reference = weakref.ref(error)
    _KEPT[:] = [*[kept for kept in _KEPT if kept() is not None], reference]


def release(pool: Pool) -> bool:
    """Clear this package's frames of errors that are kept; whether the pool got memory back."""
    before = pool.live
    reference, Pool.refused = Pool.refused, None
    for error in (None if reference is None else reference(), _of_prompt()):
        clear(error)
    return pool.live < before


def release_all(pool: Pool) -> bool:
    """Clear the user's frames of these errors, too."""
    before = pool.live
    release(pool)
    kept = [reference() for reference in _KEPT]
    _KEPT.clear()
    for error in (*kept, _of_prompt()):
        clear(error, own=False)
    return pool.live < before


def are_kept() -> bool:
    """Whether the program may keep an error whose frames hold something."""
    return Pool.refused is not None or bool(_KEPT) or _of_prompt() is not None


def _of_prompt() -> BaseException | None:
    return getattr(sys, "last_value", None)


def clear(error: BaseException | None, own: bool = True) -> None:
    """Clear this package's frames of an error and of those that led to it, or the user's."""
    errors, seen = [error], set[int]()
    while errors:
        error = errors.pop()
        if error is not None and id(error) not in seen:
            seen.add(id(error))
            _clear(error, own)
            errors += (error.__cause__, error.__context__)


def last_resort(pool: Pool, error: OutOfMemoryError | None) -> bool:
    """Clear frames, before a request fails: by this error, or by one that is made then."""
    noted = Pool.refused is not None and error is None
    found = release(pool) if noted else release_all(pool)
    if not found and error is not None:
        note(error)
    return found


def _clear(error: BaseException, own: bool) -> None:
    trace = error.__traceback__
    last: TracebackType | None = None  # of the user's
    while trace is not None:
        code = trace.tb_frame.f_code
        ours = is_own(code)
        if ours == own and (ours or not code.co_flags & _WAITING):
            with contextlib.suppress(RuntimeError):  # it runs
                trace.tb_frame.clear()
        if not ours:
            last = trace
        trace = trace.tb_next
    if last is None:
        error.__traceback__ = None
    else:
        last.tb_next = None


def is_own(code: CodeType) -> bool:
    """Whether code is this package's."""
    ours: Any = OURS.get(code.co_filename)
    return is_ours(code.co_filename) if ours is None else bool(ours)


Pool.last_resort = staticmethod(last_resort)
