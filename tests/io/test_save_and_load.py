"""Tensors in files."""

from __future__ import annotations

import io
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file as load_arrays, save_file as save_arrays

import rushlight as rl
from rushlight import nn, optim
from rushlight.core.errors import RushlightError
from rushlight.io import UnsafeFile, load_file, save_file


def test_save_and_load_a_training_state(tmp_path, device):
    rl.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).to(device)
    optimizer = optim.Adam(model.parameters())
    x = rl.ones(5, 3, device=device) * rl.arange(5, device=device).reshape(5, 1)

    def step():
        optimizer.zero_grad()
        loss = (
            model(x).square().sum()
            + nn.functional.dropout(x, 0.5).sum() * 0
            + model[0].weight.sum()
        )
        loss.backward()
        optimizer.step()
        return [p.detach().numpy(force=True).tobytes() for p in model.state_dict().values()]

    step()
    state = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "rng": rl.get_rng_state(),
        "step": 1,
    }
    rl.save(state, tmp_path / "state")
    there = step()
    back = rl.load(tmp_path / "state", map_location=device)
    assert back["step"] == 1
    model.load_state_dict(back["model"])
    optimizer.load_state_dict(back["optimizer"])
    rl.set_rng_state(back["rng"])
    assert step() == there


def test_file_objects_and_map_location():
    buffer = io.BytesIO()
    rl.save([rl.tensor([1.0, 2.0]), {"a": (rl.tensor(3),)}], buffer)
    buffer.seek(0)
    first, second = rl.load(buffer, map_location="reference")
    assert first.tolist() == [1.0, 2.0]
    assert first.device.type == second["a"][0].device.type == "reference"


def test_a_file_cannot_run_code():
    class Evil:
        def __reduce__(self):
            return os.getcwd, ()

    raw = pickle.dumps(Evil())
    with pytest.raises(RushlightError, match=r"getcwd.*weights_only=False"):
        rl.load(io.BytesIO(raw))
    assert rl.load(io.BytesIO(raw), weights_only=False) == os.getcwd()


def test_a_failed_save_leaves_the_old_file(tmp_path):
    rl.save({"x": 1}, tmp_path / "f")
    with pytest.raises((pickle.PicklingError, AttributeError, TypeError)):
        rl.save({"x": lambda: 0}, tmp_path / "f")
    assert rl.load(tmp_path / "f") == {"x": 1}


def test_safetensors_there_and_back(tmp_path, device):
    values = {
        "f32": rl.randn(3, 4, device=device).t(),
        "i64": rl.arange(5, device=device),
        "bf16": rl.rand(7, device=device).to(rl.bfloat16),
        "bool": rl.tensor([True, False], device=device),
        "one": rl.tensor(2.5, device=device),
    }
    save_file(values, tmp_path / "x.safetensors", {"made": "here"})
    back = load_file(tmp_path / "x.safetensors", device)
    for name, value in values.items():
        assert back[name].dtype is value.dtype
        assert back[name].shape == value.shape
        assert back[name].tolist() == value.tolist()


def test_safetensors_agree_with_the_library(tmp_path):
    arrays = {"a": np.arange(6, dtype="f4").reshape(2, 3), "b": np.array([1, 2], "i8")}
    save_arrays(arrays, tmp_path / "y.safetensors")
    ours = load_file(tmp_path / "y.safetensors")
    assert all(np.array_equal(ours[k].numpy(), v) for k, v in arrays.items())
    save_file(ours, tmp_path / "z.safetensors")
    theirs = load_arrays(tmp_path / "z.safetensors")
    assert all(np.array_equal(theirs[k], v) for k, v in arrays.items())


def test_every_integer_type_in_a_safetensors_file(tmp_path):
    arrays = {
        name: np.arange(3).astype(name)
        for name in ("uint8", "uint16", "uint32", "uint64", "int8", "int16")
    }
    save_arrays(arrays, tmp_path / "u.safetensors")
    for name, tensor in load_file(tmp_path / "u.safetensors").items():
        assert tensor.dtype.name == name
        assert np.array_equal(tensor.numpy(), arrays[name])


def test_numbers_in_a_file(tmp_path):
    path = str(tmp_path / "numbers")
    np.arange(6, dtype=np.float32).tofile(path)
    own, shared = rl.from_file(path, size=6), rl.from_file(path, shared=True, size=6)
    own[0], shared[1] = 7, 9
    assert np.fromfile(path, np.float32).tolist() == [0, 9, 2, 3, 4, 5]
    assert rl.from_file(path, size=3, dtype=rl.float32).tolist() == [0, 9, 2]


def test_a_mapped_safetensors_file(tmp_path):
    path = tmp_path / "m.safetensors"
    given = {
        "f64": rl.arange(3, dtype=rl.float64),
        "bf16": rl.arange(5).to(rl.bfloat16).reshape(5, 1),
        "bool": rl.tensor([True, False]),
        "u8": rl.arange(3, dtype=rl.uint8),
        "none": rl.zeros(0, 2),
    }
    save_file(given, path)
    found = load_file(path, mmap=True)
    for name, tensor in given.items():
        assert found[name].dtype is tensor.dtype and found[name].shape == tensor.shape
        assert found[name].tolist() == tensor.tolist()
    found["f64"].add_(1)
    assert load_file(path)["f64"].tolist() == [0, 1, 2]
    header = b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'  # of 55 bytes: not aligned
    path.write_bytes(len(header).to_bytes(8, "little") + header + np.float32([1, 2]).tobytes())
    assert load_file(path, mmap=True)["a"].tolist() == [1, 2]
    with pytest.raises(RushlightError, match="mapped to the CPU's memory"):
        load_file(path, "reference", mmap=True)


@pytest.mark.parametrize("mapped", [False, True])
def test_a_safetensors_file_in_shards(tmp_path, mapped):
    save_file({"a": rl.ones(2), "b": rl.arange(3)}, tmp_path / "m-1.safetensors")
    save_file({"c": rl.zeros(1)}, tmp_path / "m-2.safetensors")
    index = tmp_path / "m.safetensors.index.json"
    places = {"c": "m-2.safetensors", "a": "m-1.safetensors", "b": "m-1.safetensors"}
    index.write_text(json.dumps({"metadata": {"total_size": 36}, "weight_map": places}))
    found = load_file(index, mmap=mapped)
    assert list(found) == ["c", "a", "b"] and found["b"].tolist() == [0, 1, 2]
    assert load_file(str(index), "reference")["a"].device.type == "reference"
    for wrong, told in [
        ({"weight_map": {"x": "m-1.safetensors"}}, "'x' is not in 'm-1.safetensors'"),
        ({"weight_map": {"x": "../m-1.safetensors"}}, "no file beside"),
        ({"weight_map": {"x": str(tmp_path / "m-1.safetensors")}}, "no file beside"),
        ({"weight_map": {"x": index.name}}, "no file beside"),
        ({"weight_map": ["x"]}, "a table of files"),
        ([], "a table of files"),
    ]:
        index.write_text(json.dumps(wrong))
        with pytest.raises(UnsafeFile, match=told):
            load_file(index, mmap=mapped)
    index.write_text("{")
    with pytest.raises(UnsafeFile, match="cannot be read"):
        load_file(index)
    index.write_text(json.dumps({"weight_map": {"x": "none.safetensors"}}))
    with pytest.raises(FileNotFoundError, match=r"none\.safetensors"):
        load_file(index)


LARGE = """
import resource, sys, time
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

save_file({"w": torch.ones(16 << 20), "v": torch.arange(5)}, sys.argv[1])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
found = load_file(sys.argv[1])
with safe_open(sys.argv[1], "pt") as file:
    assert file.get_slice("v")[1:3].tolist() == [1, 2]
assert found["v"].tolist() == [0, 1, 2, 3, 4] and found["w"][-1] == 1
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_the_safetensors_library_maps_files(tmp_path):
    """Under `rushlight run`; a file of 64 MiB takes no memory until its elements are used."""
    (tmp_path / "large.py").write_text(LARGE)
    ran = subprocess.run(
        [sys.executable, "-m", "rushlight", "run", "large.py", "large.safetensors"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(Path(rl.__file__).parents[1])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert int(ran.stdout) < 16 << 10  # KiB
