"""Every example runs in its short mode and learns; the slow tests run them on WebGPU too."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples"
# By file: what the last lines say, and what must hold of its numbers.
LEARNED = {
    "digits": (r"loss (\S+) to (\S+); (\S+)% of 297", lambda a, b, c: b < a / 2 and c > 60),
    "vae": (r"nats per image: (\S+) to (\S+)", lambda a, b: b < a * 0.8),
    "language_model": (r"letter: (\S+) to (\S+) \(guessing: (\S+)\)", lambda a, b, c: b < c - 1),
    "resnet": (r"loss (\S+) to (\S+); (\S+)% of 32", lambda a, b, c: b < a),
    "dcgan": (r"lies (\S+) from the nearest real one, noise (\S+)", lambda a, b: a < b * 0.8),
    "gcn": (r"(\d+) labels, (\d+) edges: (\d+)% of 200", lambda a, b, c: a == 12 and c > 60),
    "actor_critic": (r"balance: (\d+) in the first episodes, (\d+)", lambda a, b: a > 5 and b > 5),
    "diffusion": (r"spiral: (\S+) before, (\S+) after", lambda a, b: b < a),
    "finetune_gpt2": (r"nats per letter: (\S+) to (\S+)", lambda a, b: b < a - 0.5),
    "per_example": (r"differ by (\S+)\n.*?to 1.0: (\S+)%", lambda a, b: a < 1e-5 and b > 40),
    "neural_ode": (r"points: (\S+), the spiral's own size (\S+)", lambda a, b: a < b * 1.1),
}


def run(*words: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, *words],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def check(name: str, device: str) -> None:
    said, holds = LEARNED[name]
    printed = run(str(FOLDER / f"{name}.py"), "--short", "--device", device)
    found = re.search(said, printed)
    assert found is not None, printed
    assert holds(*map(float, found.groups())), found[0]


@pytest.mark.parametrize("name", LEARNED)
def test_example(name):
    check(name, "cpu")


@pytest.mark.slow
@pytest.mark.parametrize("name", LEARNED)
def test_example_on_webgpu(name, require_device):
    check(name, require_device("webgpu"))


def test_a_budget_changes_nothing_but_memory():
    words = str(FOLDER / "resnet.py"), "--short", "--steps", "40"
    free, held = run(*words), run(*words, RUSHLIGHT_BUDGET="cpu=3500KiB")
    assert free == held and "loss" in free


def test_every_example_is_tested_and_listed():
    listed = (FOLDER / "README.md").read_text()
    files = [path for path in FOLDER.glob("*.py") if path.stem != "common"]
    assert {path.stem for path in files if "from common import" in path.read_text()} == set(LEARNED)
    for path in (*files, FOLDER / "tour.ipynb"):
        assert f"`{path.name}`" in listed, path.name


def test_notebook_runs_top_to_bottom():
    path = FOLDER / "tour.ipynb"
    cells = json.loads(path.read_text())["cells"]
    assert not any(cell.get("outputs") for cell in cells)  # what it prints is not stored
    printed = run(str(ROOT / "tests" / "examples" / "notebook.py"), str(path))
    assert "_repr_html_: <table>" in printed and "_repr_svg_: <svg" in printed
    first, last = re.search(r"loss (\S+) to (\S+)'", printed).groups()
    assert float(last) < float(first) / 2
    assert "True, {" in printed and "Self CPU time total" in printed
