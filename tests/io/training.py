"""A training program that saves all it needs, and continues from a file: run by test_resume.py."""

from __future__ import annotations

import argparse
import random
from typing import Any

import numpy as np

import rushlight as rl
from rushlight import nn
from rushlight.nn import functional as F
from rushlight.optim import swa_utils
from rushlight.random import get_rng_state_all, set_rng_state_all
from rushlight.utils.data import Dataset, StatefulDataLoader

SAMPLES, BATCH, ACCUMULATED = 37, 4, 2


class Images(Dataset[Any]):
    """Noise with a label; augmented by three generators of random numbers."""

    def __init__(self) -> None:
        made = np.random.default_rng(0)
        self.images = made.standard_normal((SAMPLES, 1, 6, 6)).astype(np.float32)
        self.labels = made.integers(0, 3, SAMPLES)

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: Any) -> Any:
        image = self.images[index]
        if random.random() < 0.5:
            image = image[:, :, ::-1].copy()
        image = image + np.random.standard_normal(image.shape).astype(np.float32) * 0.1
        return rl.from_numpy(image) * rl.rand(1), int(self.labels[index])


class Training:
    """Everything that a step reads and writes."""

    def __init__(self, device: str, workers: int, steps: int) -> None:
        self.device = device
        self.model = nn.Sequential(
            nn.Conv2d(1, 4, 3),
            nn.BatchNorm2d(4),
            nn.ReLU(),
            nn.Flatten(),
            nn.Dropout(0.3),
            nn.Linear(64, 3),
        ).to(device)
        average = swa_utils.get_ema_multi_avg_fn(0.9)
        self.average = swa_utils.AveragedModel(self.model, multi_avg_fn=average, use_buffers=True)
        self.optimizer = rl.optim.AdamW(self.model.parameters(), lr=0.01, amsgrad=True)
        self.scheduler = rl.optim.lr_scheduler.OneCycleLR(self.optimizer, 0.05, total_steps=steps)
        self.scaler = rl.amp.GradScaler(device, init_scale=2.0**14, growth_interval=2)
        self.loader: StatefulDataLoader[Any] = StatefulDataLoader(
            Images(), BATCH, shuffle=True, num_workers=workers
        )
        self.parts = {
            name: getattr(self, name)
            for name in ("model", "average", "optimizer", "scheduler", "scaler", "loader")
        }
        self.done = 0
        self.losses: list[float] = []

    def state_dict(self) -> dict[str, Any]:
        return {
            **{name: part.state_dict() for name, part in self.parts.items()},
            "gradients": [p.grad for p in self.model.parameters()],
            "streams": get_rng_state_all(),
            "done": self.done,
            "losses": self.losses,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, part in self.parts.items():
            part.load_state_dict(state[name])
        for p, gradient in zip(self.model.parameters(), state["gradients"], strict=True):
            p.grad = gradient
        self.done, self.losses = state["done"], state["losses"]
        set_rng_state_all(state["streams"])

    def step(self, images: Any, labels: Any) -> None:
        images, labels = images.to(self.device), labels.to(self.device)
        with rl.autocast(self.device, dtype=rl.bfloat16):
            loss = F.cross_entropy(self.model(images), labels) / ACCUMULATED
        self.scaler.scale(loss).backward()
        self.losses.append(loss.item())
        self.done += 1
        if self.done % ACCUMULATED:
            return
        self.scaler.unscale_(self.optimizer)
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad()
        self.scheduler.step()
        self.average.update_parameters(self.model)

    def run(self, until: int) -> None:
        while True:
            for images, labels in self.loader:
                self.step(images, labels)
                if self.done == until:
                    return


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--until", type=int, required=True)
    parser.add_argument("--resume")
    parser.add_argument("--save", required=True)
    given = parser.parse_args()
    seed = 99 if given.resume else 0  # another one: what is not restored differs
    rl.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)
    training = Training(given.device, given.workers, given.steps)
    if given.resume:
        training.load_state_dict(rl.load(given.resume))
    training.run(given.until)
    rl.save(training.state_dict(), given.save)


if __name__ == "__main__":
    main()
