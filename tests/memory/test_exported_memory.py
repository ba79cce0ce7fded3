"""Memory that NumPy or another library sees lives as long as they do."""

import gc

import numpy as np
import pytest

import rushlight as rl
from rushlight.devices.shared.registry import pool_of

SEE = [lambda t: t.numpy(), lambda t: np.from_dlpack(t), lambda t: rl.from_dlpack(t).numpy()]
MOVE = [
    lambda t: t.resize_(10_000),
    lambda t: t.untyped_storage().resize_(40_000),
    lambda t: t.untyped_storage().resize_(0),
]


@pytest.mark.parametrize("move", MOVE)
@pytest.mark.parametrize("see", SEE)
def test_memory_that_is_seen_is_not_moved(see, move):
    t = rl.arange(6.0)
    seen = see(t)
    with pytest.raises(rl.RushlightError, match="resize_"):
        move(t)
    seen[0] = 7.0
    assert t.tolist() == [7.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    del seen
    gc.collect()
    move(t)


def test_memory_that_is_seen_is_resized_inside_its_block():
    t = rl.arange(6.0)
    seen = t.numpy()
    assert t.resize_(2, 2).tolist() == [[0.0, 1.0], [2.0, 3.0]]
    seen[3] = 9.0
    assert t[1, 1] == 9.0


def test_storages_say_whether_they_can_be_resized():
    t = rl.zeros(4)
    assert t.untyped_storage().resizable()
    seen = t.numpy()
    assert not t.untyped_storage().resizable()
    del seen
    assert t.untyped_storage().resizable()


@pytest.mark.parametrize("see", SEE)
def test_shared_memory_leaves_the_seen_block_behind(see):
    pool = pool_of("cpu")
    t = rl.arange(6.0)
    before = pool.live, pool.held - sum(room * len(blocks) for room, blocks in pool.free.items())
    seen = see(t)
    t.share_memory_()
    others = [rl.full((6,), -1.0) for _ in range(8)]  # would get the block, if it were free
    assert seen.tolist() == t.tolist() == list(range(6))
    seen[0] = 7.0
    assert t[0] == 0 and all((other == -1).all() for other in others)
    del seen, others
    gc.collect()
    assert (
        pool.live,
        pool.held - sum(room * len(blocks) for room, blocks in pool.free.items()),
    ) == before


def test_shared_memory_leaves_an_array_s_own_memory_behind():
    t = rl.from_numpy(np.arange(100_000.0))
    seen = t.numpy()
    t.share_memory_()
    gc.collect()
    others = [np.full(100_000, -1.0) for _ in range(8)]
    assert seen[99_999] == 99_999 and len(others) == 8


def test_writes_to_memory_that_was_given_back_say_so():
    t, other = rl.ones(40), rl.ones(40)
    t.add_(1)  # the write is cached from here on
    t.copy_(other)
    t.untyped_storage().resize_(0)
    for write in (
        lambda: t.add_(1),
        lambda: t.copy_(other),
        lambda: other.add_(t),
        lambda: t.fill_(0.0),
    ):
        with pytest.raises(rl.RushlightError, match="resized to 0 bytes"):
            write()
