"""Attention, convolution and recurrent layers against PyTorch in the same run, two threads each.

python benchmarks/layers.py [name ...]      prints a Markdown table; exit code 1 if a bar is missed
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

# PyTorch's oneDNN uses AMX where the CPU lists it, and crashes where the system does not allow it.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
os.environ.setdefault("RUSHLIGHT_THREADS", "2")

import torch
from compare import HOW, compare, table
from workloads import Work

import rushlight as rl

torch.set_num_threads(int(os.environ["RUSHLIGHT_THREADS"]))


def functional(lib: Any) -> Any:
    return importlib.import_module(f"{lib.__name__}.nn.functional")


def attention(lib: Any, backward: bool, causal: bool = False) -> Work:
    """8 x 8 heads of 512 x 64."""
    q, k, v = (lib.randn(8, 8, 512, 64, requires_grad=backward) for _ in range(3))
    g, attend = lib.randn(8, 8, 512, 64), functional(lib).scaled_dot_product_attention

    def work() -> None:
        out = attend(q, k, v, is_causal=causal)
        if backward:
            q.grad = k.grad = v.grad = None
            out.backward(g)

    return work


def convolution(lib: Any, backward: bool, kernel: int = 3, **options: Any) -> Work:
    """16 images of 64 x 32 x 32 to 64 channels."""
    groups = options.get("groups", 1)
    x = lib.randn(16, 64, 32, 32, requires_grad=backward)
    w = lib.randn(64, 64 // groups, kernel, kernel, requires_grad=backward)
    convolve = functional(lib).conv2d
    g = lib.randn(*convolve(x, w, None, **options).shape)

    def work() -> None:
        out = convolve(x, w, None, **options)
        if backward:
            x.grad = w.grad = None
            out.backward(g)

    return work


def recurrent(lib: Any, backward: bool, kind: str) -> Work:
    """Two layers of 256 over 32 sequences of 64 steps of 128."""
    layers = getattr(importlib.import_module(f"{lib.__name__}.nn"), kind)(128, 256, 2)
    x, g = lib.randn(64, 32, 128), lib.randn(64, 32, 256)

    def work() -> None:
        if backward:
            layers.zero_grad()
            layers(x)[0].backward(g)
        else:
            with lib.no_grad():
                layers(x)

    return work


KINDS: dict[str, tuple[float, dict[str, Any]]] = {
    "conv2d 3x3": (1.0, {"padding": 1}),
    "conv2d 1x1": (1.2, {"kernel": 1}),
    "conv2d 3x3, stride 2": (1.2, {"padding": 1, "stride": 2}),
    "conv2d 3x3, depthwise": (1.2, {"padding": 1, "groups": 64}),
}


def pairs() -> dict[str, tuple[Any, float]]:
    found: dict[str, tuple[Any, float]] = {}
    for backward in (False, True):
        both = ", forward and backward" if backward else ", forward"
        for name, causal in (
            ("attention 8x8x512x64", False),
            ("attention 8x8x512x64, causal", True),
        ):
            found[name + both] = (lambda lib, b=backward, c=causal: attention(lib, b, c), 1.0)
        for name, (bar, options) in KINDS.items():
            found[name + both] = (lambda lib, b=backward, o=options: convolution(lib, b, **o), bar)
        for kind in ("LSTM", "GRU"):
            found[f"{kind} 2x256{both}"] = (
                lambda lib, b=backward, k=kind: recurrent(lib, b, k),
                0.9,
            )
    return found


def main() -> int:
    wanted = sys.argv[1:]
    rows = []
    for name, (make, bar) in pairs().items():
        if not wanted or any(part in name for part in wanted):
            rows.append(compare(name, make(rl), make(torch), bar, 1))
            print(f"{name}: {rows[-1].ratio:.2f}", file=sys.stderr)
    print(f"PyTorch {torch.__version__}, {torch.get_num_threads()} thread(s) each, {HOW}")
    print()
    print(table(rows, "PyTorch"))
    return 0 if all(r.reached for r in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
