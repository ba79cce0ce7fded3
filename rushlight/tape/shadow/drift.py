"""How far a result is from its judge's, and the report.

# Note [Room of a result]
A result may be as far from the exact one as it moves when each operand moves by one unit in its
last place, and as rounding it is: times FACTOR, and times the square root of the number of terms
of a sum. The first is measured: the judge runs twice more, on operands moved up and down in a fixed
pattern. So a sum that cancels has the room of its terms, and where a result jumps between the
two (a comparison, an argmax of two near elements) any of the values is right.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rushlight.core.dtypes import FLOAT8, DType

Array = Any
FACTOR = 16.0
_DIGITS = {"float16": 10, "bfloat16": 7, "float32": 23, "float64": 52}
_LEAST = {"float16": -14, "bfloat16": -126, "float32": -126, "float64": -1022}
_PARTS = {"complex64": "float32", "complex128": "float64"}


@dataclass
class Found:
    """The comparison of one result."""

    drift: float
    share: float
    wrong: Array | None = None  # which elements, if some are wrong


@dataclass
class Line:
    """What was found for one op in one module."""

    op: str
    module: str
    checked: int = 0
    drift: float = 0.0  # the largest, in units in the last place of the results or operands
    share: float = 0.0  # the largest, of the room


@dataclass
class Report:
    """The launches of a `shadow` block."""

    fraction: float
    launches: int = 0
    checked: int = 0
    lines: dict[tuple[str, str], Line] = field(default_factory=dict)
    skipped: dict[str, int] = field(default_factory=dict)  # by op: no other device computes it

    def add(self, op: str, module: str, found: Sequence[Found]) -> None:
        """Note a launch, with what was found of each result."""
        self.checked += 1
        line = self.lines.setdefault((op, module), Line(op, module))
        line.checked += 1
        line.drift = max([line.drift, *(each.drift for each in found)])
        line.share = max([line.share, *(each.share for each in found)])

    def skip(self, op: str) -> None:
        self.skipped[op] = self.skipped.get(op, 0) + 1

    def __str__(self) -> str:
        rows = sorted(self.lines.values(), key=lambda line: -line.share)
        text = [f"{self.checked} of {self.launches} launches compared"]
        text += [
            f"{line.drift:10.1f} ulp, {100 * line.share:5.1f} % of the room, {line.checked:6d} x "
            f"{line.op}{f' in {line.module}' if line.module else ''}"
            for line in rows
        ]
        if self.skipped:
            names = ", ".join(f"{op} ({count})" for op, count in sorted(self.skipped.items()))
            text.append(f"not compared: {names}")
        return "\n".join(text)


def compare(dtype: DType, got: Array, want: Array, near: Sequence[Array], work: float) -> Found:
    """`near` are the judge's results for operands that were moved."""
    import numpy as np

    if dtype.kind not in "fc" or dtype in FLOAT8:
        settled = np.ones(got.shape, bool)
        for other in near:
            settled &= other == want
        wrong = (got != want) & settled
        return Found(0.0, float(wrong.any()), wrong if wrong.any() else None)
    if dtype.kind == "c":
        name = _PARTS[dtype.name]
        parts = [
            compare_floats(name, part(got), part(want), [part(each) for each in near], work)
            for part in (np.real, np.imag)
        ]
        bad = [p.wrong for p in parts if p.wrong is not None]
        wrong = bad[0] | bad[-1] if bad else None
        return Found(max(p.drift for p in parts), max(p.share for p in parts), wrong)
    return compare_floats(dtype.name, got, want, near, work)


def compare_floats(name: str, got: Array, want: Array, near: Sequence[Array], work: float) -> Found:
    import numpy as np

    unit, least = 2.0 ** -_DIGITS[name], 2.0 ** _LEAST[name]
    with np.errstate(all="ignore"):
        finite = np.isfinite(want)
        settled = finite.copy()
        moves = np.zeros(want.shape)
        for other in near:
            settled &= np.isfinite(other)
            moves = np.maximum(moves, np.abs(other - want))
        moves = np.where(settled, moves, 0.0)
        size = np.where(finite, np.abs(want), 0.0)
        largest = float(size.max(initial=0.0))
        usual = np.minimum(moves, 1024 * unit * largest)
        shared = math.sqrt(float(np.mean(usual * usual))) if usual.size else 0.0
        scale = moves + shared + unit * size + least
        room = FACTOR * math.sqrt(work) * scale
        away = np.abs(got - want)
        # Both are NaN, or the same infinity, or the exact result is about to overflow.
        same = (got == want) | (np.isnan(got) & np.isnan(want))
        edge = size + room >= (2.0 - 2.0**-6) * 2.0 ** -(_LEAST[name] - 1)
        wrong = ~same & (~np.isfinite(got) | ~finite | (away > room)) & (settled | ~finite) & ~edge
        wrong &= settled | _agree(want, near)
        counted = np.where(settled & np.isfinite(got), away, 0.0)
        drift = float((counted / scale).max(initial=0.0))
        share = float((counted / room).max(initial=0.0))
    return Found(drift, share, wrong if wrong.any() else None)


def _agree(want: Array, near: Sequence[Array]) -> Array:
    """Where a result that is not finite is so for moved operands too."""
    import numpy as np

    agreed = np.ones(want.shape, bool)
    for other in near:
        agreed &= (other == want) | (np.isnan(other) & np.isnan(want))
    return agreed
