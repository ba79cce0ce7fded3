"""A classifier: data, model, loop, checkpoint."""

from __future__ import annotations

import rushlight as torch
import rushlight.nn.functional as F
from rushlight import Tensor, nn
from rushlight.optim import SGD, AdamW
from rushlight.optim.lr_scheduler import CosineAnnealingLR
from rushlight.utils.data import DataLoader, Dataset, TensorDataset, random_split


class Points(Dataset[tuple[Tensor, Tensor]]):
    def __init__(self, count: int) -> None:
        self.x = torch.randn(count, 8)
        self.y = (self.x.sum(dim=1) > 0).long()

    def __len__(self) -> int:
        return self.x.shape[0]

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.x[index], self.y[index]


class MLP(nn.Module):
    def __init__(self, hidden: int = 16) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, hidden), nn.ReLU(), nn.Dropout(0.1))
        self.head = nn.Linear(hidden, 2)
        self.register_buffer("scale", torch.ones(1))
        self.shift = nn.Parameter(torch.zeros(2))

    def forward(self, x: Tensor) -> Tensor:
        hidden: Tensor = self.body(x)
        out: Tensor = self.head(hidden)
        return out + self.shift


def accuracy(model: nn.Module, loader: DataLoader[tuple[Tensor, Tensor]]) -> float:
    model.eval()
    right, seen = 0, 0
    with torch.no_grad():
        for x, y in loader:
            logits: Tensor = model(x)
            right += int((logits.argmax(dim=-1) == y).sum().item())
            seen += y.numel()
    model.train()
    return right / seen


def train(device: torch.device, steps: int = 2) -> float:
    torch.manual_seed(0)
    data = Points(64)
    kept, held = random_split(data, [48, 16])
    loader = DataLoader(kept, batch_size=16, shuffle=True)
    model = MLP().to(device)
    optimizer = AdamW(model.parameters(), lr=1e-2, weight_decay=0.1)
    schedule = CosineAnnealingLR(optimizer, T_max=10)
    loss = torch.tensor(0.0)
    total: float = 0.0
    for _ in range(steps):
        for x, y in loader:
            x, y = x.to(device, non_blocking=True), y.to(device)
            optimizer.zero_grad(set_to_none=True)
            loss = F.cross_entropy(model(x), y, label_smoothing=0.1)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            total += loss.item()
        schedule.step()
    torch.save({"model": model.state_dict(), "step": steps}, "checkpoint.pt")
    state = torch.load("checkpoint.pt", map_location="cpu")
    model.load_state_dict(state["model"])
    values, indices = loss.reshape(1, 1).max(dim=1)
    top = torch.randn(4, 5).topk(2, dim=-1)
    print(values.shape, indices.dtype, top.values[..., 0].mean(), accuracy(model, DataLoader(held)))
    grad = model.shift.grad
    if grad is not None:
        print(grad.norm().item())
    return total


if __name__ == "__main__":
    print(train(torch.device("cpu")), SGD([torch.zeros(2, requires_grad=True)], lr=0.1))
    TensorDataset(torch.zeros(2), torch.ones(2))
