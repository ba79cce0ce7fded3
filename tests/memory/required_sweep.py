"""`python -m tests.memory.required_sweep`: one retry with `BudgetError.required_bytes`, at length.

For the models of `benchmarks/memory_models.py` and random graphs, as their first step and as later
ones, inside limits from little to almost enough: how many retries a step takes, and what the first
error asks for, as a share of the least limit (by bisection). Each step runs in a forked process,
which begins with what an earlier one in that process would have left: nothing, or plans and peaks.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("RUSHLIGHT_THREADS", "1")  # a fork has no other threads
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import rushlight as rl
from rushlight import memory, nn, optim
from rushlight.tape.memory import requirement
from rushlight.tape.record.state import WALK

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
SHARES = (15, 30, 45, 60, 75, 85, 95)
MOST_TRIES = 6
REPEATS = 3  # of the step: its limit holds for later ones
Step = Callable[[], None]
KINDS: list[str] = []  # where steps failed


def watch() -> None:
    """Note where a request fails."""
    plain = requirement.required_bytes

    def watched(pool: Any, call: Any, inputs: Any) -> int:
        walk = WALK.get()
        KINDS.append("forward" if walk is None else "create" if walk.create else "backward")
        return plain(pool, call, inputs)

    requirement.required_bytes = watched


class Training:
    """Steps of a model with an optimiser."""

    def __init__(self, name: str, optimiser: str = "AdamW") -> None:
        import memory_models

        functional = nn.functional
        rl.manual_seed(0)
        self.modules, self.loss, self.inputs = memory_models.MODELS[name](
            rl, nn, functional, memory_models.plainly
        )
        self.place = ""
        self.optimizer = None
        if optimiser != "none":
            self.optimizer = getattr(optim, optimiser)(self.modules.parameters())

    def step(self) -> None:
        self.modules.zero_grad()
        self.place = "forward"
        loss = self.loss(*self.inputs)
        self.place = "backward"
        loss.backward()
        self.place = "step"
        if self.optimizer is not None:
            self.optimizer.step()


class Graph:
    """A random graph of `test_budget_floor.py`."""

    def __init__(self, kind: str, seed: int) -> None:
        from tests.memory import test_budget_floor as graphs

        self.leaves, self.run = graphs.result(getattr(graphs, kind), seed, "cpu")
        self.place = ""

    def step(self) -> None:
        self.run()


class Program:
    """A random program of `tests/fuzz/programs.py`."""

    def __init__(self, seed: int) -> None:
        from tests.fuzz import programs

        self.run, self.seed, self.place = programs.run, seed, ""

    def step(self) -> None:
        self.run(self.seed, keeps=True)


def made(name: str) -> Any:
    kind, _, rest = name.partition(":")
    if kind == "model":
        return Training(*rest.split(":"))
    if kind == "program":
        return Program(int(rest))
    return Graph(kind, int(rest))


# ---- in a fork ----


def forked(work: Callable[[], Any]) -> Any:
    """What a function gives in a process of its own."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        status = 1
        try:
            os.close(read)
            with os.fdopen(write, "w") as out:
                json.dump(work(), out)
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(write)
    with os.fdopen(read) as into:
        text = into.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else None


def settled() -> int:
    gc.collect()
    memory.empty_cache()
    return memory.allocated()


def tries(thing: Any, limit: int, most: int = MOST_TRIES) -> dict[str, Any]:
    """The limits that a step was tried with, the last of which sufficed, where it ended."""
    found: dict[str, Any] = {"limits": [], "errors": [], "places": []}
    while len(found["limits"]) < most:
        memory.empty_cache()
        found["limits"].append(limit)
        try:
            for _ in range(REPEATS):
                with memory.budget(limit):
                    thing.step()
        except rl.BudgetError as error:
            found["errors"].append(str(error).partition(".\n")[0])
            found["places"].append(thing.place if thing.place == "step" else KINDS[-1])
            asked, error = error.required_bytes, None
            found["risen"] = asked > limit
            limit = asked
            gc.collect()
            continue
        found["fits"] = True
        return found
    found["fits"] = False
    return found


def least(thing: Any, low: int, high: int) -> int:
    """The least limit between two, to 1 %."""
    start = low
    while high - low > max(512, (high - start) // 128):
        middle = (low + high) // 2
        fits = forked(lambda limit=middle: tries(thing, limit, 1)["fits"])
        low, high = (low, middle) if fits else (middle, high)
    return high


def peak_of(thing: Any) -> int:
    memory.reset_peak()
    thing.step()
    return memory.peak()


def rows(name: str, steps: int, shares: tuple[int, ...]) -> Iterator[dict[str, Any]]:
    """`steps` come before, without a limit."""
    thing = made(name)
    for _ in range(steps):
        thing.step()
    start = settled()
    peak = forked(lambda: peak_of(thing))
    if peak is None:
        return
    enough = least(thing, start, peak + (peak - start) // 4)
    for share in shares:
        limit = start + (enough - start) * share // 100
        found = forked(lambda limit=limit: tries(thing, limit))
        if found is None:
            yield {"name": name, "steps": steps, "share": share, "crashed": True}
            continue
        over = [(size - start) / max(1, enough - start) for size in found["limits"][1:]]
        whole = [size / enough for size in found["limits"][1:]]
        about = {"name": name, "steps": steps, "share": share, "start": start, "least": enough}
        yield {**about, "peak": peak, "over": over, "whole": whole, **found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="+", help="model:VAE:AdamW, once:0-30, program:5")
    parser.add_argument("--steps", default="0,2", help="earlier steps")
    parser.add_argument("--shares", default=",".join(map(str, SHARES)))
    parser.add_argument("--all", action="store_true", help="print every row")
    given = parser.parse_args()
    watch()
    shares = tuple(map(int, given.shares.split(",")))
    kinds, again, loose = Counter[str](), Counter[str](), Counter[str]()
    over: dict[str, float] = defaultdict(float)
    for name in given.names:
        stem, _, last = name.rpartition(":")
        first, dash, end = last.partition("-")
        each = [f"{stem}:{i}" for i in range(int(first), int(end))] if dash else [name]
        for one in each:
            for steps in map(int, given.steps.split(",")):
                found = forked(lambda one=one, steps=steps: list(rows(one, steps, shares)))
                for row in found or []:
                    if row.get("crashed") or not row["limits"][1:]:
                        if row.get("crashed"):
                            print(row, flush=True)
                        continue
                    failed = len(row["limits"]) > 2 or not row["fits"]
                    kind = row["places"][0]
                    if failed:
                        again[kind] += 1
                    kinds[kind] += 1
                    over[kind] = max(over[kind], row["whole"][0])
                    loose[kind] += row["whole"][0] > 1.1
                    if failed or given.all or row["whole"][0] > 1.3:
                        pairs = zip(row["whole"], row["over"], strict=True)
                        text = " ".join(f"{w:.2f}/{o:.2f}" for w, o in pairs)
                        least, peak = row["least"] - row["start"], row["peak"] - row["start"]
                        print(
                            f"{one} after {steps}, {row['share']:>3} %: {text}"
                            f"{'' if row['fits'] else ' NEVER'} {row['places']} "
                            f"least {least} peak {peak}",
                            flush=True,
                        )
                        if failed:
                            for error in row["errors"][1:]:
                                print("    ", error[:200], flush=True)
    for kind in kinds:
        print(
            f"{kind}: {kinds[kind]} failures, {again[kind]} need another retry, {loose[kind]} ask "
            f"for more than 1.1 of the least, at most {over[kind]:.2f}"
        )


if __name__ == "__main__":
    main()
