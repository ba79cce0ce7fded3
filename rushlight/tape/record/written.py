"""In-place writes: they increment a storage's version and note the source line.

# Note [Writes through data]
1. `x._version` does not count writes through `x.data` or a view of it, as in PyTorch. Programs
   write so to fill parts of a tensor whose other parts a record saved. A record is refused only
   where an element that it saved was overwritten; in PyTorch its gradient would be wrong.
2. A version counts other writes in its low 32 bits and these above, so that a sum of versions, as a
   record keeps, tells both counts. All else sees a write in it: recipes, copies kept by autocast.
3. `x.data` is marked by a negative count of rewrites (`_history`), which its views share.
4. The layouts of the last such writes are kept for each storage; one before them counts as a write
   to all of it. A write that is recorded is counted as any other.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable
from typing import Any
from weakref import WeakKeyDictionary

from rushlight.core.shapes import may_overlap
from rushlight.devices.shared.allocator import Storage
from rushlight.tape.record.source_line import CALLED, SourceLine, user_frame
from rushlight.tape.record.value import Value, history_of

_get_frame = sys._getframe
HIDDEN = 1 << 32  # a write through `data`, in a version
MARKED: list[bool] = []  # not empty once a handle was marked: most programs mark none
_MARK = -(1 << 60)
_KEPT = 64
_LAYOUTS: WeakKeyDictionary[Storage, deque[tuple[Any, int]]] = WeakKeyDictionary()


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


def mark_hidden(value: Value) -> None:
    """Let writes through a handle be hidden: see Note [Writes through data]."""
    value._history = _MARK
    if value._base is not None:
        value._base._history = _MARK
    if not MARKED:
        MARKED.append(True)


def is_hidden(value: Value) -> bool:
    """Whether writes through a handle are hidden."""
    return bool(MARKED) and history_of(value if value._base is None else value._base) < 0


def hide_write(target: Value) -> None:
    """Count the last write as a hidden one."""
    storage = target._memory
    if storage.version > 0:  # not an inference tensor's
        storage.version += HIDDEN - 1
        layouts = _LAYOUTS.get(storage)
        if layouts is None:
            layouts = _LAYOUTS.setdefault(storage, deque(maxlen=_KEPT))
        layouts.append((target._spec, target._offset))


def writes_of(value: Value) -> int:
    """The number of writes that a handle shows: `_version`."""
    version = value._memory.version
    return version // HIDDEN if is_hidden(value) else version % HIDDEN


def are_hidden(versions: int) -> bool:
    """Whether all writes by which a sum of versions grew were hidden."""
    return versions > 0 and not versions % HIDDEN


def spared(versions: int, saved: Iterable[tuple[Storage, Any, int]]) -> bool:
    """Whether hidden writes, by which a sum of versions grew, left these layouts as they were."""
    count = versions // HIDDEN
    for storage, spec, offset in saved:
        layouts = _LAYOUTS.get(storage, ())
        if min(count, storage.version // HIDDEN) > len(layouts):
            return False
        recent = list(layouts)[-count:]
        if any(may_overlap(spec, offset, part, at) for part, at in recent):
            return False
    return True


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
