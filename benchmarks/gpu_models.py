"""Training steps of real models, for the GPU tables: the same text for both libraries."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Work = Callable[[], object]
BATCH = 128  # images of ResNet-18


def resnet18(lib: Any) -> Any:
    """For images of 32 x 32: a first convolution of 3 x 3 with stride 1, no pooling after it."""
    nn, relu = lib.nn, lib.nn.functional.relu

    class Block(nn.Module):
        def __init__(self, into: int, out: int, step: int) -> None:
            super().__init__()
            self.first = nn.Conv2d(into, out, 3, step, 1, bias=False)
            self.second = nn.Conv2d(out, out, 3, 1, 1, bias=False)
            self.first_norm, self.second_norm = nn.BatchNorm2d(out), nn.BatchNorm2d(out)
            self.short = nn.Identity()
            if into != out or step != 1:
                self.short = nn.Sequential(
                    nn.Conv2d(into, out, 1, step, bias=False), nn.BatchNorm2d(out)
                )

        def forward(self, x: Any) -> Any:
            y = relu(self.first_norm(self.first(x)))
            return relu(self.second_norm(self.second(y)) + self.short(x))

    layers = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    for into, out, step in ((64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2)):
        layers += [Block(into, out, step), Block(out, out, 1)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))


def resnet_step(lib: Any, device: str, dtype: str) -> Work:
    """A step of SGD; with bfloat16 under autocast."""
    lib.manual_seed(0)
    model = resnet18(lib).to(device)
    optimizer = lib.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    x = lib.randn(BATCH, 3, 32, 32).to(device)
    y = lib.randint(0, 10, (BATCH,)).to(device)

    def loss() -> Any:
        return lib.nn.functional.cross_entropy(model(x), y)

    def step() -> Any:
        optimizer.zero_grad()
        if dtype == "bfloat16":
            with lib.autocast(device_type=device, dtype=lib.bfloat16):
                value = loss()
        else:
            value = loss()
        value.backward()
        optimizer.step()
        return value

    return step


def mlp_step(lib: Any, device: str) -> Work:
    """784-256-10, batch 32, Adam."""
    lib.manual_seed(0)
    nn = lib.nn
    model = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10)).to(device)
    optimizer = lib.optim.Adam(model.parameters(), lr=1e-3)
    x, y = lib.randn(32, 784).to(device), lib.randint(0, 10, (32,)).to(device)

    def work() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    return work


@dataclass(frozen=True)
class Sizes:
    """Of a GPT; `lower`: in bfloat16 autocast."""

    batch: int = 16
    length: int = 1024
    layers: int = 12
    width: int = 768
    heads: int = 12
    vocabulary: int = 50304
    lower: bool = True


def gpt_step(lib: Any, device: str, sizes: Sizes = Sizes()) -> Work:  # noqa: B008
    """One step of a GPT with AdamW; the same text for both libraries."""
    width, heads, vocabulary = sizes.width, sizes.heads, sizes.vocabulary
    nn, functional = (
        importlib.import_module(f"{lib.__name__}.{n}") for n in ("nn", "nn.functional")
    )
    optim = importlib.import_module(f"{lib.__name__}.optim")

    class Block(nn.Module):  # type: ignore[name-defined,misc]
        def __init__(self) -> None:
            super().__init__()
            self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
            self.attend, self.join = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: Any) -> Any:
            shape = x.shape
            parts = self.attend(self.before(x)).split(width, dim=2)
            q, k, v = (p.view(shape[0], shape[1], heads, -1).transpose(1, 2) for p in parts)
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.join(y.transpose(1, 2).reshape(*shape))
            wide = functional.gelu(self.widen(self.between(x)), approximate="tanh")
            return x + self.narrow(wide)

    class Model(nn.Module):  # type: ignore[name-defined,misc]
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(vocabulary, width)
            self.places = nn.Embedding(sizes.length, width)
            self.blocks = nn.ModuleList([Block() for _ in range(sizes.layers)])
            self.last = nn.LayerNorm(width)

        def forward(self, x: Any, y: Any) -> Any:
            h = self.words(x) + self.places(lib.arange(x.shape[1], device=device))
            for block in self.blocks:
                h = block(h)
            logits = functional.linear(self.last(h), self.words.weight)
            return functional.cross_entropy(logits.view(-1, vocabulary), y.view(-1))

    lib.manual_seed(0)
    model = Model().to(device)
    optimizer = optim.AdamW(model.parameters(), lr=1e-4)
    x, y = (lib.randint(0, vocabulary, (sizes.batch, sizes.length)).to(device) for _ in range(2))

    def work() -> Any:
        optimizer.zero_grad()
        with lib.autocast(device, dtype=lib.bfloat16, enabled=sizes.lower):
            loss = model(x, y)
        loss.backward()
        optimizer.step()
        return loss

    return work
