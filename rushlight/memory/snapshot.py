"""An account in the form of PyTorch's memory snapshots, which pytorch.org/memory_viz draws.

Addresses are made up: each span gets the first place where nothing is, in one segment per device.
Blocks from before the recording come first in the trace.
"""

from __future__ import annotations

import bisect
from typing import Any

from rushlight.memory.account import Account, Span

_BASE = 1 << 40


def as_snapshot(accounts: list[Account]) -> dict[str, Any]:
    """`segments`, the blocks at the end, and `device_traces`, every event: one per device."""
    segments, traces = [], []
    for number, account in enumerate(accounts):
        places, size = _places(account)
        alive = sorted((s for s in account.spans if s.died is None), key=places.__getitem__)
        segments.append(_segment(number, size, [(places[s], s) for s in alive]))
        traces.append(_trace(account, places))
    return {
        "segments": segments,
        "device_traces": traces,
        "allocator_settings": {},
        "external_annotations": [],
    }


def _places(account: Account) -> tuple[dict[Span, int], int]:
    """An address for every span, and the bytes from the first to the last."""
    places: dict[Span, int] = {}
    taken: list[tuple[int, int]] = []  # where something is, in order
    ending: dict[int, list[Span]] = {}
    most = 1
    for span in sorted(account.spans, key=lambda s: s.born):
        for moment in [m for m in ending if m <= span.born]:
            for old in ending.pop(moment):
                taken.remove((places[old], places[old] + old.nbytes))
        at = _BASE
        for start, end in taken:
            if start - at >= span.nbytes:
                break
            at = end
        places[span] = at
        bisect.insort(taken, (at, at + span.nbytes))
        most = max(most, at + span.nbytes - _BASE)
        if span.died is not None:
            ending.setdefault(span.died, []).append(span)
    return places, most


def _segment(number: int, size: int, alive: list[tuple[int, Span]]) -> dict[str, Any]:
    blocks, at = [], _BASE
    for place, span in alive:
        if place > at:
            blocks.append(_block(at, place - at, "inactive", []))
        blocks.append(_block(place, span.nbytes, "active_allocated", _frames(span)))
        at = place + span.nbytes
    if at < _BASE + size:
        blocks.append(_block(at, _BASE + size - at, "inactive", []))
    used = sum(span.nbytes for _, span in alive)
    return {
        "device": number,
        "address": _BASE,
        "total_size": size,
        "allocated_size": used,
        "active_size": used,
        "requested_size": used,
        "stream": 0,
        "segment_type": "large",
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "frames": [],
        "blocks": blocks,
    }


def _block(address: int, size: int, state: str, frames: list[Any]) -> dict[str, Any]:
    return {
        "address": address,
        "size": size,
        "requested_size": size,
        "state": state,
        "frames": frames,
    }


def _trace(account: Account, places: dict[Span, int]) -> list[dict[str, Any]]:
    events: list[tuple[int, int, Span, str]] = []
    for i, span in enumerate(account.spans):
        events.append((span.born, i, span, "alloc"))
        if span.died is not None:
            events.append((span.died, i, span, "free_requested"))
            events.append((span.died, i, span, "free_completed"))
    events.sort(key=lambda event: event[:2])
    return [
        {
            "action": action,
            "addr": places[span],
            "size": span.nbytes,
            "stream": 0,
            "time_us": int(account.clocks[moment] * 1e6),
            "frames": _frames(span),
        }
        for moment, _, span, action in events
    ]


def _frames(span: Span) -> list[dict[str, Any]]:
    """The op, the module and the user's line, innermost first."""
    frames = [{"name": f"{span.kind} {span.name}".strip(), "filename": "owner", "line": 0}]
    if span.work:
        frames.append({"name": span.work, "filename": span.module or "op", "line": 0})
    line = span.line
    if line is not None:
        frames.append({"name": line.function, "filename": line.file, "line": line.line})
    return frames
