"""Convolution on `cuda` (and `webgpu`) against PyTorch on the same GPU, in one run.

python benchmarks/gpu_convolution.py [--webgpu]

A line has milliseconds and peaks (MiB): ours, PyTorch's, their ratio. Needs an NVIDIA GPU, CuPy and
PyTorch.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from gpu_models import BATCH, Work, resnet_step

import rushlight as rl
from rushlight.devices.shared.registry import pool_of

IMAGE, WEIGHT = (64, 128, 56, 56), (128, 128, 3, 3)


class Line(NamedTuple):
    """Seconds and peak bytes of both."""

    name: str
    ours: float
    theirs: float
    our_peak: int
    their_peak: int

    def __str__(self) -> str:
        peaks = f"{self.our_peak / 2**20:8.0f} / {self.their_peak / 2**20:6.0f} MiB"
        ratio = self.ours / self.theirs
        return (
            f"{self.name:<44} {1e3 * self.ours:8.3f} / {1e3 * self.theirs:8.3f} ms {ratio:6.2f}"
            f"   {peaks} {self.our_peak / max(1, self.their_peak):5.2f}"
        )


def finish(lib: Any, device: str) -> None:
    if lib is torch:
        torch.cuda.synchronize()
    else:
        pool_of(device).device.synchronize()


def seconds(lib: Any, device: str, work: Work, blocks: int = 5, length: float = 0.15) -> float:
    """The best block's time of one call; calls are queued without waiting."""
    for _ in range(8):
        work()
    finish(lib, device)
    start = time.perf_counter()
    work()
    finish(lib, device)
    calls = max(1, int(length / (time.perf_counter() - start)))
    best = float("inf")
    for _ in range(blocks):
        start = time.perf_counter()
        for _ in range(calls):
            work()
        finish(lib, device)
        best = min(best, (time.perf_counter() - start) / calls)
    return best


def peak(lib: Any, device: str, work: Work) -> int:
    if lib is torch:
        torch.cuda.reset_peak_memory_stats()
        work()
        return int(torch.cuda.max_memory_allocated())
    rl.memory.reset_peak(device)
    work()
    return rl.memory.peak(device)


def set_tf32(allowed: bool) -> None:
    for lib in (rl, torch):
        lib.backends.cudnn.allow_tf32 = allowed


def passes(lib: Any, device: str, dtype: str) -> dict[str, Work]:
    """The convolution and its two gradients, each alone."""
    lib.manual_seed(0)
    kind = getattr(lib, dtype)
    x, w = (lib.randn(*shape, device=device).to(kind) for shape in (IMAGE, WEIGHT))
    functional = lib.nn.functional
    x_leaf, w_leaf = x.clone().requires_grad_(), w.clone().requires_grad_()
    g = lib.ones_like(functional.conv2d(x, w, padding=1))
    data, weights = (functional.conv2d(*v, padding=1) for v in ((x_leaf, w), (x, w_leaf)))

    def gradient(out: Any, leaf: Any) -> Work:
        return lambda: lib.autograd.grad(out, leaf, g, retain_graph=True)

    return {
        "forward": lambda: functional.conv2d(x, w, padding=1),
        "data gradient": gradient(data, x_leaf),
        "weight gradient": gradient(weights, w_leaf),
    }


def measured(name: str, ours: Work, theirs: Work, device: str = "cuda") -> Line:
    times = seconds(rl, device, ours), seconds(torch, "cuda", theirs)
    peaks = peak(rl, device, ours), peak(torch, "cuda", theirs)
    return Line(name, *times, *peaks)


def lines(device: str = "cuda") -> Iterator[Line]:
    """PyTorch is on `cuda` whatever our device is."""
    cases = [("float32", True), ("float32", False), ("bfloat16", True)]
    for dtype, tf32 in cases if device == "cuda" else [("float32", False)]:
        set_tf32(tf32)
        label = f"{device} {dtype}{' tf32' if tf32 and dtype == 'float32' else ''}"
        ours, theirs = passes(rl, device, dtype), passes(torch, "cuda", dtype)
        for name in ours:
            yield measured(f"{label}: conv2d 3x3 {name}", ours[name], theirs[name], device)
        del ours, theirs
        torch.cuda.empty_cache()
        yield measured(
            f"{label}: ResNet-18 step, batch {BATCH}",
            resnet_step(rl, device, dtype),
            resnet_step(torch, "cuda", dtype),
            device,
        )
    set_tf32(True)


def main() -> None:
    devices = ["cuda", "webgpu"] if "--webgpu" in sys.argv else ["cuda"]
    print(f"PyTorch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}")
    for device in devices:
        print(pool_of(device).device.limits.description)
        for line in lines(device):
            print(line, flush=True)


if __name__ == "__main__":
    main()
