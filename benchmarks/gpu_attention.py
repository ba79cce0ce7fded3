"""Attention on an NVIDIA GPU: Rushlight on `cuda` against PyTorch, in one run.

python benchmarks/gpu_attention.py

Times are of work that is queued and then waited for. An error is the largest difference from
PyTorch's float64 result, as a part of its largest element; PyTorch's own is beside it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

import rushlight as rl
from rushlight.devices.shared.registry import pool_of

REPEATS = 20


class Case(NamedTuple):
    """Batch, heads, rows, head size; `joined`: query, key and value are views of one projection."""

    name: str
    shape: tuple[int, int, int, int]
    dtype: str
    causal: bool = True
    joined: bool = False
    masked: bool = False
    dropout: float = 0.0
    groups: int = 0  # key heads; 0: as many as query heads


class Measured(NamedTuple):
    forward: float  # milliseconds
    backward: float
    peak: float  # MiB beyond the operands, forward and backward
    found: list[Any]  # the output and three gradients, float64 on the host


CASES = [
    Case("float32", (16, 12, 1024, 64), "float32"),
    Case("bfloat16", (16, 12, 1024, 64), "bfloat16"),
    Case("bfloat16, one projection", (16, 12, 1024, 64), "bfloat16", joined=True),
    Case("float16, not causal", (16, 12, 1024, 64), "float16", causal=False),
    Case("bfloat16, head 128", (4, 16, 2048, 128), "bfloat16"),
    Case("float32, head 128", (4, 16, 1024, 128), "float32"),
    Case("bfloat16, head 80", (8, 12, 1000, 80), "bfloat16"),
    Case("bfloat16, added mask", (16, 12, 512, 64), "bfloat16", causal=False, masked=True),
    Case("bfloat16, 3 key heads", (16, 12, 1024, 64), "bfloat16", groups=3),
    Case("bfloat16, dropout", (16, 12, 1024, 64), "bfloat16", dropout=0.1),
]


def operands(case: Case) -> tuple[list[torch.Tensor], torch.Tensor | None]:
    """On the host: query, key, value and gradient, and a mask."""
    torch.manual_seed(0)
    batch, heads, rows, size = case.shape
    key_heads = case.groups or heads
    dtype = getattr(torch, case.dtype)
    shapes = [(batch, heads, rows, size)] + [(batch, key_heads, rows, size)] * 2
    made = [torch.randn(s).to(dtype) for s in (*shapes, shapes[0])]
    return made, torch.randn(rows, rows).to(dtype) if case.masked else None


def timed(work: Callable[[], object], wait: Callable[[], object], repeats: int = REPEATS) -> float:
    """Milliseconds, the best of three."""
    times = []
    for _ in range(3):
        work()
        wait()
        start = time.perf_counter()
        for _ in range(repeats):
            work()
        wait()
        times.append((time.perf_counter() - start) / repeats)
    return 1e3 * min(times)


def measured(lib: Any, case: Case, precise: bool = False) -> Measured:
    host, mask = operands(case)
    wait = torch.cuda.synchronize if lib is torch else pool_of("cuda").device.synchronize

    def sent(x: torch.Tensor) -> Any:
        if lib is torch:
            return x.cuda().double() if precise else x.cuda()
        return lib.tensor(x.float().numpy(), device="cuda").to(getattr(lib, case.dtype))

    q, k, v, g = map(sent, host)
    if case.joined:
        whole = lib.stack([x.transpose(1, 2) for x in (q, k, v)], 2).contiguous()
        q, k, v = (whole[:, :, i].transpose(1, 2) for i in range(3))
    leaves = [x.detach().requires_grad_() for x in (q, k, v)]
    options: dict[str, Any] = {"is_causal": case.causal, "enable_gqa": bool(case.groups)}
    if mask is not None:
        options["attn_mask"] = sent(mask)
    if case.dropout and not precise:
        options["dropout_p"] = case.dropout
    attend = lib.nn.functional.scaled_dot_product_attention
    base, most = (
        (torch.cuda.memory_allocated, torch.cuda.max_memory_allocated)
        if lib is torch
        else (lambda: pool_of("cuda").live, lambda: lib.memory.peak("cuda"))
    )
    out = attend(*leaves, **options)
    lib.autograd.grad(out, leaves, g)
    del out
    before = base()
    (
        torch.cuda.reset_peak_memory_stats
        if lib is torch
        else lambda: lib.memory.reset_peak("cuda")
    )()
    out = attend(*leaves, **options)
    grads = lib.autograd.grad(out, leaves, g, retain_graph=True)
    peak = (most() - before) / 2**20
    found = [x.detach().double().cpu().numpy() for x in (out, *grads)]
    del grads
    if precise:
        return Measured(0.0, 0.0, peak, found)
    forward = timed(lambda: attend(*leaves, **options), wait)
    backward = timed(lambda: lib.autograd.grad(out, leaves, g, retain_graph=True), wait)
    return Measured(forward, backward, peak, found)


def error(got: list[Any], right: list[Any]) -> float:
    return max(float(abs(a - b).max() / abs(b).max()) for a, b in zip(got, right, strict=True))


def rows(cases: list[Case]) -> list[str]:
    """A line per case: ours, PyTorch's, ratio."""
    head = f"{'case':28} {'forward ms':>22} {'backward ms':>22} {'peak MiB':>16} {'error':>18}"
    lines = [head]
    for case in cases:
        ours, theirs = measured(rl, case), measured(torch, case)
        text = f"{case.name:28}"
        for a, b in ((ours.forward, theirs.forward), (ours.backward, theirs.backward)):
            text += f" {a:7.3f} {b:7.3f} {a / b:6.2f}"
        text += f" {ours.peak:8.0f} {theirs.peak:7.0f}"
        if not case.dropout:
            right = measured(torch, case, precise=True).found
            text += f" {error(ours.found, right):8.1e} {error(theirs.found, right):8.1e}"
        lines.append(text)
        print(text, flush=True)
        torch.cuda.empty_cache()
    return lines


def main() -> int:
    print(f"PyTorch {torch.__version__}; {pool_of('cuda').device.limits.description}")
    rows(CASES)
    return 0


if __name__ == "__main__":
    sys.exit(main())
