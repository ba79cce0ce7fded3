"""timm: five families; logits, a step of training, features."""

import timm
import torch
from common import digest, fill, normal, tell, train

numbers = {}
sizes = {
    "resnet18": 64,
    "vit_tiny_patch16_224": 32,
    "convnext_tiny": 64,
    "efficientnet_b0": 64,
    "swin_tiny_patch4_window7_224": 56,
}
for name, size in sizes.items():
    named = {} if name in ("resnet18", "convnext_tiny", "efficientnet_b0") else {"img_size": size}
    torch.manual_seed(0)
    model = fill(timm.create_model(name, num_classes=7, **named), 0.05).eval()
    x = normal(2, 3, size, size)
    numbers[name] = digest(model(x))
    target = torch.tensor([1, 5])
    numbers[f"{name} losses"] = train(
        model, lambda: torch.nn.functional.cross_entropy(model(x), target), 2, 1e-3
    )
model = fill(timm.create_model("resnet18", features_only=True), 0.05).eval()
numbers["features"] = [list(f.shape) for f in model(normal(1, 3, 64, 64))]
tell(**numbers)
