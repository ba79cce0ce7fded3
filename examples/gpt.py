"""A small GPT over characters, as one would write it with PyTorch."""

from __future__ import annotations

import rushlight as torch
import rushlight.nn.functional as F
from rushlight import Tensor, nn


class Attention(nn.Module):
    """Each position attends to itself and to those before it."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        batch, time, width = x.shape
        parts = self.qkv(x).view(batch, time, 3, self.heads, width // self.heads)
        q, k, v = (parts[:, :, i].transpose(1, 2) for i in range(3))
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.dropout(self.out(seen.transpose(1, 2).reshape(batch, time, width)))


class Block(nn.Module):
    """Attention, then a small network at each position, each added to its input."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.norm_attention = nn.LayerNorm(width)
        self.attention = Attention(width, heads, dropout)
        self.norm_network = nn.LayerNorm(width)
        self.network = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(dropout)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm_attention(x))
        return x + self.network(self.norm_network(x))


class GPT(nn.Module):
    """Character indices (batch, time) to the next character's logits (batch, time, characters)."""

    def __init__(
        self,
        characters: int,
        context: int = 64,
        layers: int = 4,
        width: int = 128,
        heads: int = 4,
        dropout: float = 0.05,
    ) -> None:
        super().__init__()
        self.context = context
        self.token = nn.Embedding(characters, width)
        self.position = nn.Embedding(context, width)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.Sequential(*[Block(width, heads, dropout) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, characters, bias=False)

    def forward(self, indices: Tensor) -> Tensor:
        time = indices.shape[1]
        x = self.token(indices) + self.position.weight[:time]
        return self.head(self.norm(self.blocks(self.dropout(x))))

    def loss(self, indices: Tensor, following: Tensor) -> Tensor:
        logits = self(indices)
        return F.cross_entropy(logits.flatten(0, 1), following.flatten())


@torch.no_grad()
def write(model: GPT, prompt: list[int], count: int, temperature: float, device: str) -> list[int]:
    """`count` more characters after the prompt, sampled one by one.

    The model sees the last `context` characters.
    """
    model.eval()
    written = list(prompt)
    for _ in range(count):
        seen = torch.tensor([written[-model.context :]], device=device)
        logits = model(seen)[0, -1] / temperature
        # The largest of logits plus Gumbel noise is a sample from their softmax.
        noise = -(-torch.rand(logits.shape, device=device).log()).log()
        written.append(int((logits + noise).argmax()))
    return written[len(prompt) :]
