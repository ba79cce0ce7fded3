"""State dicts: overridden saving and loading, extra state, older versions, hooks."""

from __future__ import annotations

import copy
from collections import OrderedDict
from typing import Any

import pytest

import rushlight as rl
from rushlight import nn


class Renamed(nn.Module):
    """Its first version was saved with `gain` for `scale`."""

    _version = 2

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(rl.ones(2))
        self.inner = nn.Linear(2, 2)

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[f"{prefix}note"] = rl.tensor(7)

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, local_metadata: Any, *rest: Any
    ) -> None:
        assert int(state_dict.pop(f"{prefix}note")) == 7
        if local_metadata.get("version", 1) < 2:
            state_dict[f"{prefix}scale"] = state_dict.pop(f"{prefix}gain")
            state_dict[f"{prefix}inner.weight"] = state_dict[f"{prefix}inner.weight"] * 2
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)


def test_a_class_saves_and_loads_for_itself() -> None:
    net = nn.Sequential(Renamed())
    state = net.state_dict()
    assert isinstance(state, OrderedDict) and "0.note" in state
    assert list(state._metadata) == ["", "0", "0.inner"] and state._metadata["0"] == {"version": 2}
    assert repr(net.load_state_dict(copy.copy(state))) == "<All keys matched successfully>"
    old = {k.replace("scale", "gain"): v.clone() for k, v in state.items()}
    other = nn.Sequential(Renamed())
    other.load_state_dict(old)
    assert rl.equal(other[0].inner.weight, net[0].inner.weight * 2)


def test_a_child_may_override_its_whole_state() -> None:
    class Quiet(nn.Linear):
        def state_dict(
            self, *args: Any, destination: Any = None, prefix: str = "", keep_vars: bool = False
        ) -> Any:
            destination = OrderedDict() if destination is None else destination
            destination[f"{prefix}only"] = self.weight
            return destination

    assert list(nn.Sequential(Quiet(1, 1), nn.Linear(1, 1)).state_dict()) == [
        "0.only",
        "1.weight",
        "1.bias",
    ]


def test_extra_state_without_one_half() -> None:
    class Writes(nn.Module):
        def get_extra_state(self) -> Any:
            return 5

    class Reads(nn.Module):
        def set_extra_state(self, state: Any) -> None:
            raise AssertionError

    with pytest.raises(RuntimeError, match="unexpected"):
        Writes().load_state_dict(Writes().state_dict())
    with pytest.raises(RuntimeError, match="missing"):
        Reads().load_state_dict({})


def test_batch_norm_state_of_the_first_version() -> None:
    norm = nn.BatchNorm1d(2)
    norm(rl.rand(4, 2))
    state = dict(norm.state_dict())
    del state["num_batches_tracked"]
    norm.load_state_dict(state)
    assert int(norm.num_batches_tracked) == 1
    with pytest.raises(TypeError):
        norm.load_state_dict([])  # type: ignore[arg-type]


def test_batch_norm_that_stopped_tracking_leaves_its_statistics() -> None:
    norm = nn.BatchNorm1d(3)
    norm.track_running_stats = False
    norm(rl.rand(4, 3))
    assert int(norm.num_batches_tracked) == 0 and rl.equal(norm.running_mean, rl.zeros(3))


def test_state_hooks_give_nothing() -> None:
    net = nn.Linear(1, 1)
    net.register_state_dict_post_hook(lambda *given: given[1])
    with pytest.raises(RuntimeError):
        net.state_dict()
