"""The documentation: its programs run and print what it says, its numbers are those of the stored
results.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [page for page in sorted((ROOT / "docs").glob("*.md")) if "```python" in page.read_text()]
RESULTS = ROOT / "benchmarks" / "results"
TEXTS = [
    *ROOT.glob("*.md"),
    *(ROOT / "docs").glob("*.md"),
    *RESULTS.glob("*.md"),
    ROOT / "examples" / "README.md",
]


def run(*command: str) -> str:
    done = subprocess.run(
        [sys.executable, *command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.S | re.M)


def on_one_line(text: str) -> str:
    return " ".join(text.split())


def timed(page: Path) -> list[str]:
    """Rows of tables that compare: Rushlight's number, PyTorch's, their ratio."""
    found = re.findall(
        r"^\| ([^|]+) \| ([\d.]+ \w+) \| ([\d.]+ \w+) \| ([\d.]+) \|", page.read_text(), re.M
    )
    return [f"{ours} | {theirs} | {ratio}" for _, ours, theirs, ratio in found]


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=lambda page: page.stem)
def test_blocks_of_a_page_are_one_program(page: Path, tmp_path: Path) -> None:
    """Its ```text blocks are printed in their order; one that ends in "..." shows the beginning."""
    program = tmp_path / "net.py"
    program.write_text("".join(blocks(page, "python")))
    printed = on_one_line(run(str(program)).replace(f"{tmp_path}/", ""))
    for block in blocks(page, "text"):
        said = on_one_line(block.removesuffix("...\n"))
        assert said in printed, f"{said}\nis not in\n{printed}"
        printed = printed.partition(said)[2]


def test_readme_is_short_and_its_numbers_are_those_of_the_page_it_cites() -> None:
    readme = ROOT / "README.md"
    assert len(readme.read_bytes()) <= 6000
    assert len(timed(readme)) == 6
    assert set(timed(readme)) <= set(timed(ROOT / "docs" / "speed.md"))


def test_numbers_of_the_speed_page_are_in_the_results() -> None:
    stored = {row for page in RESULTS.glob("*.md") for row in timed(page)}
    assert set(timed(ROOT / "docs" / "speed.md")) <= stored


@pytest.mark.parametrize(
    "page", [ROOT / "docs" / "speed.md", *sorted(RESULTS.glob("*.md"))], ids=lambda p: p.stem
)
def test_a_ratio_is_ours_over_theirs(page: Path) -> None:
    for row in timed(page):
        ours, theirs, ratio = row.split(" | ")
        assert _seconds(ours) / _seconds(theirs) == pytest.approx(
            float(ratio), rel=0.02, abs=0.006
        ), row


def _seconds(cell: str) -> float:
    number, unit = cell.split()
    return float(number) * {"us": 1e-6, "ms": 1e-3, "s": 1.0, "MB": 1.0}[unit]


def anchors(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.*)$", page.read_text(), re.M)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", TEXTS, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#\s]*)#?([^)\s]*)\)", page.read_text()):
        path = page.parent / target if target else page
        assert path.exists(), target
        assert not anchor or anchor in anchors(path), f"{target}#{anchor}"


def test_from_scratch() -> None:
    assert "the whole way down and back" in run("docs/from_scratch.py")


def test_spectrum_example() -> None:
    """It finds the three hidden tones, and its filter passes them."""
    assert run("examples/spectrum.py").count("[40.0, 97.0, 160.0]") == 2


def test_derivatives_example() -> None:
    """Products and the whole Hessian agree, and the network has learned the sine."""
    printed = run("examples/derivatives.py")
    one, other = re.search(r"curvature: (\S+) by products, (\S+) from", printed).groups()
    assert one == other
    assert float(re.search(r"(\S+) from the sine", printed).group(1)) < 0.01


def test_resume_example() -> None:
    """A killed run ends with the parameters of one that was not."""
    assert "killed after steps [7, 22], the same parameters after 40: True" in run(
        "examples/resume.py", "--workers", "1"
    )


def test_import_is_light() -> None:
    """Importing the package opens no device and loads no driver or compiler."""
    code = (
        "import sys, rushlight; print([m for m in ('numpy', 'llvmlite', 'wgpu', 'cupy') if m in "
        "sys.modules])"
    )
    assert run("-c", code).strip() == "[]"
