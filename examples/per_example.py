"""The gradient of every example by `vmap`, clipped and blurred: training with differential privacy.

python examples/per_example.py [--device webgpu] [--short]
"""

from __future__ import annotations

from common import Bar, batch_of, digits, options

import rushlight as torch
import rushlight.nn.functional as F
from rushlight import Tensor, nn
from rushlight.func import functional_call, grad, vmap

CLIP, NOISE = 1.0, 0.3

given = options(__doc__, steps=150, batch=64)
device = given.device
images, labels, test_images, test_labels = digits(device)
model = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.8)


def loss_of(parameters: dict[str, Tensor], image: Tensor, label: Tensor) -> Tensor:
    """The loss of one example."""
    logits = functional_call(model, parameters, (image[None],))
    return F.cross_entropy(logits, label[None])


each = vmap(grad(loss_of), in_dims=(None, 0, 0))
bar = Bar(given.steps, device)
for step in bar:
    chosen = batch_of(len(images), given.batch, device)
    parameters = {name: p.detach() for name, p in model.named_parameters()}
    gradients = each(parameters, images[chosen], labels[chosen])
    if not step:  # they are what a loop would give
        alone = grad(loss_of)(parameters, images[chosen[0]], labels[chosen[0]])
        difference = max((gradients[n][0] - alone[n]).abs().max().item() for n in alone)
    norms = sum((g.flatten(1) ** 2).sum(1) for g in gradients.values()).sqrt()
    share = (CLIP / (norms + 1e-6)).clamp(max=1.0)
    for name, p in model.named_parameters():
        total = torch.tensordot(share, gradients[name], 1)
        p.grad = (total + NOISE * CLIP * torch.randn_like(total)) / given.batch
    optimizer.step()
    with torch.no_grad():
        bar.show(F.cross_entropy(model(images[chosen]), labels[chosen]))

with torch.no_grad():
    right = (model(test_images).argmax(1) == test_labels).float().mean().item()
print(f"vmap and a single gradient differ by {difference:.1e}")
print(f"gradients clipped to {CLIP}: {100 * right:.1f}% of 297 unseen digits are right")
