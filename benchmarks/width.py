"""The speed table of single ops: Rushlight against PyTorch in one run, two threads, float32.

python benchmarks/width.py [name ...]      prints a Markdown table; exit code 1 if a bar is missed
"""

from __future__ import annotations

import os
import resource
import sys

# PyTorch's oneDNN uses AMX where the CPU lists it, and crashes where the system does not allow it.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
os.environ.setdefault("RUSHLIGHT_THREADS", "2")

import importlib
from collections.abc import Callable
from typing import Any

import torch
from compare import HOW, Row, compare, table

import rushlight as rl

torch.set_num_threads(int(os.environ["RUSHLIGHT_THREADS"]))
Work = Callable[[], object]
Make = Callable[[Any], Work]

MEGA = 1024


def functional(lib: Any) -> Any:
    return importlib.import_module(f"{lib.__name__}.nn.functional")


def pointwise(name: str, power: int) -> Make:
    def make(lib: Any) -> Work:
        a, b = lib.randn(1 << power), lib.randn(1 << power)
        c = a > b
        f = functional(lib)
        return {
            "add": lambda: a + b,
            "mul": lambda: a * b,
            "exp": lambda: lib.exp(a),
            "tanh": lambda: lib.tanh(a),
            "gelu": lambda: f.gelu(a),
            "relu": lambda: lib.relu(a),
            "where": lambda: lib.where(c, a, b),
        }[name]

    return make


def square(act: Callable[[Any, Any], object]) -> Make:
    """An op on a megaelement, 1024 x 1024."""

    def make(lib: Any) -> Work:
        x = lib.randn(MEGA, MEGA)
        return lambda: act(lib, x)

    return make


def flat(act: Callable[[Any, Any], object]) -> Make:
    """An op on a megaelement in one row."""

    def make(lib: Any) -> Work:
        x = lib.randn(MEGA * MEGA)
        return lambda: act(lib, x)

    return make


def indexed(name: str) -> Make:
    def make(lib: Any) -> Work:
        lib.manual_seed(0)
        x = lib.randn(MEGA, MEGA)
        index = lib.randint(0, MEGA, (MEGA, MEGA))
        rows = lib.randint(0, MEGA, (MEGA,))
        return {
            "gather along rows": lambda: lib.gather(x, 1, index),
            "gather along columns": lambda: lib.gather(x, 0, index),
            "index_select rows": lambda: lib.index_select(x, 0, rows),
            "index_select columns": lambda: lib.index_select(x, 1, rows),
        }[name]

    return make


def joined(dim: int) -> Make:
    def make(lib: Any) -> Work:
        parts = [
            lib.randn(MEGA // 2, MEGA) if dim == 0 else lib.randn(MEGA, MEGA // 2) for _ in range(2)
        ]
        return lambda: lib.cat(parts, dim)

    return make


def product(n: int) -> Make:
    def make(lib: Any) -> Work:
        a, b = lib.randn(n, n), lib.randn(n, n)
        return lambda: a @ b

    return make


def convolution(channels: int, kernel: int, backward: bool, **named: Any) -> Make:
    """conv2d of 16x64x32x32 with `channels` filters."""

    def make(lib: Any) -> Work:
        f = functional(lib)
        groups = named.get("groups", 1)
        x = lib.randn(16, 64, 32, 32, requires_grad=backward)
        w = lib.randn(channels, 64 // groups, kernel, kernel, requires_grad=backward)
        g = lib.randn(*f.conv2d(x.detach(), w.detach(), **named).shape)

        def work() -> object:
            out = f.conv2d(x, w, **named)
            if backward:
                x.grad = w.grad = None
                out.backward(g)
            return out

        return work

    return make


def attention(backward: bool, **named: Any) -> Make:
    def make(lib: Any) -> Work:
        f = functional(lib)
        q, k, v = (lib.randn(8, 8, 512, 64, requires_grad=backward) for _ in range(3))
        g = lib.randn(8, 8, 512, 64)

        def work() -> object:
            out = f.scaled_dot_product_attention(q, k, v, **named)
            if backward:
                q.grad = k.grad = v.grad = None
                out.backward(g)
            return out

        return work

    return make


def layer_norm(lib: Any) -> Work:
    x, w, b = lib.randn(MEGA, MEGA), lib.ones(MEGA), lib.zeros(MEGA)
    f = functional(lib)
    return lambda: f.layer_norm(x, (MEGA,), w, b)


def rows() -> dict[str, tuple[Make, float]]:
    found: dict[str, tuple[Make, float]] = {}
    for name in ("add", "mul", "exp", "tanh", "gelu", "relu", "where"):
        for power in (12, 16, 20, 23):
            found[f"{name}, 2^{power}"] = (pointwise(name, power), 1.0)
    found |= {
        "softmax": (square(lambda lib, x: lib.softmax(x, -1)), 1.0),
        "layer_norm": (layer_norm, 1.0),
        "logsumexp": (square(lambda lib, x: lib.logsumexp(x, -1)), 1.0),
        "sum of all": (square(lambda lib, x: x.sum()), 1.0),
        "sum of rows": (square(lambda lib, x: x.sum(1)), 1.0),
        "sum of columns": (square(lambda lib, x: x.sum(0)), 1.0),
        "argmax of rows": (square(lambda lib, x: x.argmax(1)), 1.0),
        "argmax of columns": (square(lambda lib, x: x.argmax(0)), 1.0),
        "argmax of all": (square(lambda lib, x: x.argmax()), 1.0),
        "cumsum along rows": (square(lambda lib, x: x.cumsum(1)), 1.0),
        "cumsum along columns": (square(lambda lib, x: x.cumsum(0)), 1.0),
        "cumsum, one row": (flat(lambda lib, x: x.cumsum(0)), 1.0),
        "sort along rows": (square(lambda lib, x: x.sort(1)), 1.5),
        "sort along columns": (square(lambda lib, x: x.sort(0)), 1.5),
        "sort, one row": (flat(lambda lib, x: x.sort()), 1.5),
        "topk 10 along rows": (square(lambda lib, x: x.topk(10, 1)), 1.5),
        "topk 10, one row": (flat(lambda lib, x: x.topk(10)), 1.5),
        **{name: (indexed(name), 1.0) for name in ("gather along rows", "gather along columns")},
        **{name: (indexed(name), 1.0) for name in ("index_select rows", "index_select columns")},
        "cat along rows": (joined(0), 1.0),
        "cat along columns": (joined(1), 1.0),
        "transpose-copy": (square(lambda lib, x: x.t().contiguous()), 1.0),
    }
    for n in (64, 128, 256, 512, 1024, 2048):
        found[f"matmul {n}"] = (product(n), 1.1)
    same = {"padding": 1}
    found |= {
        "conv2d 3x3, forward": (convolution(64, 3, False, **same), 1.0),
        "conv2d 3x3, forward and backward": (convolution(64, 3, True, **same), 1.0),
        "conv2d depthwise 3x3, forward": (convolution(64, 3, False, groups=64, **same), 1.2),
        "conv2d depthwise 3x3, forward and backward": (
            convolution(64, 3, True, groups=64, **same),
            1.2,
        ),
        "conv2d 1x1, forward": (convolution(64, 1, False), 1.2),
        "conv2d 1x1, forward and backward": (convolution(64, 1, True), 1.2),
        "conv2d 3x3 stride 2, forward": (convolution(64, 3, False, stride=2, **same), 1.2),
        "conv2d 3x3 stride 2, forward and backward": (
            convolution(64, 3, True, stride=2, **same),
            1.2,
        ),
        "attention 8x8x512x64, forward": (attention(False), 1.0),
        "attention 8x8x512x64, forward and backward": (attention(True), 1.0),
        "attention 8x8x512x64, causal, forward": (attention(False, is_causal=True), 1.0),
    }
    return found


def page_faults(work: Work) -> float:
    """The number of new pages from the system in one call, once the allocator is warm."""
    for _ in range(20):
        work()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(4):
        work()
    return (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / 4


def main() -> int:
    wanted = sys.argv[1:]
    measured: list[Row] = []
    for name, (make, bar) in rows().items():
        if wanted and not any(part in name for part in wanted):
            continue
        ours, theirs = make(rl), make(torch)
        if ", 2^" in name and page_faults(theirs) > 100:
            bar = 0.8
        measured.append(compare(name, ours, theirs, bar, seconds=1.5))
        print(f"{name}: {measured[-1].ratio:.2f}", file=sys.stderr)
    print(f"PyTorch {torch.__version__}, {torch.get_num_threads()} thread(s) each, {HOW}")
    print()
    print(table(measured, "PyTorch"))
    return 0 if all(r.reached for r in measured) else 1


if __name__ == "__main__":
    sys.exit(main())
