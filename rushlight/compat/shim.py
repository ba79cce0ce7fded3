"""`rushlight torch-shim`: a distribution named `torch` that satisfies `pip` and forwards here.

# Note [Torch shim]
1. It is two entries of the environment's site-packages: the folder `torch`, whose `__init__`
   imports `rushlight.as_torch`, and the metadata of a distribution `torch`, by which `pip` and
   libraries find the version. `rushlight run` does not need it.
2. `RECORD` lists its files, so `pip uninstall torch` removes it as well. `INSTALLER` names
   Rushlight; what another installer put there is never touched: the folder `torch` is the shim's
   where its `__init__` begins as the shim's does.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import shutil
import sysconfig
from pathlib import Path

from rushlight.compat import version
from rushlight.core.errors import RushlightError

_INSTALLER = "rushlight"
_FIRST_LINE = (
    '"""This is Rushlight under PyTorch\'s name: `rushlight torch-shim remove` takes it out."""\n'
)
_FORWARD = f"""\
{_FIRST_LINE}
import importlib
import sys

_own = sys.modules.pop(__name__)
importlib.import_module("rushlight.as_torch")
importlib.import_module("torch")
"""
_METADATA = f"""\
Metadata-Version: 2.1
Name: torch
Version: {version.__version__}
Summary: PyTorch's names, served by Rushlight
"""
_WHEEL = """\
Wheel-Version: 1.0
Generator: rushlight
Root-Is-Purelib: true
Tag: py3-none-any
"""


def _site() -> Path:
    return Path(sysconfig.get_paths()["purelib"])


def _other() -> str | None:
    """Where a `torch` lies that is not the shim; None without one."""
    for found in importlib.metadata.distributions(path=[str(_site()), str(_platform_site())]):
        if (found.metadata["Name"] or "").lower() == "torch" and not _is_shim(found):
            return str(found.locate_file("torch"))
    folder = _site() / "torch"
    return str(folder) if folder.exists() and not _is_shims(folder) else None


def _platform_site() -> Path:
    return Path(sysconfig.get_paths()["platlib"])


def _is_shim(found: importlib.metadata.Distribution) -> bool:
    return (found.read_text("INSTALLER") or "").strip() == _INSTALLER


def _is_shims(folder: Path) -> bool:
    start = folder / "__init__.py"
    return start.is_file() and start.read_text("utf-8", "replace").startswith(_FIRST_LINE)


def install() -> str:
    """Put the distribution into this environment; its folder. Refuses where PyTorch is."""
    other = _other()
    if other is not None:
        raise RushlightError(
            f"torch-shim: PyTorch is installed here ({other}); `rushlight run` needs no shim, or "
            "uninstall it first: pip uninstall torch"
        )
    remove()  # one of another version
    info = _site() / f"torch-{version.__version__}.dist-info"
    files = {
        "torch/__init__.py": _FORWARD,
        f"{info.name}/METADATA": _METADATA,
        f"{info.name}/WHEEL": _WHEEL,
        f"{info.name}/INSTALLER": f"{_INSTALLER}\n",
        f"{info.name}/top_level.txt": "torch\n",
    }
    lines = []
    for name, text in files.items():
        path = _site() / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        digest = hashlib.sha256(text.encode()).digest()
        told = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        lines.append(f"{name},sha256={told},{len(text.encode())}")
    record = f"{info.name}/RECORD"
    (_site() / record).write_text("\n".join([*lines, f"{record},,"]) + "\n", encoding="utf-8")
    return str(_site() / "torch")


def remove() -> bool:
    """Take the distribution out of this environment; whether it was there."""
    shims = [
        found
        for found in importlib.metadata.distributions(path=[str(_site())])
        if (found.metadata["Name"] or "").lower() == "torch" and _is_shim(found)
    ]
    for found in shims:
        if _is_shims(_site() / "torch"):
            shutil.rmtree(_site() / "torch")
        shutil.rmtree(_site() / f"torch-{found.version}.dist-info")
    return bool(shims)
