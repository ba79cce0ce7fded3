"""Training steps of a GPT inside a budget on a GPU: slow-down, peak and bits, as a Markdown table.

python benchmarks/memory_gpu.py [--device cuda|webgpu] [--shares 100,50] [--offload] [--profile]

`cuda`: GPT-2 124M, bfloat16 autocast, 8 texts of 512 tokens. `webgpu`: 6 layers of width 384,
float32, 16 texts of 256 tokens. Both with AdamW. A share is of the activation peak: the largest
allocation of a step less what is allocated before it (parameters and the optimiser's state). The
slow-down is the ratio of the least times of steps inside and outside of the budget. "driver" has
the blocks taken from and given back to the driver in one step after `STEADY` equal ones, "waits"
the times that the host waited for the device. `--profile` prints the host's profile of a step.
"""

from __future__ import annotations

import argparse
import cProfile
import importlib
import pstats
import subprocess
import sys
import time
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import rushlight as rl
from rushlight.devices.shared.registry import pool_of

SHARES = {"cuda": (100, 75, 50, 35, 25), "webgpu": (100, 50, 25)}
STEADY = 6  # equal steps before the measured ones: Note [Foresight]
TIMED = 10
COUNTED = ("alloc", "free", "join", "synchronize", "copy_in", "copy_out")
Step = Callable[[], Any]


class Sizes(NamedTuple):
    layers: int
    width: int
    heads: int
    words: int
    batch: int
    length: int
    half: bool


MODELS = {
    "cuda": ("GPT-2 124M", Sizes(12, 768, 12, 50257, 8, 512, True)),
    "webgpu": ("GPT 6x384", Sizes(6, 384, 6, 8192, 16, 256, False)),
}


def build(lib: Any, device: str, sizes: Sizes) -> tuple[Step, Any, Any]:
    """A step, the model and the optimiser; the same text for both libraries."""
    parts, model, optimizer = build_parts(lib, device, sizes)

    def step() -> None:
        for part in parts:
            part()

    return step, model, optimizer


def build_parts(lib: Any, device: str, sizes: Sizes) -> tuple[Sequence[Step], Any, Any]:
    """Forward, backward and the optimiser's step; the model and the optimiser."""
    nn, functional, optim = (
        importlib.import_module(f"{lib.__name__}.{n}") for n in ("nn", "nn.functional", "optim")
    )
    width = sizes.width

    class Block(nn.Module):  # type: ignore[name-defined,misc]
        def __init__(self) -> None:
            super().__init__()
            self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
            self.attend, self.join = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: Any) -> Any:
            b, t, d = x.shape
            parts = self.attend(self.before(x)).split(d, dim=2)
            q, k, v = (p.view(b, t, sizes.heads, d // sizes.heads).transpose(1, 2) for p in parts)
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.join(y.transpose(1, 2).reshape(b, t, d))
            wide = functional.gelu(self.widen(self.between(x)), approximate="tanh")
            return x + self.narrow(wide)

    class Model(nn.Module):  # type: ignore[name-defined,misc]
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(sizes.words, width)
            self.places = nn.Embedding(sizes.length, width)
            self.blocks = nn.ModuleList([Block() for _ in range(sizes.layers)])
            self.last = nn.LayerNorm(width)

        def forward(self, x: Any, y: Any) -> Any:
            h = self.words(x) + self.places(lib.arange(x.shape[1], device=device))
            for block in self.blocks:
                h = block(h)
            logits = functional.linear(self.last(h), self.words.weight)
            return functional.cross_entropy(logits.view(-1, sizes.words), y.view(-1))

    lib.manual_seed(0)
    model = Model().to(device)
    optimizer = optim.AdamW(model.parameters(), lr=1e-4)
    texts = [lib.randint(0, sizes.words, (sizes.batch, sizes.length)).to(device) for _ in range(2)]

    losses: list[Any] = []

    def forward() -> None:
        optimizer.zero_grad()
        with lib.autocast(device, dtype=lib.bfloat16, enabled=sizes.half):
            losses.append(model(*texts))

    return (forward, lambda: losses.pop().backward(), optimizer.step), model, optimizer


class Calls:
    """Counts and times of the calls of a device inside a `with` block."""

    def __init__(self, device: Any) -> None:
        self.device = device
        self.counts: Counter[str] = Counter()
        self.seconds: Counter[str] = Counter()

    def _counting(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any) -> Any:
            began = time.perf_counter()
            try:
                return call(*args)
            finally:
                self.counts[name] += 1
                self.seconds[name] += time.perf_counter() - began

        return counted

    def __enter__(self) -> Calls:
        for name in COUNTED:
            if hasattr(self.device, name):
                setattr(self.device, name, self._counting(name, getattr(self.device, name)))
        return self

    def __exit__(self, *_: object) -> None:
        for name in COUNTED:
            self.device.__dict__.pop(name, None)

    def __str__(self) -> str:
        return ", ".join(
            f"{name} {count} in {1e3 * self.seconds[name]:.2f} ms"
            for name, count in self.counts.items()
        )


def digest(model: Any) -> int:
    found = 0
    for parameter in model.parameters():
        found = zlib.crc32(parameter.detach().cpu().numpy().tobytes(), found)
    return found


def least(step: Step, wait: Step, count: int = TIMED) -> float:
    times = []
    for _ in range(count):
        began = time.perf_counter()
        step()
        wait()
        times.append(time.perf_counter() - began)
    return min(times)


def profiled(step: Step, wait: Step) -> None:
    profile = cProfile.Profile()
    profile.enable()
    step()
    profile.disable()
    wait()
    for key in ("tottime", "cumulative"):
        pstats.Stats(profile, stream=sys.stdout).sort_stats(key).print_stats(28)


def kernels(step: Step, wait: Step) -> str:
    """Count and sum of the GPU's work in one step, by PyTorch's profiler."""
    torch = importlib.import_module("torch")
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as found:
        step()
        wait()
    events = list(found.events())
    copies = sum(e.device_time for e in events if "emcpy" in e.name)
    total = sum(e.device_time for e in events)
    return f"{len(events)} kernels and copies, {total / 1e3:.1f} ms, copies {copies / 1e3:.1f} ms"


class Bench:
    def __init__(self, device: str, profile: bool) -> None:
        self.name, self.sizes = MODELS[device]
        self.device, self.profile = device, profile
        self.pool = pool_of(device)
        self.wait = self.pool.device.synchronize

    def normal(self) -> None:
        rl.memory.empty_cache(self.device)
        step, model, optimizer = build(rl, self.device, self.sizes)
        step()
        optimizer.zero_grad()
        base = rl.memory.allocated(self.device)
        rl.memory.reset_peak(self.device)
        step()
        step()
        self.whole = rl.memory.peak(self.device) - base
        self.digest = digest(model)
        self.time = least(step, self.wait)
        self.report("none", step)
        rows = [self.name, self.device, "none", mb(self.whole), f"{1e3 * self.time:.1f}", "1"]
        print(f"| {' | '.join(rows)} | | | | |", flush=True)

    def share(self, share: int, offload: Any) -> None:
        rl.memory.empty_cache(self.device)
        step, model, optimizer = build(rl, self.device, self.sizes)
        step()
        optimizer.zero_grad()
        base = rl.memory.allocated(self.device)
        rl.memory.reset_peak(self.device)
        limit = self.whole * share // 100
        asked = f"{share} %, {mb(limit)}" + (f", offload={offload!r}" if offload else "")
        start = f"| {self.name} | {self.device} | {asked} |"
        try:
            with rl.memory.budget(base + limit, device=self.device, offload=offload):
                step()
                step()
                bits = "same" if digest(model) == self.digest else "OTHER"
                for _ in range(STEADY):
                    step()
                taken = least(step, self.wait)
                again = rl.memory.recomputed()["calls"]
                with Calls(self.pool.device) as calls:
                    step()
                again = rl.memory.recomputed()["calls"] - again
                held = self.pool.held - base
                self.report(asked, step)
        except rl.BudgetError as error:
            print(f"{start} fails: needs {mb(error.required_bytes - base)} | | | | | |", flush=True)
            return
        peak, counts = rl.memory.peak(self.device) - base, calls.counts
        spent = 1e3 * (calls.seconds["alloc"] + calls.seconds["free"])
        driver = f"{counts['alloc'] + counts['free']} in {spent:.1f} ms"
        waits = counts["synchronize"] + counts["copy_out"]
        print(
            f"{start} {mb(peak)} | {1e3 * taken:.1f} | {taken / self.time:.2f} | {again} "
            f"| {driver} | {waits} | {bits} |",
            flush=True,
        )
        if self.profile:
            print(f"  held {mb(held)}; {calls}", flush=True)

    def report(self, asked: str, step: Step) -> None:
        if not self.profile:
            return
        print(f"\n---- {asked}")
        if self.device == "cuda":
            print(kernels(step, self.wait))
        profiled(step, self.wait)


def mb(nbytes: int) -> str:
    return f"{nbytes / 1e6:.0f} MB"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda", choices=list(SHARES))
    parser.add_argument("--shares")
    parser.add_argument("--offload", action="store_true", help="rows with offload too")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument(
        "--small", action="store_true", help="a model of 2 layers: tries the script"
    )
    given = parser.parse_args()
    shares = [int(share) for share in given.shares.split(",")] if given.shares else None
    if given.small:
        small = Sizes(2, 64, 2, 512, 4, 64, False)
        MODELS.update(dict.fromkeys(MODELS, ("GPT 2x64", small)))
    bench = Bench(given.device, given.profile)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    made = f"{time.strftime('%Y-%m-%d')}, {commit.stdout.strip()}"
    print(f"{made}; {bench.pool.device.limits.description}\n")
    print(
        "| model | device | budget | peak | ms | slow-down | calls again | driver | waits | bits |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    bench.normal()
    for share in shares or SHARES[given.device]:
        for offload in (None, "auto", True) if given.offload else (None,):
            bench.share(share, offload)


if __name__ == "__main__":
    main()
