"""The catalog on one device, as one table.

python tests/devices/catalog_table.py cuda [--only exp,sum] [> table.txt]

For a GPU machine: needs NumPy and the package's own dependencies, not pytest, not ml_dtypes. Most
of the time goes to compiling some thousands of kernels, so rows are distributed to processes.
Forward errors are in epsilons of the result's type (the allowed number in parentheses); the
gradient's is relative to 1 + |g|, of float32 against float64 on the CPU. The exit code is 1 when a
row fails.
"""

from __future__ import annotations

import argparse
import datetime
import functools
import math
import multiprocessing
import os
import platform
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np

import rushlight
from rushlight.core.dtypes import ALL, FLOAT, DType, float32
from rushlight.core.errors import DeviceUnavailable
from rushlight.devices.shared.registry import pool_of
from rushlight.ops.registry import REGISTRY
from tests.catalog.gradients import SINGLE_TOLERANCE, single_errors
from tests.catalog.row import Row
from tests.catalog.rows import ROWS
from tests.catalog.run import dtypes_on, forward_errors, to_array, to_tensor

SHORT = {
    "float16": "f16",
    "bfloat16": "bf16",
    "float32": "f32",
    "float64": "f64",
    "int32": "i32",
    "int64": "i64",
}
WIDTH = 13


@dataclass
class Line:
    """The table's entry of one row, by number: processes cannot send the row's lambdas."""

    number: int
    forward: dict[DType, str] = field(default_factory=dict)
    gradient: str = ""
    problems: list[str] = field(default_factory=list)

    @property
    def row(self) -> Row:
        return ROWS[self.number]


def run_forward(line: Line, dtype: DType, device: str) -> None:
    row = line.row
    allowed = row.tolerance.units(row.result(dtype))
    worst, where = 0.0, ""
    try:
        for place, error in forward_errors(row, dtype, device):
            if error > worst or math.isnan(error):
                worst, where = error, place
    except Exception as error:
        line.forward[dtype] = "raised"
        line.problems.append(f"{row.name} {dtype.name}: {type(error).__name__}: {error}")
        return
    line.forward[dtype] = (
        f"{worst:.2g}" if row.result(dtype).kind == "f" else "exact" if not worst else "differs"
    )
    if not worst <= allowed:
        line.problems.append(f"{where}: error {worst:.3g} epsilons, allowed {allowed:g}")


def run_gradient(line: Line, device: str) -> None:
    try:
        errors = single_errors(line.row, device)
    except Exception as error:
        line.gradient = "raised"
        line.problems.append(f"gradient of {line.row.name}: {type(error).__name__}: {error}")
        return
    where, worst = max(
        errors, key=lambda pair: math.inf if math.isnan(pair[1]) else pair[1], default=("", 0.0)
    )
    line.gradient = f"{worst:.1e}"
    if not worst <= SINGLE_TOLERANCE:
        line.problems.append(
            f"gradient of {where}: error {worst:.3g}, allowed {SINGLE_TOLERANCE:g}"
        )


# Calls of random rows that take more than a tensor, or one of another shape.
SHAPES = {"dropout1d": (3, 9, 37), "dropout2d": (3, 9, 37, 1), "dropout3d": (3, 9, 37, 1, 1)}
SHAPES |= {
    "_sample_dirichlet": (27, 37),
    "feature_dropout": (27, 37, 1),
    "feature_alpha_dropout": (27, 37, 1),
}
MORE = {"normal": (0.5,), "multinomial": (20,), "feature_dropout": (0.5, True)}
MORE |= {"alpha_dropout": (0.5, True), "feature_alpha_dropout": (0.5, True)}
# Made with log, cos or scaling: accurate to their rounding. The others give the same bits.
ROUNDED = (
    "randn",
    "randn_like",
    "normal",
    "gumbel_softmax",
    "alpha_dropout",
    "feature_alpha_dropout",
)
ROUNDED += ("_standard_gamma", "_sample_dirichlet")


def draw(row: Row, dtype: DType, device: str) -> np.ndarray:
    """Numbers of a random row; the same seed gives the same on every device."""
    rushlight.manual_seed(77)
    op = REGISTRY[row.name].function
    if row.name == "randint":
        return to_array(op(-5, 1000, (999,), device=device))
    if row.name == "randperm":
        # As many as every integer type can count.
        return to_array(op(120, dtype=dtype, device=device))
    if row.makes:
        return to_array(op(999, dtype=dtype, device=device))
    if row.name == "binomial":
        count, chance = np.full(999, 12.0), np.linspace(0.05, 0.95, 999)
        return to_array(op(to_tensor(count, dtype, device), to_tensor(chance, dtype, device)))
    if row.name == "randint_like":
        # Every integer type holds these.
        return to_array(op(to_tensor(np.zeros(999), dtype, device), 0, 100))
    chances = np.linspace(0.25, 0.75, 999).reshape(SHAPES.get(row.name, (999,)))
    return to_array(op(to_tensor(chances, dtype, device), *MORE.get(row.name, ())))


def run_random(line: Line, dtype: DType, device: str) -> None:
    """Against the reference device."""
    here, there = (draw(line.row, dtype, name) for name in (device, "reference"))
    away = float(np.abs(here - there).max())
    allowed = (1e-5 if dtype.itemsize > 2 else 0.05) if line.row.name in ROUNDED else 0.0
    line.forward[dtype] = "same" if away == 0 else f"{away:.0e}"
    if not away <= allowed:
        line.problems.append(
            f"{line.row.name} {dtype.name}: differs from the reference by {away:.3g}"
        )


def run_row(device: str, number: int) -> Line:
    line = Line(number)
    row = line.row
    for dtype in dtypes_on(row, device):
        (run_random if row.random else run_forward)(line, dtype, device)
    if row.differentiable and float32 in pool_of(device).device.limits.dtypes:
        run_gradient(line, device)
    return line


def show(line: Line, dtypes: list[DType]) -> str:
    row = line.row
    allowed = {d: row.tolerance.units(row.result(d)) for d in row.dtypes}
    cells = []
    for dtype in dtypes:
        value = line.forward.get(dtype, "")
        bound = (
            f" ({allowed[dtype]:g})"
            if value and dtype.kind == "f" and not row.random and row.reference
            else ""
        )
        cells.append(f"{value}{bound}".rjust(WIDTH if dtype in FLOAT else 8))
    verdict = "FAILED" if line.problems else "ok"
    return f"{row!r:30.30}{''.join(cells)}{line.gradient:>10}  {verdict}"


def run_rows(device: str, numbers: list[int], jobs: int) -> Iterator[Line]:
    """The lines in order, as they are ready."""
    if jobs == 1:
        yield from (run_row(device, n) for n in numbers)
        return
    os.environ.setdefault("RUSHLIGHT_THREADS", "1")
    context = multiprocessing.get_context("spawn")  # a GPU's context does not survive a fork
    with ProcessPoolExecutor(jobs, mp_context=context) as workers:
        yield from workers.map(functools.partial(run_row, device), numbers)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("device", help="cpu, reference, webgpu or cuda")
    parser.add_argument("--only", default="", help="names of ops, with commas")
    parser.add_argument(
        "--jobs", type=int, default=max(1, min(8, (os.cpu_count() or 1) // 2)), help="processes"
    )
    chosen = parser.parse_args()
    try:
        limits = pool_of(chosen.device).device.limits
    except DeviceUnavailable as error:
        print(error)
        return 1
    began = time.monotonic()
    dtypes = [d for d in ALL if d in limits.dtypes]
    print(f"catalog on {chosen.device}: {limits.description}")
    print(
        f"{datetime.date.today()}, {platform.machine()}, Python {platform.python_version()}, NumPy "
        f"{np.__version__}"
    )
    heads = "".join(f"{SHORT.get(d.name, d.name):>{WIDTH if d in FLOAT else 8}}" for d in dtypes)
    print(f"\n{'op':30}{heads}{'gradient':>10}")
    only = set(filter(None, chosen.only.split(",")))
    lines = []
    numbers = [n for n, row in enumerate(ROWS) if not only or row.name in only]
    for line in run_rows(chosen.device, numbers, chosen.jobs):
        lines.append(line)
        print(show(line, dtypes), flush=True)
    problems = [text for line in lines for text in line.problems]
    print("\n" + "\n".join(problems) + "\n" if problems else "")
    failed = sum(bool(line.problems) for line in lines)
    graded = sum(bool(line.gradient) for line in lines)
    seconds = time.monotonic() - began
    print(
        f"{len(lines)} ops, {graded} gradients, {len(dtypes)} dtypes on {chosen.device}: "
        f"{'all ok' if not failed else f'{failed} ops FAILED'}, {seconds:.0f} s"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
