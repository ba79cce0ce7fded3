"""The wheel holds the whole package, and trains a step without this repository."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STEP = """
import rushlight as torch
from rushlight import nn

torch.manual_seed(0)
x, y = torch.randn(64, 8), torch.randn(64, 1)
model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses = []
for _ in range(2):
    optimizer.zero_grad()
    losses.append(nn.functional.mse_loss(model(x), y))
    losses[-1].backward()
    optimizer.step()
assert losses[1] < losses[0]
print(torch.__file__)
"""


def run(where: Path, *command: object) -> str:
    """Run a program outside of this repository, whose metadata would count as installed."""
    outside = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    words = [str(word) for word in command]
    done = subprocess.run(
        words, cwd=where, env=outside, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy of an sdist's files."""
    copy, built = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    shutil.copytree(
        ROOT / "rushlight", copy / "rushlight", ignore=shutil.ignore_patterns("__pycache__")
    )
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
    if int(version("setuptools").split(".")[0]) >= 77:
        pip.append("--no-build-isolation")
    run(built, *pip, "--wheel-dir", built, copy)
    return next(built.glob("rushlight-*.whl"))


def test_the_wheel_holds_the_package(wheel: Path) -> None:
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    suffixes = {".html", ".py", ".pyi", ".typed"}
    files = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "rushlight").rglob("*")
        if path.suffix in suffixes
    }
    assert held == files


def test_an_empty_environment_trains_a_step(wheel: Path, tmp_path: Path) -> None:
    """The package comes from the wheel; its dependencies are those that are installed here."""
    env = tmp_path / "env"
    run(tmp_path, sys.executable, "-m", "venv", "--without-pip", env)
    python = env / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps"]
    run(tmp_path, *pip, "--no-index", wheel)
    asked = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = Path(run(tmp_path, python, "-c", asked).strip())
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    assert Path(run(tmp_path, python, "-I", "-c", STEP).strip()).is_relative_to(site)
