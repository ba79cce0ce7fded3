"""Training that is killed and continues: the parameters of an undisturbed run, bit for bit.

python examples/resume.py [--device webgpu] [--workers 2]
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import rushlight as torch
from rushlight import nn
from rushlight.nn import functional as F
from rushlight.random import get_rng_state_all, set_rng_state_all
from rushlight.utils.data import Dataset, StatefulDataLoader

STEPS, EVERY = 40, 4  # steps in all, and from one save to the next


class Spirals(Dataset[Any]):
    """Points of two spirals, moved a little each time they are read."""

    def __len__(self) -> int:
        return 200

    def __getitem__(self, index: Any) -> Any:
        turn, which = torch.tensor(index / 40), index % 2
        point = torch.stack([turn.cos(), turn.sin()]) * turn * (1 - 2 * which)
        return point + torch.randn(2) * 0.05 * random.random(), which


def train(path: Path, device: str, workers: int) -> None:
    """Train to the end, from the last save if there is one."""
    torch.manual_seed(0)
    random.seed(0)
    layers = [nn.Linear(2, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 2)]
    model = nn.Sequential(*layers).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    loader = StatefulDataLoader(Spirals(), batch_size=16, shuffle=True, num_workers=workers)
    parts = {"model": model, "optimizer": optimizer, "scheduler": scheduler, "loader": loader}
    step = 0
    if path.exists():
        kept = torch.load(path)
        for name, part in parts.items():
            part.load_state_dict(kept[name])
        step = kept["step"]
        set_rng_state_all(kept["streams"])
    while step < STEPS:
        for points, which in loader:
            loss = F.cross_entropy(model(points.to(device)), which.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            step += 1
            if step % EVERY == 0:
                kept = {name: part.state_dict() for name, part in parts.items()}
                torch.save({**kept, "step": step, "streams": get_rng_state_all()}, path)
            print(step, flush=True)
            if step == STEPS:
                break


def run_and_kill(path: Path, given: list[str], at: int) -> bool:
    """Train in another process and kill it after a step; whether it was killed."""
    command = [sys.executable, __file__, "--train", str(path), *given]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if int(line) == at:
                process.kill()
                return True
    if process.returncode:
        raise SystemExit("the training failed")
    return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--train", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.train is not None:
        train(given.train, given.device, given.workers)
        return
    options = ["--device", given.device, "--workers", str(given.workers)]
    with tempfile.TemporaryDirectory() as folder:
        whole, parts = Path(folder) / "whole", Path(folder) / "parts"
        run_and_kill(whole, options, -1)
        kills = [at for at in (7, 22) if run_and_kill(parts, options, at)]
        run_and_kill(parts, options, -1)
        one, other = (torch.load(path)["model"] for path in (whole, parts))
    equal = all(torch.equal(one[name], other[name]) for name in one)
    print(f"killed after steps {kills}, the same parameters after {STEPS}: {equal}")


if __name__ == "__main__":
    main()
