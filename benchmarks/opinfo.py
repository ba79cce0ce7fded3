"""PyTorch's own op samples against Rushlight, as a Markdown table by op.

python benchmarks/opinfo.py FOLDER [REGEX]     FOLDER holds check.py, tiers.json and the samples

Runs the folder's own check.py with methods, in-place forms, second derivatives and non-contiguous
inputs. Prints per tier how many ops pass wholly, every op that does not with the reason, and the
counts of every op. benchmarks/results/opinfo.md keeps the output.
"""

from __future__ import annotations

import csv
import json
import subprocess
import sys
import tempfile
from pathlib import Path

CHECKS = ("--method", "--inplace", "--gradgrad", "--noncontig")
KINDS = ("fwd", "grad", "method", "inplace")

# Reasons of rows that do not pass where the samples' expectation differs from ours.
LAYOUT = (
    "the check hands over a copy with other strides, and the op reads memory by strides; PyTorch "
    "fails this too"
)
REASONS: dict[str, str] = {
    "as_strided": LAYOUT,
    "as_strided__partial_views": LAYOUT,
    "as_strided_copy": LAYOUT,
    "view_as_complex": "the check's layout puts the parts of a pair apart, which both refuse",
    "as_strided_scatter": (
        "an element that is overwritten gets no gradient here; PyTorch's own gradcheck agrees with "
        "that"
    ),
    "special.bessel_j0": (
        "PyTorch is off by 1.8e-7 at -5.458 against mpmath; ours is within 5 units of float64"
    ),
}


def check(folder: Path, only: str) -> dict[str, dict[str, str]]:
    with tempfile.TemporaryDirectory() as place:
        target = Path(place) / "result.csv"
        command = [
            sys.executable,
            str(folder / "check.py"),
            "--module",
            "rushlight",
            "--csv",
            str(target),
            *CHECKS,
        ]
        subprocess.run(
            command + (["--only", only] if only else []), check=True, stdout=subprocess.DEVNULL
        )
        with target.open() as lines:
            return {row["op"]: row for row in csv.DictReader(lines)}


def number(row: dict[str, str], key: str) -> int:
    return int(row.get(key) or 0)


def counts(row: dict[str, str]) -> str:
    """Samples that pass, of all, for each kind of check."""
    cells = []
    for kind in KINDS:
        good = number(row, f"{kind}_ok")
        total = good + number(row, f"{kind}_bad")
        cells.append(f"{good}/{total}" if total else "")
    return " | ".join(cells)


def main() -> int:
    folder = Path(sys.argv[1])
    rows = check(folder, sys.argv[2] if len(sys.argv) > 2 else "")
    tiers = {
        k: [n.removesuffix(".npz") for n in names]
        for k, names in json.loads((folder / "tiers.json").read_text()).items()
    }
    failing = []
    print("| tier | ops | pass wholly |\n|---|---|---|")
    for tier in ("1", "2", "3"):
        known = [n for n in tiers[tier] if n in rows]
        good = [n for n in known if rows[n]["status"] == "PASS"]
        failing += [(tier, n) for n in known if rows[n]["status"] != "PASS"]
        print(f"| {tier} | {len(known)} | {len(good)} |")
    print(
        "\n## Ops that do not pass wholly\n\n| op | tier | first difference | reason |\n"
        "|---|---|---|---|"
    )
    for tier, name in failing:
        first = rows[name]["first"].split(";")[0].replace("|", "/")[:120]
        print(f"| {name} | {tier} | {first} | {REASONS.get(name, '')} |")
    print(
        "\n## Every op: samples that pass, of all\n\n| op | forward | gradient | method | in place "
        "|\n|---|---|---|---|---|"
    )
    for tier in ("1", "2", "3"):
        for name in tiers[tier]:
            if name in rows:
                print(f"| {name} | {counts(rows[name])} |")
    return 0 if not any(tier == "1" for tier, _ in failing) else 1


if __name__ == "__main__":
    sys.exit(main())
