"""Offload: dropped values go to host memory or to a file and come back with the same bits."""

from __future__ import annotations

import errno
import gc
import os
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest

import rushlight as rl
import rushlight.nn.functional as F
from rushlight import BudgetError, RushlightWarning, memory
from rushlight.devices.shared.registry import pool_of
from rushlight.tape.memory import offload
from tests.memory.test_budget_programs import program as random_program
from tests.memory.training_step import Model, bits

SIDE = 64  # a matrix is 16 KiB
MATRIX = SIDE * SIDE * 4
WAYS = [("cpu", "disk"), ("webgpu", True), ("webgpu", "auto"), ("webgpu", "disk")]

ways = pytest.mark.parametrize(("name", "mode"), WAYS)


pytestmark = pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts open files")


@pytest.fixture(autouse=True)
def nothing_is_left():
    before = _nameless_files()
    yield
    gc.collect()
    assert memory.offloaded()["held"] == 0
    assert _nameless_files() == before


def _nameless_files() -> set[str]:
    """The open files that have no name."""
    found = set()
    for number in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{number}")
        except OSError:  # that of the listing itself
            continue
        if target.endswith(" (deleted)"):
            found.add(target)
    return found


def drop_all(device: str) -> None:
    """Drop all that can be dropped here."""
    pool = pool_of(device)
    while pool.reclaim is not None and pool.reclaim(pool, 1 << 40):
        pass


def data(seed: int, side: int = SIDE) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((side, side), dtype=np.float32)


@ways
def test_a_training_step_has_the_same_bits(require_device, name, mode):
    device = require_device(name)
    model = Model(device)
    base = memory.allocated(device)
    memory.reset_peak(device)
    want = [model.step(), model.step()]
    limit = base + (memory.peak(device) - base) * 6 // 10
    model = Model(device)
    memory.empty_cache(device)
    out = memory.offloaded()["out"]
    with memory.budget(limit, device=device, offload=mode):
        got = [model.step(), model.step()]
    assert got == want
    if mode != "auto":  # which may find that rebuilding is cheaper
        assert memory.offloaded()["out"] > out


@ways
def test_values_without_a_recipe_fit_too(require_device, name, mode):
    device = require_device(name)

    def total() -> rl.Tensor:
        batches = [rl.tensor(data(i), device=device) for i in range(12)]
        return sum((x @ x.t()).sum() for x in batches)

    want = bits(total())
    memory.empty_cache(device)
    limit = memory.allocated(device) + 8 * MATRIX
    with pytest.raises(BudgetError), memory.budget(limit, device=device):
        total()
    memory.empty_cache(device)
    with memory.budget(limit, device=device, offload=mode):
        got = bits(total())
    assert got == want


@ways
def test_views_and_writes_after_an_offload(require_device, name, mode):
    device = require_device(name)

    def program(drop: bool) -> list[bytes | None]:
        x = rl.tensor(data(1), device=device)
        y = x * 2.0
        part = y[1:5, ::2]
        if drop:
            drop_all(device)
        part += 1.0  # a version of y, from the bits that were copied out
        x[3] = 7.0  # of x itself, after which y is not made from x
        if drop:
            drop_all(device)
        x.mul_(0.5)
        z = x.t()[2:] @ y
        if drop:
            drop_all(device)
        return bits(x, y, part, z, x.t(), z[1])

    want = program(drop=False)
    with memory.budget("1GiB", device=device, offload=mode):
        assert program(drop=True) == want


@pytest.mark.parametrize("block", range(3))
def test_random_programs_have_the_same_bits(block):
    for seed in range(block * 12, block * 12 + 12):
        want = random_program(seed, disturb=False)
        with memory.budget("1GiB", offload="disk"):
            assert random_program(seed, disturb=True) == want, seed


def test_a_write_makes_the_copy_invalid():
    with memory.budget("1GiB", offload="disk"):
        x = rl.tensor(data(2))
        drop_all("cpu")
        assert memory.offloaded()["held"] == MATRIX
        x.add_(1.0)
        assert memory.offloaded()["held"] == 0
        drop_all("cpu")
        assert bits(x) == [(data(2) + np.float32(1)).tobytes()]


def test_a_value_that_came_back_is_not_copied_out_again():
    with memory.budget("1GiB", offload="disk"):
        x = rl.tensor(data(3))
        drop_all("cpu")
        before = memory.offloaded()
        for _ in range(3):
            assert x.sum().isfinite()
            drop_all("cpu")
        after = memory.offloaded()
    assert after["out"] - before["out"] < MATRIX
    assert after["back"] - before["back"] == 3 * MATRIX


def test_more_writes_in_place_than_have_recipes():
    def program() -> rl.Tensor:
        rows = [rl.ones(SIDE, SIDE) * i for i in range(8)]
        for _ in range(70):
            for x in rows:
                x.mul_(0.9).add_(0.1)
        return sum(x.sum() for x in rows)

    want = bits(program())
    memory.empty_cache()
    limit = memory.allocated() + 5 * MATRIX
    with pytest.raises(BudgetError), memory.budget(limit):
        program()
    memory.empty_cache()
    with memory.budget(limit, offload="disk"):
        assert bits(program()) == want


def train(device: str, steps: int = 3) -> list[bytes | None]:
    """Parameters and optimiser made here too: all of it may go out."""
    rl.manual_seed(3)
    x = rl.randn(SIDE, SIDE, device=device)
    weights = [(rl.randn(SIDE, SIDE, device=device) * 0.1).requires_grad_() for _ in range(4)]
    optimiser = rl.optim.AdamW(weights)
    for _ in range(steps):
        h = x
        for w in weights:
            h = F.dropout((h @ w).tanh(), 0.1)
        (h * h).sum().backward()
        optimiser.step()
        optimiser.zero_grad()
    return bits(*weights)


@ways
def test_parameters_gradients_and_optimiser_state_go_out(require_device, name, mode):
    device = require_device(name)
    want = train(device)
    memory.empty_cache(device)
    # The floor is the optimiser's step: four matrices for each parameter.
    limit = memory.allocated(device) + 18 * MATRIX
    with pytest.raises(BudgetError), memory.budget(limit, device=device):
        train(device)
    memory.empty_cache(device)
    with memory.budget(limit, device=device, offload=mode):
        assert train(device) == want


def test_several_passes_and_workers():
    def program(**kwargs: int) -> list[bytes | None]:
        rl.manual_seed(1)
        x = rl.randn(SIDE, SIDE, requires_grad=True)
        y = x
        for _ in range(6):
            y = (y @ x).tanh() + F.dropout(y, 0.2)
        loss = y.sum()
        loss.backward(retain_graph=True)
        loss.backward(retain_graph=True)
        (y * y).sum().backward(**kwargs)
        return bits(loss, x.grad)

    want = program()
    for kwargs in ({}, {"workers": 2}):
        memory.empty_cache()
        before = memory.offloaded()["out"]
        with memory.budget(memory.allocated() + 14 * MATRIX, offload="disk"):
            assert program(**kwargs) == want
        assert memory.offloaded()["out"] > before


def test_values_live_on_after_the_budget():
    with memory.budget("1GiB", offload="disk"):
        x = rl.tensor(data(4))
        y = x @ x
        want = bits(x, y)
        drop_all("cpu")
        assert memory.offloaded()["held"] == 2 * MATRIX
    assert bits(x, y) == want  # each reads its copy
    assert x.add_(1.0).sum().isfinite()
    assert memory.offloaded()["held"] == 0


def test_what_numpy_sees_stays():
    with memory.budget("1GiB", offload="disk"):
        x = rl.tensor(data(5))
        seen = x.numpy()
        before = memory.allocated()
        drop_all("cpu")
        assert memory.allocated() == before
        seen[0, 0] = 5.0
        assert x[0, 0].item() == 5.0


def test_what_was_made_before_the_budget_stays():
    x = rl.tensor(data(6))
    with memory.budget("1GiB", offload="disk"):
        assert (x @ x).sum().isfinite()
        before = memory.offloaded()["out"]
        drop_all("cpu")
        assert memory.offloaded()["out"] == before


def test_a_full_disk_loses_nothing(monkeypatch):
    wrote = []

    def full(fd: int, source: memoryview, at: int) -> int:
        if sum(wrote) + len(source) > 3 * MATRIX:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        wrote.append(min(len(source), 5000))  # in parts, as a write may be
        return write(fd, source[:5000], at)

    write = os.pwrite
    with memory.budget("1GiB", offload="disk"):
        x = [rl.tensor(data(i)) for i in range(6)]
        y = [t * 2.0 for t in x]
        want = bits(*x, *y)
        monkeypatch.setattr(os, "pwrite", full)
        with pytest.warns(RushlightWarning, match="No space left on device"):
            drop_all("cpu")
        assert 0 < memory.offloaded()["held"] <= 3 * MATRIX
        present = memory.allocated()
        assert bits(*x, *y) == want
        assert present >= 3 * MATRIX  # what could not be copied and not be rebuilt


def test_a_full_disk_is_a_budget_error_where_nothing_else_helps(monkeypatch):
    def full(fd: int, source: memoryview, at: int) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", full)
    memory.empty_cache()
    kept = []
    with (
        warnings.catch_warnings(),
        pytest.raises(BudgetError) as raised,
        memory.budget(memory.allocated() + 4 * MATRIX, offload="disk"),
    ):
        warnings.simplefilter("ignore")
        for i in range(8):
            kept.append(rl.tensor(data(i)))
    assert bits(*kept) == [data(i).tobytes() for i in range(len(kept))]
    assert len(kept) >= 3
    assert raised.value.holders["data"] >= 3 * MATRIX


def test_no_file_is_left_after_an_error(tmp_path):
    with pytest.raises(ZeroDivisionError), memory.budget("1GiB", offload=tmp_path):
        x = rl.tensor(data(7))
        drop_all("cpu")
        assert memory.offloaded()["held"] == MATRIX
        assert list(tmp_path.iterdir()) == []  # it never has a name
        raise ZeroDivisionError
    del x


def test_a_folder_that_is_not_there():
    with memory.budget("1GiB", offload=Path("/nonexistent/folder")):
        x = rl.tensor(data(8))
        with pytest.warns(RushlightWarning, match="nonexistent"):
            drop_all("cpu")
        assert bits(x) == [data(8).tobytes()]


def test_host_copies_count_in_the_hosts_pool(require_device):
    device = require_device("webgpu")
    with memory.budget("1GiB", device=device, offload=True):
        x = rl.tensor(data(9), device=device)
        host, own, moved = memory.allocated("cpu"), memory.allocated(device), memory.transfers()
        drop_all(device)
        assert memory.allocated("cpu") - host == MATRIX
        assert own - memory.allocated(device) == MATRIX
        assert memory.transfers()["bytes_to_host"] - moved["bytes_to_host"] == MATRIX
        assert bits(x) == [data(9).tobytes()]
        del x
        assert memory.allocated("cpu") == host


def test_auto_takes_the_cheaper(require_device, monkeypatch):
    device = require_device("webgpu")
    pool = pool_of(device)
    monkeypatch.setitem(offload.Speed.launches, pool, (100, 1.0, 1e-9))
    for per_byte, copied in ((1e-12, True), (1.0, False)):
        monkeypatch.setitem(offload.Speed.per_byte, pool, per_byte)
        with memory.budget("1GiB", device=device, offload="auto"):
            y = rl.randn(SIDE, SIDE, device=device).tanh()
            want, before = bits(y), memory.offloaded()["out"]
            drop_all(device)
            assert (memory.offloaded()["out"] > before) == copied
            assert bits(y) == want


def test_auto_measures_once(require_device, monkeypatch):
    device = require_device("webgpu")
    pool = pool_of(device)
    monkeypatch.setattr(offload.Speed, "launches", {})
    monkeypatch.setattr(offload.Speed, "per_byte", {})
    with memory.budget("1GiB", device=device, offload="auto"):
        y = [rl.randn(128, 128, device=device).tanh() for _ in range(20)]
        for _ in range(2):
            drop_all(device)
            for t in y:
                t.sum().item()
    assert offload.Speed.per_work(pool) > 0
    assert offload.Speed.per_byte[pool] > 0


def test_on_the_cpu_host_memory_is_no_place():
    before = memory.offloaded()["out"]
    with memory.budget("1GiB", offload=True):
        x = rl.tensor(data(10))
        y = x * 2.0
        drop_all("cpu")
        assert y.sum().isfinite()
    assert memory.offloaded()["out"] == before


def test_nested_budgets_and_wrong_values():
    with memory.budget("1GiB", offload="disk"), memory.budget("512MiB"):
        x = rl.tensor(data(11))
        drop_all("cpu")
        assert memory.offloaded()["held"] == MATRIX
        with memory.budget("256MiB", offload=False):
            y = rl.tensor(data(12))
            before = memory.offloaded()["out"]
            drop_all("cpu")
            assert memory.offloaded()["out"] == before
        assert bits(x, y) == [data(11).tobytes(), data(12).tobytes()]
    for wrong in ("host", 1, "True", 2.5):
        with pytest.raises(ValueError, match="offload is True, False"):
            memory.budget("1GiB", offload=wrong)


def test_threads_with_a_budget_each():
    want = train("cpu")
    found, errors = {}, []

    def work(i: int) -> None:
        try:
            with memory.budget(memory.allocated() + 64 * MATRIX, offload="disk"):
                found[i] = train_here()
        except BaseException as error:
            errors.append(error)

    def train_here() -> list[bytes | None]:
        x = [rl.tensor(data(i)) for i in range(6)]
        for _ in range(4):
            drop_all("cpu")
            x = [(t @ t.t()).tanh() for t in x]
        return bits(*x)

    alone = train_here()
    threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert all(got == alone for got in found.values())
    assert len(found) == 3
    assert train("cpu") == want


def test_after_a_fork_both_processes_read_their_bits():
    with memory.budget("1GiB", offload="disk"):
        x = rl.tensor(data(13))
        drop_all("cpu")
        reading, writing = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of fork in a process with threads
            child = os.fork()
        if not child:
            os._exit(0 if os.read(reading, 1) and bits(x) == [data(13).tobytes()] else 1)
        del x  # its range is free here, and the child's
        y = rl.tensor(data(14))
        drop_all("cpu")
        assert bits(y) == [data(14).tobytes()]
        os.write(writing, b"1")
        _, status = os.waitpid(child, 0)
        os.close(reading)
        os.close(writing)
        assert os.waitstatus_to_exitcode(status) == 0
