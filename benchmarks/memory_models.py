"""The models of `memory.py`: functions of a library with PyTorch's names, PyTorch or Rushlight.

`build(lib, name, device, run)` gives a step, forward and backward, and the parameters. Blocks are
called as `run(block, *inputs)`: `run` calls them, or checkpoints them.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

Run = Callable[..., Any]


def plainly(block: Any, *inputs: Any) -> Any:
    return block(*inputs)


def build(lib: Any, name: str, device: str, run: Run = plainly) -> tuple[Callable[[], Any], list]:
    nn = importlib.import_module(f"{lib.__name__}.nn")
    functional = importlib.import_module(f"{lib.__name__}.nn.functional")
    lib.manual_seed(0)
    modules, loss, inputs = MODELS[name](lib, nn, functional, run)
    modules.to(device)
    inputs = [value.to(device) for value in inputs]
    parameters = list(modules.parameters())

    def step() -> Any:
        for parameter in parameters:
            parameter.grad = None
        lib.manual_seed(1)
        value = loss(*inputs)
        value.backward()
        return value

    return step, parameters


def gpt(lib: Any, nn: Any, functional: Any, run: Run) -> tuple:
    """8 blocks of width 128, 4 heads, 16 texts of 128 tokens."""
    vocabulary, width, heads, length = 512, 128, 4, 128

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
            self.joint, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            b, t, d = x.shape
            joint = self.joint(self.norms[0](x)).reshape(b, t, 3, heads, d // heads)
            q, k, v = joint.permute(2, 0, 3, 1, 4)
            seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(seen.transpose(1, 2).reshape(b, t, d))
            return x + self.down(functional.gelu(self.up(self.norms[1](x))))

    parts = nn.ModuleDict(
        {
            "tokens": nn.Embedding(vocabulary, width),
            "places": nn.Embedding(length, width),
            "blocks": nn.ModuleList([Block() for _ in range(8)]),
            "norm": nn.LayerNorm(width),
            "head": nn.Linear(width, vocabulary),
        }
    )

    def loss(x, y, places):
        h = parts["tokens"](x) + parts["places"](places)
        for block in parts["blocks"]:
            h = run(block, h)
        logits = parts["head"](parts["norm"](h))
        return functional.cross_entropy(logits.reshape(-1, vocabulary), y.reshape(-1))

    texts = [lib.randint(0, vocabulary, (16, length)) for _ in range(2)]
    return parts, loss, [*texts, lib.arange(length)]


def resnet(lib: Any, nn: Any, functional: Any, run: Run) -> tuple:
    """6 residual blocks of 32 to 128 channels, 32 images of 32 x 32."""

    class Block(nn.Module):
        def __init__(self, into, out, step):
            super().__init__()
            self.first = nn.Conv2d(into, out, 3, step, 1, bias=False)
            self.second = nn.Conv2d(out, out, 3, 1, 1, bias=False)
            self.norms = nn.ModuleList([nn.BatchNorm2d(out), nn.BatchNorm2d(out)])
            self.short = nn.Identity()
            if into != out or step != 1:
                self.short = nn.Sequential(
                    nn.Conv2d(into, out, 1, step, bias=False), nn.BatchNorm2d(out)
                )

        def forward(self, x):
            y = functional.relu(self.norms[0](self.first(x)))
            return functional.relu(self.norms[1](self.second(y)) + self.short(x))

    kinds = [(32, 32, 1), (32, 32, 1), (32, 64, 2), (64, 64, 1), (64, 128, 2), (128, 128, 1)]
    stem = nn.Sequential(nn.Conv2d(3, 32, 3, 1, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU())
    blocks = nn.ModuleList([Block(*kind) for kind in kinds])
    head = nn.Linear(128, 10)

    def loss(x, y):
        h = stem(x)
        for block in blocks:
            h = run(block, h)
        return functional.cross_entropy(head(h.mean((2, 3))), y)

    inputs = [lib.randn(32, 3, 32, 32), lib.randint(0, 10, (32,))]
    return nn.ModuleList([stem, blocks, head]), loss, inputs


def unet(lib: Any, nn: Any, functional: Any, run: Run) -> tuple:
    """Two levels down and up, 16 to 64 channels, 8 images of 64 x 64."""

    def pair(into, out):
        layers = []
        for channels in (into, out):
            layers += [nn.Conv2d(channels, out, 3, padding=1), nn.GroupNorm(4, out), nn.SiLU()]
        return nn.Sequential(*layers)

    kinds = [(3, 16), (16, 32), (32, 64), (64, 64), (128, 32), (64, 16), (32, 16)]
    pairs = nn.ModuleList([pair(*kind) for kind in kinds])
    head = nn.Conv2d(16, 3, 1)

    def loss(x, y):
        a = run(pairs[0], x)
        b = run(pairs[1], functional.max_pool2d(a, 2))
        c = run(pairs[2], functional.max_pool2d(b, 2))
        u = run(pairs[4], lib.cat([run(pairs[3], c), c], 1))
        for block, skipped in ((pairs[5], b), (pairs[6], a)):
            larger = functional.interpolate(u, scale_factor=2)
            u = run(block, lib.cat([larger, skipped], 1))
        return functional.mse_loss(head(u), y)

    return nn.ModuleList([pairs, head]), loss, [lib.randn(8, 3, 64, 64) for _ in range(2)]


def vae(lib: Any, nn: Any, functional: Any, run: Run) -> tuple:
    """784-400-20-400-784, 1,024 images."""
    encoder = nn.Sequential(nn.Linear(784, 400), nn.ReLU(), nn.Linear(400, 40))
    decoder = nn.Sequential(nn.Linear(20, 400), nn.ReLU(), nn.Linear(400, 784), nn.Sigmoid())

    def loss(x):
        mean, spread = run(encoder, x).chunk(2, 1)
        z = mean + lib.randn_like(mean) * lib.exp(0.5 * spread)
        far = functional.binary_cross_entropy(run(decoder, z), x, reduction="sum")
        return far - 0.5 * lib.sum(1 + spread - mean.pow(2) - spread.exp())

    return nn.ModuleList([encoder, decoder]), loss, [lib.rand(1024, 784)]


def lstm(lib: Any, nn: Any, functional: Any, run: Run) -> tuple:
    """Two layers of 256, 32 texts of 64 tokens."""
    tokens, head = nn.Embedding(256, 128), nn.Linear(256, 256)
    layers = nn.LSTM(128, 256, 2, batch_first=True)

    def loss(x, y):
        h, _ = run(layers, tokens(x))
        return functional.cross_entropy(head(h).reshape(-1, 256), y.reshape(-1))

    texts = [lib.randint(0, 256, (32, 64)) for _ in range(2)]
    return nn.ModuleList([tokens, layers, head]), loss, texts


MODELS = {"GPT": gpt, "ResNet": resnet, "U-Net": unet, "VAE": vae, "LSTM": lstm}
