"""Type stubs: they are current, accept right programs and refuse wrong ones."""

from __future__ import annotations

import inspect
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import rushlight
from rushlight.tensor import Tensor
from tools import stubs

api = pytest.importorskip("mypy.api")  # a GPU machine may have pytest alone

TYPED = Path(__file__).with_name("typed")
CONFIG = """[mypy]
strict = True
warn_unused_ignores = False
mypy_path = {root}
[mypy-rushlight.*]
follow_imports = silent
"""


def checked(path: Path, folder: Path) -> list[str]:
    """The errors in a user's script, with the package where an installed one would be."""
    config = folder / "mypy.ini"
    config.write_text(CONFIG.format(root=stubs.ROOT))
    cache = stubs.ROOT / ".mypy_cache" / "users"
    said, trouble, _ = api.run([f"--config-file={config}", f"--cache-dir={cache}", str(path)])
    assert not trouble, trouble
    return [line for line in said.splitlines() if ": error: " in line]


def test_stubs_are_current():
    """In a process of its own: PyTorch's module tree, once loaded, adds names to modules."""
    command = [sys.executable, "-m", "tools.stubs", "--check"]
    done = subprocess.run(command, cwd=stubs.ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_stub_names_are_those_of_the_package():
    text = (stubs.ROOT / "rushlight/__init__.pyi").read_text()
    declared = set(re.findall(r"^(?:def|class) (\w+)|^(\w+)(?:: | = )|(?: as )(\w+)", text, re.M))
    names = {name for found in declared for name in found if name}
    assert {name for name, _ in stubs.members_of(rushlight)} <= names
    rooms = {name for name in dir(rushlight) if inspect.ismodule(getattr(rushlight, name))}
    public = {name for name in dir(rushlight) if not name.startswith("_")}
    assert public - rooms - names <= {"annotations"}


def test_stub_methods_are_those_of_tensors():
    text = (stubs.ROOT / "rushlight/tensor.pyi").read_text()
    declared = set(re.findall(r"^    def (\w+)", text, re.M))
    missing = {name for name in vars(Tensor) if not name.startswith("_")} - declared
    assert missing <= {"kept_grad"}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mlp", "gpt", "functions"])
def test_strict_script(name, tmp_path):
    assert checked(TYPED / f"{name}.py", tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mlp", "gpt", "functions"])
def test_script_runs(name, tmp_path):
    command = [sys.executable, str(TYPED / f"{name}.py")]
    done = subprocess.run(
        command, cwd=tmp_path, env={"PYTHONPATH": str(stubs.ROOT)}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_modules_behind_stubs_are_typed(tmp_path, monkeypatch):
    """mypy reads a stub instead of its module; without stubs it reads the modules."""
    left_out = shutil.ignore_patterns("*.pyi", "__pycache__")
    shutil.copytree(stubs.ROOT / "rushlight", tmp_path / "rushlight", ignore=left_out)
    shutil.copy(stubs.ROOT / "pyproject.toml", tmp_path)
    monkeypatch.chdir(tmp_path)
    said, _, status = api.run(["rushlight"])
    assert status == 0, said


@pytest.mark.slow
def test_wrong_uses_are_errors(tmp_path):
    lines = (TYPED / "wrong.py").read_text().splitlines()
    wanted = {
        (number, code)
        for number, line in enumerate(lines, 1)
        for code in line.partition("  # ")[2].split()
    }
    found = {
        (int(number), code)
        for line in checked(TYPED / "wrong.py", tmp_path)
        for number, code in re.findall(r"wrong\.py:(\d+): error: .*\[([\w-]+)\]$", line)
    }
    assert found == wanted
