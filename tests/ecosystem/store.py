"""Store PyTorch's numbers: `python -m tests.ecosystem.store PYTHON`, whose environment has PyTorch.

The libraries must be importable there as well, in the versions of `environment.py`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
STORED = HERE / "stored.json"


def numbers_of(said: str) -> dict[str, Any]:
    """The numbers in what a program printed."""
    line = next(line for line in said.splitlines() if "NUMBERS {" in line)
    found: dict[str, Any] = json.loads(line[line.index("NUMBERS {") + 8 :])
    return found


def main(python: str) -> None:
    stored = {}
    for path in sorted((HERE / "programs").glob("run_*.py")):
        said = subprocess.run([python, path.name], cwd=path.parent, capture_output=True, text=True)
        stored[path.stem.removeprefix("run_")] = numbers_of(said.stdout)
    STORED.write_text(json.dumps(stored, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
