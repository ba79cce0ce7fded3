"""Warnings that are given once in a process."""

from __future__ import annotations

import warnings

from rushlight.core.errors import RushlightWarning

_SAID: set[str] = set()


def say_once(text: str) -> None:
    """Warn, unless the same was said before."""
    if text not in _SAID:
        _SAID.add(text)
        warnings.warn(text, RushlightWarning, stacklevel=3)
