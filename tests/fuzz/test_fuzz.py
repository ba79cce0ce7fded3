"""The fuzzers, briefly: fixed seeds, a few seconds each. `make fuzz MINUTES=60` is the long run."""

from __future__ import annotations

import pytest

from tests.fuzz import KINDS, Find, is_refusal, runner
from tests.fuzz.__main__ import has

BRIEF = {"calls": 400, "files": 100, "programs": 20}


@pytest.mark.parametrize("kind", [kind for kind in KINDS if has(kind)])
def test_a_short_run_finds_nothing(kind):
    report = runner.Run(kind, seed=0, count=BRIEF[kind], show=False).run()
    assert report.cases == BRIEF[kind]
    assert not report.finds, "\n".join(map(str, report.finds))


@pytest.fixture
def faulty(monkeypatch, tmp_path):
    """A kind whose cases fail in every way: by seed, a find, an error, a crash, a hang."""
    folder = tmp_path / "tests" / "fuzz"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").touch()
    for name in ("__init__.py", "child.py"):
        (folder / name).write_text((runner.ROOT / "tests" / "fuzz" / name).read_text())
    init = folder / "__init__.py"
    init.write_text(init.read_text().replace("SECONDS = 5.0", "SECONDS = 0.2"))
    (folder / "calls.py").write_text(
        "import ctypes, os\n"
        "from tests.fuzz import Find, refusing\n"
        "def describe(seed): return f'case({seed})'\n"
        "def case(seed):\n"
        "    with refusing():\n"
        "        if seed == 3: raise ValueError('refused')\n"
        "        if seed == 5: raise KeyError('tripped')\n"
        "    if seed == 7: raise Find('wrong')\n"
        "    if seed == 11: ctypes.string_at(0)\n"
        "    while seed == 13: pass\n"
        "    if seed == 17: os._exit(9)\n"
    )
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{runner.ROOT}")
    monkeypatch.setattr(runner, "ROOT", tmp_path)
    return "calls"


def test_a_run_goes_on_after_finds_crashes_and_hangs(faulty):
    report = runner.Run(faulty, seed=0, count=20, show=False).run()
    assert (report.cases, report.first, report.last) == (20, 0, 19)
    told = {found.seed: found.what for found in report.finds}
    assert sorted(told) == [5, 7, 11, 13, 17]
    assert "KeyError" in told[5] and told[7].startswith("wrong")
    assert "signal 11" in told[11] and "hang" in told[13] and "exit status 9" in told[17]
    assert [found.call for found in report.finds] == [f"case({seed})" for seed in sorted(told)]


def test_internal_errors_are_no_refusals():
    assert is_refusal(ValueError()) and is_refusal(MemoryError()) and is_refusal(IndexError())
    for error in (
        AttributeError(),
        KeyError(),
        ZeroDivisionError(),
        RecursionError(),
        AssertionError(),
        SystemError(),
    ):
        assert not is_refusal(error)
    assert not is_refusal(Find())
