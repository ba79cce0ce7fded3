"""Uncaught errors under `rushlight run`: the traceback ends at the user's line.

Frames of this package, and errors that it met and handled itself on the way, are left out. Python's
development mode (PYTHONDEVMODE=1) shows everything.
"""

from __future__ import annotations

import sys
import traceback
from types import TracebackType
from typing import Any

from rushlight.tape.record.source_line import OURS, is_ours

_NOTE = "(frames of Rushlight are left out; PYTHONDEVMODE=1 shows them)"


def _own(file: str) -> bool:
    known = OURS.get(file)
    return is_ours(file) if known is None else known


def _cut(shown: traceback.TracebackException) -> bool:
    """Leave this package's frames out; whether there were any."""
    kept = [frame for frame in shown.stack if not _own(frame.filename)]
    less = bool(kept) and len(kept) < len(shown.stack)
    if less:
        shown.stack = traceback.StackSummary.from_list(kept)
    for inner in (shown.__cause__, shown.__context__):
        if inner is not None:
            less = _cut(inner) or less
    context = shown.__context__
    if context is not None and all(_own(frame.filename) for frame in context.stack):
        shown.__context__ = context.__context__ = None
        less = True
    return less


def show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """`sys.excepthook`: print an error with the user's frames alone."""
    try:
        shown: Any = traceback.TracebackException(kind, error, trace)
        less = _cut(shown)
        text = "".join(shown.format())
    except Exception:  # an error whose text cannot be made
        sys.__excepthook__(kind, error, trace)
        return
    if less:
        print(_NOTE, file=sys.stderr)
    print(text, end="", file=sys.stderr)  # the error is the last line, as Python prints it


def end_at_users_line() -> None:
    """Install the hook, unless the program has one or Python is in development mode."""
    if sys.excepthook is sys.__excepthook__ and not sys.flags.dev_mode:
        sys.excepthook = show
