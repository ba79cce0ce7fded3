"""A table of measurements: rows are sub-labels, columns descriptions."""

from __future__ import annotations

import enum
from collections.abc import Iterable

from rushlight.compat.utils.benchmark.measurement import Measurement, rounded, unit_of

_GREEN, _RED, _PLAIN = "\033[92m", "\033[91m", "\033[0m"


class Colorize(enum.Enum):
    """What the colours of a table compare."""

    NONE = "none"
    COLUMNWISE = "columnwise"
    ROWWISE = "rowwise"


class Compare:
    """Measurements beside each other.

    Args:
        results (list of Measurement): Those of one label are one table.
    """

    def __init__(self, results: list[Measurement]) -> None:
        self._results: list[Measurement] = []
        self.extend_results(results)
        self._trim_significant_figures = False
        self._colorize = Colorize.NONE
        self._highlight_warnings = False

    def __str__(self) -> str:
        return "\n".join(self._tables())

    def extend_results(self, results: Iterable[Measurement]) -> None:
        """Add measurements."""
        for result in results:
            if not isinstance(result, Measurement):
                raise ValueError(f"Compare: takes Measurements, got {type(result).__name__}")
            self._results.append(result)

    def trim_significant_figures(self) -> None:
        """Show as many digits as the spread of the times leaves."""
        self._trim_significant_figures = True

    def colorize(self, rowwise: bool = False) -> None:
        """Colour the fastest and the slowest of each column, or row."""
        self._colorize = Colorize.ROWWISE if rowwise else Colorize.COLUMNWISE

    def highlight_warnings(self) -> None:
        """Mark times that vary much."""
        self._highlight_warnings = True

    def print(self) -> None:
        """Write the tables."""
        print(str(self))

    def _tables(self) -> list[str]:
        merged = Measurement.merge(self._results)
        labels = dict.fromkeys(each.task_spec.label for each in merged)
        return [
            self._table(label, [each for each in merged if each.task_spec.label == label])
            for label in labels
        ]

    def _table(self, label: str | None, results: list[Measurement]) -> str:
        short, name, unit = unit_of(min(each.median for each in results))
        columns = list(dict.fromkeys(_column(each) for each in results))
        rows = list(
            dict.fromkeys((each.task_spec.num_threads, each.as_row_name) for each in results)
        )
        cells = {
            (each.task_spec.num_threads, each.as_row_name, _column(each)): each for each in results
        }
        shown = {key: self._time(each, unit) for key, each in cells.items()}
        head = max(len("100 threads:"), *(len(row) + 6 for _, row in rows))
        widths = [
            max(len(column), *(len(text) for key, text in shown.items() if key[2] == column)) + 2
            for column in columns
        ]
        titles = "  |".join(f"{c:^{w}}" for c, w in zip(columns, widths, strict=True))
        lines = [" " * head + "  |" + titles]
        whole = len(lines[0])
        name_of_table = f" {label or 'Timings'} "
        lines.insert(0, f"[{name_of_table:-^{whole - 2}}]")
        threads = 0
        for count, row in rows:
            if count != threads:
                threads = count
                start = f"{count} thread{'s' if count > 1 else ''}: "
                lines.append(start + "-" * (whole - len(start)))
            texts = []
            for column, width in zip(columns, widths, strict=True):
                text = f"{shown.get((count, row, column), ''):^{width}}"
                texts.append(self._painted(text, cells, (count, row, column)))
            lines.append(f"{row:>{head - 2}}    |" + "  |".join(texts))
        return "\n".join([*lines, "", f"Times are in {name}s ({short}).", ""])

    def _time(self, result: Measurement, unit: float) -> str:
        value = result.median / unit
        if self._trim_significant_figures:
            value = rounded(value, result.significant_figures)
        text = f"{value:.1f}"
        return f"{text} (! {100 * result.iqr / result.median:.0f}%)" * self._marks(result) or text

    def _marks(self, result: Measurement) -> bool:
        return self._highlight_warnings and result.has_warnings

    def _painted(
        self,
        text: str,
        cells: dict[tuple[int, str, str], Measurement],
        key: tuple[int, str, str],
    ) -> str:
        if self._colorize is Colorize.NONE or key not in cells:
            return text
        at = slice(0, 2) if self._colorize is Colorize.ROWWISE else slice(2, 3)
        group = [each.median for other, each in cells.items() if other[at] == key[at]]
        best, worst, own = min(group), max(group), cells[key].median
        if best == worst or own not in (best, worst):
            return text
        return f"{_GREEN if own == best else _RED}{text}{_PLAIN}"


def _column(result: Measurement) -> str:
    return result.task_spec.description or ""
