"""Names load when first used: the imports of `import rushlight`, and lazy names are like others."""

from __future__ import annotations

import copy
import importlib
import inspect
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
    assert len(own) <= 141, sorted(own)


def loaded_by(text: str) -> set[str]:
    """The package's modules that a statement loads besides those of `import rushlight`."""
    before = "import sys, rushlight; had = set(sys.modules)"
    found = run(f"{before}\n{text}\nprint(*(set(sys.modules) - had))").split()
    return {name for name in found if name.startswith("rushlight")}


def test_import_of_nn_loads_no_layer():
    assert loaded_by("import rushlight.nn") == {"rushlight.nn"}


def test_import_of_optim_loads_no_optimiser():
    assert loaded_by("import rushlight.optim") == {"rushlight.optim"}


def test_a_layer_loads_its_file_alone():
    loaded = loaded_by("rushlight.nn.Linear")
    assert {"rushlight.nn.linear", "rushlight.nn.module"} <= loaded
    others = ("conv", "functional", "loss", "modules", "rnn", "transformer", "utils")
    assert not loaded & {f"rushlight.nn.{name}" for name in others}
    assert not {name for name in loaded if name.startswith(("rushlight.emit", "rushlight.devices"))}
    assert not loaded & {"rushlight.ops.linalg.decompositions", "rushlight.sparse"}


def test_layers_are_like_others():
    text = """
import pickle, rushlight
from rushlight.nn import *
assert Linear is rushlight.nn.Linear is rushlight.nn.linear.Linear
assert isinstance(Linear(2, 2), Module) and functional is rushlight.nn.functional
assert issubclass(rushlight.nn.modules.conv._ConvNd, rushlight.nn.Module)
assert rushlight.nn.modules.Linear is Linear and rushlight.nn.attention.SDPBackend
class Net(rushlight.nn.Module):
    pass
net = pickle.loads(pickle.dumps(rushlight.nn.Sequential(Linear(2, 2), ReLU())))
print(type(net[0]) is Linear, set(dir(rushlight.nn)) >= set(rushlight.nn.__all__))
"""
    assert run(text).split() == ["True", "True"]


def test_index_of_ops_is_current():
    checked = subprocess.run(
        [sys.executable, "-m", "tools.declared", "--check"], cwd=ROOT, check=False
    )
    assert checked.returncode == 0, "run `make stubs`"


def test_every_name_of_all_is_there():
    nn = rushlight.nn
    spaces = (rushlight, nn, nn.functional, nn.utils, rushlight.optim, rushlight.linalg)
    for module in (*spaces, rushlight.special):
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


PICKLED = (
    *("rushlight", "rushlight.nn.functional", "rushlight.linalg", "rushlight.fft"),
    *("rushlight.special", "rushlight.sparse", "rushlight.array_api", "rushlight.signal.windows"),
    *("rushlight.nn", "rushlight.nn.init", "rushlight.nn.utils", "rushlight.optim"),
)
_PICKLES = """
import importlib, pickle, types
for space in {spaces}:
    module = importlib.import_module(space)
    for name in module.__all__:
        member = getattr(module, name)
        if isinstance(member, (type, types.FunctionType)):
            try:
                assert pickle.loads(pickle.dumps(member)) is member
            except Exception as error:
                print(space, name, repr(error))
"""


@pytest.mark.parametrize("spaces", [PICKLED, PICKLED[::-1]], ids=["package_first", "package_last"])
def test_every_function_and_class_is_pickled_by_name(spaces: tuple[str, ...]):
    assert run(_PICKLES.format(spaces=spaces)) == ""


def test_functions_are_copied_by_name():
    for function in (rushlight.relu, rushlight.nn.functional.gelu, rushlight.fft.rfft):
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
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:  # of a package that is not installed
        assert "pip install" in str(error), error
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
