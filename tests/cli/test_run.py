"""`rushlight run` as a user types it: `torch` is Rushlight, in the program and its children."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import rushlight
from rushlight.version import __version__
from tests.profiler.trace_rules import check_trace

ROOT = Path(rushlight.__file__).parent.parent


def type_in(*words: str, folder: Path, code: int = 0, **environment: str) -> str:
    """What the command prints; stdout and stderr together."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    found = subprocess.run(
        [sys.executable, "-m", "rushlight", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert found.returncode == code, found.stdout
    return found.stdout


def script(folder: Path, text: str, name: str = "train.py") -> str:
    (folder / name).write_text(text)
    return name


TRAIN = """
import sys
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset
import rushlight

assert torch.nn.Linear is rushlight.nn.Linear and F is rushlight.nn.functional
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
x = torch.randn(32, 4)
data = DataLoader(TensorDataset(x, (x.sum(1) > 0).long()), batch_size=16)
losses = []
for _ in range(4):
    for a, b in data:
        loss = F.cross_entropy(model(a.to(device)), b.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
assert losses[-1] < losses[0] and loss.device == device
print(device, loss.is_cuda, type(loss).__module__, torch.nn.__name__, sys.argv[1:])
"""


def test_a_program_on_the_cpu(tmp_path: Path) -> None:
    said = type_in("run", "--device", "cpu", script(tmp_path, TRAIN), "a", "--b=1", folder=tmp_path)
    assert said.splitlines() == ["cpu False torch rushlight.nn ['a', '--b=1']"]


def test_cuda_means_webgpu(tmp_path: Path, require_device) -> None:
    require_device("webgpu")
    train = script(tmp_path, TRAIN + "assert torch.cuda.get_device_name()\n")
    said = type_in("run", "--device", "webgpu", train, "a", folder=tmp_path)
    assert said.splitlines() == ["cuda True torch rushlight.nn ['a']"]


def test_budget_report_and_check(tmp_path: Path) -> None:
    text = """
import torch, rushlight, os
from rushlight.core import config
print(rushlight.get_budget("cpu"), config.is_checking(), "RUSHLIGHT_REPORT" in os.environ)
torch.ones(1000).sum()
"""
    said = type_in(
        *("run", "--budget", "64MiB", "--report", "out.json", "--check"),
        script(tmp_path, text),
        folder=tmp_path,
    )
    assert said.splitlines()[0] == f"{64 << 20} True False"
    assert "out.json" in said and json.loads((tmp_path / "out.json").read_text())


def test_a_report_of_a_program_without_tensors_says_so(tmp_path: Path) -> None:
    name = script(tmp_path, "import torch")
    for ending in ("html", "json", "txt", "pickle"):
        said = type_in("run", "--report", f"out.{ending}", name, folder=tmp_path).splitlines()
        assert len(said) == 1 and said[0].endswith(f"out.{ending} is not written")


@pytest.mark.parametrize("option", ["--report", "--profile"])
def test_where_results_go_is_checked_before_the_program_runs(option: str, tmp_path: Path) -> None:
    name = script(tmp_path, "print('ran')")
    said = type_in("run", option, "none/out.json", name, folder=tmp_path, code=2)
    assert f"{option} none/out.json: there is no folder" in said and "ran" not in said
    (tmp_path / "out.json").mkdir()
    said = type_in("run", option, "out.json", name, folder=tmp_path, code=2)
    assert f"{option} out.json: this is a folder" in said and "ran" not in said


def test_check_compares_launches(tmp_path: Path) -> None:
    text = """
import torch
from rushlight.tape.anomaly.arming import Armed
for _ in range(200):
    torch.ones(3).sum()
print(Armed.shadow is not None)
"""
    said = type_in("run", "--check", script(tmp_path, text), folder=tmp_path)
    assert said.splitlines()[0] == "True"


CHILDREN = """
import multiprocessing, subprocess, sys
from torch.utils.data import DataLoader, Dataset
import torch

class Squares(Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, i):
        import torch as here
        return here.tensor([i * i]), here.__version__

def child(queue):
    import torch
    queue.put((torch.__version__, torch.ones(2).sum().item()))

if __name__ == "__main__":
    for way in ("fork", "spawn"):
        loader = DataLoader(Squares(), num_workers=1, multiprocessing_context=way)
        print(way, [x.item() for x, _ in loader], {v for _, (v,) in loader} == {torch.__version__})
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=child, args=(queue,))
    process.start()
    print(queue.get() == (torch.__version__, 2.0))
    process.join()
    print(subprocess.check_output(
        [sys.executable, "-c", "import torch; print(torch.__version__)"], text=True).strip())
"""


def test_child_processes(tmp_path: Path) -> None:
    said = type_in("run", script(tmp_path, CHILDREN), folder=tmp_path)
    squares = "[0, 1, 4, 9] True"
    wanted = [f"fork {squares}", f"spawn {squares}", "True", "2.13.0+rushlight"]
    assert said.splitlines() == wanted


def test_modules_and_errors(tmp_path: Path) -> None:
    (tmp_path / "pack").mkdir()
    script(tmp_path / "pack", "", "__init__.py")
    script(tmp_path / "pack", "import torch, sys\nprint(sys.argv[1:])\ntorch.lineer\n", "main.py")
    said = type_in("run", "-m", "pack.main", "--device", "x", folder=tmp_path, code=1)
    assert "['--device', 'x']" in said
    last = next(line for line in said.splitlines() if "has no attribute" in line)
    assert last.startswith("AttributeError: ") or "MissingName" in last
    assert "module 'torch' has no attribute 'lineer'; the nearest is" in last
    assert 'main.py", line 3' in said and "cli.py" not in said
    assert "there is no file 'gone.py'" in type_in("run", "gone.py", folder=tmp_path, code=2)


def test_pytorch_on_the_disk_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "site" / "torch").mkdir(parents=True)
    script(tmp_path / "site" / "torch", "raise SystemExit('imported')", "__init__.py")
    script(tmp_path / "site", "print('their own start')", "sitecustomize.py")
    path = os.pathsep.join([str(ROOT), str(tmp_path / "site")])
    name = script(tmp_path, "import torch.nn\nprint(torch.nn.__name__)")
    said = type_in("run", name, folder=tmp_path, PYTHONPATH=path)
    # Once for the command, once for the program.
    assert said.splitlines() == ["their own start", "their own start", "rushlight.nn"]


OPTIONS = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--device")
parser.add_argument("rest", nargs="*")
given = parser.parse_args()
import os
print(given.device, given.rest, os.environ["RUSHLIGHT_TORCH"], os.environ.get("RUSHLIGHT_BUDGET"))
"""


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["train.py", "--device", "cuda:0", "a"], "cuda:0 ['a'] auto None"),
        (["--device", "cpu", "--budget", "1GiB", "train.py"], "None [] cpu 1GiB"),
        (["--device=cpu", "--", "train.py", "a"], "None ['a'] cpu None"),
        (["train.py", "a", "--", "--device=x"], "None ['a', '--device=x'] auto None"),
    ],
)
def test_whose_option_it_is(words: list[str], wanted: str, tmp_path: Path) -> None:
    script(tmp_path, OPTIONS)
    assert type_in("run", *words, folder=tmp_path).strip() == wanted


def test_other_commands(tmp_path: Path) -> None:
    assert type_in("--version", folder=tmp_path).strip() == f"rushlight {__version__}"
    said = type_in("info", folder=tmp_path)
    assert f"rushlight {__version__}, names of PyTorch 2.13.0" in said and "cache" in said
    assert "\ncpu " in said and "reference" not in said
    for command in ("run", "check", "devices", "info"):
        assert f"rushlight {command}" in type_in(command, "--help", folder=tmp_path)


def test_check(tmp_path: Path) -> None:
    text = """
import torch
from torch import nn
import torch.nn.functional as F
from torch.nn import Lineer

def f(x):
    try:
        torch.absent
    except AttributeError:
        pass
    return F.relu(x) + torch.cuda.is_available() + torch.float32.itemsize + nn.Modul
"""
    name = script(tmp_path, text)
    said = type_in("check", name, folder=tmp_path, code=1).splitlines()
    assert said == [
        "train.py:5: torch.nn.Lineer is missing; the nearest is Linear",
        "train.py:9: torch.absent is missing (in a try or behind a test)",
        "train.py:12: torch.nn.Modul is missing; the nearest is Module",
        "1 files use 8 names of torch; 3 are missing",
    ]
    assert "torch.nn.functional.relu" in type_in("check", "--all", name, folder=tmp_path, code=1)
    script(tmp_path, "import torch.nn", "fine.py")
    assert "0 are missing" in type_in("check", "fine.py", folder=tmp_path)
    script(tmp_path, "import torch\nprint 'two'\n", "old.py")
    said = type_in("check", "old.py", folder=tmp_path, code=1)
    assert "old.py:2: not read: Missing parentheses" in said and "1 could not be read" in said


def test_check_knows_variables_from_modules(tmp_path: Path) -> None:
    text = """
from torch import optim
from torch.utils import data
import torch.nn.functional as F
try:
    import torch.jit as jit
except ImportError:
    jit = None
optim.Nope1
optim = optim.Adam([])
optim.zero_grad()

def f(data):
    data.sort()
    F.nope2
    optim.step()
    jit.nope3

def g():
    from torch import optim
    optim.nope4, data.nope5

h = lambda F: F.fine
"""
    said = type_in("check", script(tmp_path, text), folder=tmp_path, code=1).splitlines()
    names = ["optim.Nope1", "nn.functional.nope2", "jit.nope3", "optim.nope4", "utils.data.nope5"]
    assert [line.split()[1] for line in said[:-1]] == [f"torch.{name}" for name in names]


def test_check_of_a_name_that_needs_another_package(tmp_path: Path) -> None:
    name = script(tmp_path, "from torch.utils.tensorboard import SummaryWriter")
    (tmp_path / "tensorboard.py").write_text("raise ModuleNotFoundError('', name='tensorboard')")
    assert "; 0 are missing" in type_in("check", name, folder=tmp_path, PYTHONPATH=str(ROOT))


def test_an_option_behind_the_script_is_never_ours(tmp_path: Path) -> None:
    name = script(tmp_path, "import sys\nprint(sys.argv[1:])\n")
    words = ["--device", "cuda:0", "--check", "-m", "x", "--", "--budget", "1GiB"]
    assert type_in("run", name, *words, folder=tmp_path).strip() == str(words)


def test_profile_of_a_program(tmp_path):
    name = script(tmp_path, TRAIN)
    said = type_in("run", "--device", "cpu", "--profile", "trace.json", name, folder=tmp_path)
    assert "Self CPU" in said and "train.py:" in said and "the trace of the program is in" in said
    slices = check_trace(json.loads((tmp_path / "trace.json").read_text()))
    lines = {e["args"]["line"] for e in slices if "line" in e["args"]}
    assert any(line.startswith(str(tmp_path / "train.py")) for line in lines)
    said = type_in("run", "--profile", "trace.txt", name, folder=tmp_path, code=2)
    assert "must end in .json" in said


WRONG = """
import torch
import torch.nn as nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.second = nn.Linear(9, 2)

    def forward(self, x):
        hidden = self.first(x).relu()
        return {wrong}


Net()(torch.randn(3, 4))
"""


@pytest.mark.parametrize("wrong", ["self.second(hidden)", "hidden + x", "hidden.view(5, 5)"])
def test_the_traceback_ends_at_the_users_line(tmp_path, wrong):
    name = script(tmp_path, WRONG.replace("{wrong}", wrong))
    said = type_in("run", "--device", "cpu", name, folder=tmp_path, code=1)
    lines = said.splitlines()
    frames = [line for line in lines if line.startswith("  File ")]
    assert len(frames) == 2 and "line 17, in <module>" in frames[0]
    assert "line 14, in forward" in frames[1] and f"return {wrong}" in said
    assert "During handling" not in said and "rushlight/" not in said
    assert lines[-1].startswith("rushlight.core.errors.ShapeError:")
    assert "PYTHONDEVMODE" in lines[0]
    full = type_in("run", name, folder=tmp_path, code=1, PYTHONDEVMODE="1")
    assert "rushlight/" in full and len(full) > len(said)


def test_a_device_that_is_missing_is_an_error_of_one_frame(tmp_path):
    if rushlight.cuda.is_available():
        pytest.skip("there is a CUDA card")
    name = script(tmp_path, "import sys\nimport torch\n")
    said = type_in("run", "--device", "cuda", name, folder=tmp_path, code=1).splitlines()
    frames = [line for line in said if line.startswith("  File ")]
    assert len(frames) == 1 and 'train.py", line 2' in frames[0], said
    assert said[-1].startswith("rushlight.core.errors.DeviceUnavailable: device 'cuda'")


@pytest.mark.parametrize(
    ("text", "near"),
    [("torch.jit.scrip", "script"), ("torch.ones(2).summ()", "sum"), ("torchh.ones(1)", "torch")],
)
def test_an_error_of_a_name_tells_a_near_one(text, near, tmp_path):
    name = script(tmp_path, f"import torch\n{text}\n")
    said = type_in("run", "--device", "cpu", name, folder=tmp_path, code=1)
    assert said.splitlines()[-1].endswith(f"{near!r}?") or f"nearest is {near!r}" in said


def test_errors_of_the_program_itself_are_shown_as_they_are(tmp_path):
    text = "import torch\ntry:\n    int('x')\nexcept ValueError as e:\n    raise KeyError(1) from e"
    said = type_in("run", "--device", "cpu", script(tmp_path, text), folder=tmp_path, code=1)
    assert "direct cause" in said and said.endswith("KeyError: 1\n")
    text = "import torch\nraise KeyError(1) from ValueError('never raised')"
    said = type_in("run", "--device", "cpu", script(tmp_path, text), folder=tmp_path, code=1)
    assert "never raised" in said


def test_a_program_from_the_standard_input(tmp_path: Path) -> None:
    text = "import sys, torch; print(sys.argv, torch.__version__)"
    found = subprocess.run(
        [sys.executable, "-m", "rushlight", "run", "-", "--check"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        input=text,
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.strip() == "['-', '--check'] 2.13.0+rushlight"
