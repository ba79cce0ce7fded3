"""Fine-tune a GPT-2 from a `.safetensors` file: only its last block and norm learn.

The file has the names and layouts of GPT-2, as Hugging Face writes them. A small one is
made first, by training on the first half of the text.

python examples/finetune_gpt2.py [--device webgpu] [--short] [--steps 200]
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from common import DATA, Bar, options

import rushlight as torch
import rushlight.nn.functional as F
from rushlight import Tensor, nn
from rushlight.io import load_file, save_file

WIDTH, HEADS, LAYERS, CONTEXT = 64, 4, 3, 48


class Conv1D(nn.Module):
    """GPT-2's linear layer: its weight is (inputs, outputs)."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(inputs, outputs) * 0.02)
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight + self.bias


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.c_attn = Conv1D(WIDTH, 3 * WIDTH)
        self.c_proj = Conv1D(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        batch, time, width = x.shape
        parts = self.c_attn(x).view(batch, time, 3, HEADS, width // HEADS).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(*parts.unbind(0), is_causal=True)
        return self.c_proj(seen.transpose(1, 2).reshape(batch, time, width))


class MLP(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.c_fc = Conv1D(WIDTH, 4 * WIDTH)
        self.c_proj = Conv1D(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.ln_1, self.attn = nn.LayerNorm(WIDTH), Attention()
        self.ln_2, self.mlp = nn.LayerNorm(WIDTH), MLP()

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT2(nn.Module):
    """Indices (batch, time) to logits; the embedding is the head, too."""

    def __init__(self, tokens: int) -> None:
        super().__init__()
        self.wte = nn.Embedding(tokens, WIDTH)
        self.wpe = nn.Embedding(CONTEXT, WIDTH)
        self.h = nn.ModuleList([Block() for _ in range(LAYERS)])
        self.ln_f = nn.LayerNorm(WIDTH)
        nn.init.normal_(self.wte.weight, 0.0, 0.02)
        nn.init.normal_(self.wpe.weight, 0.0, 0.02)

    def forward(self, x: Tensor) -> Tensor:
        seen = self.wte(x) + self.wpe.weight[: x.shape[1]]
        for block in self.h:
            seen = block(seen)
        return self.ln_f(seen) @ self.wte.weight.T


def train(model: GPT2, text: Tensor, steps: int, rate: float, label: str) -> Bar:
    learned = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(learned, lr=rate)
    random = np.random.default_rng(given.seed)
    bar = Bar(steps, given.device, label)
    for _ in bar:
        starts = random.integers(0, len(text) - CONTEXT - 1, 16).tolist()
        chosen = torch.stack([text[s : s + CONTEXT + 1] for s in starts])
        loss = F.cross_entropy(model(chosen[:, :-1]).flatten(0, 1), chosen[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        bar.show(loss)
    return bar


given = options(__doc__, steps=200)
letters = sorted(set((DATA / "moby_dick.txt").read_text()))
plain = (DATA / "moby_dick.txt").read_text()[:60_000]
indices = torch.tensor([letters.index(c) for c in plain], device=given.device)
# What it is fine-tuned on: the second half, all in capitals.
loud = torch.tensor([letters.index(c) for c in plain[30_000:].upper() if c.upper() in letters])

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "model.safetensors"
    first = GPT2(len(letters)).to(given.device)
    train(first, indices[:30_000], given.steps, 3e-3, "a first model")
    save_file(first.state_dict(), path)
    model = GPT2(len(letters)).to(given.device)
    missing, unexpected = model.load_state_dict(load_file(path, device=given.device))
    print(f"{path.stat().st_size} bytes; missing {missing}, unexpected {unexpected}")

model.requires_grad_(False)
model.h[-1].requires_grad_(True)
model.ln_f.requires_grad_(True)
learned = sum(p.numel() for p in model.parameters() if p.requires_grad)
bar = train(model, loud.to(given.device), given.steps, 2e-3, "fine-tuning")
whole = sum(p.numel() for p in model.parameters())
print(
    f"{learned} of {whole} parameters learned; nats per letter: {bar.first:.2f} to {bar.last:.2f}"
)
