"""What training scripts do besides large products, against PyTorch in the same run.

python benchmarks/scripts.py [name ...]     prints a Markdown table; exit code 1 if a bar is missed
"""

from __future__ import annotations

import importlib
import itertools
import os
import sys
from collections.abc import Callable
from typing import Any

# PyTorch's oneDNN uses AMX where the CPU lists it, and crashes where the system does not allow it.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
os.environ.setdefault("RUSHLIGHT_THREADS", "2")

import torch
from compare import HOW, compare, table
from workloads import Work

import rushlight as rl

torch.set_num_threads(int(os.environ["RUSHLIGHT_THREADS"]))
BAR = 0.9


def _part(lib: Any, name: str) -> Any:
    return importlib.import_module(f"{lib.__name__}.{name}")


def loader(lib: Any) -> Work:
    """10,000 samples of 32 numbers and a label, shuffled, in batches of 64, without workers."""
    data = _part(lib, "utils.data")
    dataset = data.TensorDataset(lib.randn(10_000, 32), lib.arange(10_000))
    batches = data.DataLoader(dataset, batch_size=64, shuffle=True)

    def work() -> None:
        for _ in batches:
            pass

    return work


def generator(lib: Any, backward: bool) -> Work:
    """DCGAN's generator: 100 numbers to 3 x 64 x 64, 16 images, widths 64."""
    nn = _part(lib, "nn")
    widths = (100, 512, 256, 128, 64)
    layers: list[Any] = []
    for i, (given, made) in enumerate(itertools.pairwise(widths)):
        layers.append(nn.ConvTranspose2d(given, made, 4, 1 if not i else 2, int(i > 0), bias=False))
        layers += [nn.BatchNorm2d(made), nn.ReLU(True)]
    model = nn.Sequential(*layers, nn.ConvTranspose2d(64, 3, 4, 2, 1, bias=False), nn.Tanh())
    z = lib.randn(16, 100, 1, 1)

    def work() -> None:
        if backward:
            model.zero_grad()
            model(z).mean().backward()
        else:
            with lib.no_grad():
                model(z)

    return work


def policy(lib: Any) -> Work:
    """An actor's forward on one observation: two layers, a Categorical, a draw and its log."""
    nn, distributions = _part(lib, "nn"), _part(lib, "distributions")
    model = nn.Sequential(nn.Linear(4, 128), nn.ReLU(), nn.Linear(128, 2), nn.Softmax(-1))
    x = lib.randn(4)

    def work() -> None:
        chances = distributions.Categorical(model(x))
        chances.log_prob(chances.sample())

    return work


def tokens(lib: Any) -> Work:
    """32 tokens, one at a time, by a GPT of 4 layers of 128 with kept keys and values."""
    nn, functional = _part(lib, "nn"), _part(lib, "nn.functional")
    width, heads, depth = 128, 4, 4
    table_ = nn.Embedding(256, width)
    head = nn.Linear(width, 256)
    blocks = [
        [
            *(nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)),
            *(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)),
        ]
        for _ in range(depth)
    ]

    def work() -> None:
        with lib.no_grad():
            token = lib.zeros(1, 1, dtype=lib.int64)
            kept: list[Any] = [None] * depth
            for _ in range(32):
                x = table_(token)
                for i, (n1, qkv, out, n2, up, down) in enumerate(blocks):
                    q, k, v = (
                        t.view(1, 1, heads, width // heads).transpose(1, 2)
                        for t in qkv(n1(x)).split(width, 2)
                    )
                    if kept[i] is not None:
                        k, v = lib.cat([kept[i][0], k], 2), lib.cat([kept[i][1], v], 2)
                    kept[i] = k, v
                    y = functional.scaled_dot_product_attention(q, k, v)
                    x = x + out(y.transpose(1, 2).reshape(1, 1, width))
                    x = x + down(functional.gelu(up(n2(x))))
                token = head(x)[:, -1].argmax(-1, keepdim=True)

    return work


def lstm(lib: Any, backward: bool) -> Work:
    """Two layers of 256 over 32 sequences of 64 steps of 128."""
    layers = _part(lib, "nn").LSTM(128, 256, 2)
    x, g = lib.randn(64, 32, 128), lib.randn(64, 32, 256)

    def work() -> None:
        if backward:
            layers.zero_grad()
            layers(x)[0].backward(g)
        else:
            with lib.no_grad():
                layers(x)

    return work


def module(lib: Any, name: str, *args: Any) -> Work:
    """A small module is made."""
    kind = getattr(_part(lib, "nn"), name)
    return lambda: kind(*args)


ROWS: dict[str, Callable[[Any], Work]] = {
    "DataLoader over a TensorDataset, 157 batches": loader,
    "DCGAN generator, forward": lambda lib: generator(lib, False),
    "DCGAN generator, forward and backward": lambda lib: generator(lib, True),
    "policy forward with Categorical": policy,
    "generation of 32 tokens": tokens,
    "LSTM 2x256, forward": lambda lib: lstm(lib, False),
    "LSTM 2x256, forward and backward": lambda lib: lstm(lib, True),
    "nn.Linear(4, 4) is made": lambda lib: module(lib, "Linear", 4, 4),
    "nn.ReLU() is made": lambda lib: module(lib, "ReLU"),
}


def main() -> int:
    wanted = sys.argv[1:]
    rows = []
    for name, make in ROWS.items():
        if not wanted or any(part in name for part in wanted):
            rows.append(compare(name, make(rl), make(torch), BAR))
            print(f"{name}: {rows[-1].ratio:.2f}", file=sys.stderr)
    print(f"PyTorch {torch.__version__}, {torch.get_num_threads()} thread(s) each, {HOW}")
    print()
    print(table(rows, "PyTorch"))
    return 0 if all(r.reached for r in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
