"""A variational autoencoder: digits from eight numbers each, and new ones from noise.

python examples/vae.py [--device webgpu] [--short]
"""

from __future__ import annotations

from common import Bar, batch_of, digits, draw, options, side_by_side

import rushlight as torch
import rushlight.nn.functional as F
from rushlight import Tensor, nn


class VAE(nn.Module):
    """An image to the mean and the logarithm of the variance of its code, and back."""

    def __init__(self, code: int = 8) -> None:
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 2 * code))
        self.decode = nn.Sequential(nn.Linear(code, 128), nn.GELU(), nn.Linear(128, 64))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mean, log_variance = self.encode(x).chunk(2, dim=-1)
        code = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
        return self.decode(code), mean, log_variance


given = options(__doc__, steps=800, batch=128)
images = digits(given.device)[0].flatten(1)
model = VAE().to(given.device)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

bar = Bar(given.steps, given.device)
for _ in bar:
    x = images[batch_of(len(images), given.batch, given.device)]
    logits, mean, log_variance = model(x)
    likelihood = F.binary_cross_entropy_with_logits(logits, x, reduction="sum") / len(x)
    divergence = 0.5 * (mean**2 + log_variance.exp() - 1 - log_variance).sum() / len(x)
    loss = likelihood + divergence
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    bar.show(loss, kl=f"{divergence.item():.2f}")

with torch.no_grad():
    made = model.decode(torch.randn(5, 8, device=given.device)).sigmoid().view(5, 8, 8)
print(side_by_side([draw(picture) for picture in made]))
print(f"nats per image: {bar.first:.1f} to {bar.last:.1f}")
