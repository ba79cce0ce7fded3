"""What the examples share: options, a bar with loss and memory, the digits, pictures as text."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

import rushlight as torch
from rushlight import Tensor, memory

DATA = Path(__file__).parent / "data"


def options(about: str | None, **numbers: int) -> argparse.Namespace:
    """--device, --seed, --short, and options with whole numbers; a short run takes a tenth."""
    parser = argparse.ArgumentParser(description=(about or "").partition("\n")[0])
    parser.add_argument("--device", default="cpu", help="cpu, cuda or webgpu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--short", action="store_true", help="a tenth of the steps")
    for name, number in numbers.items():
        parser.add_argument(f"--{name}", type=int, default=number)
    found = parser.parse_args()
    if found.short and "steps" in numbers:
        found.steps = max(2, found.steps // 10)
    torch.manual_seed(found.seed)
    return found


class Bar:
    """A loop with a bar: the loss, steps per second, and the peak of the device's memory."""

    def __init__(self, steps: int, device: str, label: str = "training") -> None:
        self.device = device
        self.losses: list[float] = []
        memory.reset_peak(device)
        self.bar = tqdm(range(steps), desc=label, unit="it", mininterval=0.5)

    def __iter__(self) -> Iterator[int]:
        yield from self.bar

    def show(self, loss: Tensor, **more: Any) -> None:
        """Show the loss of this step."""
        self.losses.append(loss.item())
        peak = memory.peak(self.device) / (1 << 20)
        self.bar.set_postfix(loss=f"{self.losses[-1]:.3f}", peak=f"{peak:.0f}MiB", **more)

    @property
    def first(self) -> float:
        """The mean of the first tenth of losses."""
        return float(np.mean(self.losses[: max(1, len(self.losses) // 10)]))

    @property
    def last(self) -> float:
        """The mean of the last tenth of losses."""
        return float(np.mean(self.losses[-max(1, len(self.losses) // 10) :]))


def digits(device: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Images (n, 1, 8, 8) from 0 to 1 and labels: to train on, and the last 297 to test on."""
    found = np.load(DATA / "digits.npz")
    images = torch.tensor(found["images"][:, None].astype(np.float32) / 16).to(device)
    labels = torch.tensor(found["labels"].astype(np.int64)).to(device)
    return images[:1500], labels[:1500], images[1500:], labels[1500:]


def batch_of(count: int, size: int, device: str) -> Tensor:
    """`size` random indices below `count`."""
    return torch.randint(0, count, (size,), device=device)


def draw(image: Tensor) -> str:
    """A picture with values from 0 to 1 as text."""
    shades = " .:-=+*#%@"
    rows = (image.clamp(0, 1) * (len(shades) - 1)).round().to(torch.int64).tolist()
    return "\n".join("".join(shades[v] * 2 for v in row) for row in rows)


def side_by_side(pictures: list[str]) -> str:
    """Pictures of equal height beside each other."""
    return "\n".join(
        "   ".join(rows) for rows in zip(*[p.split("\n") for p in pictures], strict=True)
    )
