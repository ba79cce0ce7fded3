"""What must not be dropped while a call runs; the lock, the counters and the clock of regions."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

from rushlight.core import locks
from rushlight.core.interrupts import unheard
from rushlight.devices.shared.allocator import Pool, Storage
from rushlight.tape.memory.recipe import (
    OFTEN,
    Key,
    Read,
    Recipe,
    may_replace,
    sources_of,
    steps_of,
    turn_of,
)
from rushlight.tape.record import template
from rushlight.tape.record.op import Plan
from rushlight.tape.record.value import Node, Value

LOCK = locks.reentrant_lock()

# The names of generated code that makes storages: see Note [Recording memory] 1.
NAMES: dict[str, Any] = {"new": object.__new__, "Storage": Storage}
_defined: dict[str, Any] = {}
exec(template.making_storage(), NAMES, _defined)
# A new storage of a pool: make_storage(pool, room, birth=0). See Note [Call template].
make_storage: Callable[..., Storage] = _defined["make_storage"]


class Counters:
    """Counts of rebuilt calls and bytes since the last reset, and the clock of use."""

    __slots__ = ("drops", "nbytes", "nodes", "tick", "watch")

    def __init__(self) -> None:
        self.nodes = 0
        self.nbytes = 0
        self.tick = 0
        self.drops = 0  # values dropped so far
        self.watch: Any = None  # is told of drops and rebuilds: see Note [Recording memory]


COUNTERS = Counters()

# A kernel that is about to run: its plan, or None where no result may replace an input; its inputs;
# its results so far; of a replay, the frame. Of a derivative: None, the node, the gradients, None.
Running = tuple[Plan | None, Any, Any, "Frame | None"]


def operands_of(node: Node, gradients: Sequence[Value]) -> list[Any]:
    """What a node's derivative reads."""
    return [*gradients, *(node.saved or ()), *[Read(storage, 0) for storage in node.outs]]


class Frame:
    """Results that are brought for one purpose: those that a recipe reads, or those asked for.

    The steps are a recipe, or writes in a row, which fill one block; `order` is for the first.
    """

    __slots__ = ("began", "is_firm", "order", "recipe", "steps", "storages", "there")

    def __init__(self, recipe: Recipe | None, keys: Iterable[Key] = ()) -> None:
        self.recipe = recipe
        self.steps = [] if recipe is None else steps_of(recipe)
        self.storages: list[Storage] = []  # the results so far
        self.there: dict[Key, Storage] = {}  # pinned
        self.began = 0.0  # when its first step ran, for `COUNTERS.watch`
        self.is_firm = False  # whether nothing of it may be given up
        self.order: list[Key] = []  # what is to be brought; the last comes next
        self.expect(sources_of(self.steps[0], within=False) if self.steps else keys)

    def expect(self, keys: Iterable[Key]) -> None:
        self.there.clear()
        self.order = sorted(set(keys), key=turn_of)

    def give_up(self, keys: Sequence[Key]) -> None:
        """Bring results again that were dropped, after the others; it is done once."""
        self.is_firm = True
        for key in keys:
            del self.there[key]
        self.order[:0] = keys


class Pins:
    """Storages that must not be dropped during one call; a context manager."""

    __slots__ = ("__weakref__", "expected", "frames", "groups", "me", "runs", "uses")

    every: ClassVar[list[weakref.ref[Pins]]] = []
    running: ClassVar[list[Running]] = []

    def __init__(self, storages: Iterable[Storage] = ()) -> None:
        self.groups: list[list[Storage]] = [list(storages)]
        self.frames: list[Frame] = []  # of a replay; the last one runs
        self.uses: dict[Key, int] = {}  # what the replay still needs, and how often
        self.expected: dict[Recipe, list[Key]] = {}  # the recipes to run, and what they read
        self.runs: Counter[Recipe] = Counter()  # of the replay, so far

    def __enter__(self) -> Pins:
        self.me = weakref.ref(self)
        self.every.append(self.me)
        return self

    @unheard
    def __exit__(self, *_: object) -> None:
        self.groups, self.frames, self.uses, self.expected = [], [], {}, {}
        self.every.remove(self.me)

    def expect(self, recipe: Recipe) -> None:
        """Count what is read when a recipe, and those before it, run."""
        uses, expected, stack = self.uses, self.expected, [recipe]
        while stack:
            recipe = stack.pop()
            if recipe in expected:
                continue
            reads = expected[recipe] = [
                key
                for number, step in enumerate(steps_of(recipe))
                for key in sources_of(step, within=number > 0)
            ]
            for key in reads:
                uses[key] = uses.get(key, 0) + 1
                if not key[0].at_hand(key[1]):
                    stack.append(key[0])

    def ran(self, recipe: Recipe) -> list[Key]:
        """Note that a recipe ran; what is not read after it."""
        done = []
        for key in self.expected.pop(recipe, ()):
            self.uses[key] -= 1
            if not self.uses[key]:
                del self.uses[key]
                done.append(key)
        return done

    @classmethod
    def pinned(cls, frames: bool = False) -> set[Storage]:
        """All pinned storages; with `frames` also those that a frame can give up."""
        found: set[Storage] = set()
        for _, inputs, more, _ in cls.running:
            read = operands_of(inputs, more) if isinstance(inputs, Node) else inputs
            found.update([value._memory for value in read])
        for pins in cls._alive():
            for group in pins.groups:
                found.update(group)
            for frame in pins.frames:
                if frames or frame.is_firm or frame is pins.frames[-1]:
                    found.update(frame.there.values())
        return found

    @classmethod
    def replaceable(cls, pool: Pool, room: int) -> list[Storage]:
        """An input of the running kernel whose block its next result may get, or none."""
        if not cls.running:
            return []
        plan, inputs, made, own = cls.running[-1]
        if plan is None or len(made) == len(plan.outs) or room != plan.rooms[len(made)]:
            return []  # the request is not for a result
        replays = [pins.frames[-1] for pins in cls._alive() if pins.frames]
        if plan.pool is not pool or replays != ([] if own is None else [own]):
            return []  # the request is not the kernel's
        others = {
            value._memory
            for _, more, gradients, _ in cls.running[:-1]
            for value in (operands_of(more, gradients) if isinstance(more, Node) else more)
        }
        for pins in cls._alive():
            others.update(*pins.groups)
            for frame in pins.frames:
                if frame is not own and (frame.is_firm or frame is pins.frames[-1]):
                    others.update(frame.there.values())
        for value in inputs:
            storage = value._memory
            recipe = storage.recipe
            if recipe is None or recipe.fleeting or recipe.is_settled or storage in others:
                continue
            present = storage.room == room and storage.block is not None
            if present and may_replace(plan, len(made), inputs, storage):
                return [storage]
        return []

    @classmethod
    def needed_soon(cls) -> set[Storage]:
        """The present storages that running replays read later."""
        keys = [key for pins in cls._alive() for key in pins.uses]
        found = (recipe.present(index) for recipe, index in keys)
        return {storage for storage in found if storage is not None}

    @classmethod
    def run_often(cls) -> set[Storage]:
        """The present results of recipes that a running replay has run a few times."""
        recipes = [r for pins in cls._alive() for r, count in pins.runs.items() if count >= OFTEN]
        found = [recipe.present(i) for recipe in recipes for i in range(len(recipe.outs))]
        return {storage for storage in found if storage is not None}

    @classmethod
    def rebuilds_gradients(cls) -> bool:
        """Whether a replay runs a recipe of a gradient, or reads one."""
        every = [frame for pins in cls._alive() for frame in pins.frames]
        run = [frame.recipe for frame in every if frame.recipe is not None]
        read = [recipe for recipe, _ in every[-1].there] if len(every) > 1 else []
        return any(recipe.fleeting for recipe in (*run, *read))

    @classmethod
    def in_replay(cls) -> bool:
        """Whether a replay runs."""
        return any(pins.frames for pins in cls._alive())

    @classmethod
    def note_dropped(cls, storages: Sequence[Storage]) -> None:
        """Frames that gave something up keep the rest; what a replay reads is made again."""
        for pins in cls._alive():
            for storage in storages if pins.uses else ():
                recipe = storage.recipe
                if storage.copy is None and (recipe, recipe.index_of(storage)) in pins.uses:
                    pins.expect(recipe)
            for frame in pins.frames:
                given_up = [key for key, s in frame.there.items() if s in storages]
                if given_up:
                    frame.give_up(given_up)

    @classmethod
    def _alive(cls) -> list[Pins]:
        alive = [pins for me in cls.every if (pins := me()) is not None]
        if len(alive) < len(cls.every):  # Ctrl-C left some behind
            cls.every[:] = [pins.me for pins in alive]
        return alive
