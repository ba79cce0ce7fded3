"""A differential equation whose right side is a network, fitted to a spiral.

python examples/neural_ode.py [--device webgpu] [--short]
"""

from __future__ import annotations

from common import Bar, options

import rushlight as torch
from rushlight import Tensor, nn

POINTS, STEP = 40, 0.08


class Field(nn.Module):
    """The velocity at a place."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 48), nn.Tanh(), nn.Linear(48, 2))

    def forward(self, y: Tensor) -> Tensor:
        return self.net(y**3)


def advance(field, y: Tensor) -> Tensor:
    """One step of Runge and Kutta's fourth-order method."""
    a = field(y)
    b = field(y + STEP / 2 * a)
    c = field(y + STEP / 2 * b)
    d = field(y + STEP * c)
    return y + STEP / 6 * (a + 2 * b + 2 * c + d)


def solve(field, y: Tensor, points: int) -> Tensor:
    """The way from y on."""
    way = [y]
    for _ in range(points - 1):
        way.append(advance(field, way[-1]))
    return torch.stack(way)


given = options(__doc__, steps=150)
truth = torch.tensor([[-0.1, 2.0], [-2.0, -0.1]], device=given.device)
with torch.no_grad():
    target = solve(
        lambda y: (y**3) @ truth, torch.tensor([[2.0, 0.0]], device=given.device), POINTS
    )

field = Field().to(given.device)
optimizer = torch.optim.Adam(field.parameters(), lr=0.01)
bar = Bar(given.steps, given.device)
for step in bar:
    length = min(POINTS, 8 + step * POINTS // given.steps)
    loss = (solve(field, target[0], length) - target[:length]).abs().mean()
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(field.parameters(), 1.0)
    optimizer.step()
    bar.show(loss)

with torch.no_grad():
    off = (solve(field, target[0], POINTS) - target).abs().mean().item()
size = target.abs().mean().item()
print(f"mean distance along {POINTS} points: {off:.3f}, the spiral's own size {size:.3f}")
