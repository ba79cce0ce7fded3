"""Kernels bound by memory on a GPU, and the GPT-2 124M step by kernel, against PyTorch in one run.

python benchmarks/gpu_rows.py [--webgpu] [--profile]

Needs an NVIDIA GPU, CuPy and PyTorch. GB/s counts the bytes that an op must read and write once.
The vocabulary is padded to 50304, a multiple of 64, as in most training code.
"""

from __future__ import annotations

import importlib
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from gpu_models import Work, gpt_step

import rushlight as rl
from rushlight.devices.shared.registry import pool_of

Make = Callable[[Any, str], Work]  # of a library and a device
TOKENS, WIDTH, VOCABULARY = 16 * 1024, 768, 50304


@dataclass(frozen=True)
class Case:
    """One row of the table: what runs, and the bytes it must move."""

    name: str
    make: Make
    nbytes: int
    webgpu: bool = False


@dataclass(frozen=True)
class Timed:
    """Seconds of one call."""

    case: Case
    device: str
    ours: float
    theirs: float


# ---- the work ----


def _functional(lib: Any) -> Any:
    return importlib.import_module(f"{lib.__name__}.nn.functional")


def _random(lib: Any, device: str, dtype: str, *shape: int) -> Any:
    return lib.randn(*shape, device=device).to(getattr(lib, dtype))


def _forward(dtype: str, shape: tuple[int, ...], f: Callable[[Any, Any], Any]) -> Make:
    """`f(lib, x)` of one tensor, without a record."""

    def make(lib: Any, device: str) -> Work:
        x = _random(lib, device, dtype, *shape)

        def work() -> None:
            with lib.no_grad():
                f(lib, x)

        return work

    return make


def _backward(dtype: str, shape: tuple[int, ...], weights: int, f: Callable[..., Any]) -> Make:
    """Forward and backward of `f(lib, x, *weights)`, the weights float32 of the last size."""

    def make(lib: Any, device: str) -> Work:
        x = _random(lib, device, dtype, *shape).requires_grad_()
        given = [_random(lib, device, dtype, shape[-1]).requires_grad_() for _ in range(weights)]
        g = _random(lib, device, dtype, *shape)

        def work() -> None:
            for leaf in (x, *given):
                leaf.grad = None
            f(lib, x, *given).backward(g)

        return work

    return make


def _binary(dtypes: tuple[str, str], shapes: Sequence[tuple[int, ...]]) -> Make:
    def make(lib: Any, device: str) -> Work:
        a, b = (_random(lib, device, d, *s) for d, s in zip(dtypes, shapes, strict=True))
        return lambda: a + b

    return make


def _permuted(dtype: str, shape: tuple[int, ...], order: tuple[int, ...]) -> Make:
    return _forward(dtype, shape, lambda lib, x: x.permute(*order).contiguous())


def _cross_entropy(dtype: str, rows: int, classes: int) -> Make:
    def make(lib: Any, device: str) -> Work:
        x = _random(lib, device, dtype, rows, classes).requires_grad_()
        y = lib.randint(0, classes, (rows,)).to(device)
        functional = _functional(lib)

        def work() -> None:
            x.grad = None
            functional.cross_entropy(x, y).backward()

        return work

    return make


def _embedding(rows: int, backward: bool) -> Make:
    def make(lib: Any, device: str) -> Work:
        table = _random(lib, device, "float32", VOCABULARY, WIDTH).requires_grad_(backward)
        index = lib.randint(0, VOCABULARY, (rows,)).to(device)
        g = _random(lib, device, "float32", rows, WIDTH)
        functional = _functional(lib)

        def work() -> None:
            if not backward:
                functional.embedding(index, table)
                return
            table.grad = None
            functional.embedding(index, table).backward(g)

        return work

    return make


def _gpt2_leaves(lib: Any, device: str) -> list[Any]:
    """Leaves of GPT-2's shapes with gradients."""
    block = [(WIDTH,), (WIDTH,), (3 * WIDTH, WIDTH), (3 * WIDTH,), (WIDTH, WIDTH), (WIDTH,)]
    block += [(WIDTH,), (WIDTH,), (4 * WIDTH, WIDTH), (4 * WIDTH,), (WIDTH, 4 * WIDTH), (WIDTH,)]
    shapes = [(VOCABULARY, WIDTH), (1024, WIDTH), *block * 12, (WIDTH,), (WIDTH,)]
    leaves = [lib.zeros(s, device=device, requires_grad=True) for s in shapes]
    for leaf in leaves:
        leaf.grad = lib.ones(leaf.shape, device=device)
    return leaves


def _adamw(clip: bool) -> Make:
    def make(lib: Any, device: str) -> Work:
        leaves = _gpt2_leaves(lib, device)
        optimizer = importlib.import_module(f"{lib.__name__}.optim").AdamW(leaves, lr=1e-4)
        utils = importlib.import_module(f"{lib.__name__}.nn.utils")

        def work() -> None:
            if clip:
                utils.clip_grad_norm_(leaves, 1.0)
            else:
                optimizer.step()

        return work

    return make


F32, BF16 = "float32", "bfloat16"
FLAT, SQUARE, HEADS = 1 << 26, 8192, (16, 1024, 12, 64)
LONG = (65536, 1024)
SIZE = TOKENS * WIDTH


def _norm(lib: Any, x: Any, *weights: Any) -> Any:
    return _functional(lib).layer_norm(x, (x.shape[-1],), *weights)


def _rms(lib: Any, x: Any, *weights: Any) -> Any:
    return _functional(lib).rms_norm(x, (x.shape[-1],), *weights)


def map_cases() -> list[Case]:
    halved = _forward(F32, (FLAT,), lambda lib, x: x.to(lib.bfloat16))
    square = (SQUARE, SQUARE)
    return [
        Case("add float32", _binary((F32, F32), [(FLAT,)] * 2), 12 * FLAT, True),
        Case("add bfloat16", _binary((BF16, BF16), [(FLAT,)] * 2), 6 * FLAT, True),
        Case("add bfloat16 + float32", _binary((BF16, F32), [(FLAT,)] * 2), 10 * FLAT, True),
        Case("float32 to bfloat16", halved, 6 * FLAT, True),
        Case(
            "bias bfloat16 16384x3072",
            _binary((BF16, BF16), [(TOKENS, 4 * WIDTH), (4 * WIDTH,)]),
            16 * SIZE,
            True,
        ),
        Case("transpose float32", _permuted(F32, square, (1, 0)), 8 * SQUARE**2, True),
        Case("transpose bfloat16", _permuted(BF16, square, (1, 0)), 4 * SQUARE**2),
        Case("heads bfloat16", _permuted(BF16, HEADS, (0, 2, 1, 3)), 4 * SIZE),
        Case("heads transposed bfloat16", _permuted(BF16, HEADS, (0, 2, 3, 1)), 4 * SIZE),
    ]


def fold_cases() -> list[Case]:
    def rows(lib: Any, x: Any) -> Any:
        return x.sum(-1)

    def columns(lib: Any, x: Any) -> Any:
        return x.sum(0)

    t, d = TOKENS, WIDTH
    return [
        Case("sum of rows float32 65536x1024", _forward(F32, LONG, rows), 4 << 26, True),
        Case("sum of rows bfloat16 16384x768", _forward(BF16, (t, d), rows), 2 * SIZE),
        Case("sum of all float32", _forward(F32, (FLAT,), lambda lib, x: x.sum()), 4 * FLAT, True),
        Case("sum of columns float32 16384x768", _forward(F32, (t, d), columns), 4 * SIZE, True),
        Case("sum of columns bfloat16 16384x768", _forward(BF16, (t, d), columns), 2 * SIZE),
        Case("sum of columns bfloat16 16384x3072", _forward(BF16, (t, 4 * d), columns), 8 * SIZE),
    ]


def norm_cases() -> list[Case]:
    def soft(lib: Any, x: Any) -> Any:
        return lib.softmax(x, -1)

    t, d = TOKENS, WIDTH
    return [
        Case("softmax float32 65536x1024", _forward(F32, LONG, soft), 8 << 26, True),
        Case("softmax bfloat16 65536x1024", _forward(BF16, LONG, soft), 4 << 26),
        Case("softmax float32 1048576x64", _forward(F32, (1 << 20, 64), soft), 8 << 26, True),
        Case("layer_norm float32 65536x1024", _forward(F32, LONG, _norm), 8 << 26, True),
        Case("layer_norm float32 16384x768", _forward(F32, (t, d), _norm), 8 * SIZE),
        Case("rms_norm float32 65536x1024", _forward(F32, LONG, _rms), 8 << 26, True),
        Case("layer_norm, backward, float32", _backward(F32, (t, d), 2, _norm), 20 * SIZE, True),
        Case("rms_norm, backward, float32", _backward(F32, (t, d), 1, _rms), 20 * SIZE),
        Case("layer_norm, backward, bfloat16", _backward(BF16, (t, d), 2, _norm), 10 * SIZE),
    ]


def model_cases() -> list[Case]:
    t, v, odd = TOKENS, VOCABULARY, 50257
    name = "cross_entropy, backward,"
    return [
        Case(f"{name} bfloat16 16384x50304", _cross_entropy(BF16, t, v), 6 * t * v),
        Case(f"{name} bfloat16 16384x50257", _cross_entropy(BF16, t, odd), 6 * t * odd),
        Case(f"{name} float32 4096x50257", _cross_entropy(F32, 4096, odd), 12 * 4096 * odd, True),
        Case("embedding float32", _embedding(t, False), 8 * SIZE),
        Case("embedding, backward, float32", _embedding(t, True), 16 * SIZE + 4 * v * WIDTH),
        Case("AdamW, 148 tensors of GPT-2", _adamw(False), 28 * 124_475_904),
        Case("clip_grad_norm_, 148 tensors of GPT-2", _adamw(True), 12 * 124_475_904),
    ]


def cases() -> list[Case]:
    """Every row; sizes are those of GPT-2 124M, batch 16 x 1024, or of about half a GiB."""
    return [*map_cases(), *fold_cases(), *norm_cases(), *model_cases()]


# ---- timing ----


def seconds(work: Work, wait: Work, budget: float) -> float:
    """The best mean of several runs of calls within one wait."""
    work(), work(), wait()
    start = time.perf_counter()
    work(), work(), wait()
    calls = max(2, min(200, int(budget / 5 / max((time.perf_counter() - start) / 2, 1e-6))))
    best = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(calls):
            work()
        wait()
        best = min(best, (time.perf_counter() - start) / calls)
    return best


def measure(case: Case, device: str, budget: float = 0.1) -> Timed:
    """Ours on `device` against PyTorch on cuda."""
    ours = seconds(case.make(rl, device), pool_of(device).device.synchronize, budget)
    pool_of(device).trim()
    theirs = seconds(case.make(torch, "cuda"), torch.cuda.synchronize, budget)
    torch.cuda.empty_cache()
    return Timed(case, device, ours, theirs)


def show(row: Timed) -> str:
    ours, theirs = (row.case.nbytes / t / 1e9 for t in (row.ours, row.theirs))
    return (
        f"| {row.case.name} | {row.device} | {row.ours * 1e6:.1f} | {row.theirs * 1e6:.1f} | "
        f"{row.ours / row.theirs:.2f} | {ours:.0f} | {theirs:.0f} |"
    )


# ---- GPT-2 by kernel ----


def by_kernel(work: Work, wait: Work) -> list[tuple[str, int, float]]:
    """Name, launches and milliseconds of each kernel of one call, the longest first."""
    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        work()
        wait()
    counts: defaultdict[str, int] = defaultdict(int)
    times: defaultdict[str, float] = defaultdict(float)
    for event in profile.events():
        counts[event.name] += 1
        times[event.name] += event.device_time / 1e3
    return sorted(((n, counts[n], times[n]) for n in counts), key=lambda row: -row[2])


def profile_gpt2() -> None:
    for lib in (rl, torch):
        wait = torch.cuda.synchronize if lib is torch else pool_of("cuda").device.synchronize
        step = gpt_step(lib, "cuda")
        took = seconds(step, wait, 1.0)
        table = by_kernel(step, wait)
        launches, total = sum(r[1] for r in table), sum(r[2] for r in table)
        print(f"\nGPT-2 124M step, {lib.__name__}: {took * 1e3:.1f} ms", end="; ")
        print(f"{launches} kernels, {total:.1f} ms")
        for name, count, milliseconds in table[:25]:
            print(f"{milliseconds:9.3f} ms {count:5d}  {name[:90]}")


def main() -> None:
    print(f"PyTorch {torch.__version__}; {pool_of('cuda').device.limits.description}")
    print("\n| | device | ours, us | PyTorch, us | ratio | GB/s | PyTorch's GB/s |")
    print("|---|---|---|---|---|---|---|")
    for case in cases():
        print(show(measure(case, "cuda")), flush=True)
        if case.webgpu and "--webgpu" in sys.argv:
            print(show(measure(case, "webgpu")), flush=True)
    if "--profile" in sys.argv:
        profile_gpt2()


if __name__ == "__main__":
    main()
