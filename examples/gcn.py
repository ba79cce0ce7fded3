"""A graph convolution that finds communities from a few labelled members.

python examples/gcn.py [--device webgpu] [--short]
"""

from __future__ import annotations

import numpy as np
from common import Bar, options

import rushlight as torch
import rushlight.nn.functional as F
from rushlight import Tensor, nn

COMMUNITIES, MEMBERS, LABELLED = 4, 50, 3


def network(random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Edges (2, m), dense inside of a community and rare between two, and every member's one."""
    groups = np.repeat(np.arange(COMMUNITIES), MEMBERS)
    chance = np.where(groups[:, None] == groups, 0.12, 0.01)
    upper = np.triu(random.random(chance.shape) < chance, 1)
    edges = np.argwhere(upper | upper.T)
    return edges.T, groups


class GCN(nn.Module):
    """Two rounds in which every member takes the weighted mean of its neighbours."""

    def __init__(self, members: int, width: int) -> None:
        super().__init__()
        self.embed = nn.Parameter(torch.randn(members, width) * 0.1)
        self.first = nn.Linear(width, width)
        self.second = nn.Linear(width, COMMUNITIES)

    def forward(self, neighbours: Tensor) -> Tensor:
        x = F.dropout(self.embed, 0.3, self.training)
        x = torch.sparse.mm(neighbours, self.first(x)).relu()
        return torch.sparse.mm(neighbours, self.second(x))


given = options(__doc__, steps=150)
edges, groups = network(np.random.default_rng(given.seed))
members = len(groups)
both = np.concatenate([edges, np.tile(np.arange(members), (2, 1))], 1)  # each is its own neighbour
degree = np.bincount(both[0], minlength=members)
weights = 1 / np.sqrt(degree[both[0]] * degree[both[1]])
neighbours = torch.sparse_coo_tensor(
    torch.tensor(both), torch.tensor(weights.astype(np.float32)), (members, members)
).to(given.device)
target = torch.tensor(groups, device=given.device)
known = torch.tensor(
    [c * MEMBERS + i for c in range(COMMUNITIES) for i in range(LABELLED)], device=given.device
)

model = GCN(members, 16).to(given.device)
optimizer = torch.optim.Adam(model.parameters(), lr=0.02, weight_decay=5e-4)
bar = Bar(given.steps, given.device)
for _ in bar:
    loss = F.cross_entropy(model(neighbours)[known], target[known])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    bar.show(loss)

model.eval()
with torch.no_grad():
    right = (model(neighbours).argmax(1) == target).float().mean().item()
print(
    f"{len(known)} labels, {edges.shape[1] // 2} edges: {100 * right:.0f}% of {members} are right"
)
