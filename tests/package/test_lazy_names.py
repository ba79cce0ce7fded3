"""Names load when first used: the imports of `import rushlight`, and lazy names are like others."""

from __future__ import annotations

import copy
import importlib
import inspect
import pickle
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import rushlight
from rushlight import methods
from tools import declared

ROOT = Path(rushlight.__file__).parent.parent


def run(text: str) -> str:
    found = subprocess.run(
        [sys.executable, "-c", text], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return found.stdout


def test_import_loads_few_modules():
    text = "import sys, rushlight; print(*sys.modules)"
    loaded = set(run(text).split())
    own = {name for name in loaded if name.startswith("rushlight")}
    assert not loaded & {"numpy", "llvmlite", "wgpu", "cupy", "opt_einsum", "ml_dtypes", "scipy"}
    assert not loaded & {f"rushlight.{room}" for room in ("nn", "optim", "io", "func", "sparse")}
    assert len(own) <= 125, sorted(own)


def test_index_of_ops_is_current():
    checked = subprocess.run(
        [sys.executable, "-m", "tools.declared", "--check"], cwd=ROOT, check=False
    )
    assert checked.returncode == 0, "run `make stubs`"


def test_every_name_of_all_is_there():
    for module in (rushlight, rushlight.nn.functional, rushlight.linalg, rushlight.special):
        assert set(module.__all__) <= set(dir(module))
        for name in module.__all__:
            assert vars(module).get(name, getattr(module, name)) is vars(module)[name]


def test_star_import():
    names: dict[str, object] = {}
    exec("from rushlight import *", names)
    assert names["add"] is rushlight.add and names["nn"] is rushlight.nn


def test_unknown_names():
    for space in (rushlight, rushlight.nn.functional, rushlight.fft, rushlight.Tensor):
        assert not hasattr(space, "no_such_name")
    with pytest.raises(AttributeError, match="module 'rushlight' has no attribute 'no_such_name'"):
        rushlight.no_such_name  # noqa: B018
    with pytest.raises(ImportError):
        importlib.import_module("rushlight.no_such_name")


def test_functions_are_pickled_by_name():
    for function in (rushlight.relu, rushlight.nn.functional.gelu, rushlight.fft.rfft):
        assert pickle.loads(pickle.dumps(function)) is function
        assert copy.deepcopy(function) is function
    text = (
        "import pickle, rushlight; f = pickle.loads(pickle.dumps(rushlight.nn.functional.cumsum)); "
        "print(f is rushlight.nn.functional.cumsum, f.__module__)"
    )
    assert run(text).split() == ["True", "rushlight"]


def test_methods_are_made_once():
    assert all(
        not isinstance(getattr(rushlight.Tensor, name), methods.Unmade)
        for name in dir(rushlight.Tensor)
    )
    assert rushlight.Tensor.cumsum is vars(rushlight.Tensor)["cumsum"]
    assert str(inspect.signature(rushlight.Tensor.unsqueeze)).startswith("(input")


def test_super_finds_the_base_method():
    text = """
import rushlight
class Doubled(rushlight.nn.Parameter):
    def cosh(self):
        return super().cosh() * 2
print(Doubled(rushlight.zeros(1)).cosh().item())
"""
    assert run(text).split() == ["2.0"]


def test_first_use_by_two_threads():
    text = """
import threading, rushlight
found, start = [], threading.Barrier(8)
def use():
    start.wait()
    found.append((rushlight.logcumsumexp, rushlight.Tensor.logcumsumexp, rushlight.nn.Linear))
threads = [threading.Thread(target=use) for _ in range(8)]
[t.start() for t in threads]; [t.join() for t in threads]
print(len(set(found)), len(found))
"""
    assert run(text).split() == ["1", "8"]


def test_patching(monkeypatch):
    original = rushlight.atan2
    monkeypatch.setattr(rushlight, "atan2", threading.Lock)
    assert rushlight.atan2 is threading.Lock
    monkeypatch.undo()
    assert rushlight.atan2 is original


# One process, in which each module is imported with no other of the package loaded.
_ALONE = """
import importlib, pkgutil, sys, rushlight
names = [m.name for m in pkgutil.walk_packages(rushlight.__path__, "rushlight.")]
for name in names[{first}::{step}]:
    if name.split(".")[-1] == "__main__":
        continue
    for other in [n for n in sys.modules if n.split(".")[0] == "rushlight"]:
        del sys.modules[other]
    importlib.import_module(name)
    print(name)
"""


def test_every_module_can_be_imported_first():
    assert len(run(_ALONE.format(first=0, step=9)).split()) > 40


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1, 9))
def test_every_other_module_can_be_imported_first(first: int):
    assert len(run(_ALONE.format(first=first, step=9)).split()) > 40


def test_declared_names_are_ops():
    assert set(declared.files()) >= set(rushlight.ops.declared.MODULES.values())
