"""Tensors in files."""

from __future__ import annotations

import io
import os
import pickle

import numpy as np
import pytest
from safetensors.numpy import load_file as load_arrays, save_file as save_arrays

import rushlight as rl
from rushlight import nn, optim
from rushlight.core.errors import RushlightError
from rushlight.io import load_file, save_file


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
