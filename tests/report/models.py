"""Models whose layers torchinfo has counted: `torchinfo.json` has its numbers.

Made by `summary(model, input_size=shape)` of torchinfo 1.8.0 with PyTorch 2.13.0.
"""

from __future__ import annotations

from typing import Any

torch: Any = None


def bind(module: Any) -> None:
    """Use `torch`, or Rushlight, for what follows."""
    global torch
    torch = module


def lenet() -> Any:
    nn = torch.nn
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2),
        nn.Tanh(),
        nn.AvgPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.Tanh(),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(400, 120),
        nn.Tanh(),
        nn.Linear(120, 10),
    )


def mlp() -> Any:
    nn = torch.nn
    return nn.Sequential(nn.Linear(20, 64, bias=False), nn.ReLU(), nn.Linear(64, 5, bias=False))


def separable() -> Any:
    nn = torch.nn
    return nn.Sequential(
        nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU6(),
        nn.Conv2d(8, 24, 1, bias=False),
        nn.BatchNorm2d(24),
        nn.Conv2d(24, 24, 3, stride=2, dilation=2, bias=False),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(24, 3),
    )


def wave() -> Any:
    nn = torch.nn
    return nn.Sequential(nn.Conv1d(2, 8, 9, stride=4, bias=False), nn.GELU(), nn.Conv1d(8, 4, 3))


MODELS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "lenet": (lenet, (2, 1, 28, 28)),
    "mlp": (mlp, (7, 20)),
    "separable": (separable, (2, 8, 17, 17)),
    "wave": (wave, (3, 2, 160)),
}
