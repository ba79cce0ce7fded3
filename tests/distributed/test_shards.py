"""The same bits for any number of processes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import rushlight
from rushlight import nn
from rushlight.distributed import DDP
from rushlight.distributed.shards import Tree, merges, stream_of
from rushlight.ops.create.creation import zeros
from tests.distributed.conftest import Launched, lines_of
from tests.time_limit import time_limit as time_limit


def _digests(launched: Launched, count: int, *words: str) -> list[str]:
    found = lines_of(launched(count, "shards.py", *words))
    assert [line.split()[0] for line in found] == ["perceptron", "convolutions", "gpt"]
    return found


def test_one_and_two_and_four_processes_give_the_same_bits(launched: Launched) -> None:
    one = _digests(launched, 1)
    assert _digests(launched, 2) == one
    assert _digests(launched, 4) == one


@pytest.mark.slow
def test_eight_processes_give_the_same_bits(launched: Launched) -> None:
    assert _digests(launched, 8) == _digests(launched, 1)


@pytest.mark.slow
def test_four_processes_saved_and_two_that_go_on(launched: Launched, tmp_path: Path) -> None:
    path = str(tmp_path / "state.pt")
    launched(4, "shards.py", "save", path)
    assert _digests(launched, 2, "load", path) == _digests(launched, 1)


def test_the_tree_of_shards() -> None:
    def added(count: int, order: list[int]) -> str:
        tree, names = Tree(), {}

        class Term:
            def __init__(self, text: str) -> None:
                self.text = text

            def add_(self, other):
                self.text = f"({self.text}{other.text})"
                return self

        for shard in order:
            names[shard] = tree.add(merges(count, shard), Term(str(shard)))
        return names[order[-1]].text

    for order in ([0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1]):
        assert added(4, order) == "((01)(23))"
    assert added(3, [2, 1, 0]) == added(3, [0, 2, 1]) == "(0(12))"
    assert Tree().add(merges(1, 0), zeros(2)).tolist() == [0, 0]


class _Gives(nn.Module):
    """A layer, and what a function makes of its result."""

    def __init__(self, make: Callable[[Any], Any]) -> None:
        super().__init__()
        self.layer, self.make = nn.Linear(3, 1), make

    def forward(self, x: Any) -> Any:
        return self.make(self.layer(x))


def test_results_of_shards_that_cannot_be_put_together() -> None:
    """The first shard's alone would lose the others' gradients in silence."""
    x = rushlight.ones(4, 3) * rushlight.arange(4.0).view(4, 1)
    given = DDP(_Gives(lambda y: {"rows": y, "kind": "mean", "count": len(y)}), shards=2)(x)
    assert given["rows"].shape == (4, 1) and (given["kind"], given["count"]) == ("mean", 2)
    for make, words in (
        (lambda y: SimpleNamespace(loss=y.sum()), "Got SimpleNamespace"),
        (lambda y: (y, y.sum().item()), "Got float, not the same from all shards"),
    ):
        with pytest.raises(TypeError, match=words):
            DDP(_Gives(make), shards=2)(x)


def test_streams_of_shards_differ() -> None:
    streams = {stream_of(s, p, k) for s in range(4) for p in range(8) for k in range(8)}
    assert len(streams) == 4 * 8 * 8 and all(0 <= s < 1 << 64 for s in streams)
