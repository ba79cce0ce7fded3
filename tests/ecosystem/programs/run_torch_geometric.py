"""torch_geometric: GCN, GAT, SAGE and GIN on a small graph: results and losses."""

import torch
from common import digest, fill, normal, tell, tokens, train
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GATConv, GCNConv, GINConv, SAGEConv, global_mean_pool

edges = tokens(2, 30, most=11) - 1
x, target = normal(10, 6), tokens(10, most=4) - 1
numbers = {}
layers = {
    "gcn": lambda a, b: GCNConv(a, b),
    "gat": lambda a, b: GATConv(a, b, heads=1),
    "sage": lambda a, b: SAGEConv(a, b),
    "gin": lambda a, b: GINConv(torch.nn.Linear(a, b)),
}
for name, make in layers.items():
    first, second = fill(make(6, 8), 0.3), fill(make(8, 3), 0.3)
    both = torch.nn.ModuleList([first, second])

    def forward():
        return second(first(x, edges).relu(), edges)

    numbers[name] = digest(forward())
    numbers[f"{name} losses"] = train(
        both, lambda: torch.nn.functional.cross_entropy(forward(), target)
    )
graphs = [Data(x=x[i : i + 4], edge_index=tokens(2, 6, most=5, seed=i) - 1) for i in range(4)]
batch = next(iter(DataLoader(graphs, batch_size=4)))
numbers["batch"] = digest(global_mean_pool(batch.x, batch.batch))
tell(**numbers)
