"""Streams, events and pinned memory on a GPU. What they must order is in `test_streams.py`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import rushlight as rl
from rushlight import memory
from rushlight.autograd import graph
from rushlight.devices.shared.registry import pool_of
from tests.memory.training_step import Model, bits

COUNT = 1 << 22


@pytest.fixture(autouse=True)
def cuda(require_device: Callable[[str], str]) -> str:
    return require_device("cuda")


def sent(k: int) -> rl.Tensor:
    return (rl.arange(COUNT, dtype=rl.float32) + k).pin_memory()


def test_pinned_memory_is_pinned():
    x = sent(0)
    assert x.is_pinned()
    runtime = pool_of("cuda").device.runtime
    assert runtime.pointerGetAttributes(x.data_ptr()).type == 1  # cudaMemoryTypeHost
    assert np.array_equal(x.cuda(non_blocking=True).cpu().numpy(), x.numpy())


def test_batches_that_a_side_stream_brings_while_kernels_run():
    side = rl.cuda.Stream()
    batches, following, got = [sent(k) for k in range(6)], None, []
    work = rl.ones(4096, 4096, device="cuda")
    for k in range(7):
        rl.cuda.current_stream().wait_stream(side)
        here = following
        if k < 6:
            with rl.cuda.stream(side):
                following = batches[k].to("cuda", non_blocking=True)
        for _ in range(4):
            work = (work @ work) * 1e-4
        if here is not None:
            here.record_stream(rl.cuda.current_stream())
            got.append((here[-1], here[:8].clone()))
    for k, (last, first) in enumerate(got):
        assert float(last) == np.float32(COUNT - 1 + k)
        assert np.array_equal(first.cpu().numpy(), np.arange(8, dtype=np.float32) + k)


def test_kernels_in_the_block_of_a_stream_follow_its_copies():
    side = rl.cuda.Stream()
    weight = rl.eye(2048, device="cuda")
    for k in range(4):
        x = sent(k)
        with rl.cuda.stream(side):
            y = x.cuda(non_blocking=True).view(2048, 2048) @ weight  # a library's kernel first
        rl.cuda.current_stream().wait_stream(side)
        assert np.array_equal(y.cpu().numpy().reshape(-1), x.numpy())
        with rl.cuda.stream(side):
            z = x.cuda(non_blocking=True) * 2
        side.synchronize()
        assert np.array_equal(z.cpu().numpy(), 2 * x.numpy())


def test_copies_overlap_with_kernels():
    """A kernel after a copy ends before it: in one queue it never could.

    Other programs on the card may delay it.
    """
    x, side = rl.ones(1 << 26).pin_memory(), rl.cuda.Stream()
    small = rl.ones(8, device="cuda")

    def overlaps() -> bool:
        ended, launched = (rl.cuda.Event(enable_timing=True) for _ in range(2))
        with rl.cuda.stream(side):
            y = x.to("cuda", non_blocking=True)
            ended.record()
        small + small
        launched.record()
        rl.cuda.synchronize()
        assert float(y[-1]) == 1
        return launched.elapsed_time(ended) > 0

    assert any(overlaps() for _ in range(50))


def test_copies_to_pinned_memory():
    side, made = rl.cuda.Stream(), rl.ones(COUNT, device="cuda")
    targets = [rl.empty(COUNT).pin_memory() for _ in range(4)]
    for k, target in enumerate(targets):
        value = made * float(k)
        with rl.cuda.stream(side):
            target.copy_(value, non_blocking=True)
        del value
        rl.full((COUNT,), -1.0, device="cuda")
    side.synchronize()
    assert all((target.numpy() == k).all() for k, target in enumerate(targets))


@pytest.mark.parametrize("mode", [True, "auto"])
def test_offloaded_steps_have_the_same_bits(mode: bool | str):
    model = Model("cuda")
    base = memory.allocated("cuda")
    memory.reset_peak("cuda")
    want = [model.step() for _ in range(6)]
    limit = base + (memory.peak("cuda") - base) * 5 // 10
    model = Model("cuda")
    memory.empty_cache("cuda")
    with memory.budget(limit, device="cuda", offload=mode):
        assert [model.step() for _ in range(6)] == want


def test_saved_tensors_in_pinned_memory():
    def gradient(pinned: bool) -> list:
        w = rl.tensor(np.linspace(0, 1, 1 << 20, dtype=np.float32), device="cuda")
        w.requires_grad_()
        x = w
        with graph.save_on_cpu(pin_memory=pinned):
            for _ in range(6):
                x = (x * w).tanh()
        x.sum().backward()
        return bits(w.grad)

    assert gradient(True) == gradient(False)


def test_the_driver_holds_little_more_than_the_budget():
    device = pool_of("cuda").device
    memory.empty_cache("cuda")
    rl.cuda.synchronize()
    model = Model("cuda")
    base = memory.allocated("cuda")
    memory.reset_peak("cuda")
    model.step()
    limit = base + (memory.peak("cuda") - base) * 6 // 10
    memory.empty_cache("cuda")
    with memory.budget(limit, device="cuda"):
        for _ in range(3):
            model.step()
        rl.cuda.synchronize()
        assert device.memory.given <= limit
        assert device.memory.reserved() <= limit * 8 // 7 + (64 << 20)
