"""Training steps on WebGPU against tinygrad's WebGPU backend, on the same adapter.

python benchmarks/webgpu_tinygrad.py --peer PYTHON [--library FOLDER] [--rounds 3]

PYTHON has tinygrad and dawn-python. FOLDER has `libwebgpu_dawn.so`: dawn-python's library under the
name that tinygrad looks for. Each library runs in processes of its own, in turn; the least time of
a step counts. tinygrad's step is captured by its TinyJit, which launches no Python per op.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable

MODELS = {
    "MLP 784-256-10, batch 32, SGD": "mlp",
    "CNN of 16 images of 3 x 32 x 32, SGD": "cnn",
}
WARM, TIMED = 6, 20
RATE = 0.01


def time_steps(step: Callable[[], float]) -> tuple[float, list[float]]:
    """The least time of a step that reads its loss, and the losses."""
    losses = [step() for _ in range(WARM)]
    times = []
    for _ in range(TIMED):
        began = time.perf_counter()
        losses.append(step())
        times.append(time.perf_counter() - began)
    return min(times), losses


def numbers(*shape: int, seed: int):
    import numpy as np

    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def shapes(model: str) -> list[tuple[int, ...]]:
    """The parameters: layers' weights, each with its bias."""
    if model == "mlp":
        return [(256, 784), (256,), (10, 256), (10,)]
    return [(16, 3, 3, 3), (16,), (32, 16, 3, 3), (32,), (10, 32 * 64), (10,)]


def start(model: str):
    weights = [numbers(*shape, seed=i) * 0.05 for i, shape in enumerate(shapes(model))]
    x = numbers(32, 784, seed=20) if model == "mlp" else numbers(16, 3, 32, 32, seed=20)
    labels = [i % 10 for i in range(len(x))]
    return weights, x, labels


def rushlight_step(model: str) -> Callable[[], float]:
    import rushlight as torch
    from rushlight.nn import functional as F

    weights, x, labels = start(model)
    params = [torch.tensor(w, device="webgpu", requires_grad=True) for w in weights]
    images, targets = torch.tensor(x, device="webgpu"), torch.tensor(labels, device="webgpu")
    optimizer = torch.optim.SGD(params, lr=RATE)

    def forward():
        p = params
        if model == "mlp":
            return F.linear(F.relu(F.linear(images, p[0], p[1])), p[2], p[3])
        y = F.max_pool2d(F.relu(F.conv2d(images, p[0], p[1], padding=1)), 2)
        y = F.max_pool2d(F.relu(F.conv2d(y, p[2], p[3], padding=1)), 2)
        return F.linear(y.flatten(1), p[4], p[5])

    def step() -> float:
        optimizer.zero_grad()
        loss = F.cross_entropy(forward(), targets)
        loss.backward()
        optimizer.step()
        return float(loss)

    return step


def tinygrad_step(model: str) -> Callable[[], float]:
    from tinygrad import Context, Tensor, TinyJit
    from tinygrad.nn.optim import SGD

    weights, x, labels = start(model)
    params = [Tensor(w) for w in weights]
    images, targets = Tensor(x), Tensor(labels)
    optimizer = SGD(params, lr=RATE)

    def forward():
        p = params
        if model == "mlp":
            return images.linear(p[0].T, p[1]).relu().linear(p[2].T, p[3])
        y = images.conv2d(p[0], p[1], padding=1).relu().max_pool2d(2)
        y = y.conv2d(p[2], p[3], padding=1).relu().max_pool2d(2)
        return y.flatten(1).linear(p[4].T, p[5])

    @TinyJit
    @Context(TRAINING=1)
    def trained() -> Tensor:
        optimizer.zero_grad()
        loss = forward().sparse_categorical_crossentropy(targets)
        loss.backward()
        return loss.realize(*optimizer.schedule_step())

    return lambda: trained().item()


STEPS = {"rushlight": rushlight_step, "tinygrad": tinygrad_step}


def run(python: str, library: str, model: str, folder: str | None) -> tuple[float, list[float]]:
    """One process's least time and losses."""
    environment = dict(os.environ, WEBGPU="1", DEV="WEBGPU")
    if folder is not None:
        environment["LD_LIBRARY_PATH"] = folder
    command = [python, __file__, "--only", library, "--model", model]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{library}: {done.stderr[-2000:]}")
    seconds, losses = json.loads(done.stdout.splitlines()[-1])
    return seconds, losses


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--peer", help="a Python with tinygrad and dawn-python")
    parser.add_argument("--library", help="the folder of libwebgpu_dawn.so")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=STEPS, help=argparse.SUPPRESS)
    parser.add_argument("--model", choices=MODELS.values(), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.only:
        print(json.dumps(time_steps(STEPS[given.only](given.model))))
        return
    if given.peer is None:
        parser.error("--peer is needed: a Python with tinygrad and dawn-python")
    print("| step | Rushlight | tinygrad | ratio | losses differ by |\n|---|---|---|---|---|")
    for name, model in MODELS.items():
        ours, theirs = [], []
        for _ in range(given.rounds):
            ours.append(run(sys.executable, "rushlight", model, None))
            theirs.append(run(given.peer, "tinygrad", model, given.library))
        a, b = min(s for s, _ in ours), min(s for s, _ in theirs)
        apart = max(abs(x - y) for x, y in zip(ours[0][1], theirs[0][1], strict=True))
        print(f"| {name} | {1e3 * a:.2f} ms | {1e3 * b:.2f} ms | {a / b:.2f} | {apart:.1e} |")


if __name__ == "__main__":
    main()
