"""Libraries from PyPI, unmodified, under `rushlight run`: their numbers are PyTorch's.

Each has an environment of its own without PyTorch, which the first run makes (`environment.py`).
The weights are set by formula, so that PyTorch's numbers (`stored.json`) are of the same ones.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rushlight
from tests.ecosystem.environment import LIBRARIES, python_for
from tests.ecosystem.store import HERE, STORED, numbers_of

ROOT = Path(rushlight.__file__).parent.parent
CLOSE = 2e-5  # of a number, or of 1 where it is smaller: float32 sums in another order


def leaves(tree: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(tree, dict | list):
        for name, part in tree.items() if isinstance(tree, dict) else enumerate(tree):
            yield from leaves(part, f"{path}/{name}")
    else:
        yield path, tree


def differences(wanted: Any, got: Any) -> Iterator[tuple[str, float]]:
    """The relative difference of each number; infinity where a leaf is another or missing."""
    found = dict(leaves(got))
    for path, want in leaves(wanted):
        value = found.get(path)
        if isinstance(want, bool | str) or not isinstance(value, int | float):
            yield path, 0.0 if value == want else float("inf")
        else:
            yield path, abs(value - want) / max(1.0, abs(want))


@pytest.mark.slow
@pytest.mark.parametrize("library", sorted(LIBRARIES))
def test_numbers_are_pytorchs(library: str, request: pytest.FixtureRequest) -> None:
    python = python_for(library, request.config.rootpath / ".pytest_cache" / "d" / "ecosystem")
    program = HERE / "programs" / f"run_{library}.py"
    said = subprocess.run(
        [python, "-m", "rushlight", "run", "--device", "cpu", program.name],
        cwd=program.parent,
        env={**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert said.returncode == 0, said.stderr[-4000:]
    wanted = json.loads(STORED.read_text())[library]
    found = dict(differences(wanted, numbers_of(said.stdout)))
    worst = max(found, key=found.__getitem__)
    print(f"{library}: {len(found)} numbers, the largest difference is {found[worst]:.1e}")
    assert found[worst] < CLOSE, worst


def test_every_program_has_its_numbers() -> None:
    programs = {path.stem.removeprefix("run_") for path in (HERE / "programs").glob("run_*.py")}
    assert programs == set(LIBRARIES) == set(json.loads(STORED.read_text()))
    assert dict(differences({"a": [1.0, True, "x"]}, {"a": [1.5, True, "y"]})) == {
        "/a/0": 0.5,
        "/a/1": 0.0,
        "/a/2": float("inf"),
    }
