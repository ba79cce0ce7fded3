"""The cost of small calls: families of calls with little to compute against PyTorch, float32.

python benchmarks/small.py [name ...]      prints a Markdown table

A row is a call under gradient mode, or the call and its backward pass. No bars are set: the table
shows where a call costs more.
"""

from __future__ import annotations

import os
import sys

# PyTorch's oneDNN uses AMX where the CPU lists it, and crashes where the system does not allow it.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
os.environ.setdefault("RUSHLIGHT_THREADS", "2")

import importlib
import math
from collections.abc import Callable
from typing import Any

import torch
from compare import HOW, Row, compare, table

import rushlight as rl

torch.set_num_threads(int(os.environ["RUSHLIGHT_THREADS"]))
Work = Callable[[], object]
Act = Callable[..., Any]  # of the library, its nn.functional and the tensors


def functional(lib: Any) -> Any:
    return importlib.import_module(f"{lib.__name__}.nn.functional")


def work(lib: Any, act: Act, shapes: tuple[tuple[int, ...], ...], back: bool) -> Work:
    """The call on tensors of these shapes that require gradients.

    `back`: with its backward pass.
    """
    lib.manual_seed(0)
    f = functional(lib)
    leaves = [lib.rand(shape).requires_grad_() for shape in shapes]
    if not back:
        return lambda: act(lib, f, *leaves)
    g = lib.ones_like(act(lib, f, *leaves))

    def both() -> None:
        act(lib, f, *leaves).backward(g)
        for leaf in leaves:
            leaf.grad = None

    return both


def batch_norm(lib: Any, f: Any, x: Any, w: Any, b: Any) -> Any:
    key = (lib, w.shape[0])
    if key not in STATISTICS:
        STATISTICS[key] = lib.zeros(w.shape[0]), lib.ones(w.shape[0])
    return f.batch_norm(x, *STATISTICS[key], w, b, training=True)


def batch_norm_eval(lib: Any, f: Any, x: Any, w: Any, b: Any) -> Any:
    return f.batch_norm(x, w.detach(), b.detach(), w, b)


def square(lib: Any, f: Any, x: Any) -> Any:
    if lib not in FUNCTIONS:

        class Square(lib.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                ctx.save_for_backward(x)
                return x * x

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                (x,) = ctx.saved_tensors
                return 2 * g * x

        FUNCTIONS[lib] = Square
    return FUNCTIONS[lib].apply(x)


def labels(lib: Any, count: int, most: int) -> Any:
    key = (lib, count, most)
    if key not in STATISTICS:
        STATISTICS[key] = lib.arange(count) % most
    return STATISTICS[key]


def assigned(lib: Any, f: Any, x: Any) -> Any:
    y = x.detach().clone()
    y[:, 1:3] = 0.0
    return y


STATISTICS: dict[Any, Any] = {}
FUNCTIONS: dict[Any, Any] = {}

MATRIX, IMAGE = (32, 64), (4, 8, 16, 16)
# Name: the call, and its shapes.
ROWS: dict[str, tuple[Act, tuple[tuple[int, ...], ...]]] = {
    "batch_norm (64, 256)": (batch_norm, ((64, 256), (256,), (256,))),
    "batch_norm (32, 64, 8, 8)": (batch_norm, ((32, 64, 8, 8), (64,), (64,))),
    "batch_norm of running statistics (64, 256)": (batch_norm_eval, ((64, 256), (256,), (256,))),
    "layer_norm": (lambda t, f, x, w, b: f.layer_norm(x, (64,), w, b), (MATRIX, (64,), (64,))),
    "group_norm": (lambda t, f, x, w, b: f.group_norm(x, 4, w, b), (IMAGE, (8,), (8,))),
    "instance_norm": (lambda t, f, x: f.instance_norm(x), (IMAGE,)),
    "rms_norm": (lambda t, f, x, w: f.rms_norm(x, (64,), w), (MATRIX, (64,))),
    "autograd.Function": (square, ((8,),)),
    "sum of all": (lambda t, f, x: x.sum(), (MATRIX,)),
    "mean over two dimensions": (lambda t, f, x: x.mean((2, 3)), (IMAGE,)),
    "var": (lambda t, f, x: x.var(1), (MATRIX,)),
    "std of all": (lambda t, f, x: x.std(), (MATRIX,)),
    "norm": (lambda t, f, x: x.norm(), (MATRIX,)),
    "mse_loss": (lambda t, f, x, y: f.mse_loss(x, y), (MATRIX, MATRIX)),
    "cross_entropy": (lambda t, f, x: f.cross_entropy(x, labels(t, 32, 64)), (MATRIX,)),
    "cosine_similarity": (lambda t, f, x, y: f.cosine_similarity(x, y), (MATRIX, MATRIX)),
    "triplet_margin_loss": (lambda t, f, x, y, z: f.triplet_margin_loss(x, y, z), (MATRIX,) * 3),
    "normalize": (lambda t, f, x: f.normalize(x, dim=1), (MATRIX,)),
    "matrix times vector": (lambda t, f, x, y: x @ y, (MATRIX, (64,))),
    "vector times matrix, 8 terms": (lambda t, f, x, y: x @ y, ((8,), (8, 64))),
    "x.T @ y.T": (lambda t, f, x, y: x.T @ y.T, ((64, 32), (16, 64))),
    "einsum": (lambda t, f, x, y: t.einsum("bij,bjk->bik", x, y), ((8, 16, 16),) * 2),
    "inv, 8 x 8": (lambda t, f, x: t.linalg.inv(x), ((8, 8),)),
    "stack of 8": (lambda t, f, *x: t.stack(x), ((8,),) * 8),
    "x[rows, columns]": (lambda t, f, x: x[labels(t, 8, 4), labels(t, 8, 3)], (MATRIX,)),
    "x[rows]": (lambda t, f, x: x[labels(t, 8, 4)], (MATRIX,)),
    "y[:, 1:3] = 0": (assigned, (MATRIX,)),
    "max_pool2d": (lambda t, f, x: f.max_pool2d(x, 2), (IMAGE,)),
    "avg_pool2d": (lambda t, f, x: f.avg_pool2d(x, 2), (IMAGE,)),
    "conv2d": (lambda t, f, x, w: f.conv2d(x, w, padding=1), (IMAGE, (8, 8, 3, 3))),
    "interpolate, nearest": (lambda t, f, x: f.interpolate(x, scale_factor=2), ((4, 8, 8, 8),)),
    "interpolate, bilinear": (
        lambda t, f, x: f.interpolate(x, scale_factor=2, mode="bilinear"),
        ((4, 8, 8, 8),),
    ),
    "attention": (
        lambda t, f, q, k, v: f.scaled_dot_product_attention(q, k, v),
        ((2, 4, 16, 16),) * 3,
    ),
}


def main() -> None:
    wanted = sys.argv[1:]
    measured: list[Row] = []
    for name, (act, shapes) in ROWS.items():
        if wanted and not any(part in name for part in wanted):
            continue
        for what in ("",) if act is assigned else ("", ", both passes"):
            pair = [work(lib, act, shapes, bool(what)) for lib in (rl, torch)]
            for _ in range(4):  # programs are traced in the second pass
                pair[0]()
            measured.append(compare(name + what, pair[0], pair[1], math.inf, seconds=0.6))
            print(f"{name}{what}: {measured[-1].ratio:.2f}", file=sys.stderr)
    print(f"PyTorch {torch.__version__}, {torch.get_num_threads()} thread(s) each, {HOW}")
    print()
    print(table(measured, "PyTorch"))


if __name__ == "__main__":
    main()
