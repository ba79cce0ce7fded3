"""`python -m tests.fuzz KIND`: a long run, or one case again with `--seed N --count 1`.

The exit code is 1 if anything was found.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys

from tests.fuzz import KINDS
from tests.fuzz.runner import Report, Run


def has(kind: str) -> bool:
    """Whether the module of that kind is there."""
    return importlib.util.find_spec(f"tests.fuzz.{kind}") is not None


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("kind", choices=(*KINDS, "all"))
    parser.add_argument("--seed", type=int, default=0, help="the first seed (0)")
    parser.add_argument("--count", type=int, help="how many cases; without it and --minutes, 1000")
    parser.add_argument("--minutes", type=float, help="for how long; `all` shares it out evenly")
    parser.add_argument("--jobs", type=int, default=1, help="child processes at a time (1)")
    parser.add_argument(
        "--torch", help="calls: a Python that has PyTorch, with which results are compared"
    )
    chosen = parser.parse_args()
    kinds = [k for k in KINDS if has(k)] if chosen.kind == "all" else [chosen.kind]
    count = 1000 if chosen.count is None and chosen.minutes is None else chosen.count
    minutes = None if chosen.minutes is None else chosen.minutes / len(kinds)
    variables = {"RUSHLIGHT_FUZZ_TORCH": chosen.torch} if chosen.torch else {}
    reports: list[Report] = []
    for kind in kinds:
        reports.append(
            Run(kind, chosen.seed, count, minutes, chosen.jobs, variables=variables).run()
        )
    for report in reports:
        print(report)
    return 1 if any(report.finds for report in reports) else 0


if __name__ == "__main__":
    sys.exit(main())
