"""Sort kernels on every device against the reference, the network as CUDA C, scratch, sorting
ops.
"""

from __future__ import annotations  # noqa: I001

import math
import shutil

import numpy as np
import pytest

import rushlight as rl
from rushlight.core.dtypes import ALL, DType, bfloat16, float32, int32, int64
from rushlight.core.errors import BudgetError
from rushlight.devices.shared import composed
from rushlight.devices.cpu import open_device as open_cpu, threads
from rushlight.devices.reference import ReferenceDevice
from rushlight.devices.shared.registry import pool_of
from rushlight.kernel.shapes import Search, Sort
from tests.emit.cuda_emulation import Emulator

NAN, INF = math.nan, math.inf
# One element, insertion, radix.
SHAPES = [
    (1, 1, 1),
    (2, 5, 1),
    (3, 49, 2),
    (2, 256, 3),
    (1, 1500, 1),
]


def words(rng: np.random.Generator, dtype: DType, count: int) -> np.ndarray:
    """Elements' bits: random ones, so every kind of number and NaN, and few distinct ones."""
    size = 1 if dtype.kind == "b" else dtype.itemsize
    kind = f"uint{8 * size}"
    if dtype.kind == "b":
        return rng.integers(0, 2, count).astype(np.uint8)
    wild = rng.integers(0, 256, count * size, dtype=np.uint8).view(kind)
    known = np.array([0.0, -0.0, 1.0, -1.0, INF, -INF, NAN, -NAN], np.float32)
    if dtype is bfloat16:
        few = (known.view(np.uint32) >> 16).astype(np.uint16)
    else:
        with np.errstate(invalid="ignore"):
            few = (
                np.nan_to_num(known, nan=7).astype(dtype.name)
                if dtype.kind == "i"
                else known.astype(dtype.name)
            )
    return np.where(rng.random(count) < 0.5, wild, rng.choice(few.view(kind), count))


def run(
    build, kernel: Sort, x: np.ndarray, shape: tuple[int, int, int], keep: int, across: bool = False
):
    """values and positions; `across` has the axis outermost in memory."""
    outer, axis, inner = shape
    values = np.zeros(outer * keep * inner, x.dtype)
    places = np.full(outer * keep * inner, -1, np.int64)
    out = (inner, outer * inner, 1) if across else (keep * inner, inner, 1)
    into = (inner, outer * inner, 1) if across else (axis * inner, inner, 1)
    addresses = [a.ctypes.data for a in (values, places, x)]
    build(kernel)(*addresses, outer, axis, inner, keep, *out, *out, *into)
    return values, places


def check(build, dtypes, shapes=SHAPES):
    reference = ReferenceDevice().build
    rng = np.random.default_rng(3)
    for dtype in dtypes:
        for number, shape in enumerate(shapes):
            x = words(rng, dtype, math.prod(shape))
            for descending in (False, True):
                kernel = Sort(dtype, descending)
                for keep in {shape[1], max(1, shape[1] // 9), 1}:
                    got = run(build, kernel, x, shape, keep, bool(number % 2))
                    want = run(reference, kernel, x, shape, keep, bool(number % 2))
                    what = f"{kernel} {shape} keep {keep}"
                    np.testing.assert_array_equal(got[1], want[1], err_msg=what)
                    assert got[0].tobytes() == want[0].tobytes(), what


@pytest.mark.parametrize("descending", [False, True])
def test_the_reference_sorts_as_numpy_does(descending):
    x = np.array([2.0, NAN, -0.0, 1.0, 0.0, -INF, NAN, INF, 1.0], np.float32)
    values, places = run(ReferenceDevice().build, Sort(float32, descending), x, (1, 9, 1), 9)
    want = [1, 6, 7, 0, 3, 8, 2, 4, 5] if descending else [5, 2, 4, 3, 8, 0, 7, 1, 6]
    assert places.tolist() == want
    assert values.tobytes() == x[want].tobytes()  # the sign of a zero stays with its element


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_cpu_agrees_with_the_reference(dtype):
    check(open_cpu().build, [dtype])


def test_the_sorted_and_the_equal():
    """Rows for the edges of selection and radix passes: ascending, descending, equal, one byte
    apart.
    """
    steps = np.arange(2000, dtype=np.int64)
    reference, cpu = ReferenceDevice().build, open_cpu().build
    for x in (steps, steps[::-1].copy(), steps * 0, (steps % 7) << 40, -steps):
        for keep in (1, 3, 130, 499, 2000):
            kernel = Sort(int64, False)
            got, want = (run(b, kernel, x, (1, 2000, 1), keep) for b in (cpu, reference))
            np.testing.assert_array_equal(got[1], want[1])
            np.testing.assert_array_equal(got[0], want[0])


def test_bits_do_not_depend_on_threads():
    cpu, x = open_cpu(), np.random.default_rng(0).integers(-9, 9, 30 * 700).astype(np.int32)
    results, before = set(), threads.count()
    for count in (1, 3, before):
        cpu.set_num_threads(count)
        results.add(run(cpu.build, Sort(int32, True), x, (10, 700, 3), 700)[1].tobytes())
    assert len(results) == 1


def emulated(folder):
    """A device that builds CUDA C for the host and has the host's memory."""
    host = ReferenceDevice()

    class Emulated:
        build = staticmethod(Emulator(folder).build)
        status_word = staticmethod(host.status_word)

    return Emulated()


@pytest.mark.skipif(shutil.which("g++") is None, reason="limit: the emulation needs g++")
def test_the_network_as_cuda_text(tmp_path):
    device = emulated(tmp_path)
    check(
        lambda kernel: composed.build(kernel, device, lambda: pool_of("reference")),
        [float32, int64],
        [(1, 1, 1), (2, 5, 3), (1, 64, 2)],
    )


# ---- searching ----


# Rows, count, length, one line.
SEARCHES = [
    (1, 5, 0, True),
    (1, 9, 1, True),
    (3, 1100, 37, True),
    (2, 21, 64, False),
]


def check_search(build, dtypes, shapes=SEARCHES):
    reference, rng = ReferenceDevice().build, np.random.default_rng(4)
    for dtype in dtypes:
        for rows, count, length, shared in shapes:
            kept = np.uint16 if dtype is bfloat16 else dtype.name
            line, wanted = (
                rng.integers(-9, 9, (n, m)).astype(np.float32)
                for n, m in ((rows, length), (rows, count))
            )
            line.sort(1)
            if dtype.kind == "f":
                wanted[:, ::7] = NAN
            if dtype is bfloat16:
                line, wanted = ((a.view(np.uint32) >> 16).astype(np.uint16) for a in (line, wanted))
            line, wanted = (np.ascontiguousarray(a.astype(kept)) for a in (line, wanted))
            for right in (False, True):
                got, want = np.full((rows, count), -1), np.full((rows, count), -2)
                for run_on, out in ((build, got), (reference, want)):
                    steps = (count, 1, 0 if shared else length, 1, count, 1)
                    addresses = (a.ctypes.data for a in (out, line, wanted))
                    run_on(Search(dtype, right))(*addresses, rows, count, length, *steps)
                np.testing.assert_array_equal(got, want, err_msg=f"{dtype} {right} {length}")


def test_the_reference_searches_as_numpy_does():
    line, wanted = np.array([[1, 3, 3, 7]], np.int64), np.array([[0, 1, 2, 3, 7, 9]], np.int64)
    for right in (False, True):
        out = np.zeros((1, 6), np.int64)
        ReferenceDevice().build(Search(int64, right))(
            out.ctypes.data, line.ctypes.data, wanted.ctypes.data, 1, 6, 4, 6, 1, 0, 1, 6, 1
        )
        np.testing.assert_array_equal(
            out[0], np.searchsorted(line[0], wanted[0], "right" if right else "left")
        )


def test_cpu_searches_as_the_reference_does():
    check_search(open_cpu().build, [d for d in ALL if d.kind != "b"])


@pytest.mark.skipif(shutil.which("g++") is None, reason="limit: the emulation needs g++")
def test_searching_by_steps_as_cuda_text(tmp_path):
    device = emulated(tmp_path)
    check_search(
        lambda kernel: composed.build(kernel, device, lambda: pool_of("reference")),
        [float32],
        SEARCHES[::3],
    )


# ---- ops ----


def test_named_results(device):
    x = rl.tensor([[3.0, 1.0, 2.0]], device=device)
    got = rl.sort(x, descending=True)
    assert got.values.tolist() == [[3, 2, 1]] and got.indices.tolist() == [[0, 2, 1]]
    values, indices = x.topk(2, largest=False)
    assert (
        values.tolist() == [[1, 2]] and indices.tolist() == [[1, 2]] and indices.dtype is rl.int64
    )


def test_gradients_go_where_elements_came_from():
    x = rl.tensor([3.0, 1.0, 2.0], requires_grad=True)
    (rl.sort(x).values * rl.tensor([1.0, 10.0, 100.0])).sum().backward()
    assert x.grad.tolist() == [100, 1, 10]
    x.grad = None
    (x.topk(2).values ** 3).sum().backward()
    assert x.grad.tolist() == [27, 0, 12]
    assert not rl.argsort(x).requires_grad


def test_scratch_is_counted():
    pool = pool_of("cpu")
    x = rl.ones(1 << 16, device="cpu")
    live, pool.peak = pool.live, pool.live
    kept = rl.sort(x)
    assert pool.live == live + (1 << 16) * 12  # values and positions
    assert pool.peak == pool.live + (1 << 16) * 16  # two buffers of records
    del kept
    with pytest.raises(BudgetError), rl.memory.budget(x.nbytes * 4):
        rl.sort(x)
    assert pool.live == live


def test_errors():
    with pytest.raises(RuntimeError, match=r"topk: k must lie in 0 to 3.*float32\[3\]"):
        rl.topk(rl.ones(3), 4)
    with pytest.raises(IndexError, match="sort"):
        rl.sort(rl.ones(3), 1)
    with pytest.raises(IndexError, match="median: dimension 0"):
        rl.median(rl.ones(0, 3), 0)
    with pytest.raises(RuntimeError, match=r"quantile: q must lie in \[0, 1\], got 1.5"):
        rl.quantile(rl.ones(3), rl.tensor([0.5, 1.5]))
    with pytest.raises(RuntimeError, match="float16"):
        rl.quantile(rl.ones(3, dtype=rl.float16), 0.5)
    with pytest.raises(RuntimeError, match=r"bincount.*-2"):
        rl.bincount(rl.tensor([1, -2]))
    with pytest.raises(RuntimeError, match=r"unique: .*size 0"):
        rl.unique(rl.ones(3, 0), dim=0)
    with pytest.raises(RuntimeError, match="searchsorted"):
        rl.searchsorted(rl.ones(2, 3), rl.ones(3, 2))


def test_elements_that_equal_the_median_of_all_share_its_gradient():
    x = rl.tensor([2.0, 1.0, 2.0, 5.0, 2.0], requires_grad=True)
    x.median().backward()
    np.testing.assert_allclose(x.grad.numpy(), [1 / 3, 0, 1 / 3, 0, 1 / 3], rtol=1e-6)
    x = rl.tensor([2.0, NAN, 1.0], requires_grad=True)
    x.median().backward()
    assert x.grad.tolist() == [0, 1, 0]
    assert x.nanmedian().item() == 1
    assert x.median(0).indices.item() == 1


def test_quantile_passes_gradients_to_q():
    q = rl.tensor([0.25, 0.6], requires_grad=True)
    rl.quantile(rl.tensor([0.0, 1.0, 10.0, 100.0]), q).sum().backward()
    np.testing.assert_allclose(q.grad.numpy(), [3 * 1, 3 * 9], rtol=1e-6)


def test_unique_slices_of_many_columns(device):
    rng = np.random.default_rng(0)
    x = rng.integers(0, 2, (40, 5)).astype(np.int64)
    want = np.unique(x, return_inverse=True, return_counts=True, axis=0)
    got = rl.unique(rl.tensor(x, device=device), return_inverse=True, return_counts=True, dim=0)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_array_equal(a.cpu().numpy(), b.reshape(a.shape))


def test_permutations_are_the_same_everywhere(device):
    got = rl.randperm(500, generator=rl.Generator().manual_seed(3), device=device).cpu().numpy()
    assert sorted(got) == list(range(500)) and not np.array_equal(got, np.arange(500))
    here = rl.randperm(500, generator=rl.Generator().manual_seed(3), device="reference").numpy()
    np.testing.assert_array_equal(got, here)
    assert rl.randperm(4, dtype=rl.int32, device=device).dtype is rl.int32


def test_samples_without_replacement_are_distinct(device):
    weights = rl.tensor([[0.0, 1.0, 2.0, 3.0], [4.0, 0.0, 1.0, 1.0]], device=device)
    for row, zero in zip(rl.multinomial(weights, 3).tolist(), (0, 1), strict=True):
        assert len(set(row)) == 3 and zero not in row


def test_isin_of_many():
    rng = np.random.default_rng(1)
    for dtype in (np.int64, np.float32):
        x, others = (rng.integers(0, 4000, n).astype(dtype) for n in ((60, 50), 700))
        want = np.isin(x, others)
        np.testing.assert_array_equal(rl.isin(rl.tensor(x), rl.tensor(others)).numpy(), want)
        np.testing.assert_array_equal(
            rl.isin(rl.tensor(x), rl.tensor(others), invert=True).numpy(), ~want
        )
    flags = rl.tensor(rng.random(3000) < 0.5)
    assert rl.isin(flags, rl.zeros(500, dtype=rl.bool)).tolist() == [not f for f in flags.tolist()]
