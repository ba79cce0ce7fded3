"""torchvision: models, transforms, feature extraction by torch.fx."""

import numpy as np
import PIL.Image
import torch
import torchvision as v
from common import digest, fill, normal, tell
from torchvision.models.feature_extraction import create_feature_extractor

numbers = {}
x = normal(2, 3, 64, 64)
for name in ("resnet18", "mobilenet_v3_small", "vit_b_16", "squeezenet1_1"):
    named = {"image_size": 64} if name == "vit_b_16" else {}
    torch.manual_seed(0)
    model = fill(v.models.get_model(name, num_classes=5, **named), 0.05).eval()
    numbers[name] = digest(model(x))
model = fill(v.models.resnet18(num_classes=5), 0.05).eval()
found = create_feature_extractor(model, {"layer2": "two", "avgpool": "last"})(x)
numbers["features"] = {name: digest(value) for name, value in found.items()}
image = PIL.Image.fromarray(np.arange(48 * 40 * 3, dtype=np.uint8).reshape(48, 40, 3))
old = v.transforms.Compose(
    [
        v.transforms.Resize(32),
        v.transforms.CenterCrop(24),
        v.transforms.ToTensor(),
        v.transforms.Normalize((0.5,) * 3, (0.2,) * 3),
    ]
)
numbers["v1"] = digest(old(image))
tell(**numbers)
