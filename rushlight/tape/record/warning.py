"""Warnings of ops about a call, at the user's line."""

from __future__ import annotations

import sys
import warnings

from rushlight.tape.record.source_line import user_frame
from rushlight.tape.record.state import impure


def warn(text: str) -> None:
    """Warn of this call. No program is kept of its kind (Note [Traces] 2), so each call warns."""
    impure()
    frame = user_frame(sys._getframe(1))
    warnings.warn_explicit(
        text,
        UserWarning,
        frame.f_code.co_filename,
        frame.f_lineno,
        frame.f_globals.get("__name__"),
        frame.f_globals.setdefault("__warningregistry__", {}),
    )
