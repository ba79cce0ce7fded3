"""Offload beside the kernels, on a driver that runs streams in a random order."""

from __future__ import annotations

import functools
import gc
from collections.abc import Iterator

import numpy as np
import pytest

import rushlight as rl
from rushlight import interop, memory
from rushlight.autograd import graph
from rushlight.core import cache
from rushlight.devices.shared import registry
from rushlight.devices.shared.allocator import Pool
from rushlight.tape.memory import offload
from rushlight.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)
from tests.devices.driver_of_streams import CardOfStreams
from tests.memory.training_step import Model, bits


@pytest.fixture(params=range(2))
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
    assert memory.offloaded()["held"] == 0


def waits(card: CardOfStreams, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the driver's functions by which the host waits, as they are called."""
    found: list[str] = []
    for name in ("eventSynchronize", "streamSynchronize", "deviceSynchronize"):
        monkeypatch.setattr(card.runtime, name, lambda *args, name=name: found.append(name))
    return found


def peak_of(model: Model) -> tuple[int, list]:
    base = memory.allocated("cuda")
    memory.reset_peak("cuda")
    want = [model.step() for _ in range(6)]
    return memory.peak("cuda") - base, want


@pytest.mark.parametrize("mode", [True, "auto"])
@pytest.mark.parametrize("share", [50])
def test_training_steps_have_the_same_bits(card: CardOfStreams, mode: bool | str, share: int):
    peak, want = peak_of(Model("cuda"))
    model = Model("cuda")
    memory.empty_cache("cuda")
    limit = memory.allocated("cuda") + peak * share // 100
    before = memory.offloaded()["out"]
    with memory.budget(limit, device="cuda", offload=mode):
        got = [model.step() for _ in range(6)]
        assert registry.pool_of("cuda").held <= limit
    assert got == want
    if mode is True:
        assert memory.offloaded()["out"] > before
        assert any(line.startswith("copy 1 on") for line in card.runtime.log)


def test_the_host_waits_for_no_copy(card: CardOfStreams, monkeypatch: pytest.MonkeyPatch):
    x = rl.tensor(np.arange(1 << 14, dtype=np.float32), device="cuda")
    found = waits(card, monkeypatch)
    pool = registry.pool_of("cuda")
    with memory.budget(pool.live + 5 * 4 * x.numel(), device="cuda", offload=True):
        kept = [x * float(k) for k in range(12)]
        total = kept[0]
        for value in reversed(kept):
            total = total + value
    assert not found
    assert memory.offloaded()["back"] > 0
    monkeypatch.undo()
    want = x.cpu().numpy() * sum(range(12))
    assert np.array_equal(total.cpu().numpy(), want)


def test_values_come_back_before_they_are_needed(card: CardOfStreams):
    x = rl.tensor(np.arange(1 << 14, dtype=np.float32), device="cuda")
    pool = registry.pool_of("cuda")
    size = 4 * x.numel()
    with memory.budget(pool.live + 6 * size, device="cuda", offload=True):
        kept = [x * float(k) for k in range(12)]
        total = float((kept[3] + 0.0).sum())
        ahead = [ref().copy.ahead for ref in offload._LEFT[pool] if offload._is_left(ref())]
        del kept[6:]
        again = float((kept[2] + 0.0).sum())
        assert any(found is not None for found in ahead) or pool.held + size > pool.limit
    base = float(np.arange(1 << 14, dtype=np.float64).sum())
    assert np.allclose([total, again], [3 * base, 2 * base])


def residual(x: rl.Tensor, y: rl.Tensor) -> rl.Tensor:
    """Residual blocks whose skip is read after more calls than stay."""
    for _ in range(6):
        h = x
        for _ in range(6):
            h = (h * y).tanh()
        x = x + h
    return x


def test_a_selective_checkpoint_brings_nothing_ahead_in_its_forward_pass(card: CardOfStreams):
    x, y = (rl.rand(64, 64, device="cuda", requires_grad=True) for _ in range(2))
    chosen = functools.partial(
        create_selective_checkpoint_contexts, lambda *_: CheckpointPolicy.MUST_CPU_OFFLOAD
    )
    want = rl.autograd.grad(residual(x, y).sum(), [x, y])
    back = memory.offloaded()["back"]
    memory.reset_peak("cuda")
    before = memory.allocated("cuda")
    z = checkpoint(residual, x, y, context_fn=chosen)
    assert memory.peak("cuda") - before <= 6 * x.nbytes  # of 78 results: RECENT, made, read
    assert memory.offloaded()["back"] - back == 5 * x.nbytes  # the skips
    assert memory.allocated("cuda") - before == z.nbytes
    got = rl.autograd.grad(z.sum(), [x, y])
    assert all(rl.equal(a, b) for a, b in zip(got, want, strict=True))


def test_a_value_that_ends_while_it_comes_back(card: CardOfStreams):
    """Its block is reused by kernels, which wait for the copy."""
    numbers = np.arange(1 << 12, dtype=np.float32)
    x = rl.tensor(numbers, device="cuda")
    pool = registry.pool_of("cuda")
    with memory.budget(pool.live + 7 * 4 * x.numel(), device="cuda", offload=True):
        kept = [x * float(k) for k in range(12)]
        del kept[8:]
        first = kept[3] + 0.0
        left = [ref() for ref in offload._LEFT[pool] if offload._is_left(ref())]
        if all(storage.copy.ahead is None for storage in left):  # there was no room for one
            left[0].copy.begin_back(pool)
        assert any(storage.copy.ahead is not None for storage in left)
        del left, first
        kept.clear()
        made = [x + float(k) for k in range(4)]
        got = [value.cpu().numpy() for value in made]
    for k, value in enumerate(got):
        assert np.array_equal(value, numbers + k)


def test_saved_tensors_in_pinned_memory(card: CardOfStreams, monkeypatch: pytest.MonkeyPatch):
    def gradient(pinned: bool | None) -> list:
        w = rl.tensor(np.ones((64, 64), np.float32), device="cuda", requires_grad=True)
        x = w
        if pinned is None:
            for _ in range(4):
                x = (x * w).tanh()
        else:
            with graph.save_on_cpu(pin_memory=pinned):
                for _ in range(4):
                    x = (x * w).tanh()
        x.sum().backward()
        return bits(w.grad)

    want = gradient(None)
    assert gradient(False) == want
    count = len(card.runtime.log)
    assert gradient(True) == want
    assert any(line.startswith("copy 2 on") for line in card.runtime.log[count:])
