"""Tensors in files."""

from __future__ import annotations

import io
import os
import pickle

import numpy as np
import pytest
from safetensors.numpy import load_file as load_arrays, save_file as save_arrays

import rushlight
from rushlight import nn, optim
from rushlight.core.errors import RushlightError
from rushlight.io import load_file, save_file


def test_save_and_load_a_training_state(tmp_path, device):
    rushlight.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).to(device)
    optimizer = optim.Adam(model.parameters())
    x = rushlight.ones(5, 3, device=device) * rushlight.arange(5, device=device).reshape(5, 1)

    def step():
        optimizer.zero_grad()
        loss = model(x).square().sum() + nn.functional.dropout(x, 0.5).sum() * 0 + model[0].weight.sum()
        loss.backward()
        optimizer.step()
        return [p.detach().numpy(force=True).tobytes() for p in model.state_dict().values()]

    step()
    state = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "rng": rushlight.get_rng_state(),
        "step": 1,
    }
    rushlight.save(state, tmp_path / "state")
    there = step()
    back = rushlight.load(tmp_path / "state", map_location=device)
    assert back["step"] == 1
    model.load_state_dict(back["model"])
    optimizer.load_state_dict(back["optimizer"])
    rushlight.set_rng_state(back["rng"])
    assert step() == there


def test_file_objects_and_map_location():
    buffer = io.BytesIO()
    rushlight.save([rushlight.tensor([1.0, 2.0]), {"a": (rushlight.tensor(3),)}], buffer)
    buffer.seek(0)
    first, second = rushlight.load(buffer, map_location="reference")
    assert first.tolist() == [1.0, 2.0]
    assert first.device.type == second["a"][0].device.type == "reference"


def test_a_file_cannot_run_code():
    class Evil:
        def __reduce__(self):
            return os.getcwd, ()

    raw = pickle.dumps(Evil())
    with pytest.raises(RushlightError, match=r"getcwd.*weights_only=False"):
        rushlight.load(io.BytesIO(raw))
    assert rushlight.load(io.BytesIO(raw), weights_only=False) == os.getcwd()


def test_a_failed_save_leaves_the_old_file(tmp_path):
    rushlight.save({"x": 1}, tmp_path / "f")
    with pytest.raises((pickle.PicklingError, AttributeError, TypeError)):
        rushlight.save({"x": lambda: 0}, tmp_path / "f")
    assert rushlight.load(tmp_path / "f") == {"x": 1}


def test_safetensors_there_and_back(tmp_path, device):
    values = {
        "f32": rushlight.randn(3, 4, device=device).t(),
        "i64": rushlight.arange(5, device=device),
        "bf16": rushlight.rand(7, device=device).to(rushlight.bfloat16),
        "bool": rushlight.tensor([True, False], device=device),
        "one": rushlight.tensor(2.5, device=device),
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
    arrays = {name: np.arange(3).astype(name) for name in ("uint8", "uint16", "uint32", "uint64", "int8", "int16")}
    save_arrays(arrays, tmp_path / "u.safetensors")
    for name, tensor in load_file(tmp_path / "u.safetensors").items():
        assert tensor.dtype.name == name
        assert np.array_equal(tensor.numpy(), arrays[name])
