"""Tables of a profile as text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

SECONDS = {"s": 1e6, "ms": 1e3, "us": 1.0}
_SORTED = {
    "self_cpu_time_total": "self_cpu_time_total",
    "cpu_time_total": "cpu_time_total",
    "cpu_time": "cpu_time",
    "self_device_time_total": "self_device_time_total",
    "device_time_total": "device_time_total",
    "device_time": "device_time",
    "cpu_memory_usage": "cpu_memory_usage",
    "self_cpu_memory_usage": "self_cpu_memory_usage",
    "device_memory_usage": "device_memory_usage",
    "self_device_memory_usage": "self_device_memory_usage",
    "flops": "flops",
    "count": "count",
}

Column = tuple[str, Callable[[Any], str]]


def shown_time(micro: float, unit: str | None = None) -> str:
    """Microseconds in a readable unit."""
    if unit is None:
        unit = "s" if micro >= 1e6 else "ms" if micro >= 1e3 else "us"
    return f"{micro / SECONDS[unit]:.3f}{unit}"


def shown_bytes(count: float) -> str:
    """Bytes in a readable unit."""
    for unit in ("B", "KiB", "MiB"):
        if abs(count) < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.2f} {unit}"
        count /= 1024
    return f"{count:.2f} GiB"


def _sort_key(sort_by: str) -> str:
    name = sort_by.replace("cuda", "device").replace("xpu", "device")
    if name not in _SORTED:
        raise ValueError(f"table: sort_by is one of {', '.join(_SORTED)}; got {sort_by!r}")
    return _SORTED[name]


def _cut(text: str, width: int, keep_end: bool = False) -> str:
    if width < 4 or len(text) <= width:
        return text
    return f"...{text[3 - width :]}" if keep_end else f"{text[: width - 3]}..."


def _share(part: float, whole: float) -> str:
    return f"{100 * part / whole:.2f}%" if whole > 0 else "--"


def as_table(
    rows: Sequence[Any],
    means: dict[str, str],
    sort_by: str | None,
    row_limit: int,
    widths: tuple[int, int, int],
    header: str | None,
    unit: str | None,
) -> str:
    """Rows of events or of their sums. `widths`: of names, shapes and source lines."""
    if not rows:
        return ""
    host = sum([row.self_cpu_time_total for row in rows])
    device = sum([row.self_device_time_total for row in rows])
    everything = rows
    if sort_by is not None:
        name = _sort_key(sort_by)
        rows = sorted(rows, key=lambda row: getattr(row, name, 0), reverse=True)
    if row_limit > 0:
        rows = rows[:row_limit]
    columns = _columns(everything, host, device, widths, unit)
    cells = [[title for title, _ in columns]]
    cells += [[show(row) for _, show in columns] for row in rows]
    wide = [max(len(line[i]) for line in cells) for i in range(len(columns))]
    left = {0, *[i for i, (title, _) in enumerate(columns) if title.startswith(("Input", "Sourc"))]}
    rule = "  ".join("-" * width for width in wide)
    lines = [rule]
    for number, line in enumerate(cells):
        shown = [
            text.ljust(width) if i in left else text.rjust(width)
            for i, (text, width) in enumerate(zip(line, wide, strict=True))
        ]
        lines.append("  ".join(shown).rstrip())
        if not number:
            lines.append(rule)
    lines.append(rule)
    lines.append(f"Self CPU time total: {shown_time(host, unit)}")
    for name, how in means.items():
        lines.append(f"Self {name} time total: {shown_time(device, unit)} ({how})")
    return "\n".join([header, *lines] if header else lines) + "\n"


def _columns(
    rows: Sequence[Any], host: float, device: float, widths: tuple[int, int, int], unit: str | None
) -> list[Column]:
    def time_of(name: str) -> Callable[[Any], str]:
        return lambda row: shown_time(getattr(row, name), unit)

    path = all(row.key == row.line for row in rows if row.line)
    found: list[Column] = [
        ("Name", lambda row: _cut(row.key, widths[0], path)),
        ("Self CPU %", lambda row: _share(row.self_cpu_time_total, host)),
        ("Self CPU", time_of("self_cpu_time_total")),
        ("CPU total", time_of("cpu_time_total")),
        ("CPU time avg", time_of("cpu_time")),
    ]
    devices = sorted({row.device for row in rows if row.self_device_time_total})
    if devices:
        name = devices[0].upper() if len(devices) == 1 else "device"
        found += [
            (f"Self {name} %", lambda row: _share(row.self_device_time_total, device)),
            (f"Self {name}", time_of("self_device_time_total")),
            (f"{name} total", time_of("device_time_total")),
            (f"{name} time avg", time_of("device_time")),
        ]
    if any(getattr(row, "self_cpu_memory_usage", 0) for row in rows):
        found.append(("Self CPU Mem", lambda row: shown_bytes(row.self_cpu_memory_usage)))
    if any(getattr(row, "self_device_memory_usage", 0) for row in rows):
        found.append(("Self device Mem", lambda row: shown_bytes(row.self_device_memory_usage)))
    if any(row.flops for row in rows):
        found.append(("MFLOPs", lambda row: f"{row.flops / 1e6:.3f}" if row.flops else "--"))
    found.append(("# of Calls", lambda row: str(row.count)))
    if any(row.input_shapes for row in rows):
        found.append(("Input Shapes", lambda row: _cut(str(row.input_shapes), widths[1])))
    if any(row.stack for row in rows):
        found.append(
            ("Source Location", lambda row: _cut(" < ".join(row.stack[:3]), widths[2], True))
        )
    return found
