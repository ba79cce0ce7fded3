"""Training inside a budget: peaks, resident growth and slow-down, as a Markdown table.

python benchmarks/memory.py [--device cpu|cuda|webgpu] [--models GPT,VAE] [--shares 100,50,25]
                            [--clock wall|process]

Every row is a process of its own, after one that fills the kernel cache: a process that builds a
kernel grows by the compiler, 30 MB and more. Its first steps run inside the budget and give the
growth of the resident memory (Linux), and the last of them, which is planned by those before it,
the calls run again. Then rounds of steps inside and outside the budget alternate, and the row has
the ratio of the least times; the first steps of a round, in which the pool adapts, are not timed. A
share is of the activation peak: the largest allocation of a step less what is allocated before it.
Where PyTorch is installed, the last rows of a model are its step, and its checkpoint of each block
against that step; its peak is counted on `cuda` only. With `--clock process` times are of the
process's threads on the processors, which other processes disturb less; then PyTorch is left out.

"fails" is a BudgetError. The floor is the least that a call of the failed step can do with: what is
static, gradients on their way, its inputs, its results where they take blocks of their own, and the
scratch of recurrent layers. A limit below it is reported with it and the call's op; another that
fails, with the limit that the error names.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

# PyTorch's oneDNN uses AMX where the CPU lists it, and crashes where the system does not allow it.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
os.environ.setdefault("RUSHLIGHT_THREADS", "2")

from memory_models import MODELS, build, plainly

SHARES = {"cpu": (100, 75, 50, 35, 25), "cuda": (100, 75, 50, 35, 25), "webgpu": (100, 50, 25)}
SECONDS = 6.0
ROUNDS = 3  # at least
STEPS = 5  # before the step is steady: Note [Foresight]
ADAPTING, TIMED = 12, 6  # steps of a round
CLOCKS = {"wall": time.perf_counter, "process": time.process_time}
Step = Callable[[], Any]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu", choices=list(SHARES))
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--shares")
    parser.add_argument("--clock", default="wall", choices=list(CLOCKS))
    parser.add_argument("--row", help="what one process measures: JSON", default="")
    given = parser.parse_args()
    if given.row:
        asked = json.loads(given.row)
        print(json.dumps(KINDS[asked.pop("kind")](**asked)))
        return
    shares = given.shares and [int(share) for share in given.shares.split(",")]
    print("| model | device | budget | counted peak | grown by | slow-down | calls again | bits |")
    print("|---|---|---|---|---|---|---|---|")
    for model in given.models.split(","):
        measure(model, given.device, shares or SHARES[given.device], given.clock)


def measure(model: str, device: str, shares: Any, clock: str) -> None:
    row = functools.partial(in_process, model=model, device=device)
    row("normal")  # fills the cache of kernels
    plain = row("normal")
    whole = plain["peak"]
    print(f"| {model} | {device} | none | {mb(whole)} | {mb(plain['grown'])} | 1 | | |", flush=True)
    for share in shares:
        limit = whole * share // 100
        row("budget", limit=limit, timed=False)
        found = row("budget", limit=limit, clock=clock)
        start = f"| {model} | {device} | {share} %, {mb(limit)} |"
        if "least" in found:
            why = f"fails: needs {mb(found['least'])}"
            if found["floor"] > limit:
                why = f"below the floor, {mb(found['floor'])} ({found['call']})"
            print(f"{start} {why} | | | | |", flush=True)
            continue
        bits = "same" if found["digest"] == plain["digest"] else "OTHER"
        print(
            f"{start} {mb(found['peak'])} | {mb(found['grown'])} | {found['ratio']:.2f} "
            f"| {found['again']} | {bits} |",
            flush=True,
        )
    for blocks in (False, True) if clock == "wall" else ():
        theirs = row("pytorch", blocks=blocks)
        if theirs:
            name = "PyTorch, a checkpoint per block" if blocks else "PyTorch, none"
            peak = mb(theirs["peak"]) if theirs["peak"] else ""
            print(
                f"| {model} | {device} | {name} | {peak} | {mb(theirs['grown'])} "
                f"| {theirs['ratio']:.2f} | | |",
                flush=True,
            )


def in_process(kind: str, **asked: Any) -> dict[str, Any]:
    """What a fresh process measures."""
    text = json.dumps({"kind": kind, **asked})
    command = [sys.executable, str(Path(__file__)), "--row", text]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{text}\n{done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


# ---- in a process of its own ----


def normal(model: str, device: str) -> dict[str, Any]:
    """The activation peak of a step without a budget, and its bits."""
    import rushlight as lib

    step, parameters = build(lib, model, device)
    lib.memory.empty_cache(device)
    grown = Growth()
    base = lib.memory.allocated(device)
    for _ in range(2):
        step()
        lib.memory.reset_peak(device)
    step()
    peak = lib.memory.peak(device) - base
    return {"peak": peak, "grown": grown.bytes(), "digest": digest(parameters)}


def budget(
    model: str, device: str, limit: int, timed: bool = True, clock: str = "wall"
) -> dict[str, Any]:
    import rushlight as lib
    from rushlight.devices.shared.registry import pool_of

    step, parameters = build(lib, model, device)
    lib.memory.empty_cache(device)
    base = lib.memory.allocated(device)
    lib.memory.reset_peak(device)
    held = lib.memory.budget(base + limit, device=device)
    grown, least = Growth(), None
    try:
        with held:
            for _ in range(STEPS):
                before = lib.memory.recomputed()["calls"]
                step()
    except lib.BudgetError as error:
        least = error.required_bytes - base
    if least is not None:  # the error holds memory until here
        for parameter in parameters:
            parameter.grad = None
        return {"least": least, **floor_of(step, device, base + limit)}
    found = {
        "peak": lib.memory.peak(device) - base,
        "grown": grown.bytes(),
        "again": lib.memory.recomputed()["calls"] - before,
        "digest": digest(parameters),
    }
    if not timed:
        return found
    wait = pool_of(device).device.synchronize

    def bound() -> float:
        with held:
            return least_of_round(step, wait, clock)

    return found | {"ratio": least_ratio(bound, lambda: least_of_round(step, wait, clock))}


def floor_of(step: Step, device: str, limit: int) -> dict[str, Any]:
    """The most that a call needs, in a step that fails, beyond what is in use before it; its op.

    No plan has less: to rebuild the inputs that were dropped may take more (Note [Floor]).
    """
    import rushlight as lib
    from rushlight.devices.shared.registry import pool_of
    from rushlight.tape.memory import replay, requirement
    from rushlight.tape.memory.recipe import may_replace, with_recipe

    run, over, pool = replay.run_in_region, replay.run_over, pool_of(device)
    before = lib.memory.allocated(device)
    found = {"floor": 0, "call": ""}

    def look(plan: Any, inputs: Any, replaced: list[int]) -> None:
        storages = {value._memory for value in inputs}
        kept = [s for s in storages if s.recipe is not None]
        own = [s for s in kept if not s.recipe.fleeting]
        replaced += [
            room
            for i, room in enumerate(plan.rooms)
            if any(may_replace(plan, i, inputs, s) for s in own)
        ]
        flying = {s for s in with_recipe(pool) if s.block and s.recipe.fleeting}
        flying.update(s for s in kept if s.recipe.fleeting)
        rooms = plan.room + plan.rest - max(replaced, default=0)
        need = requirement.static_bytes(pool) - before + rooms
        need += sum(s.room for s in flying.union(own))
        if need > found["floor"]:
            found.update(floor=need, call=plan.op.name)

    def watched(plan: Any, inputs: Any, *rest: Any) -> Any:
        look(plan, inputs, [])
        return run(plan, inputs, *rest)

    def watched_over(plan: Any, inputs: Any, params: Any, region: Any, out: int) -> Any:
        look(plan, inputs, [plan.rooms[out]])
        return over(plan, inputs, params, region, out)

    replay.run_in_region, replay.run_over = watched, watched_over
    with contextlib.suppress(lib.BudgetError), lib.memory.budget(limit, device=device):
        step()
    return found


def pytorch(model: str, device: str, blocks: bool) -> dict[str, Any]:
    """PyTorch's step with its blocks checkpointed, or without; nothing where it is missing."""
    try:
        import torch as lib
        from torch.utils.checkpoint import checkpoint
    except ModuleNotFoundError:
        return {}
    if device == "webgpu" or (device == "cuda" and not lib.cuda.is_available()):
        return {}
    lib.set_num_threads(2)
    run = functools.partial(checkpoint, use_reentrant=False) if blocks else plainly
    step, _ = build(lib, model, device, run)
    on_gpu = device == "cuda"
    grown, base = Growth(), lib.cuda.memory_allocated() if on_gpu else 0
    for _ in range(3):
        step()
    found = {"grown": grown.bytes(), "ratio": 1.0, "peak": 0}
    if on_gpu:
        found["peak"] = lib.cuda.max_memory_allocated() - base
    wait = lib.cuda.synchronize if on_gpu else None
    if blocks:
        usual, _ = build(lib, model, device)
        usual()
        found["ratio"] = least_ratio(lambda: seconds(step, wait), lambda: seconds(usual, wait))
    return found


KINDS = {"normal": normal, "budget": budget, "pytorch": pytorch}


class Growth:
    """The growth of the process's largest resident memory; 0 where the system does not tell."""

    def __init__(self) -> None:
        self.before = 0
        if sys.platform == "linux":
            Path("/proc/self/clear_refs").write_text("5")  # the high-water mark starts anew
            self.before = self._read("VmRSS")

    @staticmethod
    def _read(kind: str) -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith(kind))

    def bytes(self) -> int:
        return self._read("VmHWM") - self.before if self.before else 0


def seconds(step: Step, wait: Step | None, clock: str = "wall") -> float:
    now = CLOCKS[clock]
    start = now()
    step()
    if wait is not None:
        wait()
    return now() - start


def least_of_round(step: Step, wait: Step | None, clock: str = "wall") -> float:
    for _ in range(ADAPTING):
        step()
    return min(seconds(step, wait, clock) for _ in range(TIMED))


def least_ratio(first: Callable[[], float], second: Callable[[], float]) -> float:
    """The ratio of the least times of two functions that time themselves, in turn."""
    times: tuple[list[float], list[float]] = ([], [])
    end = time.perf_counter() + SECONDS
    while len(times[0]) < ROUNDS or time.perf_counter() < end:
        for function, list_ in zip((first, second), times, strict=True):
            list_.append(function())
    return min(times[0]) / min(times[1])


def digest(parameters: list) -> str:
    whole = hashlib.sha256()
    for parameter in parameters:
        whole.update(parameter.grad.cpu().numpy().tobytes())
    return whole.hexdigest()


def mb(nbytes: int) -> str:
    return f"{nbytes / 1e6:.1f} MB"


if __name__ == "__main__":
    main()
