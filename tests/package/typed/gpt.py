"""A small language model with mixed precision, gradient accumulation and a budget."""

from __future__ import annotations

import math
from dataclasses import dataclass

import rushlight as torch
import rushlight.nn.functional as F
from rushlight import nn
from rushlight.amp import GradScaler, autocast


@dataclass
class Config:
    vocabulary: int = 32
    width: int = 16
    heads: int = 2
    length: int = 8


class Attention(nn.Module):
    mask: torch.Tensor

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.heads = config.heads
        self.project = nn.Linear(config.width, 3 * config.width, bias=False)
        self.output = nn.Linear(config.width, config.width)
        mask = torch.tril(torch.ones(config.length, config.length, dtype=torch.bool))
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, c = x.size()
        q, k, v = self.project(x).split(c, dim=2)
        q, k, v = (z.view(b, t, self.heads, c // self.heads).transpose(1, 2) for z in (q, k, v))
        scores: torch.Tensor = q @ k.transpose(-2, -1) / math.sqrt(k.size(-1))
        scores = scores.masked_fill(~self.mask[:t, :t], float("-inf"))
        mixed = torch.softmax(scores, dim=-1) @ v
        out: torch.Tensor = self.output(mixed.transpose(1, 2).contiguous().view(b, t, c))
        return out


class GPT(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.embed = nn.Embedding(config.vocabulary, config.width)
        self.place = nn.Parameter(torch.randn(config.length, config.width) * 0.02)
        self.blocks = nn.ModuleList([Attention(config) for _ in range(2)])
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, config.vocabulary)
        nn.init.normal_(self.head.weight, std=0.02)

    def forward(
        self, tokens: torch.Tensor, targets: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        x = self.embed(tokens) + self.place[: tokens.shape[1]]
        for block in self.blocks:
            x = x + block(F.layer_norm(x, (x.shape[-1],)))
        logits: torch.Tensor = self.head(self.norm(x))
        if targets is None:
            return logits, None
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten())

    @torch.no_grad()
    def sample(self, tokens: torch.Tensor, count: int) -> torch.Tensor:
        for _ in range(count):
            logits, _loss = self(tokens[:, -8:])
            best = torch.topk(logits[:, -1], 4).values[:, [-1]]
            kept = torch.where(logits[:, -1] < best, -math.inf, logits[:, -1])
            following = torch.multinomial(F.softmax(kept, dim=-1), num_samples=1)
            tokens = torch.cat((tokens, following), dim=1)
        return tokens


def main() -> None:
    config = Config()
    model = GPT(config)
    groups = [
        {"params": [p for p in model.parameters() if p.dim() >= 2], "weight_decay": 0.1},
        {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=3e-4, betas=(0.9, 0.95))
    scaler = GradScaler("cpu", enabled=False)
    data = torch.randint(0, config.vocabulary, (64,))
    with torch.memory.budget("1GiB"):
        for _step in range(2):
            starts = torch.randint(len(data) - config.length - 1, (4,)).tolist()
            x = torch.stack([data[i : i + config.length] for i in starts])
            y = torch.stack([data[i + 1 : i + 1 + config.length] for i in starts])
            with autocast("cpu", dtype=torch.bfloat16):
                _, loss = model(x, y)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
    with torch.inference_mode():
        print(model.sample(torch.zeros((1, 1), dtype=torch.long), 3).tolist())
    print(sum(p.numel() for p in model.parameters() if p.requires_grad))


if __name__ == "__main__":
    main()
