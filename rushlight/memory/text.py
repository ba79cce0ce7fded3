"""The text of a recording, for terminals."""

from __future__ import annotations

from rushlight.devices.shared.allocator import Pool
from rushlight.memory.account import Account, Span
from rushlight.memory.data import replays
from rushlight.memory.savings import Saving, savings

_BAR = 24
_LARGEST = 8


def size(nbytes: float) -> str:
    """A number of bytes for people: 512 B, 1.5 KiB, 46.8 MiB."""
    amount, unit = float(nbytes), "B"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(amount) < 1024 or unit == "GiB":
            break
        amount /= 1024
    return f"{amount:.0f} B" if unit == "B" else f"{amount:.1f} {unit}"


def counters_text(pool: Pool) -> str:
    """What is known without a recording."""
    driver = pool.device.limits.driver
    return "\n".join(
        [
            f"Memory on {pool.device.name}",
            f"  in use      {size(pool.live):>10}",
            f"  cached      {size(pool.held - pool.live):>10}",
            f"  peak in use {size(pool.peak):>10}",
            *([] if driver is None else [f"  the driver's {size(driver.reserved()):>10}"]),
            "Record a step to see the owners: with memory.record() as recording: ...",
        ]
    )


def as_text(account: Account) -> str:
    """The peak and its owners, the largest blocks, what was rebuilt, and what would save most."""
    return "\n".join(
        [
            *_head(account),
            "",
            *_owners(account),
            "",
            *_largest(account),
            *_replays(account),
            *_savings(account),
        ]
    )


def _head(account: Account) -> list[str]:
    moment = account.peak_moment
    when = f"{account.clocks[moment]:.3f} s of {account.elapsed:.3f} s"
    lines = [
        f"Memory on {account.device}: peak {size(account.peak)}, {account.phases[moment]}, {when}"
    ]
    last = next((s for s in account.spans if s.born == moment), None)
    if last is not None and last.work:
        lines.append(f"  reached by {_described(last)}")
    if account.limit is not None:
        lines.append(f"  inside a budget of {size(account.limit)}")
    if not account.complete:
        lines.append("  the recording is not complete: it ended at max_events")
    return lines


def _owners(account: Account) -> list[str]:
    moment = account.peak_moment
    kinds = {kind: nbytes for kind, nbytes in account.by_kind(moment).items() if nbytes}
    cached = max(account.held[moment] - account.live[moment], 0)
    lines = ["At the peak"]
    for kind, nbytes in kinds.items():
        share = nbytes / account.peak if account.peak else 0.0
        bar = "█" * max(1, round(share * _BAR))
        lines.append(f"  {kind:<20} {size(nbytes):>10} {share:>6.1%}  {bar}")
    lines.append(f"  {'in all':<20} {size(account.peak):>10}")
    if cached:
        lines.append(f"  {'cached beside it':<20} {size(cached):>10}")
    return lines


def _described(span: Span) -> str:
    spec = None if span.origin is None else span.origin.spec
    words = [span.work or span.name]
    if spec is not None:
        words.append(f"{tuple(spec.shape)} {spec.dtype.name}")
    if span.work and span.name:
        words.append(span.name)
    if span.module:
        words.append(f"in {span.module}")
    if span.place:
        words.append(f"at {span.place}")
    return ", ".join(w for w in words if w)


def _largest(account: Account) -> list[str]:
    lines = ["Largest blocks at the peak"]
    for span in account.at(account.peak_moment)[:_LARGEST]:
        lines.append(f"  {size(span.nbytes):>10}  {span.kind}: {_described(span)}")
    return lines


def _replays(account: Account) -> list[str]:
    found = replays(account)
    if not found["dropped"] and not found["calls"] and not found["copied_out"]["count"]:
        return []
    unit = "time" if account.timed else "work"
    lines = [
        "",
        f"Dropped {found['dropped']} values ({size(found['dropped_bytes'])}); ran {found['calls']} "
        f"calls again ({size(found['bytes'])}, {found['seconds'] * 1e3:.1f} ms, "
        f"{found['share']:.1%} of the {unit})",
    ]
    ways = [(way, found[f"copied_{way}"]) for way in ("out", "back")]
    lines += [
        f"Copied {copies['count']} values {way} ({size(copies['bytes'])}, "
        f"{copies['seconds'] * 1e3:.1f} ms)"
        for way, copies in ways
        if copies["count"]
    ]
    rows = [{**row, "op": row["op"] or "other"} for row in found["ops"][:_LARGEST]]
    width = max([20, *[len(row["op"]) for row in rows]])
    for row in rows:
        lines.append(
            f"  {row['op']:<{width}} dropped {row['dropped']:>4} "
            f"{size(row['dropped_bytes']):>10}   "
            f"again {row['calls']:>4} {size(row['bytes']):>10} {row['seconds'] * 1e3:>8.1f} ms"
        )
    return lines


def cost_text(saving: Saving, timed: bool) -> str:
    """The cost of a change, in words."""
    unit = "time" if timed else "work"
    if saving.cost is None:
        return saving.terms
    if not saving.cost:
        return f"no {unit}; {saving.terms}"
    least = "at least " if saving.floor else ""
    return f"{least}{saving.cost:.1%} of the {unit}; {saving.terms}"


def _savings(account: Account) -> list[str]:
    found = savings(account)
    if not found:
        return []
    lines = ["", "What would save most for what it costs"]
    for number, saving in enumerate(found, 1):
        lines.append(
            f"  {number}. {saving.change}: saves {size(saving.saved)}, peak {size(saving.peak)}"
        )
        lines.append(f"     {saving.how}")
        lines.append(f"     costs {cost_text(saving, account.timed)}")
    return lines
