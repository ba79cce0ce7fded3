"""`rushlight torch-shim`: pip finds `torch`, and `import torch` is Rushlight."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

import rushlight

ROOT = Path(rushlight.__file__).parent.parent


class Environment:
    """An empty environment that sees this one's packages on PYTHONPATH."""

    def __init__(self, home: Path) -> None:
        venv.create(home, with_pip=False)
        self.python = home / ("Scripts" if os.name == "nt" else "bin") / "python"
        own = os.path.dirname(os.path.dirname(sys.modules["numpy"].__file__ or ""))
        self.environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), own])}
        self.site = Path(self.says("-c", "import sysconfig; print(sysconfig.get_path('purelib'))"))

    def says(self, *words: str, code: int = 0) -> str:
        found = subprocess.run(
            [self.python, *words],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert found.returncode == code, found.stdout
        return found.stdout.strip()


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    pytest.importorskip("numpy")
    return Environment(tmp_path / "home")


def test_install_and_remove(environment: Environment) -> None:
    said = environment.says("-m", "rushlight", "torch-shim", "install")
    assert "2.13.0+rushlight" in said
    text = (
        "import importlib.metadata as m; print(m.version('torch'), len(m.files('torch')))\n"
        "import torch.nn as nn, torch\n"
        "import rushlight; print(nn is rushlight.nn, torch.ones(2).sum().item(), torch.__version__)"
    )
    first, second = environment.says("-c", text).splitlines()
    assert first == "2.13.0+rushlight 6" and second == "True 2.0 2.13.0+rushlight"
    assert "install" in environment.says("-m", "rushlight", "torch-shim", "install")  # again
    assert environment.says("-m", "rushlight", "torch-shim", "remove").endswith("removed")
    assert not list(environment.site.glob("torch*"))
    assert "none here" in environment.says("-m", "rushlight", "torch-shim", "remove")


def test_pytorch_is_not_touched(environment: Environment) -> None:
    package = environment.site / "torch" / "__init__.py"
    package.parent.mkdir()
    package.write_text("mine = 1")
    said = environment.says("-m", "rushlight", "torch-shim", "install", code=2)
    assert "PyTorch is installed here" in said and package.read_text() == "mine = 1"
    info = environment.site / "torch-2.9.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.9.0\n")
    (info / "INSTALLER").write_text("pip\n")
    assert "installed here" in environment.says("-m", "rushlight", "torch-shim", "install", code=2)
    environment.says("-m", "rushlight", "torch-shim", "remove")
    assert package.exists() and info.exists()


def test_a_shim_of_another_version_is_replaced(environment: Environment) -> None:
    environment.says("-m", "rushlight", "torch-shim", "install")
    (info,) = environment.site.glob("torch-*.dist-info")
    older = info.with_name("torch-2.9.0+rushlight.dist-info")
    info.rename(older)
    metadata = older / "METADATA"
    metadata.write_text(metadata.read_text().replace("2.13.0", "2.9.0"))
    assert "2.13.0" in environment.says("-m", "rushlight", "torch-shim", "install")
    assert info.exists() and not older.exists()


def test_a_package_put_over_the_shim_is_not_removed(environment: Environment) -> None:
    environment.says("-m", "rushlight", "torch-shim", "install")
    package = environment.site / "torch" / "__init__.py"
    package.write_text("mine = 1")
    assert environment.says("-m", "rushlight", "torch-shim", "remove").endswith("removed")
    assert package.read_text() == "mine = 1" and not list(environment.site.glob("torch-*"))
