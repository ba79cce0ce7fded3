"""Budget policies: the order in which a budget drops values."""

from __future__ import annotations

from typing import Protocol

from rushlight.devices.shared.allocator import Storage
from rushlight.tape.memory.foresight import FORESIGHT
from rushlight.tape.memory.offload import Offload
from rushlight.tape.memory.recipe import Recipe, path_of
from rushlight.tape.memory.replay import COUNTERS

# The cost factor of a drop whose block does not have the requested size.
_OTHER_SIZE = 4.0
# The work of a call beside its elements: its Python takes as long as so many of them.
_CALL = 10_000.0


class Candidate:
    """A storage that can be dropped and rebuilt or copied back, as given to a policy."""

    __slots__ = ("age", "fits", "nbytes", "runs", "storage", "wait", "work")

    nbytes: int  # the size of its block
    # To rebuild it and its dropped ancestors, or to copy it: roughly elements times instructions,
    # or measured times in that unit (Note [Foresight] 3).
    work: float
    age: int  # calls since its last use, or since that of a dropped value that is made from it
    # Calls until its next use, or until that of such a dropped value; None where no earlier step
    # tells.
    wait: int | None
    runs: int  # how often it was rebuilt
    fits: bool  # whether its block has the requested size, so that it is reused directly

    def __init__(
        self,
        storage: Storage,
        room: int,
        costs: dict[Recipe, float],
        offload: Offload,
    ) -> None:
        recipe: Recipe = storage.recipe
        self.storage = storage
        self.nbytes = storage.room
        self.work = offload.work(storage, rebuild_cost(recipe, costs))
        self.age = COUNTERS.tick - recipe.used
        self.wait = FORESIGHT.wait(recipe)
        self.runs = recipe.runs
        self.fits = storage.room == room

    @property
    def op(self) -> str:
        """The name of the op that made it."""
        name: str = self.storage.recipe.plan.op.name
        return name


class Policy(Protocol):
    """Ranks the storages that a budget may drop; the choice changes time, never bits."""

    def score(self, storage: Candidate) -> float:
        """A number for each candidate: the lowest is dropped first. It must make no tensors."""


class LeastWork:
    """The default policy: the least work per byte and calls until its next use first.

    Where those are not known, it takes the calls since its last use.
    """

    def score(self, storage: Candidate) -> float:
        calls = storage.age if storage.wait is None else storage.wait
        work = storage.work * (storage.runs + 1.0)
        per_byte = work / (storage.nbytes * (calls + 1.0))
        return per_byte if storage.fits else per_byte * _OTHER_SIZE


LEAST_WORK = LeastWork()


def rebuild_cost(recipe: Recipe, costs: dict[Recipe, float]) -> float:
    """The work to rebuild a result, with that of its dropped ancestors."""
    if recipe in costs:
        return costs[recipe]
    stack = [(recipe, recipe.missing())]
    while stack:
        step, missing = stack[-1]
        waiting = [(r, r.missing()) for r in missing if r not in costs]
        if waiting:
            stack.extend(waiting)
            continue
        stack.pop()
        work = FORESIGHT.work(step)
        if missing:  # most often one was made from the others
            last = max(missing, key=costs.__getitem__)
            work += costs[last] + sum([FORESIGHT.work(r) for r in missing if r is not last])
        # What a gradient was made from is freed with the gradients before it, and with their saves.
        costs[step] = _CALL + (max(work, path_of(step)) if step.fleeting else work)
    return costs[recipe]
