"""Uncaught errors under `rushlight run`: the traceback ends at the user's line.

Frames of this package, and errors that it met and handled itself on the way, are left out. Python's
development mode (PYTHONDEVMODE=1) shows everything.
"""

from __future__ import annotations

import importlib
import sys
from types import TracebackType

from rushlight.tape.record.source_line import OURS, is_ours

_NOTE = "(frames of Rushlight are left out; PYTHONDEVMODE=1 shows them)"
_IMPORTING = importlib.__file__


def _own(file: str) -> bool:
    known = OURS.get(file)
    return is_ours(file) if known is None else known


def _frames(trace: TracebackType | None) -> list[TracebackType]:
    found = []
    while trace is not None:
        found.append(trace)
        trace = trace.tb_next
    return found


def _of_imports(file: str) -> bool:
    """Whether a file is Python's own code of imports, through which `import torch` comes here."""
    return file.startswith("<frozen importlib") or file == _IMPORTING


def _cut(error: BaseException, seen: set[int]) -> bool:
    """Leave this package's frames out, also of the errors before; whether there were any."""
    seen.add(id(error))
    frames = _frames(error.__traceback__)
    files = [frame.tb_frame.f_code.co_filename for frame in frames]
    less = any(map(_own, files)) and not all(map(_own, files))
    if less:
        kept = None
        for frame, file in zip(reversed(frames), reversed(files), strict=True):
            if not _own(file) and not _of_imports(file):
                kept = TracebackType(kept, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
        error.__traceback__ = kept
    for inner in (error.__cause__, error.__context__):
        if inner is not None and id(inner) not in seen:
            less = _cut(inner, seen) or less
    for name in ("__cause__", "__context__"):
        inner = getattr(error, name)
        if inner is not None and _is_ours_alone(inner):
            hidden = error.__suppress_context__
            setattr(error, name, None)
            error.__suppress_context__ = hidden
            less = True
    return less


def _is_ours_alone(error: BaseException) -> bool:
    """Whether this package raised and caught an error, without code of the user on the way."""
    files = [frame.tb_frame.f_code.co_filename for frame in _frames(error.__traceback__)]
    return bool(files) and all(map(_own, files))


def show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """`sys.excepthook`: print an error with the user's frames alone."""
    try:
        if _cut(error.with_traceback(trace), set()):
            print(_NOTE, file=sys.stderr)
    finally:
        sys.__excepthook__(kind, error, error.__traceback__)


def end_at_users_line() -> None:
    """Install the hook, unless the program has one or Python is in development mode."""
    if sys.excepthook is sys.__excepthook__ and not sys.flags.dev_mode:
        sys.excepthook = show
