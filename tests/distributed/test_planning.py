"""Plans of other numbers of ranks: equal to runs where those can be made."""

from __future__ import annotations

from typing import Any

import pytest

import rushlight
import rushlight.distributed as dist
from rushlight import nn
from rushlight.distributed import planning, rooms
from tests.distributed.conftest import Launched, lines_of
from tests.time_limit import time_limit as time_limit


@pytest.mark.parametrize(
    "count", [1, 2, *(pytest.param(n, marks=pytest.mark.slow) for n in (4, 8))]
)
def test_a_plan_is_equal_to_a_run(launched: Launched, count: int) -> None:
    ended = launched(count, "planned.py")
    for rank in range(count):
        names = [line.split()[0] for line in lines_of(ended, rank)]
        assert names == [name for name in planning.STRATEGIES for _ in range(2)]


def _build(strategy: Any) -> Any:
    model = strategy(nn.Linear(1000, 1000, bias=False))
    optimizer = strategy.optimizer(rushlight.optim.SGD, model.parameters(), lr=0.1)

    def step() -> None:
        optimizer.zero_grad()
        model(rushlight.zeros(2, 1000)).sum().backward()
        optimizer.step()

    return step


def test_a_plan_of_many_ranks() -> None:
    link = dist.Link(bandwidth=1e9, latency=1e-5, gap=0.0)
    found = dist.plan(_build, world_size=1000, strategy="ddp", link=link, compute=0.5)
    sent = 2 * 4_000_000 * 999 // 1000
    assert found.traffic == {"all_reduce": dist.Traffic(1, sent, 2, 2 * 999)}
    assert found.communication == pytest.approx(sent / 1e9 + 2e-5)
    assert found.seconds == (0.5, 0.5 + found.communication)
    assert 4_000_000 <= found.parameters < 4_010_000 and found.peak >= 2 * 4_000_000
    assert "1000 ranks on cpu" in str(found) and "all_reduce: 1 calls" in str(found)
    assert not dist.is_initialized() and dist.traffic() == {}
    sharded = dist.plan(_build, world_size=1000, strategy="fsdp")
    assert sharded.parameters < 20_000
    assert sharded.traffic["reduce_scatter_tensor"].sent == 4_000_000 * 999 // 1000


def test_a_plan_of_a_program_that_spreads_itself() -> None:
    def build() -> Any:
        assert dist.get_world_size() == 4 and dist.get_rank() == 3
        found: list[Any] = [None] * 4
        dist.all_gather_object(found, "rank")
        assert found == ["rank"] * 4
        x = rushlight.ones(10)

        def step() -> None:
            work: Any = dist.all_reduce(x, async_op=True)
            work.wait()

        return step

    assert dist.plan(build, world_size=4, rank=3).sent == 3 * 40


def test_calls_under_way_share_memory() -> None:
    """What they receive: one call of a group runs after the other."""
    with planning.planned_world(4, 1, True) as group:
        first = rooms.others_rooms(group, rushlight.ones(5), 1 << 20, 5)
        second = rooms.others_rooms(group, rushlight.ones(3, dtype=rushlight.bool), 1 << 20, 3)
        assert first is not None and second is not None
        assert [len(first), len(second), *(row.shape[0] for row in second)] == [3, 3, 3, 3, 3]
        assert first[2].data_ptr() == second[2].data_ptr() and second[0].dtype is rushlight.bool
        larger = rooms.others_rooms(group, rushlight.ones(9), 1 << 20, 9)
        assert larger is not None and larger[0].data_ptr() != first[0].data_ptr()
        del first, second, larger
        assert group.rooms() is None  # nobody waits


def test_what_no_plan_can_be_made_of() -> None:
    with pytest.raises(ValueError, match="strategy is one of ddp"):
        dist.plan(_build, world_size=4, strategy="magic")
    with pytest.raises(ValueError, match="rank 4 of 4"):
        dist.plan(_build, world_size=4, rank=4)
    with pytest.raises(TypeError, match="function of one step"):
        dist.plan(lambda: None, world_size=4)
    with pytest.raises(ValueError, match="give link"):
        _ = dist.plan(_build, world_size=4, strategy="ddp").communication
    assert not dist.is_initialized()
