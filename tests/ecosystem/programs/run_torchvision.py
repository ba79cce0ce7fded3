"""torchvision: models, datasets, transforms, feature extraction by torch.fx, detection."""

import tempfile
from pathlib import Path

import native_ops  # noqa: F401
import numpy as np
import PIL.Image
import torch
import torchvision as v
from common import digest, fill, normal, tell
from torchvision import tv_tensors
from torchvision.models.detection import fasterrcnn_resnet50_fpn
from torchvision.models.feature_extraction import create_feature_extractor
from torchvision.transforms import v2 as T

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

new = T.Compose(
    [
        T.RandomHorizontalFlip(1.0),
        T.ToDtype(torch.float32, scale=True),
        T.Resize((24, 20)),
        T.RandomRotation((30, 30)),
        T.GaussianBlur(3, 1.0),
        T.Normalize((0.5,) * 3, (0.2,) * 3),
    ]
)
given = {
    "image": tv_tensors.Image(image),
    "mask": tv_tensors.Mask(torch.arange(48 * 40, dtype=torch.uint8).reshape(48, 40)),
    "boxes": tv_tensors.BoundingBoxes([[3, 5, 30, 40]], format="XYXY", canvas_size=(48, 40)),
}
found = new(given)
numbers["v2"] = {name: digest(torch.as_tensor(value)) for name, value in found.items()}
numbers["classes"] = [type(value).__name__ for value in found.values()]

on_picture = T.Compose(
    [
        T.Resize((30, 26)),
        T.Pad(2),
        T.CenterCrop(24),
        T.RandomHorizontalFlip(1.0),
        T.ColorJitter((1.2, 1.2), (0.8, 0.8)),
        T.Grayscale(3),
        T.PILToTensor(),
    ]
)
numbers["v2 on a picture"] = digest(on_picture(image))
on_tensor = v.transforms.Compose(
    [v.transforms.Resize(20, antialias=True), v.transforms.RandomVerticalFlip(1.0)]
)
numbers["v1 on a tensor"] = digest(on_tensor(x))

with tempfile.TemporaryDirectory() as folder:
    for i in range(6):
        place = Path(folder, "pictures", "ab"[i % 2])
        place.mkdir(parents=True, exist_ok=True)
        PIL.Image.fromarray(np.roll(np.asarray(image), i, 0)).save(place / f"{i}.png")
    pictures = v.datasets.ImageFolder(f"{folder}/pictures", v.transforms.ToTensor())
    batch, labels = next(iter(torch.utils.data.DataLoader(pictures, 6)))
    numbers["ImageFolder"] = [pictures.classes, labels.tolist(), digest(batch)]
    raw = Path(folder, "MNIST", "raw")
    raw.mkdir(parents=True)
    digits = np.arange(5 * 28 * 28).reshape(5, 28, 28).astype(np.uint8)
    for name, data in (("images-idx3", digits), ("labels-idx1", np.arange(5, dtype=np.uint8))):
        head = [0, 0, 8, data.ndim, *b"".join(n.to_bytes(4, "big") for n in data.shape)]
        (raw / f"train-{name}-ubyte").write_bytes(bytes(head) + data.tobytes())
        (raw / f"t10k-{name}-ubyte").write_bytes(bytes(head) + data.tobytes())
    mnist = v.datasets.MNIST(folder, transform=v.transforms.ToTensor())
    batch, labels = next(iter(torch.utils.data.DataLoader(mnist, 5)))
    numbers["MNIST"] = [labels.tolist(), digest(batch)]

torch.randperm = lambda n, **options: torch.arange(n)  # which of the proposals are sampled
sizes = {
    f"rpn_{when}_nms_top_n_{phase}": 40 for when in ("pre", "post") for phase in ("train", "test")
}
model = fasterrcnn_resnet50_fpn(
    weights=None, weights_backbone=None, num_classes=5, min_size=64, max_size=80, **sizes
)
fill(model, 0.02)
images = [normal(3, 64, 80, seed=3).sigmoid(), normal(3, 64, 64, seed=4).sigmoid()]
targets = [
    {"boxes": torch.tensor([[5.0, 5, 30, 40], [10, 20, 60, 60]]), "labels": torch.tensor([1, 2])},
    {"boxes": torch.tensor([[5.0, 5, 30, 40]]), "labels": torch.tensor([3])},
]
optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.01)
numbers["detection"] = []
for _ in range(2):
    losses = model(images, targets)
    optimizer.zero_grad()
    sum(losses.values()).backward()
    optimizer.step()
    numbers["detection"].append({name: loss.item() for name, loss in sorted(losses.items())})
with torch.no_grad():
    found = model.eval()(images)
numbers["detected"] = [each["scores"][:4].tolist() for each in found]
tell(**numbers)
