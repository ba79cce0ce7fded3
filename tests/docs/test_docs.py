"""The documentation that runs, runs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run(*command: str) -> str:
    done = subprocess.run(
        [sys.executable, *command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_from_scratch() -> None:
    assert "the whole way down and back" in run("docs/from_scratch.py")


def test_readme_example() -> None:
    """The README's first example prints what the README says it prints."""
    code, printed = re.search(
        r"```python\n(.*?)```\n+```text\n(.*?)```", (ROOT / "README.md").read_text(), re.S
    ).groups()
    assert run("-c", code).strip() == printed.strip()


def test_spectrum_example() -> None:
    """It finds the three tones it hid, and its filter lets those through."""
    assert run("examples/spectrum.py").count("[40.0, 97.0, 160.0]") == 2


def test_derivatives_example() -> None:
    """Products and the whole Hessian agree, and the network has learned the sine."""
    printed = run("examples/derivatives.py")
    one, other = re.search(r"curvature: (\S+) by products, (\S+) from", printed).groups()
    assert one == other
    assert float(re.search(r"(\S+) from the sine", printed).group(1)) < 0.01


def test_autograd_page() -> None:
    """The blocks of docs/autograd.md are one program, and its assertions hold."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs/autograd.md").read_text(), re.S)
    assert run("-c", "".join(blocks)).strip() == "tensor([1., 4.], grad_fn=<mul>)"


def test_trouble_page(tmp_path: Path) -> None:
    """The blocks of docs/trouble.md are one program, which prints what the page says it prints."""
    page = (ROOT / "docs/trouble.md").read_text()
    program = tmp_path / "net.py"
    program.write_text("".join(re.findall(r"```python\n(.*?)```", page, re.S)))
    printed = " ".join(run(str(program)).replace(f"{tmp_path}/", "").split())
    for block in re.findall(r"```text\n(.*?)```", page, re.S):
        said = " ".join(block.removesuffix("...\n").split())
        assert said in printed, f"{said}\nis not in\n{printed}"


def test_import_is_light() -> None:
    """Importing the package opens no device and loads no driver or compiler."""
    code = "import sys, rushlight; print([m for m in ('numpy', 'llvmlite', 'wgpu', 'cupy') if m in sys.modules])"
    assert run("-c", code).strip() == "[]"


def test_security_page() -> None:
    """The blocks of docs/security.md are one program, which prints what the page says it prints."""
    page = (ROOT / "docs/security.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.S)
    said = re.findall(r"```text\n(.*?)```", page, re.S)
    assert run("-c", "".join(blocks)) == "".join(said)
