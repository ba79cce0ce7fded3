"""`rushlight.patch()`: `torch` in this process, and what was there before comes back."""

from __future__ import annotations

import copy
import importlib
import importlib.metadata
import importlib.util
import io
import pickle
import subprocess
import sys
from types import ModuleType
from typing import Any

import pytest

import rushlight
from rushlight.compat.torch_version import TorchVersion


def test_modules_are_rushlights() -> None:
    with rushlight.patch() as torch:
        from torch import nn
        from torch.nn.modules.conv import _ConvNd
        from torch.optim.lr_scheduler import StepLR
        from torch.utils.data import DataLoader

        assert sys.modules["torch"] is torch and torch.Tensor is rushlight.Tensor
        assert nn is rushlight.nn and torch.nn is nn and nn.__spec__.name == "rushlight.nn"
        assert issubclass(nn.Conv2d, _ConvNd) and StepLR is rushlight.optim.lr_scheduler.StepLR
        assert DataLoader is rushlight.utils.data.DataLoader
        assert importlib.util.find_spec("torch.nn") is not None
        assert importlib.util.find_spec("torch.absent") is None
        assert {"nn", "ones", "__version__"} <= set(dir(torch))
    assert "torch" not in sys.modules and "torch.nn" not in sys.modules
    with pytest.raises(ModuleNotFoundError), rushlight.patch():
        importlib.import_module("torch.absent.name")


def test_version_and_distribution() -> None:
    with rushlight.patch() as torch:
        assert torch.__version__ == "2.13.0+rushlight" and torch.version.__version__ == "2.13.0"
        assert importlib.metadata.version("torch") == "2.13.0+rushlight"
        assert "torch" in importlib.metadata.packages_distributions()
        assert rushlight.__version__ == "0.1.0" and torch.version.cuda is None
    version = TorchVersion("2.13.0+rushlight")
    assert version >= (2, 4) and version > "2.9.1" and version < "2.14" and version <= "2.13"
    assert version != "2.12" and version.split("+")[0] == "2.13.0"


def test_pytorch_that_was_loaded_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = ModuleType("torch")
    monkeypatch.setitem(sys.modules, "torch", theirs)
    with rushlight.patch() as outer:
        with rushlight.patch("cpu") as torch:
            assert torch is outer and torch.ones(2).sum() == 2
        assert sys.modules["torch"] is outer
    assert sys.modules["torch"] is theirs


def test_devices_by_pytorchs_names() -> None:
    with rushlight.patch("cpu") as torch:
        assert not torch.cuda.is_available() and torch.cuda.device_count() == 0
        assert torch.device("cuda").type == "cuda" and torch.device("cuda:0").index == 0
        with pytest.raises(rushlight.DeviceUnavailable, match="hidden by --device cpu"):
            torch.ones(2, device="cuda")
        meta = torch.empty(1 << 40, device="meta")
        assert meta.device.type == "meta" and meta.is_meta and not torch.ones(1).is_meta
        with torch.device("meta"):
            layer = torch.nn.Linear(2, 3)
        assert layer.weight.is_meta and not layer.to_empty(device="cpu").weight.is_meta
    assert rushlight.empty(2, device="null").device.type == "null"
    with pytest.raises(ValueError, match="auto, cpu"):
        rushlight.patch("tpu")


def test_cuda_means_webgpu(require_device) -> None:
    require_device("webgpu")
    with rushlight.patch("webgpu") as torch:
        assert torch.cuda.is_available() and torch.cuda.device_count() == 1
        x = torch.arange(4.0).cuda()
        assert x.is_cuda and x.device == torch.device("cuda") and x.device.type == "cuda"
        assert x.cpu().tolist() == [0, 1, 2, 3] and torch.cuda.memory_allocated() > 0
        assert torch.nn.Linear(2, 2).cuda().weight.is_cuda and torch.cuda.get_device_name()
        assert "llvmpipe" not in str(x.device)
        assert torch.cuda.current_device() == 0
        whole = pickle.dumps(x)
    assert x.device.type == "webgpu" and pickle.loads(whole).device.type == "webgpu"
    assert x.device == rushlight.device("webgpu") != rushlight.device("cpu")


def test_the_accelerator_is_what_cuda_means(require_device) -> None:
    with rushlight.patch("cpu") as torch:
        assert not torch.accelerator.is_available()
        assert torch.accelerator.current_accelerator() is None
    require_device("webgpu")
    with rushlight.patch("webgpu") as torch:
        found = torch.accelerator.current_accelerator()
        assert torch.accelerator.is_available() and torch.accelerator.device_count() == 1
        assert found.type == "cuda" and torch.ones(2, device=found).is_cuda
        torch.accelerator.synchronize()
        name = torch.cuda.get_device_name()
        assert name and name.count("(") == name.count(")")


def test_as_torch_is_the_first_line() -> None:
    text = "import rushlight.as_torch, torch; print(torch.__version__)"
    found = subprocess.check_output([sys.executable, "-c", text], text=True, cwd=".")
    assert found.strip() == "2.13.0+rushlight"


def test_as_torch_refuses_where_pytorch_is_loaded() -> None:
    text = (
        "import sys, types; sys.modules['torch'] = types.ModuleType('torch')\n"
        "try:\n    import rushlight.as_torch\n"
        "except ImportError as error:\n    print(error.name, error)\n"
        "import rushlight; print(sys.modules['torch'].__name__, sys.meta_path[0])\n"
    )
    found = subprocess.check_output([sys.executable, "-c", text], text=True, cwd=".")
    first, last = found.splitlines()
    assert first.startswith("torch ") and "imported before" in first and "compat.hook" not in last


def test_modules_that_programs_look_up() -> None:
    with rushlight.patch():
        for name in ("nn", "nn.functional", "autograd", "utils.data", "cuda"):
            assert sys.modules[f"torch.{name}"] is importlib.import_module(f"rushlight.{name}")


def test_a_missing_name_tells_the_nearest() -> None:
    with pytest.raises(AttributeError, match="'Lineer'; the nearest is 'Linear'") as caught:
        _ = rushlight.nn.Lineer
    assert caught.value.name == "Lineer" and str(pickle.loads(pickle.dumps(caught.value)))


def test_modules_come_by_from() -> None:
    """Also those that lie elsewhere here: the import system asks below a module's own name."""
    with rushlight.patch("cpu"):
        found: dict[str, Any] = {}
        exec(
            "from torch.utils import benchmark, cpp_extension, flop_counter, model_zoo\n"
            "from torch.nn import grad\n"
            "from torch.nn.utils import fusion\n"
            "from torch.cuda.amp import autocast_mode\n"
            "from torch.distributed.checkpoint import filesystem",
            found,
        )
        assert found["benchmark"] is importlib.import_module("torch.utils.benchmark")
        assert found["grad"] is importlib.import_module("torch.nn.grad")
        assert found["benchmark"].__spec__.name == found["benchmark"].__name__
        assert found["filesystem"].FileSystemReader
        for missing in ("torch.utils", "torch.nn", "torch"):
            with pytest.raises(ImportError, match="no_such_part"):
                exec(f"from {missing} import no_such_part")
    with pytest.raises(ImportError):
        exec("from rushlight.utils import no_such_part")


class Own(rushlight.Tensor):
    """A user's class keeps its name."""


def _values() -> dict[str, Any]:
    parameter = rushlight.nn.Parameter(rushlight.ones(2))
    return {
        "torch.Tensor": rushlight.ones(2),
        "torch.nn.parameter.Parameter": parameter,
        "torch.nn.parameter.Buffer": rushlight.nn.Buffer(rushlight.ones(1)),
        "torch.nn.parameter.UninitializedParameter": rushlight.nn.UninitializedParameter(),
        "torch.nn.parameter.UninitializedBuffer": rushlight.nn.UninitializedBuffer(),
        "torch.Size": parameter.shape,
        "torch.device": parameter.device,
        "torch.dtype": parameter.dtype,
        "torch.memory_format": rushlight.channels_last,
        "torch._C.Generator": rushlight.Generator(),
    }


def test_classes_of_values_have_pytorch_s_names() -> None:
    before = {name: repr(type(value)) for name, value in _values().items()}
    assert all("'rushlight." in shown for shown in before.values())
    outside = pickle.dumps(_values())
    with rushlight.patch() as torch:
        for name, value in _values().items():
            kind = type(value)
            assert f"{kind.__module__}.{kind.__qualname__}" == name
            assert repr(kind) == f"<class '{name}'>"
        assert type(torch.ones(1)).__module__ == "torch" and torch.ones(1).__class__ is torch.Tensor
        assert repr(torch.ones(1)) == "tensor([1.])"
        assert repr(torch.ones(1).as_subclass(Own)) == "Own([1.])"
        inside = pickle.dumps(_values())
        files = io.BytesIO()
        torch.save(_values(), files)
        for made in (pickle.loads(outside), copy.deepcopy(_values())):
            assert [type(v) for v in made.values()] == [type(v) for v in _values().values()]
    files.seek(0)
    for made in (pickle.loads(inside), rushlight.load(files, weights_only=False)):
        assert {name: repr(type(value)) for name, value in made.items()} == before


def test_the_device_of_a_tensor_says_which_card(require_device) -> None:
    require_device("webgpu")
    with rushlight.patch("webgpu") as torch:
        x = torch.zeros(1, device="cuda")
        assert torch.device("cuda").index is None and x.device.index == 0
        assert str(x.device) == "cuda:0" and f"cuda:{x.device.index}" == str(
            x.untyped_storage().device
        )
        assert repr(x) == "tensor([0.], device='cuda:0')"
        assert x.device == torch.device("cuda") and torch.zeros(1).device.index is None
    assert str(x.device) == "webgpu" and repr(x) == "tensor([0.], device='webgpu')"
