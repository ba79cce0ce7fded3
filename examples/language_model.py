"""An LSTM that learns the letters of Moby-Dick and writes some.

python examples/language_model.py [--device webgpu] [--short]
"""

from __future__ import annotations

import math

import numpy as np
from common import DATA, Bar, options

import rushlight as torch
import rushlight.nn.functional as F
from rushlight import Tensor, nn


class Letters(nn.Module):
    """Indices (batch, time) to the next letter's logits, and the state to go on from."""

    def __init__(self, letters: int, width: int = 128) -> None:
        super().__init__()
        self.embed = nn.Embedding(letters, 32)
        self.lstm = nn.LSTM(32, width, num_layers=2, batch_first=True)
        self.head = nn.Linear(width, letters)

    def forward(self, x: Tensor, state: tuple[Tensor, Tensor] | None = None):
        seen, state = self.lstm(self.embed(x), state)
        return self.head(seen), state


given = options(__doc__, steps=300, batch=16, length=32)
text = (DATA / "moby_dick.txt").read_text()
letters = sorted(set(text))
indices = torch.tensor([letters.index(c) for c in text[:200_000]], device=given.device)

model = Letters(len(letters)).to(given.device)
optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
random = np.random.default_rng(given.seed)
bar = Bar(given.steps, given.device)
for _ in bar:
    starts = random.integers(0, len(indices) - given.length - 1, given.batch)
    chosen = torch.stack([indices[s : s + given.length + 1] for s in starts.tolist()])
    logits, _ = model(chosen[:, :-1])
    loss = F.cross_entropy(logits.flatten(0, 1), chosen[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    bar.show(loss)

model.eval()
written, state = [letters.index("T")], None
with torch.no_grad():
    for _ in range(20 if given.short else 160):
        logits, state = model(torch.tensor([written[-1:]], device=given.device), state)
        chances = (logits[0, -1] / 0.7).softmax(0)
        written.append(int(torch.multinomial(chances, 1)))
print("".join(letters[i] for i in written))
chance = math.log(len(letters))
print(f"nats per letter: {bar.first:.2f} to {bar.last:.2f} (guessing: {chance:.2f})")
