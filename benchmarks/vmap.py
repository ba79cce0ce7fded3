"""Per-sample gradients by `vmap(grad(loss))`, against a Python loop and against `torch.func`.

python benchmarks/vmap.py      with torch.func.vmap(torch.func.grad(...)) where PyTorch is there

The model is an MLP; the result is one gradient per example and parameter. The last rows are a
Hessian of a small function and an ensemble of models, both by `vmap`. Times are of this thread
(`time.thread_time`), the libraries in turn, the least of several runs; both use one thread.
Gradients of both libraries must agree, or the program ends.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("RUSHLIGHT_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

import rushlight as rl

try:
    import torch
except ModuleNotFoundError:
    torch = None
else:
    torch.set_num_threads(1)

RUNS = 12
SIZES = ((64, (16, 32, 4)), (64, (64, 128, 10)), (256, (64, 128, 10)), (64, (784, 256, 10)))


def mlp(lib: Any, sizes: tuple[int, ...]) -> tuple[dict[str, Any], Callable[..., Any]]:
    """Parameters and the loss of one example."""
    random = np.random.default_rng(0)
    params = {}
    for i, (a, b) in enumerate(itertools.pairwise(sizes)):
        params[f"w{i}"] = lib.tensor((random.standard_normal((b, a)) / a**0.5).astype(np.float32))
        params[f"b{i}"] = lib.tensor(random.standard_normal(b).astype(np.float32) * 0.1)
    functional = lib.nn.functional

    def loss(params: dict[str, Any], x: Any, target: Any) -> Any:
        for i in range(len(sizes) - 1):
            x = functional.linear(x if i == 0 else lib.tanh(x), params[f"w{i}"], params[f"b{i}"])
        return functional.cross_entropy(x, target)

    return params, loss


def batch(lib: Any, count: int, sizes: tuple[int, ...]) -> tuple[Any, Any]:
    random = np.random.default_rng(1)
    x = lib.tensor(random.standard_normal((count, sizes[0])).astype(np.float32))
    return x, lib.tensor(random.integers(0, sizes[-1], count))


def per_sample(lib: Any, count: int, sizes: tuple[int, ...]) -> Callable[[], Any]:
    params, loss = mlp(lib, sizes)
    x, target = batch(lib, count, sizes)
    gradients = lib.func.vmap(lib.func.grad(loss), in_dims=(None, 0, 0))
    return lambda: gradients(params, x, target)


def looped(lib: Any, count: int, sizes: tuple[int, ...]) -> Callable[[], Any]:
    params, loss = mlp(lib, sizes)
    x, target = batch(lib, count, sizes)
    gradient = lib.func.grad(loss)

    def run() -> Any:
        each = [gradient(params, x[i], target[i]) for i in range(count)]
        return {name: lib.stack([g[name] for g in each]) for name in params}

    return run


def hessian(lib: Any, count: int, size: int) -> Callable[[], Any]:
    """The Hessian of a function of `size` numbers at each of `count` points."""
    random = np.random.default_rng(2)
    x = lib.tensor(random.standard_normal((count, size)).astype(np.float32))
    w = lib.tensor(random.standard_normal((size, size)).astype(np.float32))
    derive = lib.func.vmap(lib.func.hessian(lambda x: lib.sin(w @ x).sum() * (x * x).sum()))
    return lambda: {"hessian": derive(x)}


def ensemble(lib: Any, models: int, count: int, sizes: tuple[int, ...]) -> Callable[[], Any]:
    params, loss = mlp(lib, sizes)
    many = {
        name: lib.stack([p * (1 + 0.01 * i) for i in range(models)]) for name, p in params.items()
    }
    x, target = batch(lib, count, sizes)
    gradients = lib.func.vmap(lib.func.grad(loss), in_dims=(0, None, None))
    return lambda: gradients(many, x, target)


def least(*works: Callable[[], Any]) -> list[float]:
    """The least time of each, run in turn."""
    times = [[] for _ in works]
    for _ in range(RUNS):
        for work, found in zip(works, times, strict=True):
            start = time.thread_time()
            work()
            found.append(time.thread_time() - start)
    return [min(found) for found in times]


def agree(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    for name, part in ours.items():
        np.testing.assert_allclose(
            part.numpy(), theirs[name].detach().numpy(), rtol=2e-3, atol=2e-4, err_msg=name
        )


def row(
    name: str,
    ours: Callable[[], Any],
    loop: Callable[[], Any] | None,
    theirs: Callable[[], Any] | None,
) -> str:
    works = [work for work in (ours, theirs, loop) if work is not None]
    for other in works[1:]:
        agree(ours(), other())
    times = iter(least(*works))
    mine = next(times)
    cells = [name, f"{mine * 1e3:.2f} ms"]
    for work in (theirs, loop):
        cells += (
            ["", ""] if work is None else [f"{(t := next(times)) * 1e3:.2f} ms", f"{mine / t:.2f}"]
        )
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    print(f"PyTorch {torch.__version__}" if torch else "PyTorch cannot be imported")
    print("| work | vmap | PyTorch's vmap | ratio | our loop | vmap over loop |")
    print("|---|---|---|---|---|---|")
    for count, sizes in SIZES:
        name = f"gradients of {count} examples, MLP {'-'.join(map(str, sizes))}"
        theirs = None if torch is None else per_sample(torch, count, sizes)
        print(row(name, per_sample(rl, count, sizes), looped(rl, count, sizes), theirs), flush=True)
    theirs = None if torch is None else hessian(torch, 16, 24)
    print(row("Hessians of 24 numbers at 16 points", hessian(rl, 16, 24), None, theirs), flush=True)
    theirs = None if torch is None else ensemble(torch, 8, 32, (64, 128, 10))
    print(
        row(
            "gradients of 8 models, 32 examples each",
            ensemble(rl, 8, 32, (64, 128, 10)),
            None,
            theirs,
        ),
        flush=True,
    )


if __name__ == "__main__":
    main()
