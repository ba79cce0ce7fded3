"""Files to and from real PyTorch, where it is installed, in a process of its own."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import rushlight as rl
from rushlight import interop, nn
from tests.io.test_archives import checkpoint


def _has_pytorch() -> bool:
    try:
        found = importlib.metadata.distribution("torch")
    except importlib.metadata.PackageNotFoundError:
        return False
    return bool(found.files) and any(str(f).endswith("torch/_tensor.py") for f in found.files or ())


pytestmark = pytest.mark.skipif(not _has_pytorch(), reason="PyTorch is not installed")

COMMON = """
import sys, collections, hashlib, warnings
warnings.simplefilter("ignore")
import torch

def told(thing, path=""):
    if isinstance(thing, torch.Tensor) and thing.layout is not torch.strided:
        parts = [thing.to_dense()]
        yield f"{path} {str(thing.layout).split('.')[-1]}"
        yield from told(parts, path)
    elif isinstance(thing, torch.Tensor):
        dtype = str(thing.dtype).split(".")[-1]
        shown = f"{path} {type(thing).__name__} {dtype} {tuple(thing.shape)} "
        shown += f"{thing.stride()} {thing.storage_offset()} {thing.requires_grad} "
        whole = thing.detach().contiguous().reshape(-1)
        raw = whole.view(torch.uint8).numpy().tobytes() if thing.numel() else b""
        yield shown + hashlib.sha256(raw).hexdigest()[:16]
    elif isinstance(thing, dict):
        for key, value in thing.items():
            yield from told(value, f"{path}.{key}")
    elif isinstance(thing, (list, tuple)) and type(thing) in (list, tuple):
        for at, value in enumerate(thing):
            yield from told(value, f"{path}.{at}")
    else:
        yield f"{path} {thing!r}".replace("torch.", "").replace("rushlight.", "")
"""


def described(thing: object, path: str = ""):
    """The same of our tensors."""
    import hashlib

    if isinstance(thing, rl.Tensor) and thing.layout is not rl.strided:
        yield f"{path} {str(thing.layout).split('.')[-1]}"
        yield from described([thing.to_dense()], path)
    elif isinstance(thing, rl.Tensor):
        shown = f"{path} {type(thing).__name__} {thing.dtype.name} {tuple(thing.shape)} "
        shown += f"{thing.stride()} {thing.storage_offset()} {thing.requires_grad} "
        raw = bytes(interop.to_bytes(thing.detach()))
        yield shown + hashlib.sha256(raw).hexdigest()[:16]
    elif isinstance(thing, dict):
        for key, value in thing.items():
            yield from described(value, f"{path}.{key}")
    elif type(thing) in (list, tuple):
        for at, value in enumerate(thing):  # type: ignore[arg-type,var-annotated]
            yield from described(value, f"{path}.{at}")
    else:
        yield f"{path} {thing!r}".replace("torch.", "").replace("rushlight.", "")


def in_pytorch(program: str, *args: object) -> str:
    ran = subprocess.run(
        [sys.executable, "-c", COMMON + program, *map(str, args)],
        capture_output=True,
        text=True,
        cwd="/",
        env=os.environ | {"PYTHONPATH": "", "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"},
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.mark.parametrize("archive", [True, False])
def test_pytorch_loads_what_we_save(tmp_path: Path, archive: bool) -> None:
    thing = checkpoint()
    rl.save(thing, tmp_path / "f.pt", _use_new_zipfile_serialization=archive)
    program = """
found = torch.load(sys.argv[1])  # weights_only=True
print("\\n".join(told(found)))
x, part = found["views"][0], found["views"][1]
x[1, 0] = 99
assert part[0, 0] == 99 and found["attributes"].note == "n"
assert found["model"]._metadata[""]["version"] == 1
if sys.argv[2] == "True":
    mapped = torch.load(sys.argv[1], mmap=True)
    assert list(told(mapped)) == list(told(torch.load(sys.argv[1])))
archive = sys.argv[2] == "True"
found = torch.load(sys.argv[1])
torch.save(found, sys.argv[1] + "2", _use_new_zipfile_serialization=archive)
model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1))
model.load_state_dict(found["model"])
optimizer = torch.optim.AdamW(model.parameters())
optimizer.load_state_dict(found["optimizer"])
torch.optim.lr_scheduler.StepLR(optimizer, 2).load_state_dict(found["scheduler"])
model(torch.ones(2, 3)).sum().backward()
optimizer.step()
"""
    there = in_pytorch(program, tmp_path / "f.pt", archive).splitlines()
    assert there == list(described(thing))
    again = rl.load(tmp_path / "f.pt2")  # what PyTorch wrote of it
    assert list(described(again)) == list(described(thing))


def test_pytorch_runs_our_modules(tmp_path: Path) -> None:
    rl.manual_seed(0)
    models = {
        "conv": (
            nn.Sequential(
                nn.Conv2d(2, 4, 3, padding=1, padding_mode="circular"),
                nn.BatchNorm2d(4),
                nn.ReLU6(),
                nn.ConvTranspose2d(4, 2, 3, stride=2, output_padding=1),
                nn.Upsample(scale_factor=2),
                nn.ZeroPad2d(1),
                nn.AdaptiveAvgPool2d(3),
                nn.Flatten(),
                nn.Linear(18, 5),
                nn.GELU(),
                nn.LayerNorm(5),
            ).eval(),
            rl.randn(2, 2, 6, 6),
        ),
        "encoder": (
            nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True), 2),
            rl.randn(2, 5, 8),
        ),
        "gru": (nn.GRU(3, 4, 2, bidirectional=True), rl.randn(5, 2, 3)),
        "lstm": (nn.LSTM(3, 4, proj_size=2), rl.randn(5, 2, 3)),
    }
    models["encoder"][0].eval()
    expected = {}
    for name, (model, x) in models.items():
        found = model(x)
        expected[name] = (found[0] if isinstance(found, tuple) else found).detach()
    rl.save({name: (model, x) for name, (model, x) in models.items()}, tmp_path / "m.pt")
    program = """
out = {}
for name, (model, x) in torch.load(sys.argv[1], weights_only=False).items():
    found = model(x)
    out[name] = (found[0] if isinstance(found, tuple) else found).detach()
    (found[0] if isinstance(found, tuple) else found).sum().backward()
    model.double(); model.state_dict(); repr(model)
    out[name + " again"] = model
torch.save(out, sys.argv[2])
"""
    in_pytorch(program, tmp_path / "m.pt", tmp_path / "out.pt")
    there = rl.load(tmp_path / "out.pt", weights_only=False)
    for name, value in expected.items():
        np.testing.assert_allclose(there[name].numpy(), value.numpy(), rtol=1e-5, atol=1e-6)
        model, x = models[name]
        again = there[f"{name} again"](x.double())
        again = (again[0] if isinstance(again, tuple) else again).detach()
        np.testing.assert_allclose(again.numpy(), value.numpy(), rtol=1e-5, atol=1e-6)


def test_pytorch_maps_our_files_and_knows_our_devices(tmp_path: Path) -> None:
    rl.save([rl.arange(3.0, device="reference"), rl.empty(2, device="null")], tmp_path / "d.pt")
    program = "a, b = torch.load(sys.argv[1]); print(a.device, a.tolist(), b.device)"
    assert in_pytorch(program, tmp_path / "d.pt").strip() == "cpu [0.0, 1.0, 2.0] meta"
