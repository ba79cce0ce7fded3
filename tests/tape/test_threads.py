"""Several user threads: each gets the bits it gets alone, its own errors, and exact counts."""

from __future__ import annotations

import contextvars
import gc
import os
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import rushlight as rl
from rushlight import memory, nn
from rushlight.core.errors import BoundsError, BudgetError
from rushlight.devices.cuda import gemm
from rushlight.devices.shared.registry import pool_of, reopen
from rushlight.tape.memory import region, replay
from rushlight.utils.checkpoint import checkpoint
from rushlight.utils.data import DataLoader, TensorDataset
from tests.time_limit import WAIT, time_limit as time_limit


@pytest.fixture(autouse=True)
def restless() -> Iterator[None]:
    """Threads switch as often as the interpreter can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def at_once(*jobs: Callable[[], Any]) -> list[Any]:
    """The jobs' results, each run in a thread, all starting together."""
    start = threading.Barrier(len(jobs))

    def run(job: Callable[[], Any]) -> Any:
        start.wait(WAIT)
        return job()

    with ThreadPoolExecutor(len(jobs)) as pool:
        return [f.result(WAIT) for f in [pool.submit(run, job) for job in jobs]]


def settled(device: str = "cpu") -> int:
    gc.collect()
    return memory.allocated(device)


# ---- counts ----


@pytest.mark.parametrize("device", ["cpu", "webgpu"])
def test_counted_bytes_are_exact(device, require_device):
    require_device(device)
    x = rl.ones(50, device=device, requires_grad=True)
    y = rl.ones(50, device=device)
    before = settled(device)

    def work() -> None:
        for i in range(30 if device == "webgpu" else 100):
            h = x
            for _ in range(5):
                h = (h * y + y).sin() * 2.0
            a, b = h.split(25)
            total = rl.stack([a, b]).sum()
            if i % 3 == 0:
                rl.autograd.grad(total, x)
            del h, a, b, total

    at_once(*[work] * 4)
    assert settled(device) == before
    pool = pool_of(device)
    cached = sum(room * len(blocks) for room, blocks in pool.free.items())
    assert pool.held == pool.live + cached


def test_a_size_has_one_list_of_blocks():
    pool = pool_of("cpu")
    rooms = [(1 << 40) + 64 * i for i in range(300)]
    for found in zip(*at_once(*[lambda: [pool.blocks(room) for room in rooms]] * 4), strict=True):
        assert all(blocks is found[0] for blocks in found)
    for room in rooms:
        del pool.free[room]


def test_specs_are_one_object_each():
    def make() -> list[Any]:
        return [rl.empty(1, n, 1, 3)._spec for n in range(300)]

    for found in zip(*at_once(*[make] * 4), strict=True):
        assert all(spec is found[0] for spec in found)


def test_a_device_is_opened_once():
    for _ in range(5):
        reopen("null")
        found = at_once(*[lambda: pool_of("null")] * 6)
        assert all(pool is found[0] for pool in found)


# ---- budgets ----


def test_threads_do_not_cross_the_limit_together():
    pool = pool_of("cpu")
    settled()
    memory.empty_cache()
    limit = pool.held + 20 * 4096
    most, failed = [], []
    turn = threading.Barrier(4)

    def work() -> None:
        for _ in range(40):
            turn.wait(WAIT)
            kept = []
            for _ in range(8):
                try:
                    kept.append(rl.empty(1024))
                except BudgetError:
                    failed.append(1)
                most.append(pool.held)
            turn.wait(WAIT)
            del kept
            memory.empty_cache()

    def inside() -> None:
        with memory.budget(limit):
            work()

    at_once(*[inside] * 4)
    assert max(most) <= limit and failed
    assert pool.limit is None


def test_a_thread_is_not_refused_for_the_budget_of_another():
    """Its memory counts in the other's budget, which is refused if it is too much."""
    pool = pool_of("cpu")
    settled()
    memory.empty_cache()
    with memory.budget(pool.held + (1 << 20)):
        assert at_once(lambda: pool.limit) == [None]
        (kept,) = at_once(lambda: rl.ones(1 << 19))
        with pytest.raises(BudgetError):
            rl.ones(1 << 10)
        del kept
        assert rl.ones(1 << 10).sum().item() == 1024.0


def test_a_budget_of_another_thread_may_end_while_a_derivative_runs():
    """It begins another record: Note [Foresight]."""

    def other() -> None:
        with pytest.raises(KeyError), memory.budget(1 << 30):
            raise KeyError

    class Doubled(rl.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: rl.Tensor) -> rl.Tensor:
            return x * 2.0

        @staticmethod
        def backward(ctx: Any, g: rl.Tensor) -> rl.Tensor:
            thread = threading.Thread(target=other)
            thread.start()
            thread.join()
            return g * 2.0

    x = rl.ones(64, 64, requires_grad=True)
    with memory.budget(1 << 30):
        Doubled.apply(x * 3.0).sum().backward()
    assert x.grad.unique().tolist() == [6.0]


def test_budgets_of_threads_end_in_any_order():
    pool = pool_of("cpu")
    base = settled() + (1 << 24)
    both, first_left = threading.Barrier(2), threading.Event()
    seen = []

    def first() -> None:
        with memory.budget(base):
            both.wait(WAIT)
            both.wait(WAIT)
        first_left.set()

    def second() -> None:
        both.wait(WAIT)
        with memory.budget(base * 2):
            seen.append(pool.limit)
            both.wait(WAIT)
            first_left.wait(WAIT)
            seen.append(pool.limit)

    at_once(first, second)
    assert seen == [base * 2, base * 2]  # each its own
    assert pool.limit is None


def test_what_is_read_is_not_dropped():
    """A droppable value has no address to read.

    a value read outside of regions is not droppable.
    """
    pool, source = pool_of("cpu"), rl.arange(float(1 << 14))
    with memory.budget(1 << 30):
        read, other = source * 2.0, source * 3.0
        assert read._memory.address is None and read._memory.present_address is not None
        with replay.Pins([read._memory]):
            assert region.reclaim(pool, 1 << 40)
            assert (
                read._memory.present_address is not None and other._memory.present_address is None
            )
        assert region.reclaim(pool, 1 << 40) and read._memory.present_address is None
        assert at_once(lambda: (other + 1.0).tolist()[5]) == [16.0]
        assert at_once(lambda: region.reclaim(pool, 1 << 40)) == [False]
        assert other._memory.address is not None and read._memory.present_address is None
    assert (read + 1.0).tolist()[5] == 11.0
    assert read._memory.address is not None and not region.reclaim(pool, 1 << 40)


# ---- gradients ----


def test_gradients_of_shared_leaves_add_up():
    size = 1 << 17  # launches of this size release the GIL
    w = rl.zeros(size, requires_grad=True)
    scale = rl.full((size,), 2.0)

    def work() -> None:
        for _ in range(10):
            (w * scale).sum().backward()
            (w + scale).sum().backward()

    for _ in range(3):
        w.grad = None
        at_once(*[work] * 4)
        assert w.grad.unique().tolist() == [4 * 10 * 3.0]


def test_one_retained_graph_in_several_threads():
    class Cube(rl.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * x * x

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_tensors
            time.sleep(0)
            return g * x * ctx.saved_tensors[0] * 3.0

    x = rl.tensor([1.0, 2.0], requires_grad=True)
    root = (
        Cube.apply(x).sin() + checkpoint(lambda v: (v * v).exp().sin(), x, use_reentrant=False)
    ).sum()
    (alone,) = rl.autograd.grad(root, x, retain_graph=True)

    def work() -> list[list[float]]:
        return [rl.autograd.grad(root, x, retain_graph=True)[0].tolist() for _ in range(30)]

    assert all(found == alone.tolist() for part in at_once(*[work] * 4) for found in part)


def test_backward_by_workers_in_several_threads():
    def work(seed: int) -> list[float]:
        draw = np.random.default_rng(seed)
        x = rl.tensor(draw.standard_normal(20).astype(np.float32), requires_grad=True)
        for _ in range(10):
            rl.stack([(x * float(i)).sin() * x for i in range(6)]).sum().backward(workers=3)
        return x.grad.tolist()

    alone = [work(seed) for seed in range(4)]
    assert at_once(*[lambda seed=seed: work(seed) for seed in range(4)]) == alone


# ---- errors and randomness ----


def test_a_bad_index_is_told_to_its_own_thread():
    table = rl.arange(100000.0)
    good, bad = rl.zeros(100000, dtype=rl.int64), rl.full((100000,), 100000, dtype=rl.int64)

    def careful() -> int:
        return sum(rl.gather(table, 0, good).shape[0] for _ in range(60))

    def careless() -> int:
        errors = 0
        for _ in range(60):
            try:
                rl.gather(table, 0, bad)
            except BoundsError:
                errors += 1
        return errors

    assert at_once(careful, careless, careful) == [60 * 100000, 60, 60 * 100000]


def test_threads_draw_different_numbers():
    rl.manual_seed(5)

    def work() -> list[bytes]:
        return [rl.rand(4).numpy().tobytes() for _ in range(200)]

    drawn = [row for part in at_once(*[work] * 4) for row in part]
    assert len(set(drawn)) == len(drawn)
    rl.manual_seed(5)
    assert {rl.rand(4).numpy().tobytes() for _ in range(800)} == set(drawn)


def test_a_draw_that_fails_draws_nothing():
    rl.manual_seed(3)
    with memory.budget(memory.allocated() + 4096), pytest.raises(BudgetError):
        rl.rand(1 << 22)
    after = rl.rand(3).tolist()
    rl.manual_seed(3)
    assert rl.rand(3).tolist() == after


@pytest.mark.skipif(not hasattr(os, "fork"), reason="limit: this system does not fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_does_not_wait_for_who_is_not_there():
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with replay.LOCK:
            held.set()
            done.wait(WAIT)

    holding = threading.Thread(target=hold)
    holding.start()
    held.wait(WAIT)
    child = os.fork()
    if not child:
        signal.alarm(WAIT)
        with memory.budget(1 << 30):
            x = rl.ones(5, requires_grad=True)
            (x * 2).sum().backward()
        os._exit(0 if x.grad.tolist() == [2.0] * 5 else 1)
    _, status = os.waitpid(child, 0)
    done.set()
    holding.join()
    assert status == 0


def test_each_thread_binds_the_context_once_for_cublas():
    cublas = object.__new__(gemm.Cublas)
    bound: list[int] = []
    cublas.local, cublas.bind = threading.local(), lambda: bound.append(threading.get_ident())
    cublas.several = False  # with more cards it is bound at each use

    def use() -> int:
        cublas.use_here()
        cublas.use_here()
        return threading.get_ident()

    assert sorted(at_once(use, use, use)) == sorted(bound) and len(bound) == 3


# ---- stress ----


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(12, 32)
        self.norm = nn.LayerNorm(32)
        self.second = nn.Linear(32, 32)
        self.last = nn.Linear(32, 5)

    def forward(self, x: Any, shared: Any, again: bool) -> Any:
        h = self.norm(self.first(x)).relu()
        block = lambda v: nn.functional.gelu(self.second(v)) + v @ shared  # noqa: E731
        h = checkpoint(block, h, use_reentrant=False) if again else block(h)
        return self.last(h)


def trained(seed: int, kind: str, shared: rl.Tensor, device: str, steps: int) -> bytes:
    """The weights after a few steps of training in one thread."""
    draw = np.random.default_rng(seed)
    model = Net()
    with rl.no_grad():
        for p in model.parameters():
            p.copy_(rl.tensor(draw.standard_normal(tuple(p.shape)).astype(np.float32) * 0.2))
    model.to(device)
    data = rl.tensor(draw.standard_normal((8 * steps, 12)).astype(np.float32))
    labels = rl.tensor(draw.integers(0, 5, 8 * steps))
    optimiser = rl.optim.Adam(model.parameters(), lr=0.01)
    for step, (x, y) in enumerate(DataLoader(TensorDataset(data, labels), batch_size=8)):
        x, y = x.to(device), y.to(device)
        optimiser.zero_grad()
        loss = nn.functional.cross_entropy(model(x, shared, kind != "plain"), y)
        loss.backward(workers=2 if kind == "workers" else 1)
        optimiser.step()
        if kind == "errors" and step % 2:
            with pytest.raises(rl.ShapeError):
                model.first(x.t())
            broken = model(x, shared, True)
            broken.register_hook(lambda g: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                broken.sum().backward(inputs=[shared])
        with rl.no_grad():
            model.last.bias.mul_(0.99)
            model.second.weight[0] += 0.001
    return b"".join(p.detach().numpy().tobytes() for p in model.parameters())


KINDS = ("plain", "checkpoint", "budget", "workers", "errors", "plain")


def stress(device: str, steps: int) -> None:
    shared = rl.tensor(np.eye(32, dtype=np.float32)[::-1].copy(), device=device, requires_grad=True)

    def job(number: int) -> bytes:
        kind = KINDS[number]
        if kind == "budget":
            with memory.budget(1 << 28, device):
                return trained(number, kind, shared, device, steps)
        return trained(number, kind, shared, device, steps)

    alone = [job(i) for i in range(len(KINDS))]
    shared.grad = None
    before = settled(device)
    found = at_once(*[lambda i=i: job(i) for i in range(len(KINDS))])
    shared.grad = None
    assert [a == b for a, b in zip(found, alone, strict=True)] == [True] * len(KINDS)
    assert settled(device) == before
    assert pool_of(device).limit is None


@pytest.mark.parametrize("device", ["cpu", "webgpu"])
def test_threads_that_train(device, require_device):
    stress(require_device(device), 4)


@pytest.mark.slow
@pytest.mark.parametrize("device", ["cpu", "webgpu"])
def test_threads_that_train_longer(device, require_device):
    for _ in range(5):
        stress(require_device(device), 25)


@pytest.mark.parametrize("device", ["cpu", "webgpu"])
def test_tight_budgets_in_threads(device, require_device):
    """Every thread's values may be dropped for another's; all are rebuilt with their bits."""
    require_device(device)
    draw = np.random.default_rng(0)
    inputs = [
        rl.tensor(draw.standard_normal((64, 64)).astype(np.float32), device=device)
        for _ in range(4)
    ]

    def job(x: rl.Tensor) -> list[float]:
        w = x.detach().clone().requires_grad_()
        h = x
        for _ in range(12):
            h = (h @ w * 0.1).tanh() + x
        h.sum().backward()
        return [float(w.grad.sum()), float(h.detach().abs().sum())]

    alone = [job(x) for x in inputs]
    settled(device)
    memory.empty_cache(device)
    limit = memory.reserved(device) + 4 * 30 * 16384
    before = settled(device)
    with memory.budget(limit, device):
        contexts = [contextvars.copy_context() for _ in inputs]
        jobs = [lambda c=c, x=x: c.run(job, x) for c, x in zip(contexts, inputs, strict=True)]
        assert at_once(*jobs) == alone
        assert memory.reserved(device) <= limit
    del contexts, jobs
    assert settled(device) == before


def test_a_storage_that_ends_has_no_block_for_others():
    """Weak references live until `__del__` ends: another thread may reach the storage meanwhile."""
    seen = []

    class Blocks(list):
        def append(self, address):
            found = reference()
            seen.append(None if found is None else (found.present_address, found.recipe))
            blocks.append(address)

    source = rl.ones(1 << 12)
    with memory.budget(1 << 30):
        storage = (source * 2.0)._memory
        assert storage.recipe is not None
        reference, blocks = weakref.ref(storage), storage.blocks
        storage.blocks = Blocks()
        del storage
    assert seen == [(None, None)]
