"""map_location, and the names that an untrusted file may use."""

from __future__ import annotations

import io
import pickle

import pytest

import rushlight as rl


def saved(thing):
    file = io.BytesIO()
    rl.save(thing, file)
    file.seek(0)
    return file


@pytest.mark.parametrize(
    "place",
    [
        "reference",
        rl.device("reference"),
        {"cpu": "reference"},
        {"cpu:0": rl.device("reference"), "cuda:0": "cpu"},
        lambda storage, was: storage.to(device="reference") if was == "cpu" else None,
    ],
)
def test_map_location(place):
    x = rl.arange(4.0)
    layer = rl.nn.Linear(2, 2)
    back = rl.load(saved({"x": x, "part": x[1:], "pair": (x, layer.weight)}), map_location=place)
    assert back["x"].device.type == back["pair"][1].device.type == "reference"
    assert isinstance(back["pair"][1], rl.nn.Parameter) and back["pair"][1].requires_grad
    back["x"][1] = 9.0
    assert back["part"][0] == 9 and back["pair"][0][1] == 9  # tensors that shared memory share it


def test_map_location_may_leave_a_tensor_where_it_was():
    x = rl.ones(2)
    assert rl.load(saved(x), map_location=lambda storage, was: None).device.type == "cpu"
    assert rl.load(saved(x), map_location=lambda storage, was: storage).device.type == "cpu"
    assert rl.load(saved(x), map_location={"cuda:0": "reference"}).device.type == "cpu"
    with pytest.raises(RuntimeError):
        rl.load(saved(x), map_location="nowhere")


class Noted:
    def __init__(self, x):
        self.x = x


def test_safe_globals():
    with pytest.raises(pickle.UnpicklingError, match="Noted"):
        rl.load(saved(Noted(rl.ones(2))))
    with rl.serialization.safe_globals([Noted]):
        assert rl.load(saved(Noted(rl.ones(2)))).x.tolist() == [1, 1]
        assert rl.serialization.get_safe_globals() == [Noted]
    with pytest.raises(RuntimeError, match="add_safe_globals"):
        rl.load(saved(Noted(rl.ones(2))))
    rl.serialization.add_safe_globals([Noted])
    assert rl.load(saved([Noted(1)]))[0].x == 1
    rl.serialization.clear_safe_globals()
    assert rl.serialization.get_safe_globals() == []


def test_pytorchs_arguments_are_taken(tmp_path):
    with open(tmp_path / "x.pt", "wb") as file:
        rl.save(rl.ones(2), file, _use_new_zipfile_serialization=False, pickle_protocol=2)
        # Written before it is closed.
        assert rl.load(tmp_path / "x.pt", weights_only=None, mmap=False).tolist() == [
            1,
            1,
        ]
    assert rl.load(saved(rl.device("cpu"))).type == "cpu"
    assert rl.load(saved(rl.ones(2).storage())).tolist() == [1, 1]
    with pytest.raises(AttributeError):
        rl.load(3)
