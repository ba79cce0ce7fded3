"""In-place writes: they increment a storage's version and note the source line."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from rushlight.devices.shared.allocator import Storage
from rushlight.tape.record.source_line import CALLED, SourceLine, user_frame

_get_frame = sys._getframe


def mark_written(*storages: Storage) -> None:
    """Count a write by the user's program. See Note [Source lines]."""
    frame = user_frame(_get_frame(2))
    place = (frame.f_code, frame.f_lasti, CALLED.get())
    for storage in storages:
        storage.version += 1
        storage.written = place


def mark_summed(storage: Storage) -> None:
    """Count a write by a backward pass: it has no source line."""
    storage.version += 1
    storage.written = None


def describe_writes(storages: Iterable[Storage]) -> str:
    """The source lines of the last writes to some storages, for an error message."""
    places = []
    for storage in storages:
        written = getattr(storage, "written", None)
        if written is not None:
            places.append(f"at {SourceLine(*written)}")
        elif storage.version:
            places.append("by a backward pass that added up gradients in it")
    return ", and ".join(dict.fromkeys(places)) or "by somebody who shares its memory"
