"""A convolutional network that reads handwritten digits.

python examples/digits.py [--device webgpu] [--short]
"""

from __future__ import annotations

from common import Bar, batch_of, digits, options

import rushlight as torch
import rushlight.nn.functional as F
from rushlight import nn

options_given = options(__doc__, steps=400, batch=64)
device = options_given.device
images, labels, test_images, test_labels = digits(device)

model = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1),
    nn.BatchNorm2d(16),
    nn.ReLU(),
    nn.Conv2d(16, 32, 3, padding=1),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Flatten(),
    nn.Dropout(0.2),
    nn.Linear(32 * 4 * 4, 10),
).to(device)
torch.summary(model, images[: options_given.batch])

optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
bar = Bar(options_given.steps, device)
for _ in bar:
    chosen = batch_of(len(images), options_given.batch, device)
    loss = F.cross_entropy(model(images[chosen]), labels[chosen])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    bar.show(loss)

model.eval()
with torch.no_grad():
    guesses = model(test_images).argmax(1)
right = (guesses == test_labels).float().mean().item()
print(f"loss {bar.first:.3f} to {bar.last:.3f}; {100 * right:.1f}% of 297 unseen digits are right")
