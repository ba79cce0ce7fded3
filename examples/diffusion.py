"""A diffusion model of points on a spiral: noise is taken away step by step.

python examples/diffusion.py [--device webgpu] [--short]
"""

from __future__ import annotations

import math

from common import Bar, options

import rushlight as torch
from rushlight import Tensor, nn

LEVELS = 50


class Denoiser(nn.Module):
    """Points and their levels of noise to the noise in them."""

    def __init__(self, width: int = 96) -> None:
        super().__init__()
        self.level = nn.Embedding(LEVELS, width)
        self.lift = nn.Linear(2, width)
        self.body = nn.Sequential(
            nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU()
        )
        self.out = nn.Linear(width, 2)

    def forward(self, x: Tensor, level: Tensor) -> Tensor:
        return self.out(self.body(self.lift(x) + self.level(level)))


def spiral(count: int, device: str) -> Tensor:
    turn = torch.rand(count, device=device).sqrt() * 3 * math.pi
    points = torch.stack([turn * turn.cos(), turn * turn.sin()], 1) / (3 * math.pi)
    return 2 * points + 0.02 * torch.randn(count, 2, device=device)


given = options(__doc__, steps=1500, batch=256)
device = given.device
betas = torch.linspace(1e-4, 0.12, LEVELS, device=device)
kept = (1 - betas).cumprod(0)  # of a point's square, at each level

model = Denoiser().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
bar = Bar(given.steps, device)
for _ in bar:
    x, noise = spiral(given.batch, device), torch.randn(given.batch, 2, device=device)
    level = torch.randint(0, LEVELS, (given.batch,), device=device)
    part = kept[level][:, None]
    guess = model(part.sqrt() * x + (1 - part).sqrt() * noise, level)
    loss = ((guess - noise) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    bar.show(loss)

with torch.no_grad():
    x = torch.randn(200, 2, device=device)
    start = torch.cdist(x, spiral(2000, device)).min(1).values.mean().item()
    for level in reversed(range(LEVELS)):
        guess = model(x, torch.full((200,), level, device=device))
        x = (x - betas[level] / (1 - kept[level]).sqrt() * guess) / (1 - betas[level]).sqrt()
        if level:
            x = x + betas[level].sqrt() * torch.randn_like(x)
    end = torch.cdist(x, spiral(2000, device)).min(1).values.mean().item()
grid = [[" "] * 44 for _ in range(22)]
for across, down in x.tolist():
    if abs(across) < 2.2 and abs(down) < 2.2:
        grid[int((down + 2.2) * 5)][int((across + 2.2) * 10)] = "o"
print("\n".join("".join(row) for row in grid))
print(f"from the spiral: {start:.3f} before, {end:.3f} after {LEVELS} steps without noise")
