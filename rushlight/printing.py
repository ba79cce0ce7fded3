"""Tensors as text, in PyTorch's layout."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from rushlight.core import dtypes
from rushlight.interop import to_numpy
from rushlight.naming import device_of
from rushlight.ops.view.views import cat, narrow
from rushlight.tape.record import call
from rushlight.tape.record.needed import edge_of
from rushlight.tape.record.value import Leaf, Output, Value


class _Options:
    """The options of `set_printoptions`."""

    edge = 3  # elements printed at each end of a long dimension
    threshold: float = 1000  # elements above which long dimensions are abbreviated
    line = 80
    digits = 4
    scientific: bool | None = None  # None: where the elements need it


_PROFILES: dict[str, dict[str, Any]] = {
    "default": {"digits": 4, "threshold": 1000, "edge": 3, "line": 80},
    "short": {"digits": 2, "threshold": 1000, "edge": 2, "line": 80},
    "full": {"digits": 4, "threshold": math.inf, "edge": 3, "line": 80},
}


def set_printoptions(
    precision: int | None = None,
    threshold: float | None = None,
    edgeitems: int | None = None,
    linewidth: int | None = None,
    profile: str | None = None,
    sci_mode: bool | None = None,
) -> None:
    """Set how tensors are printed; a profile is "default", "short" or "full".

    Args:
        precision (int): Digits after the point.
        threshold (number): Tensors with more elements are shortened.
        edgeitems (int): How many elements of each end a shortened dimension shows.
        linewidth (int): Characters in a line.
        profile (str): Values for all of them; the other arguments go before it.
        sci_mode (bool): Whether numbers have exponents; None chooses by their sizes.
    """
    if profile is not None and profile.lower() not in _PROFILES:
        raise ValueError(
            f"set_printoptions: profile is 'default', 'short' or 'full', got {profile!r}"
        )
    chosen: dict[str, Any] = dict(_PROFILES[profile.lower()]) if profile is not None else {}
    given = {"digits": precision, "threshold": threshold, "edge": edgeitems, "line": linewidth}
    chosen |= {name: value for name, value in given.items() if value is not None}
    for name, value in chosen.items():
        setattr(_Options, name, value)
    _Options.scientific = sci_mode


def get_printoptions() -> dict[str, Any]:
    """The print options."""
    return {
        "precision": _Options.digits,
        "threshold": _Options.threshold,
        "edgeitems": _Options.edge,
        "linewidth": _Options.line,
        "sci_mode": _Options.scientific,
    }


class _Style:
    """One format for all elements: integers as `1.`, others with four digits or scientific."""

    def __init__(self, shown: list[Any], is_float: bool) -> None:
        self.is_float = is_float
        self.whole = self.scientific = False
        if is_float:
            shown = [v for v in shown if math.isfinite(v) and v != 0]
            self._choose([abs(v) for v in shown])
        self.width = max([1, *[len(self._bare(v)) for v in shown]])

    def _choose(self, sizes: list[float]) -> None:
        if not sizes:
            self.whole = True
            return
        least, most = min(sizes), max(sizes)
        self.whole = all(v == math.ceil(v) for v in sizes)
        far = most / least > 1e3 or most > 1e8
        wanted = _Options.scientific
        self.scientific = far or (not self.whole and least < 1e-4) if wanted is None else wanted

    def _bare(self, value: Any) -> str:
        if not self.is_float:
            return str(value)
        if self.scientific:
            return f"{value:.{_Options.digits}e}"
        if not self.whole:
            return f"{value:.{_Options.digits}f}"
        return f"{value:.0f}." if math.isfinite(value) else f"{value:.0f}"

    def text(self, value: Any) -> str:
        return self._bare(value).rjust(self.width)


class _Pairs:
    """Complex numbers: one format for the real parts and one for the imaginary parts."""

    def __init__(self, shown: list[complex]) -> None:
        self.real = _Style([v.real for v in shown], True)
        self.imag = _Style([v.imag for v in shown], True)
        self.width = self.real.width + self.imag.width + 1

    def text(self, value: complex) -> str:
        imag = self.imag.text(value.imag).lstrip() + "j"
        return self.real.text(value.real) + ("" if imag[0] in "+-" else "+") + imag


def _flat(rows: Any) -> list[Any]:
    return [v for row in rows for v in _flat(row)] if isinstance(rows, list) else [rows]


def _lay_out(rows: Any, style: _Style | _Pairs, indent: int, cuts: Sequence[bool]) -> str:
    """The rows' text; `cuts` says of each dimension whether only its ends are there."""
    if not isinstance(rows, list):
        return style.text(rows)
    deepest = not rows or not isinstance(rows[0], list)
    parts = [style.text(v) if deepest else _lay_out(v, style, indent + 1, cuts[1:]) for v in rows]
    if cuts[0]:
        parts.insert(_Options.edge, " ..." if deepest else "...")
    margin = " " * (indent + 1)
    if not deepest:
        depth = _depth(rows)
        return "[" + ("," + "\n" * (depth - 1) + margin).join(parts) + "]"
    per_line = max(1, (_Options.line - indent) // (style.width + 2))
    lines = [", ".join(parts[i : i + per_line]) for i in range(0, len(parts), per_line)]
    return "[" + (",\n" + margin).join(lines) + "]"


def _depth(rows: Any) -> int:
    return 1 + _depth(rows[0]) if isinstance(rows, list) and rows else 0


# A stand-in of another device, as in an estimate, has that device's name, and zeros as elements.
_NULL = "null"


def _notes(value: Value) -> list[str]:
    spec = value._spec
    notes = []
    pool: Any = spec.device
    if pool.device.name != "cpu":
        notes.append(f"device='{device_of(pool.device.name)}'")
    if pool.device.name == _NULL or (not spec.numel and len(spec.shape) != 1):
        notes.append(f"size={spec.shape}")
    shows = spec.numel and pool.device.name != _NULL  # elements that tell the type
    if spec.dtype not in (_usual() if shows else {dtypes.get_default()}):
        notes.append(f"dtype={spec.dtype!r}")
    edge = edge_of(value)
    if type(edge) is Leaf:
        notes.append("requires_grad=True")
    elif edge is not None:
        notes.append(f"grad_fn={(edge.node if type(edge) is Output else edge)!r}")
    return notes


def show(value: Value) -> str:
    """tensor([...], dtype=..., ...), wrapped at 80 columns; a user's class by its name."""
    kind = type(value)
    own = kind.__module__.partition(".")[0] in ("rushlight", "torch")  # Note [Import hook] 5
    start = f"{'tensor' if own else kind.__name__}("
    text = start + _elements(value, len(start))
    return _noted(text, _notes(value), len(text) - text.rfind("\n") - 1)


def _noted(text: str, notes: list[str], last: float) -> str:
    """The text with a suffix; `last` is the length of its last line."""
    indent = len("tensor(")
    for note in notes:
        if last + len(note) + 2 > _Options.line:
            text += ",\n" + " " * indent + note
            last = indent + len(note)
        else:
            text += ", " + note
            last += len(note) + 2
    return text + ")"


def show_sparse(
    named: Sequence[tuple[str, Value]],
    values: Value,
    shape: tuple[int, ...],
    count: int,
    layout: str,
) -> str:
    """The text of a sparse tensor.

    It is tensor(indices=tensor(...), values=tensor(...), size=..., nnz=..., layout=...).
    """
    parts = []
    for name, part in named:
        start = f"{name}=tensor("
        size = "" if part._spec.numel else f", size={part._spec.shape}"
        parts.append(f"{start}{_elements(part, len('tensor(') + len(start))}{size})")
    notes = _notes(values)
    device = [note for note in notes if note.startswith("device=")]
    dtype = [
        note for note in notes if note.startswith("dtype=") and values._spec.dtype not in _usual()
    ]
    record = [note for note in notes if note.startswith(("requires_grad", "grad_fn"))]
    facts = [f"size={shape}", f"nnz={count}", *dtype, f"layout={dtypes.SHOWN_PACKAGE[-1]}.{layout}"]
    return _noted(
        "tensor(" + (",\n" + " " * len("tensor(")).join(parts), [*device, *facts, *record], math.inf
    )


def _usual() -> set[dtypes.DType]:
    """The dtypes that are not printed."""
    default = dtypes.get_default()
    return {default, dtypes.complex_type(default), dtypes.int64, dtypes.bool_}


def _elements(value: Value, indent: int) -> str:
    pool: Any = value._spec.device
    if pool.device.name == _NULL:
        return "..."  # there are none
    if not value._spec.numel:
        return "[]"
    is_float = value._spec.dtype.kind == "f"
    shown, cuts = _ends(call.detached(value))
    array = to_numpy(shown, copy=True)
    rows = (array.astype("float64") if is_float else array).tolist()
    flat = _flat(rows)
    style = _Pairs(flat) if value._spec.dtype.kind == "c" else _Style(flat, is_float)
    return _lay_out(rows, style, indent, cuts)


def _ends(value: Value) -> tuple[Value, list[bool]]:
    """The elements that are printed, and for each dimension whether it is cut.

    They are chosen on the device: the rest is not copied.
    """
    edge, shape = _Options.edge, value._spec.shape
    is_large = value._spec.numel > _Options.threshold
    cuts = [is_large and size > 2 * edge for size in shape]
    for d, is_cut in enumerate(cuts):
        if is_cut:
            first, last = narrow(value, d, 0, edge), narrow(value, d, shape[d] - edge, edge)
            value = cat([first, last], d)
    return value, cuts
