"""A generator and a critic of digits, made of convolutions (DCGAN).

python examples/dcgan.py [--device webgpu] [--short]
"""

from __future__ import annotations

from common import Bar, batch_of, digits, draw, options, side_by_side

import rushlight as torch
import rushlight.nn.functional as F
from rushlight import nn

NOISE = 32

generator = nn.Sequential(
    nn.ConvTranspose2d(NOISE, 64, 4, bias=False),
    nn.BatchNorm2d(64),
    nn.ReLU(),
    nn.ConvTranspose2d(64, 1, 4, 2, 1),
    nn.Sigmoid(),
)
critic = nn.Sequential(
    nn.Conv2d(1, 32, 4, 2, 1),
    nn.LeakyReLU(0.2),
    nn.Conv2d(32, 64, 4),
    nn.LeakyReLU(0.2),
    nn.Flatten(),
    nn.Linear(64, 1),
)


def start(module: nn.Module) -> None:
    """Small normal weights, as the paper has them."""
    if isinstance(module, (nn.Conv2d, nn.ConvTranspose2d)):
        nn.init.normal_(module.weight, 0.0, 0.05)


given = options(__doc__, steps=400, batch=64)
device = given.device
images = digits(device)[0]
for net in (generator, critic):
    net.to(device).apply(start)
makes = torch.optim.Adam(generator.parameters(), lr=1e-3, betas=(0.5, 0.999))
judges = torch.optim.Adam(critic.parameters(), lr=5e-4, betas=(0.5, 0.999))
real, fake = torch.ones(given.batch, 1, device=device), torch.zeros(given.batch, 1, device=device)
judge = F.binary_cross_entropy_with_logits

bar = Bar(given.steps, device)
for _ in bar:
    seen = images[batch_of(len(images), given.batch, device)]
    made = generator(torch.randn(given.batch, NOISE, 1, 1, device=device))
    verdict = judge(critic(seen), real * 0.9) + judge(critic(made.detach()), fake)
    judges.zero_grad()
    verdict.backward()
    judges.step()
    loss = judge(critic(made), real)
    makes.zero_grad()
    loss.backward()
    makes.step()
    bar.show(loss, critic=f"{verdict.item():.2f}")

generator.eval()
with torch.no_grad():
    made = generator(torch.randn(5, NOISE, 1, 1, device=device))
    distance = torch.cdist(made.flatten(1), images.flatten(1)).min(1).values.mean().item()
    noise = torch.cdist(torch.rand(5, 64, device=device), images.flatten(1)).min(1).values.mean()
print(side_by_side([draw(picture[0]) for picture in made]))
print(f"a made digit lies {distance:.2f} from the nearest real one, noise {noise.item():.2f}")
