"""A residual network on pictures of 32 by 32: discs, squares, crosses and rings.

python examples/resnet.py [--device webgpu] [--short]
"""

from __future__ import annotations

import numpy as np
from common import Bar, options

import rushlight as torch
import rushlight.nn.functional as F
from rushlight import Tensor, nn

SHAPES = ("disc", "square", "cross", "ring")


def pictures(count: int, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Shapes of random place, size and colour on noise: (count, 3, 32, 32), and their kinds."""
    kinds = random.integers(0, len(SHAPES), count)
    made = random.normal(0, 0.3, (count, 3, 32, 32)).astype(np.float32)
    y, x = np.mgrid[:32, :32]
    for image, kind in zip(made, kinds, strict=True):
        across, down = random.uniform(10, 22, 2)
        size = random.uniform(5, 9)
        dx, dy = np.abs(x - across), np.abs(y - down)
        far = np.hypot(dx, dy)
        inside = (
            far < size,
            np.maximum(dx, dy) < size * 0.9,
            (np.minimum(dx, dy) < size * 0.3) & (np.maximum(dx, dy) < size),
            (far < size) & (far > size * 0.6),
        )[kind]
        image += inside * random.uniform(0.6, 1.4, (3, 1, 1)).astype(np.float32)
    return made, kinds


class Block(nn.Module):
    """Two convolutions, added to their input."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.norm = nn.BatchNorm2d(after)
        self.second = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.last_norm = nn.BatchNorm2d(after)
        self.short = nn.Conv2d(before, after, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.last_norm(self.second(self.norm(self.first(x)).relu()))
        return (y + self.short(x)).relu()


class ResNet(nn.Module):
    """Three blocks, each of half the size, and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, 1, 1, bias=False)
        self.blocks = nn.Sequential(Block(8, 8, 2), Block(8, 16, 2), Block(16, 32, 2))
        self.head = nn.Linear(32, len(SHAPES))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


given = options(__doc__, steps=150, batch=32)
random = np.random.default_rng(given.seed)
model = ResNet().to(given.device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=given.steps)
bar = Bar(given.steps, given.device)
for _ in bar:
    made = pictures(given.batch, random)
    images, kinds = (torch.tensor(part, device=given.device) for part in made)
    loss = F.cross_entropy(model(images), kinds)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
    bar.show(loss)

model.eval()
images, kinds = (torch.tensor(part, device=given.device) for part in pictures(32, random))
with torch.no_grad():
    right = (model(images).argmax(1) == kinds).float().mean().item()
print(f"loss {bar.first:.3f} to {bar.last:.3f}; {100 * right:.0f}% of 32 new pictures are right")
