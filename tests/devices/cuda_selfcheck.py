"""Checks and times the CUDA device on a machine with a GPU:
`python tests/devices/cuda_selfcheck.py`.

Every kernel of tests/devices/cuda_launches.py against the reference device, twice, for the same
bits; conversions of halves over all their values; then timings against PyTorch in the same run
where it is installed. Exits 1 if anything is wrong.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import numpy as np

from rushlight.core.dtypes import bfloat16, float16, float32, int64
from rushlight.core.errors import OutOfMemoryError
from rushlight.devices.cuda.device import CudaDevice
from rushlight.devices.reference import ReferenceDevice, narrow
from rushlight.devices.shared.registry import pool_of
from rushlight.kernel.shapes import Contract, Gather, Map, Scatter
from rushlight.scalar.ir import arg
from tests.devices import cuda_launches as cases

GIB = 1 << 30
X, Y = arg(0, float32), arg(1, float32)
failures: list[str] = []
table: list[tuple[str, str, str]] = []


def launched(
    device: CudaDevice, launch: Callable, case: cases.Case
) -> tuple[list[np.ndarray], bool]:
    """The buffers after one launch, and whether an index was reported."""
    addresses = [device.alloc(max(b.nbytes, 64)) for b in case.buffers]
    for address, buffer in zip(addresses, case.buffers, strict=True):
        device.copy_in(address, memoryview(buffer).cast("B"))
    status = device.status_word("check") if case.status else 0
    launch(*cases.numbers_of(case, addresses, status))
    raised = False
    try:
        device.synchronize()
    except IndexError as error:
        raised = "check" in str(error)
    results = [np.empty_like(b) for b in case.buffers]
    for address, result in zip(addresses, results, strict=True):
        device.copy_out(address, memoryview(result).cast("B"))
        device.free(address, 0)
    return results, raised


def launched_on_host(device: ReferenceDevice, case: cases.Case) -> tuple[list[np.ndarray], int]:
    buffers = [b.copy() for b in case.buffers]
    status = np.zeros(1, np.int32)
    device.build(case.kernel)(
        *cases.numbers_of(case, [b.ctypes.data for b in buffers], status.ctypes.data)
    )
    return buffers, int(status[0])


# ---- right ----


def check_kernels(device: CudaDevice) -> None:
    every = list(cases.every_case())
    kernels = list({case.kernel: None for case in every})
    begin = time.perf_counter()
    with ThreadPoolExecutor(8) as workers:
        built = dict(zip(kernels, workers.map(device.build, kernels), strict=True))
    seconds = time.perf_counter() - begin
    table.append(("kernels built", f"{len(kernels)}", f"{seconds:.1f} s"))
    reference, wrong, same = ReferenceDevice(), 0, 0
    for case in every:
        want, _ = launched_on_host(reference, case)
        got, raised = launched(device, built[case.kernel], case)
        again, _ = launched(device, built[case.kernel], case)
        found = [text for i in range(len(got)) if (text := cases.differs(case, i, got[i], want[i]))]
        found += ["an index was reported"] if raised and not case.bad_index else []
        found += ["a bad index was not reported"] if case.bad_index and not raised else []
        found += (
            ["two runs differ"]
            if any(a.tobytes() != b.tobytes() for a, b in zip(got, again, strict=True))
            else []
        )
        same += "two runs differ" not in found
        wrong += bool(found)
        failures.extend(f"{case.name}: {text}" for text in found)
    table.append(
        ("cases right", f"{len(every) - wrong} of {len(every)}", f"{same} with the same bits twice")
    )


def check_halves(device: CudaDevice) -> None:
    """All float16 and bfloat16 values to float32, and float32 bit patterns back, with NumPy's
    roundings.
    """
    rng = np.random.default_rng(11)
    words = np.arange(65536, dtype=np.uint16)
    bits = np.concatenate(
        [rng.integers(0, 2**32, 1 << 20, np.uint32), np.arange(0, 2**32, 1 << 12, np.uint32)]
    )
    near = (
        words.view(np.float16).astype(np.float32).view(np.uint32)[:, None]
        + np.array([0xFFF, 0x1000, 0x1001], np.uint32)
    ).reshape(-1)
    values = np.concatenate([bits, near]).view(np.float32)
    for dtype in (float16, bfloat16):
        with np.errstate(all="ignore"):
            narrowed = (
                narrow(values) if dtype is bfloat16 else values.astype(np.float16).view(np.uint16)
            )
            widened = (
                (words.astype(np.uint32) << 16).view(np.float32)
                if dtype is bfloat16
                else words.view(np.float16).astype(np.float32)
            )
        up = run_cast(device, dtype, float32, words, np.zeros(words.size, np.float32))
        down = run_cast(device, float32, dtype, values, np.zeros(values.size, np.uint16))
        if not np.array_equal(up, widened, equal_nan=True):
            failures.append(
                f"{dtype.name} to float32: {np.sum(~((up == widened) | np.isnan(widened)))} wrong"
            )
        bad = (down != narrowed) & ~np.isnan(values)
        if bad.any():
            at = np.nonzero(bad)[0][0]
            failures.append(
                f"float32 to {dtype.name}: {bad.sum()} wrong, {values[at]!r} gives {down[at]:#x}, "
                f"not {narrowed[at]:#x}"
            )


def run_cast(device: CudaDevice, source, target, values: np.ndarray, out: np.ndarray) -> np.ndarray:
    kernel = Map((target,), (source,), (), (X,), 0, ("1", "1"))
    addresses = [device.alloc(out.nbytes), device.alloc(values.nbytes)]
    device.copy_in(addresses[1], memoryview(values).cast("B"))
    device.build(kernel)(*addresses, values.size)
    device.copy_out(addresses[0], memoryview(out).cast("B"))
    for address in addresses:
        device.free(address, 0)
    return out


def check_promises(device: CudaDevice) -> None:
    add = device.build(Map((float32,), (float32, float32), (), (X + Y,), 0, ("1", "1", "1")))
    block = device.alloc(4096)
    device.copy_in(block, memoryview(np.ones(1024, np.float32)).cast("B"))
    for numbers in ((None, block, block, 4), (block, block, block, 4.0), (block,)):
        try:
            add(*numbers)
            failures.append(f"launch took {numbers}")
        except TypeError:
            pass
    try:
        device.alloc(1 << 46)
        failures.append("64 TiB were given")
    except OutOfMemoryError:
        pass
    thread = threading.Thread(target=add, args=(block, block, block, 1024))
    thread.start()
    thread.join()
    back = np.empty(1024, np.float32)
    device.copy_out(block, memoryview(back).cast("B"))
    if not (back == 2).all():
        failures.append("a launch from a fresh thread did not happen")
    device.free(block, 4096)


# ---- fast ----


def timed(device: CudaDevice, work: Callable[[], object], least: float = 0.15) -> float:
    """Seconds a call, the best of three rounds."""
    work()
    device.synchronize()
    begin = time.perf_counter()
    work()
    device.synchronize()
    count = max(3, int(least / 3 / max(time.perf_counter() - begin, 1e-6)))
    rounds = []
    for _ in range(3):
        begin = time.perf_counter()
        for _ in range(count):
            work()
        device.synchronize()
        rounds.append((time.perf_counter() - begin) / count)
    return min(rounds)


def overhead(device: CudaDevice, work: Callable[[], object]) -> float:
    """Host microseconds a call, the queue never full."""
    best = 1e9
    for _ in range(20):
        device.synchronize()
        begin = time.perf_counter()
        for _ in range(200):
            work()
        best = min(best, (time.perf_counter() - begin) / 200)
    device.synchronize()
    return best * 1e6


def compare(
    name: str, own: float, other: float | None, unit: str = "us", scale: float = 1e6, note: str = ""
) -> None:
    text = f"torch {other * scale:.1f} {unit}, ratio {own / other:.2f}" if other else note
    table.append(
        (name, f"{own * scale:.1f} {unit}", f"{text}{'; ' + note if other and note else ''}")
    )


class Bench:
    """Blocks of random floats, and PyTorch where it is."""

    def __init__(self, device: CudaDevice) -> None:
        self.device = device
        self.blocks: list[int] = []
        try:
            import torch
        except ImportError:
            torch = None
        self.torch = torch

    def block(self, nbytes: int, fill: bool = True) -> int:
        address = self.device.alloc(nbytes)
        self.blocks.append(address)
        if fill:
            piece = (
                np.random.default_rng(1)
                .standard_normal(min(nbytes // 4, 1 << 24))
                .astype(np.float32)
            )
            for at in range(0, nbytes, piece.nbytes):
                part = piece[: min(piece.size, (nbytes - at) // 4)]
                self.device.copy_in(address + at, memoryview(part).cast("B"))
        return address

    def clear(self) -> None:
        self.device.synchronize()
        for address in self.blocks:
            self.device.free(address, 0)
        self.blocks.clear()

    def rival(self, make: Callable) -> float | None:
        """PyTorch's seconds for what `make(torch)` returns."""
        if self.torch is None:
            return None
        try:
            work = make(self.torch)
            seconds = timed(self.device, work)
        except RuntimeError as error:
            failures.append(f"torch: {error}")
            return None
        del work
        self.torch.cuda.empty_cache()
        return seconds


def time_launches(bench: Bench) -> None:
    device = bench.device
    add = device.build(Map((float32,), (float32, float32), (), (X + Y,), 0, ("1", "1", "1")))
    a, b, c = (bench.block(4096) for _ in range(3))
    table.append(
        (
            "launch: add of 1000",
            f"{overhead(device, lambda: add(c, a, b, 1000)):.2f} us",
            "host time; goal 3 us",
        )
    )
    softmax = device.build(cases.softmax(float32, "axis", ("1", "1")))
    numbers = (c, a, 8, 100, 1, 100, 1, 0, 100, 1, 0)
    table.append(
        (
            "launch: softmax 8 x 100",
            f"{overhead(device, lambda: softmax(*numbers)):.2f} us",
            "host time",
        )
    )
    gemm = device.build(Contract(float32, float32))
    sizes = (1, 1, 16, 16, 16, 256, 256, 16, 1, 256, 256, 16, 1, 256, 256, 16, 1)
    table.append(
        (
            "launch: matmul of 16",
            f"{overhead(device, lambda: gemm(c, a, b, *sizes)):.2f} us",
            "host time",
        )
    )
    if bench.torch:
        torch = bench.torch
        x, y = torch.ones(1000, device="cuda"), torch.ones(1000, device="cuda")
        table.append(("  torch: x + y", f"{overhead(device, lambda: x + y):.2f} us", "host time"))
        m = torch.ones(16, 16, device="cuda")
        table.append(("  torch: x @ y", f"{overhead(device, lambda: m @ m):.2f} us", "host time"))
    bench.clear()


def time_memory(bench: Bench) -> None:
    device = bench.device
    runtime = device.runtime
    a, b, c = (bench.block(GIB) for _ in range(3))
    copy = timed(device, lambda: runtime.memcpyAsync(c, a, GIB, runtime.memcpyDeviceToDevice, 0))
    speed = 2 * GIB / copy
    table.append(("copy 1 GiB, driver", f"{copy * 1e6:.0f} us", f"{speed / 1e9:.0f} GB/s"))
    n = GIB // 4
    add = device.build(Map((float32,), (float32, float32), (), (X + Y,), 0, ("1", "1", "1")))
    own = timed(device, lambda: add(c, a, b, n))
    share = 3 * GIB / own / speed
    rival = bench.rival(lambda t: _torch_add(t, n, t.float32))
    compare(
        "add 1 GiB float32", own, rival, note=f"{3 * GIB / own / 1e9:.0f} GB/s, {share:.0%} of copy"
    )
    if share < 0.85:
        failures.append(f"add of 1 GiB runs at {share:.0%} of copy bandwidth, under 85 %")
    for dtype in (float16, bfloat16):
        add = device.build(Map((dtype,), (dtype, dtype), (), (X + Y,), 0, ("1", "1", "1")))
        own = timed(device, lambda add=add: add(c, a, b, GIB // 2))
        rival = bench.rival(lambda t, d=dtype: _torch_add(t, GIB // 2, getattr(t, d.name)))
        compare(f"add 1 GiB {dtype.name}", own, rival, note=f"{3 * GIB / own / speed:.0%} of copy")
    bias = device.build(Map((float32,), (float32, float32), (), (X + Y,), 2, ("1", "1", "1")))
    own = timed(device, lambda: bias(c, a, b, n // 4096, 4096, 4096, 1, 4096, 1, 0, 1))
    compare(
        "bias add 1 GiB",
        own,
        bench.rival(lambda t: _torch_bias(t, n)),
        note=f"{2 * GIB / own / speed:.0%} of copy",
    )
    turn = device.build(Map((float32,), (float32,), (), (X,), 2, ("1", "n")))
    own = timed(device, lambda: turn(c, a, 8192, 8192, 8192, 1, 1, 8192))
    compare("transpose 8192 float32", own, bench.rival(lambda t: _torch_turn(t)), note="")
    total = device.build(cases.fold("sum", float32, "axis"))
    own = timed(device, lambda: total(c, a, 1, n, 1, 1, 0, 1, n, 1, 0))
    compare(
        "sum 1 GiB",
        own,
        bench.rival(lambda t: _torch_sum(t, n)),
        note=f"{GIB / own / speed:.0%} of copy",
    )
    bench.clear()


def _torch_add(torch, n: int, dtype):
    x, y = torch.ones(n, device="cuda", dtype=dtype), torch.ones(n, device="cuda", dtype=dtype)
    out = torch.empty_like(x)
    return lambda: torch.add(x, y, out=out)


def _torch_bias(torch, n: int):
    x, y = torch.ones(n // 4096, 4096, device="cuda"), torch.ones(4096, device="cuda")
    out = torch.empty_like(x)
    return lambda: torch.add(x, y, out=out)


def _torch_turn(torch):
    x = torch.ones(8192, 8192, device="cuda")
    out = torch.empty_like(x)
    return lambda: out.copy_(x.T)


def _torch_sum(torch, n: int):
    x = torch.ones(n, device="cuda")
    return lambda: x.sum()


def time_rows(bench: Bench) -> None:
    device, side = bench.device, 4096
    a, c = bench.block(side * side * 4), bench.block(side * side * 4)
    w, v, mean, scale = (bench.block(side * 4) for _ in range(4))
    flat = (side, 1, 0)
    softmax = device.build(cases.softmax(float32, "axis", ("1", "1")))
    own = timed(device, lambda: softmax(c, a, side, side, 1, *flat, *flat))
    compare(
        "softmax 4096 x 4096",
        own,
        bench.rival(lambda t: _torch_rows(t, lambda x: t.softmax(x, -1))),
    )
    norm = device.build(cases.layer_norm("axis"))
    one = (1, 0, 1)
    own = timed(
        device,
        lambda: norm(
            c, mean, scale, a, w, v, side, side, 1, *flat, *one, *one, *flat, 0, 1, 0, 0, 1, 0, 1e-5
        ),
    )
    compare("layer norm 4096 x 4096", own, bench.rival(lambda t: _torch_norm(t)))
    columns = device.build(cases.softmax(float32, "inner", ("1", "1")))
    across = (side * side, side, 1)
    own = timed(device, lambda: columns(c, a, 1, side, side, *across, *across))
    compare(
        "softmax over rows, 4096",
        own,
        bench.rival(lambda t: _torch_rows(t, lambda x: t.softmax(x, 0))),
    )
    total = device.build(cases.fold("sum", float32, "inner"))
    own = timed(device, lambda: total(c, a, 1, side, side, side, 0, 1, *across))
    compare("sum over rows, 4096", own, bench.rival(lambda t: _torch_rows(t, lambda x: x.sum(0))))
    own = timed(device, lambda: total(c, a, 1, side * side // 64, 64, 64, 0, 1, 0, 64, 1))
    compare(
        "sum over rows, 262144 x 64",
        own,
        bench.rival(lambda t: _torch_rows(t, lambda x: x.view(-1, 64).sum(0))),
    )
    rows = device.build(cases.fold("sum", float32, "axis"))
    own = timed(device, lambda: rows(c, a, side * side // 64, 64, 1, 1, 0, 1, 64, 1, 0))
    compare(
        "sum of rows, 262144 x 64",
        own,
        bench.rival(lambda t: _torch_rows(t, lambda x: x.view(-1, 64).sum(1))),
    )
    bench.clear()


def _torch_rows(torch, function: Callable):
    x = torch.randn(4096, 4096, device="cuda")
    return lambda: function(x)


def _torch_norm(torch):
    x, w, b = (torch.randn(*s, device="cuda") for s in ((4096, 4096), (4096,), (4096,)))
    return lambda: torch.nn.functional.layer_norm(x, (4096,), w, b)


def time_products(bench: Bench) -> None:
    device, side = bench.device, 4096
    a, b, c = (bench.block(side * side * 4) for _ in range(3))
    square = (0, 0, side, 1)
    for dtype in (float32, bfloat16):
        product = device.build(Contract(dtype, float32))
        own = timed(
            device, lambda p=product: p(c, a, b, 1, 1, side, side, side, *square, *square, *square)
        )
        rival = bench.rival(lambda t, d=dtype: _torch_product(t, side, getattr(t, d.name)))
        compare(
            f"matmul 4096 {dtype.name}", own, rival, note=f"{2 * side**3 / own / 1e12:.0f} TFLOP/s"
        )
    side = 2048
    square = (0, 0, side, 1)
    for dtype in (float32, int64):
        product = device._build_own(Contract(dtype, dtype))
        own = timed(
            device, lambda p=product: p(c, a, b, 1, 1, side, side, side, *square, *square, *square)
        )
        compare(
            f"own matmul 2048 {dtype.name}",
            own,
            None,
            note=f"{2 * side**3 / own / 1e12:.1f} TFLOP/s, no library",
        )
    bench.clear()


def _torch_product(torch, side: int, dtype):
    x, y = (torch.randn(side, side, device="cuda", dtype=dtype) for _ in range(2))
    return lambda: x @ y


def time_indices(bench: Bench) -> None:
    device = bench.device
    count, wide, limit = 8192, 1024, 50000
    table_block, rows = bench.block(limit * wide * 4), bench.block(count * wide * 4)
    rng = np.random.default_rng(2)
    even, skewed = rng.integers(0, limit, count), np.minimum(rng.zipf(1.2, count), limit) - 1
    picks, words = bench.block(count * 8, False), bench.block(count * 8, False)
    device.copy_in(picks, memoryview(even).cast("B"))
    device.copy_in(words, memoryview(skewed).cast("B"))
    status = device.status_word("timing")
    sizes, flat = (1, count, wide, limit), (0, wide, 1)
    gather = device.build(Gather(float32, int64))
    own = timed(
        device, lambda: gather(rows, table_block, picks, status, *sizes, *flat, *flat, 0, 1, 0)
    )
    compare(
        "gather 8192 rows of 1024",
        own,
        bench.rival(lambda t: _torch_index(t, even, wide, limit, False)),
    )
    scatter = device.build(Scatter(float32, int64))
    for name, at, chosen in (("", picks, even), (", like words", words, skewed)):
        own = timed(
            device,
            lambda at=at: scatter(table_block, rows, at, status, *sizes, *flat, *flat, 0, 1, 0),
        )
        rival = bench.rival(lambda t, chosen=chosen: _torch_index(t, chosen, wide, limit, True))
        note = f"torch's with atomics; most for one row: {np.bincount(chosen).max()}"
        compare(f"scatter-add 8192 rows{name}", own, rival, note=note)
    bench.clear()


def _torch_index(torch, chosen: np.ndarray, wide: int, limit: int, back: bool):
    x, y = torch.zeros(limit, wide, device="cuda"), torch.zeros(chosen.size, wide, device="cuda")
    picks = torch.from_numpy(chosen).cuda()
    return (lambda: x.index_add_(0, picks, y)) if back else (lambda: x.index_select(0, picks))


def step(work: Callable[..., None], *given: object) -> None:
    """A part that raises is a failure, and the next one still runs."""
    begin = time.perf_counter()
    try:
        work(*given)
    except Exception:
        failures.append(f"{work.__name__}: {traceback.format_exc()}")
    print(f"{work.__name__}: {time.perf_counter() - begin:.1f} s", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=["right", "fast"])
    only = parser.parse_args().only
    device = pool_of("cuda").device
    print(device.limits.description)
    if only != "fast":
        for work in (check_promises, check_halves, check_kernels):
            step(work, device)
    if only != "right":
        bench = Bench(device)
        for work in (time_launches, time_memory, time_rows, time_products, time_indices):
            step(work, bench)
    for failure in failures[:40]:
        print("FAILED", failure)
    print(f"{len(failures)} failures")
    for name, value, note in table:
        print(f"{name:<28} {value:>14}   {note}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
