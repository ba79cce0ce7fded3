"""Inside a budget cached blocks are exchanged for others: which, and how many. Note [Budget]."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import rushlight as rl
import rushlight.nn.functional as F
from rushlight import BudgetError, memory, nn
from rushlight.devices.shared.allocator import Pool
from rushlight.devices.shared.protocol import Limits
from rushlight.ops.create.creation import resolve_pool
from tests.fuzz.programs import Interrupting
from tests.memory.training_step import bits

MIB = 1 << 20


class Driver:
    """A device that has memory only."""

    name = "driver"
    limits = Limits((), False, True, 1 << 40, "counts blocks")

    def __init__(self) -> None:
        self.sizes: dict[int, int] = {}
        self.freed: list[int] = []
        self.next = 1 << 20

    def alloc(self, nbytes: int) -> int:
        self.next += 1 << 40
        self.sizes[self.next] = nbytes
        return self.next

    def free(self, address: int, nbytes: int) -> None:
        assert self.sizes.pop(address) == nbytes
        self.freed.append(nbytes)


@pytest.fixture
def limited(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Any, Driver]]:
    """A pool with a limit and cached blocks of these sizes."""

    def make(limit: int, *rooms: int) -> tuple[Any, Driver]:
        driver = Driver()
        pool = Pool(driver)  # type: ignore[arg-type]
        for address, room in [(pool.take(room), room) for room in rooms]:
            pool.give(address, room)
        monkeypatch.setattr(Pool, "bound", staticmethod(lambda _: limit))
        return pool, driver

    return make


def test_the_largest_block_goes_first(limited):
    pool, driver = limited(100 * MIB, 64 * MIB, 20 * MIB, 16 * MIB)
    for _ in range(4):
        pool.take(15 * MIB)
    assert driver.freed == [64 * MIB]
    assert pool.held <= 100 * MIB


def test_few_small_blocks_stay(limited):
    pool, driver = limited(100 * MIB, 50 * MIB, 49 * MIB, *[4096] * 20)
    pool.take(60 * MIB)
    assert driver.freed == [50 * MIB, 49 * MIB]
    assert len(pool.free[4096]) == 20


def test_many_small_blocks_go(limited):
    pool, _ = limited(100 * MIB, 90 * MIB, *[4096] * 2500)
    pool.take(99 * MIB)
    assert len(pool.free[4096]) * 4096 <= MIB
    assert pool.held <= 100 * MIB


def test_a_drop_leaves_the_small_blocks_their_room(limited):
    pool, _ = limited(100 * MIB, 99 * MIB, *[4096] * 20)
    address = pool.take(98 * MIB)
    asked = []

    def reclaim(pool: Pool, room: int, handed: list[int]) -> bool:
        asked.append((room, pool.limit))
        pool.give(address, 98 * MIB)
        return True

    pool.reclaim = reclaim
    pool.take(3 * MIB)
    assert asked == [(3 * MIB, 100 * MIB - 20 * 4096)] and pool.limit == 100 * MIB
    assert len(pool.free[4096]) == 20 and pool.held <= 100 * MIB


def test_small_blocks_go_for_another(limited):
    pool, driver = limited(100 * MIB, 99 * MIB, *[64] * 20)
    pool.take(99 * MIB)
    pool.take(MIB - 20 * 64 - 64)
    pool.reclaim = lambda *_: pytest.fail("a value was dropped")
    pool.take(256)
    assert driver.freed == [64] * 3 and pool.held == 100 * MIB


def test_small_blocks_go_before_a_request_is_refused(limited):
    pool, driver = limited(100 * MIB, 99 * MIB, *[4096] * 20)
    pool.take(98 * MIB)
    pool.take(2 * MIB)
    assert driver.freed == [99 * MIB, *[4096] * 20]
    with pytest.raises(BudgetError):
        pool.take(4096)
    assert pool.held == pool.live == 100 * MIB


def test_a_request_that_nothing_makes_room_for_ends(limited):
    """Counts say that it fits, and nothing is cached: it was asked for again without an end."""
    pool, _ = limited(100 * MIB, MIB)
    pool.take(MIB)
    pool.held += 50 * MIB  # a library's, say, that it does not count as in use
    with pytest.raises(BudgetError):
        pool.take(60 * MIB)
    assert pool.take(MIB)


# ---- blocks that are cut and joined ----


class Joining(Driver):
    """A device that has memory only, in which blocks can be cut and joined."""

    def __init__(self) -> None:
        super().__init__()
        self.joined: list[list[int]] = []
        self.limits = replace(Driver.limits, join=self.join)

    def join(self, blocks: list[tuple[int, int]], nbytes: int) -> int:
        self.joined.append([room for _, room in blocks])
        blocks.clear()
        return self.alloc(nbytes)

    def free(self, address: int, nbytes: int) -> None:
        self.freed.append(nbytes)


@pytest.fixture
def joining(monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Joining]:
    """A pool with a limit of 16 MiB, and its device."""
    driver = Joining()
    monkeypatch.setattr(Pool, "bound", staticmethod(lambda _: 16 * MIB))
    return Pool(driver), driver  # type: ignore[arg-type]


def test_parts_of_a_block_are_one_again(joining):
    pool, driver = joining
    whole = pool.take(16 * MIB)
    pool.give(whole, 16 * MIB)
    rooms = [4096, 5 * MIB, 3 * 4096, 2 * MIB]
    parts = [(pool.take(room), room) for room in rooms]
    assert sorted(at - whole for at, _ in parts) == [0, 4096, 4096 + 5 * MIB, 4 * 4096 + 5 * MIB]
    pool.give_all(parts)
    assert pool.take(16 * MIB) == whole
    assert not driver.joined and not driver.freed and pool.held == pool.live == 16 * MIB


def test_a_block_is_cut_from_the_smallest_run(joining):
    pool, driver = joining
    taken = [(pool.take(room), room) for room in (8 * MIB, 3 * MIB, 2 * MIB, 3 * MIB)]
    large, small = taken[0][0], taken[2][0]
    pool.give_all(taken)
    assert pool.take(MIB) == small
    assert pool.take(7 * MIB) == large
    assert not driver.joined and pool.held == 16 * MIB


def test_runs_are_joined_where_none_suffices(joining):
    pool, driver = joining
    pool.take(5 * MIB)
    taken = [(pool.take(room), room) for room in (5 * MIB, 6 * MIB)]
    second = taken[0][0]
    pool.give_all(taken)
    pool.take(8 * MIB)
    assert driver.joined == [[6 * MIB, 2 * MIB]]
    assert pool.take(3 * MIB) == second + 2 * MIB
    assert pool.held == pool.live == 16 * MIB


def test_a_small_request_takes_few_pages_of_the_smallest_run(joining):
    pool, driver = joining
    taken = [(pool.take(room), room) for room in (12 * MIB, 4 * MIB)]
    large = taken[0][0]
    pool.give_all(taken)
    pool.take(64)
    assert driver.freed == [1 << 16] and not driver.joined
    assert pool.take(12 * MIB) == large


# ---- steps ----


class Model(nn.Module):
    """Many small parameters, and a last layer whose results are large."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(64) for _ in range(4)])
        self.layers = nn.ModuleList([nn.Linear(64, 64) for _ in range(4)])
        self.last = nn.Linear(64, 2048)

    def forward(self, x: rl.Tensor) -> rl.Tensor:
        for norm, layer in zip(self.norms, self.layers, strict=True):
            x = x + F.gelu(layer(norm(x)))
        return self.last(x)


def trained(device: str) -> tuple[Callable[[], None], Model]:
    rl.manual_seed(0)
    model = Model().to(device)
    optimizer = rl.optim.SGD(model.parameters(), lr=0.1)
    x, y = rl.randn(256, 64, device=device), rl.randint(0, 2048, (256,)).to(device)

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()

    return step, model


@pytest.mark.parametrize("share", [100, 75])
@pytest.mark.parametrize("name", ["webgpu", "cuda"])
def test_equal_steps_exchange_no_small_blocks(name, share, require_device, monkeypatch):
    pool = resolve_pool(require_device(name))
    step, model = trained(name)
    step()
    for parameter in model.parameters():
        parameter.grad = None
    memory.empty_cache(name)
    memory.reset_peak(name)
    base = memory.allocated(name)
    for _ in range(8):
        step()
    peak, want = memory.peak(name) - base, bits(*model.parameters())
    del step, model
    step, model = trained(name)
    step()
    for parameter in model.parameters():
        parameter.grad = None
    memory.empty_cache(name)
    exchanged: Counter[int] = Counter()
    alloc = pool.device.alloc

    def counting(nbytes: int) -> int:
        exchanged[nbytes] += 1
        return alloc(nbytes)

    limit = memory.allocated(name) + peak * share // 100
    with memory.budget(limit, name):
        for _ in range(7):
            step()
            assert pool.held <= limit
        monkeypatch.setattr(pool.device, "alloc", counting)
        step()
    monkeypatch.undo()
    assert bits(*model.parameters()) == want
    assert not [room for room in exchanged if room <= 4096], exchanged


@pytest.mark.parametrize("more", [0, 3000])
def test_sizes_that_blocks_once_had_cost_no_calls(limited, more):
    """A program with texts of many lengths has had thousands; each counts for no call."""
    pool, driver = limited(100 * MIB, 64 * MIB, 20 * MIB, 16 * MIB)
    for room in range(MIB, MIB + more):
        pool.blocks(room)
    with Interrupting(1_000_000) as counting:
        pool.take(15 * MIB)
    assert driver.freed == [64 * MIB]
    assert 1_000_000 - counting.at < 60
