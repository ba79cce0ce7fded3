"""Train a small GPT twice, without a limit and in half of its activation memory: the same bits.

python examples/train_gpt.py --device cpu --steps 1000 --batch 16 --budget 30MiB --seed 1 --out out
"""

from __future__ import annotations

import argparse
import contextlib
import math
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from gpt import GPT, write
from tqdm import tqdm

import rushlight as torch
from rushlight import Tensor, memory
from rushlight.devices.shared.registry import pool_of

TEXT = Path(__file__).parent / "data" / "moby_dick.txt"
STEPS, BATCH, WRITTEN = 1000, 16, 400
IN_SOFTWARE = (20, 4, 80)  # the same three for a software GPU: some fifty times slower
LEARNING_RATE, WARMUP = 6e-3, 40
MIB = 1 << 20


class Text:
    """Characters as numbers, on the host; the last tenth is held out."""

    def __init__(self, path: Path) -> None:
        text = path.read_text("utf-8")
        self.characters = sorted(set(text))
        self.number = {c: i for i, c in enumerate(self.characters)}
        indices = np.array([self.number[c] for c in text], dtype=np.int64)
        cut = len(indices) * 9 // 10
        self.training, self.held_out = indices[:cut], indices[cut:]

    def read(self, indices: list[int]) -> str:
        return "".join(self.characters[i] for i in indices)


@dataclass
class Run:
    """The results of one training."""

    model: GPT
    losses: list[float]
    parameters: list[bytes]  # their bits at the end
    seconds: float
    peak: int
    persistent: int  # bytes of parameters, gradients, optimiser state and batch
    recomputed: int  # calls that were recomputed

    def same_bits(self, other: Run) -> bool:
        mine, theirs = (np.array(run.losses).tobytes() for run in (self, other))
        return mine == theirs and self.parameters == other.parameters


def draw_batch(
    source: np.ndarray, rng: np.random.Generator, batch: int, context: int, device: str
) -> list[Tensor]:
    """Random pieces of text, and the same shifted by one character."""
    starts = rng.integers(0, len(source) - context, batch)
    rows = np.stack([source[start : start + context + 1] for start in starts])
    return [torch.tensor(part, device=device) for part in (rows[:, :-1], rows[:, 1:])]


def rate_at(step: int, steps: int) -> float:
    """Linear warm-up, then half a cosine down to a tenth."""
    if step < WARMUP:
        return (step + 1) / WARMUP
    return 0.55 + 0.45 * math.cos(math.pi * (step - WARMUP) / max(1, steps - WARMUP))


def persistent_bytes(optimizer: torch.optim.Optimizer, batch: list[Tensor]) -> int:
    kept = list(batch)
    for p in optimizer.param_groups[0]["params"]:
        kept += [p, p.grad, *(v for v in optimizer.state[p].values() if isinstance(v, Tensor))]
    return sum(value.nbytes for value in kept)


def train(
    text: Text, options: argparse.Namespace, limit: int | None, label: str, steps: int
) -> Run:
    """One training from its seed on, model included, inside the limit if there is one."""
    device = options.device
    torch.manual_seed(options.seed)
    rng = np.random.default_rng(options.seed)
    memory.empty_cache(device)
    memory.reset_peak(device)
    again = memory.recomputed()["calls"]
    region = contextlib.nullcontext() if limit is None else memory.budget(limit, device)
    losses = []
    with region:
        model = GPT(len(text.characters)).to(device)
        optimizer = torch.optim.AdamW(
            model.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.99), weight_decay=0.1
        )
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rate_at(step, steps))
        start = time.perf_counter()
        with tqdm(total=steps, desc=label, unit="step", mininterval=0.5) as bar:
            for _ in range(steps):
                batch = draw_batch(text.training, rng, options.batch, model.context, device)
                optimizer.zero_grad()
                loss = model.loss(*batch)
                loss.backward()
                optimizer.step()
                schedule.step()
                losses.append(loss.item())
                bar.set_postfix_str(f"loss {losses[-1]:.3f}", refresh=False)
                bar.update()
        seconds = time.perf_counter() - start
        peak = memory.peak(device)
        persistent = persistent_bytes(optimizer, batch)
        parameters = [value.numpy(force=True).tobytes() for value in model.state_dict().values()]
    optimizer.zero_grad()
    return Run(
        model, losses, parameters, seconds, peak, persistent, memory.recomputed()["calls"] - again
    )


@torch.no_grad()
def held_out_loss(model: GPT, text: Text, options: argparse.Namespace) -> float:
    model.eval()
    rng = np.random.default_rng(options.seed)
    batches = [
        draw_batch(text.held_out, rng, options.batch, model.context, options.device)
        for _ in range(8)
    ]
    return float(np.mean([model.loss(*batch).item() for batch in batches]))


def smooth(losses: list[float]) -> np.ndarray:
    """The mean of each step and the nineteen before it."""
    total = np.cumsum([0.0, *losses])
    ends = np.arange(1, len(losses) + 1)
    starts = np.maximum(0, ends - 20)
    return (total[ends] - total[starts]) / (ends - starts)


def draw_curves(runs: dict[str, Run], path: Path) -> bool:
    """Both loss curves as a picture; False where matplotlib is missing."""
    try:
        import matplotlib
    except ModuleNotFoundError:
        return False
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4.2), layout="constrained")
    styles = [("#2f6f9f", "-", 3.0), ("#e08a1e", (0, (4, 4)), 1.5)]
    for (label, run), (colour, dashes, width) in zip(runs.items(), styles, strict=True):
        steps = np.arange(1, len(run.losses) + 1)
        axes.plot(
            steps, smooth(run.losses), color=colour, linestyle=dashes, linewidth=width, label=label
        )
    axes.set_xlabel("step")
    axes.set_ylabel("loss (nats per character, mean of 20 steps)")
    axes.grid(color="0.9", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    return True


def is_software(device: str) -> bool:
    """Whether the device is a software GPU."""
    return device == "webgpu" and "(CPU)" in pool_of(device).device.limits.description


def best_device() -> str:
    for name in ("cuda", "webgpu"):
        with contextlib.suppress(torch.DeviceUnavailable):
            pool_of(name)
            if not is_software(name):
                return name
    return "cpu"


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", help="cpu, cuda or webgpu; by default the best that is there")
    parser.add_argument(
        "--steps", type=int, help=f"by default {STEPS}, fewer on a software adapter"
    )
    parser.add_argument(
        "--batch", type=int, help=f"by default {BATCH}, fewer on a software adapter"
    )
    parser.add_argument(
        "--budget", help="for the second run, e.g. 30MiB; by default half of the activations' peak"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("out"))
    options = parser.parse_args()
    # Without it, Mesa's driver prints warnings between the progress bars.
    options.device = options.device or best_device()
    steps, batch, options.written = (
        IN_SOFTWARE if is_software(options.device) else (STEPS, BATCH, WRITTEN)
    )
    options.steps = options.steps or steps
    options.batch = options.batch or batch
    return options


def show_memory(label: str, run: Run) -> None:
    rebuilt = f", {run.recomputed:,} calls recomputed" if run.recomputed else ""
    print(f"  {label:<14} peak {run.peak / MIB:6.1f} MiB   {run.seconds:6.1f} s{rebuilt}")


def main() -> None:
    options = parse_options()
    text = Text(TEXT)
    print(f"Device: {options.device} ({pool_of(options.device).device.limits.description})")
    if is_software(options.device):
        print(
            "This adapter is software: few and small steps are taken, so the loss stays high. See "
            "--steps and --batch."
        )
    start = time.perf_counter()
    train(text, options, None, "building kernels", 1)
    print(f"Kernels ready in {time.perf_counter() - start:.1f} s.")

    free = train(text, options, None, "without limit", options.steps)
    half = (free.peak - free.persistent) // 2
    limit = free.persistent + half if options.budget is None else memory.parse_bytes(options.budget)
    print(f"Parameters, gradients, optimiser and batch: {free.persistent / MIB:.1f} MiB; ", end="")
    print(f"activations at their peak: {(free.peak - free.persistent) / MIB:.1f} MiB.")
    print(f"Again from the same seed, under a budget of {limit / MIB:.1f} MiB:")
    del free.model  # the second run has the device to itself
    tight = train(text, options, limit, "under a budget", options.steps)

    same = free.same_bits(tight)
    print(
        "\nBoth runs gave the same bits, in every loss and every parameter."
        if same
        else "\nTHE RUNS DIFFER."
    )
    show_memory("without limit", free)
    show_memory("under budget", tight)
    unseen = held_out_loss(tight.model, text, options)
    print(
        f"  loss {free.losses[0]:.2f} -> {smooth(free.losses)[-1]:.2f}, on text held out "
        f"{unseen:.2f}"
    )
    prompt = text.held_out[: tight.model.context].tolist()
    print(f"\nThe model goes on after {text.read(prompt)!r}:\n")
    print(text.read(write(tight.model, prompt, options.written, 0.8, options.device)))
    picture = options.out / "loss.png"
    drawn = draw_curves({"without limit": free, f"budget {limit / MIB:.0f} MiB": tight}, picture)
    print(
        f"\nLoss curves: {picture}"
        if drawn
        else "\nNo picture of the loss: matplotlib is not installed."
    )
    if not same:
        raise SystemExit("the runs differ: this is a bug in rushlight")


if __name__ == "__main__":
    main()
