"""An actor and a critic that learn to balance a pole on a cart.

python examples/actor_critic.py [--device webgpu] [--short]
"""

from __future__ import annotations

import math
import random

from common import Bar, options

import rushlight as torch
import rushlight.nn.functional as F
from rushlight import Tensor, nn
from rushlight.distributions import Categorical


class CartPole:
    """A cart of 1 kg on a track, and a pole of 0.1 kg and 1 m on it; steps of a fiftieth second."""

    def reset(self) -> list[float]:
        self.state = [random.uniform(-0.05, 0.05) for _ in range(4)]
        self.time = 0
        return self.state

    def step(self, right: bool) -> tuple[list[float], bool]:
        """Push for one step; the new state, and whether the pole fell or the cart left."""
        x, speed, angle, turning = self.state
        push = 10.0 if right else -10.0
        sine, cosine = math.sin(angle), math.cos(angle)
        pulled = (push + 0.05 * turning**2 * sine) / 1.1
        bend = (9.8 * sine - cosine * pulled) / (0.5 * (4 / 3 - 0.1 * cosine**2 / 1.1))
        away = pulled - 0.05 * bend * cosine / 1.1
        rates = (speed, away, turning, bend)
        self.state = [s + 0.02 * r for s, r in zip((x, speed, angle, turning), rates, strict=True)]
        self.time += 1
        return self.state, abs(self.state[0]) > 2.4 or abs(self.state[2]) > 0.21


class ActorCritic(nn.Module):
    """A state to the logits of two pushes, and to its worth."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 64), nn.Tanh())
        self.act = nn.Linear(64, 2)
        self.judge = nn.Linear(64, 1)

    def forward(self, state: Tensor) -> tuple[Tensor, Tensor]:
        seen = self.body(state)
        return self.act(seen), self.judge(seen)[..., 0]


given = options(__doc__, steps=200)
random.seed(given.seed)
model = ActorCritic().to(given.device)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
game, lengths = CartPole(), []
most = 30 if given.short else 300

bar = Bar(given.steps, given.device, "episodes")
for _ in bar:
    state, chances, over = game.reset(), [], False
    logs, worths = [], []
    while not over and game.time < most:
        logits, worth = model(torch.tensor(state, device=given.device))
        choice = Categorical(logits=logits)
        push = choice.sample()
        logs.append(choice.log_prob(push))
        worths.append(worth)
        state, over = game.step(bool(push))
    returns, total = [], 0.0
    for _ in logs:
        total = 1 + 0.99 * total
        returns.append(total)
    target = torch.tensor(returns[::-1], device=given.device)
    scaled = (target - target.mean()) / (target.std() + 1e-6)
    worth = torch.stack(worths)
    loss = -(torch.stack(logs) * (scaled - worth.detach())).sum() + F.smooth_l1_loss(worth, scaled)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    lengths.append(game.time)
    bar.show(loss, balanced=game.time)

tenth = max(1, len(lengths) // 10)
first, last = (sum(part) / tenth for part in (lengths[:tenth], lengths[-tenth:]))
print(f"steps in balance: {first:.0f} in the first episodes, {last:.0f} in the last")
