"""An account as plain data: for JSON and for the page."""

from __future__ import annotations

import bisect
import re
from collections.abc import Sequence
from typing import Any

from rushlight.memory.account import Account, Span
from rushlight.memory.owners import ACTIVATIONS, KINDS, OTHER
from rushlight.memory.savings import savings
from rushlight.memory.watching import CopiedOut, Rebuilt
from rushlight.tape.memory.recipe import SETTLED

VERSION = 1
_GROUPS = 8  # owners among activations
_RANGES = 6  # of numbered modules, where there are more

Table = dict[Any, int]


def as_data(account: Account, most: int | None = None) -> dict[str, Any]:
    """All of an account.

    `spans` are rows of: the first moment, the one after the last (-1: alive at the end), bytes,
    owner, call, name, how it began, how it ended; owner and call are indices. `calls` are rows of:
    op, module, source line, shape, dtype. With `most` only so many moments are kept: of each
    stretch the one with most bytes in use.
    """
    moments = _chosen(account, most)
    owners = _Owners(account)
    calls: Table = {}
    spans = []
    for span in account.spans:
        born = bisect.bisect_left(moments, span.born)
        died = len(moments) if span.died is None else bisect.bisect_left(moments, span.died)
        if born < died:
            call = calls.setdefault(_call_of(span), len(calls))
            end = -1 if span.died is None else died
            row = (born, end, span.nbytes, owners.index(span), call, span.name)
            spans.append([*row, span.began, span.ended])
    peak = account.peak_moment
    return {
        "version": VERSION,
        "device": account.device,
        "elapsed": round(account.elapsed, 6),
        "timed": account.timed,
        "complete": account.complete,
        "limit": account.limit,
        "peak": account.peak,
        "peak_moment": bisect.bisect_left(moments, peak),
        "moments": len(account.live),
        "clocks": [round(account.clocks[m], 6) for m in moments],
        "live": [account.live[m] for m in moments],
        "held": [max(account.held[m], account.live[m]) for m in moments],
        "phases": _runs([account.phases[m] for m in moments]),
        "owners": owners.rows,
        "at_peak": {kind: n for kind, n in account.by_kind(peak).items() if n},
        "calls": [list(key) for key in calls],
        "spans": spans,
        "replays": replays(account),
        "savings": [saving._asdict() for saving in savings(account)],
    }


def _chosen(account: Account, most: int | None) -> list[int]:
    """The moments to keep; the peak is one of them."""
    count = len(account.live)
    if most is None or count <= most:
        return list(range(count))
    width = -(-count // most)
    starts = range(0, count, width)
    return [max(range(s, min(s + width, count)), key=lambda m: account.live[m]) for s in starts]


def _runs(phases: list[str]) -> list[list[Any]]:
    """Stretches of one phase: its name, the first moment, and the one after the last."""
    runs: list[list[Any]] = []
    for moment, phase in enumerate(phases):
        if runs and runs[-1][0] == phase:
            runs[-1][2] = moment + 1
        else:
            runs.append([phase, moment, moment + 1])
    return runs


def _call_of(span: Span) -> tuple[str, str, str, str, str]:
    spec = None if span.origin is None else span.origin.spec
    shape = "" if spec is None else "×".join(map(str, spec.shape)) or "scalar"
    return span.work, span.module, span.place, shape, "" if spec is None else str(spec.dtype.name)


# ---- owners ----


class _Owners:
    """The bands of the timeline: a kind, or a group of modules among activations."""

    def __init__(self, account: Account) -> None:
        sums: dict[str, int] = {}
        for span in account.spans:
            if span.kind == ACTIVATIONS:
                group = group_of(span.module)
                sums[group] = sums.get(group, 0) + span.nbytes
        self.groups = _merged(sums)
        used = {span.kind for span in account.spans} | {OTHER}
        self.rows: list[dict[str, str]] = []
        self.places: Table = {}
        for kind in KINDS:
            if kind == ACTIVATIONS:
                for name in dict.fromkeys(self.groups.values()):
                    self._add(kind, name)
            elif kind in used:
                self._add(kind, "")

    def _add(self, kind: str, group: str) -> None:
        self.places[kind, group] = len(self.rows)
        self.rows.append({"kind": kind, "group": group})

    def index(self, span: Span) -> int:
        group = self.groups[group_of(span.module)] if span.kind == ACTIVATIONS else ""
        return self.places[span.kind, group]


def group_of(path: str) -> str:
    """The part of a module's path up to its first number: `blocks.0` of `blocks.0.qkv`."""
    match = re.match(r"(.*?\.?\d+)(\.|$)", path)
    return match[1] if match else path.split(".", 1)[0]


def _number(group: str) -> tuple[str, int] | None:
    match = re.fullmatch(r"(.*?)(\d+)", group)
    return None if match is None else (match[1], int(match[2]))


def _merged(sums: dict[str, int]) -> dict[str, str]:
    """A name for every group: numbered ones are joined to ranges where there are many."""
    order = sorted(sums, key=lambda g: list(sums).index(g))
    names = {group: group for group in order}
    families: dict[str, list[tuple[int, str]]] = {}
    for group in order:
        if (found := _number(group)) is not None:
            families.setdefault(found[0], []).append((found[1], group))
    for prefix, members in families.items():
        if len(members) > _GROUPS:
            members.sort()
            width = -(-len(members) // _RANGES)
            for start in range(0, len(members), width):
                part = members[start : start + width]
                for _, group in part if len(part) > 1 else ():
                    names[group] = f"{prefix}{part[0][0]}-{part[-1][0]}"
    totals: dict[str, int] = {}
    for group, name in names.items():
        totals[name] = totals.get(name, 0) + sums[group]
    large = sorted(totals, key=lambda n: -totals[n])[:_GROUPS]
    return {g: n if n in large else "other modules" for g, n in names.items()}


# ---- drops and rebuilds ----


def replays(account: Account) -> dict[str, Any]:
    """What was dropped, rebuilt and copied, and what it cost: in all, and by op."""
    rows: dict[str, dict[str, Any]] = {}

    def row(op: str) -> dict[str, Any]:
        zeros = dict.fromkeys(("dropped", "dropped_bytes", "calls", "bytes"), 0)
        return rows.setdefault(op, {"op": op, **zeros, "seconds": 0.0})

    for span in account.drops:
        entry = row(span.op)
        entry["dropped"] += 1
        entry["dropped_bytes"] += span.nbytes
    back = [r for r in account.rebuilds if r.op == SETTLED.name]
    again = [r for r in account.rebuilds if r.op != SETTLED.name]
    for rebuilt in again:
        entry = row(rebuilt.op)
        entry["calls"] += 1
        entry["bytes"] += rebuilt.nbytes
        entry["seconds"] += rebuilt.seconds
    cost = sum(r.seconds if account.timed else r.cost for r in again)
    ops = sorted(rows.values(), key=lambda r: (-r["seconds"], -r["dropped_bytes"]))
    return {
        "dropped": len(account.drops),
        "dropped_bytes": sum(span.nbytes for span in account.drops),
        "calls": len(again),
        "bytes": sum(r.nbytes for r in again),
        "seconds": round(sum(r.seconds for r in again), 6),
        "share": cost / account.total_cost if account.total_cost else 0.0,
        "copied_out": _copied(account.copies),
        "copied_back": _copied(back),
        "ops": [{**r, "seconds": round(r["seconds"], 6)} for r in ops],
    }


def _copied(copies: Sequence[CopiedOut | Rebuilt]) -> dict[str, Any]:
    return {
        "count": len(copies),
        "bytes": sum(c.nbytes for c in copies),
        "seconds": round(sum(c.seconds for c in copies), 6),
    }
