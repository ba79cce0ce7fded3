"""Streams, events, pinned memory and copies beside the kernels, on a driver made of host memory.

The driver runs the acts of different streams in a random order, as far as waits allow.
"""

from __future__ import annotations

import ctypes
import gc
import threading
from collections.abc import Iterator

import numpy as np
import pytest

import rushlight as rl
from rushlight import interop
from rushlight.core import cache
from rushlight.devices.shared import registry
from rushlight.devices.shared.allocator import Pool
from rushlight.devices.shared.registry import pool_of
from rushlight.utils.data import DataLoader, TensorDataset
from tests.devices.driver_of_streams import CardOfStreams

COUNT = 1000


@pytest.fixture(params=range(6))
def card(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[CardOfStreams]:
    made = CardOfStreams(seed=request.param)
    cache.forget()  # plans of a card before
    monkeypatch.setitem(registry._POOLS, "cuda", Pool(made))
    monkeypatch.setattr(interop, "_COPIERS", {})
    yield made
    made.runtime.run_all()
    cache.forget()
    gc.collect()


def numbers(k: int) -> rl.Tensor:
    return rl.arange(COUNT, dtype=rl.float32) + k


def same(x: rl.Tensor, k: float) -> bool:
    return np.array_equal(x.cpu().numpy(), np.arange(COUNT, dtype=np.float32) + k)


def test_pinned_memory_is_counted_and_kept_for_reuse(card: CardOfStreams):
    host = pool_of("cpu")
    before = host.live, host.held
    x = numbers(1).pin_memory()
    assert x.is_pinned() and x.untyped_storage().is_pinned()
    assert x.pin_memory() is x
    assert same(x, 1) and same(x + 1, 2)
    gc.collect()
    assert host.live >= before[0] + 4 * COUNT
    del x
    gc.collect()
    assert numbers(2).pin_memory().is_pinned()
    assert sum("hostAlloc" in line for line in card.runtime.log) == 1


def test_what_is_not_on_the_host_is_not_pinned(card: CardOfStreams):
    with pytest.raises(rl.RushlightError, match="only tensors of the host"):
        numbers(1).to("cuda").pin_memory()


def test_a_copy_without_waiting_is_in_order_with_kernels(card: CardOfStreams):
    x = numbers(0).pin_memory()
    y = x.to("cuda", non_blocking=True)
    assert card.runtime.log[-1] == "copy 1 on 0"
    assert same(y + 5, 5)


def test_pinned_memory_is_not_reused_before_its_copy_ended(card: CardOfStreams):
    side = rl.cuda.Stream()
    sums = []
    for k in range(8):
        with rl.cuda.stream(side):
            sums.append((k, numbers(k).pin_memory().to("cuda", non_blocking=True)))
    rl.cuda.current_stream().wait_stream(side)
    assert all(same(x + 1, k + 1) for k, x in sums)


def test_batches_that_a_side_stream_brings(card: CardOfStreams):
    side = rl.cuda.Stream()
    sent = [numbers(k).pin_memory() for k in range(12)]
    following, got = None, []
    for k in range(13):
        rl.cuda.current_stream().wait_stream(side)
        here = following
        if k < 12:
            with rl.cuda.stream(side):
                following = sent[k].to("cuda", non_blocking=True)
        if here is not None:
            here.record_stream(rl.cuda.current_stream())
            got.append((here * 2).sum() + here.max())
    want = [2 * (np.arange(COUNT) + k).sum() + COUNT - 1 + k for k in range(12)]
    assert np.allclose([float(x) for x in got], want)
    pool = pool_of("cuda")
    assert pool.held >= pool.live
    del here, following, got
    gc.collect()
    rl.memory.empty_cache("cuda")
    assert pool.held == pool.live


def test_kernels_in_the_block_of_a_stream_follow_its_copies(card: CardOfStreams):
    side = rl.cuda.Stream()
    for k in range(6):
        x = numbers(k).pin_memory()
        with rl.cuda.stream(side):
            y = x.to("cuda", non_blocking=True) * 2
            y.sub_(1)
        rl.cuda.current_stream().wait_stream(side)
        assert np.array_equal(y.cpu().numpy(), 2 * (np.arange(COUNT, dtype=np.float32) + k) - 1)


def test_a_block_without_kernels_holds_no_kernel_back(card: CardOfStreams):
    side = rl.cuda.Stream()
    x = numbers(0).pin_memory()
    with rl.cuda.stream(side):
        x.to("cuda", non_blocking=True)
    before = len(card.runtime.streams[0])
    assert card.arrivals.word.value == 0
    y = rl.ones(3, device="cuda")
    waits = [kind for kind, _ in card.runtime.streams[0][before:] if kind == "wait"]
    assert not waits
    assert float(y.sum()) == 3


def test_events_of_a_side_stream_cover_the_kernels_of_its_block(card: CardOfStreams):
    side, event = rl.cuda.Stream(), rl.cuda.Event(enable_timing=True)
    first = rl.cuda.Event(enable_timing=True)
    first.record()
    x = numbers(1).pin_memory()
    with rl.cuda.stream(side):
        y = x.to("cuda", non_blocking=True) + 1
        event.record()
    event.synchronize()
    assert event.query()
    assert first.elapsed_time(event) >= 1.0
    assert not card.runtime.streams[0] or y is not None
    target = rl.empty(COUNT).pin_memory()
    with rl.cuda.stream(side):
        target.copy_(y, non_blocking=True)
    side.synchronize()
    assert np.array_equal(target.numpy(), np.arange(COUNT, dtype=np.float32) + 2)


def test_memory_that_a_copy_reads_is_not_reused_before_it_ended(card: CardOfStreams):
    side = rl.cuda.Stream()
    targets = [rl.empty(COUNT).pin_memory() for _ in range(8)]
    for k, target in enumerate(targets):
        made = numbers(k).to("cuda") + 1
        with rl.cuda.stream(side):
            target.copy_(made, non_blocking=True)
        del made
        rl.full((COUNT,), -1.0, device="cuda")
    side.synchronize()
    for k, target in enumerate(targets):
        assert np.array_equal(target.numpy(), np.arange(COUNT, dtype=np.float32) + k + 1)


def test_each_thread_has_its_current_stream(card: CardOfStreams):
    side, seen = rl.cuda.Stream(), []
    with rl.cuda.stream(side):
        assert rl.cuda.current_stream() == side
        worker = threading.Thread(target=lambda: seen.append(rl.cuda.current_stream()))
        worker.start()
        worker.join()
    assert seen == [rl.cuda.default_stream()]
    assert rl.cuda.current_stream() == rl.cuda.default_stream() != side


def test_two_streams_by_turns(card: CardOfStreams):
    one, two = rl.cuda.Stream(), rl.cuda.Stream()
    sent = [numbers(k).pin_memory() for k in range(6)]
    got = []
    for x in sent:
        with rl.cuda.stream(one):
            first = x.to("cuda", non_blocking=True)
            with rl.cuda.stream(two):
                second = x.to("cuda", non_blocking=True)
            got.append(first + 1)
        two.synchronize()
        got.append(second + 2)
    for k in range(6):
        assert same(got[2 * k], k + 1) and same(got[2 * k + 1], k + 2)


def test_a_stream_is_done_when_the_kernels_of_its_block_are(card: CardOfStreams):
    side = rl.cuda.Stream()
    for k in range(6):
        with rl.cuda.stream(side):
            y = rl.full((COUNT,), float(k), device="cuda")
        side.synchronize()
        assert ctypes.string_at(y.data_ptr(), 4) == np.float32(k).tobytes()


def test_a_loader_pins_its_batches(card: CardOfStreams):
    loader = DataLoader(TensorDataset(numbers(0), numbers(1)), batch_size=100, pin_memory=True)
    for x, y in loader:
        assert x.is_pinned() and y.is_pinned()
    nested = DataLoader([{"a": rl.ones(2), "b": [rl.ones(1), "word"]}] * 4, 2, pin_memory=True)
    (batch, _) = nested
    assert batch["a"].is_pinned() and batch["b"][0].is_pinned()
    assert batch["b"][1] == ["word", "word"]


def test_a_budget_of_the_host_counts_pinned_memory(card: CardOfStreams):
    room = 1 << 20
    with (
        rl.memory.budget(pool_of("cpu").live + room, device="cpu"),
        pytest.raises(rl.BudgetError),
    ):
        kept = [rl.empty(room // 4).pin_memory() for _ in range(4)]
        assert kept


def test_marks_outlive_what_the_collector_frees_with_them(card: CardOfStreams):
    """Pinned memory in a cycle ends before its copies: the cache asks their marks later."""
    runtime = card.runtime
    for k in range(4):
        x = numbers(k).pin_memory()
        y = x.to("cuda", non_blocking=True)
        cycle = [x]
        cycle.append(cycle)  # type: ignore[arg-type]
        del x, cycle
        gc.collect()
        assert numbers(9).pin_memory().is_pinned()
        assert same(y, k)
    del y
    assert numbers(9).pin_memory().is_pinned()
    assert set(runtime.events) == runtime.destroyed


def test_a_stream_outlives_what_the_collector_frees_with_it(card: CardOfStreams):
    class Late:
        def __init__(self, stream: rl.cuda.Stream) -> None:
            self.stream, self.me = stream, self

        def __del__(self) -> None:
            self.stream.synchronize()

    for _ in range(4):
        Late(rl.cuda.Stream())
        gc.collect()
    assert list(card.runtime.streams) == [0]
