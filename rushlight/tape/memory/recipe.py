"""Recipes: how the bytes of a storage were made, so that they can be dropped and rebuilt.

# Note [Recipes]
1. In a region (a checkpoint or a budget) each call leaves a `Recipe` on the storages it fills:
   plan, parameters, and for each input either the recipe of its storage or, where there is none,
   the storage itself ("plain").
2. A recipe is pure: running it again gives the same bits. Random positions and autocast casts are
   in plan and parameters.
3. An in-place write to a storage with a recipe leaves a new recipe, the next version. Where all
   bytes are written, the old version is at most one of its sources. Where some are, it is always
   one: its bytes are copied before the write runs again (`Onto`), unless nothing else needs them.
   Old versions can still be made, elsewhere. After `MOST_WRITES` in a row the storage is plain.
4. A recipe keeps other recipes alive, and plain storages, but no storage that has a recipe. A chain
   of recipes ends at plain storages: inputs, parameters, gradients of leaves, small results of a
   budget, and every `LONGEST`-th result. A storage that is read outside of every region becomes
   plain, and so does one that is written there.
5. A plain storage that a recipe reads must keep its bits. Before a write to it, every storage made
   from it that has a recipe is rebuilt if it was dropped, and becomes plain (`before_write`). So
   every storage with a recipe can be rebuilt, at any time.
6. Plain storages that only recipes hold cannot be dropped: the data that a running sum was made
   from. Where they have more bytes than the storages made from them, these become plain instead,
   and the sources are freed (`region.free_sources`).
"""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from rushlight.core.dtypes import uint8
from rushlight.core.errors import RushlightError
from rushlight.core.interrupts import unheard
from rushlight.core.shapes import Spec
from rushlight.devices.shared.allocator import Pool, Storage
from rushlight.tape.record.op import Op, Plan, Plans, writes_over
from rushlight.tape.record.value import Node, Value

LONGEST = 4096
# The op of the recipes of settled storages: see Note [Offload].
SETTLED = Op("copied back", "Bytes that were copied out of device memory.")
MOST_WRITES = 64
MOST_RUNS = 16  # of a recipe in one replay
# What was rebuilt so often is dropped again only where nothing else suffices.
OFTEN = 3
# Dropping a block smaller than this frees too little to be worth a rebuild.
SMALLEST_DROP = 4096
UNTIMED = float("inf")  # the seconds of a call that was not timed: see Note [Foresight]

# Weak references by identity: an entry is removed with its object.
Weakly = dict[int, "weakref.ref[Any]"]

# Storages that have a recipe, by pool. `discard` takes a reference out with its storage.
DROPPABLE: dict[Pool, set[weakref.ref[Storage]]] = {}
_NONE: set[weakref.ref[Storage]] = set()

# Storages that got a recipe in a followed step, until DROPPABLE is read: most are gone by then.
PENDING: list[weakref.ref[Storage] | None] = []

# Plain storages that some recipe reads: a write to any other needs no rebuild.
READ: Weakly = {}


class Mark:
    """Identifies the region of a recipe, without keeping the region's contents alive."""

    __slots__ = ("outer",)

    def __init__(self, outer: Mark | None) -> None:
        self.outer = outer

    def within(self, other: Mark) -> bool:
        mark: Mark | None = self
        while mark is not None and mark is not other:
            mark = mark.outer
        return mark is other


# An input of a recipe: a recipe and the index of its result, or a plain storage and its version;
# then the byte offset. A tuple, since every input of every call in a region has one.
Source = tuple[Any, int, int]


class Onto(NamedTuple):
    """How a write that reads or leaves bytes of the old version is applied to a block with it."""

    offset: int  # of what is written, in bytes
    room: int  # of the storage
    nbytes: int  # those in use
    # (to, from): copies a block of the old version, of which the write leaves some bytes.
    copy: Callable[[int, int], None] | None


# Of the attributes of a recipe that are not set with it.
_INITIAL = {
    **dict.fromkeys(("onto", "proof", "saved")),
    **dict.fromkeys(("runs", "wanted", "writes"), 0),
    "fleeting": False,
    "path": -1.0,
}


class Recipe:
    """How to refill some storages.

    With `onto` the last source is the old version, and there is one result.
    """

    __slots__ = (
        *("__weakref__", "call", "fleeting", "length", "mark", "number", "onto", "outs", "params"),
        *("path", "plan", "proof", "record", "runs", "saved", "serial", "single", "sources"),
        *("used", "wanted", "writes"),
    )

    # Those that `template.following` does not set are set when they are first read (`__getattr__`):
    # most calls leave a recipe that nobody looks at.
    fleeting: bool  # made by a backward pass, whose values are freed one after another
    onto: Onto | None
    path: float  # see `path_of`
    proof: Any  # runs the plan in a replay, and compares the bits: Note [Proof]
    runs: int  # how often it was run again
    # The last record that saved a result, which then stays until backward comes to it.
    saved: weakref.ref[Node] | None
    wanted: int  # the index of the call for which a dropped result made from it is rebuilt
    writes: int  # in a row, up to this one

    def __init__(
        self,
        plan: Plan,
        params: tuple[Any, ...],
        sources: tuple[Source, ...],
        mark: Mark,
        onto: Onto | None = None,
    ) -> None:
        self.plan = plan
        self.params = params
        self.sources = sources
        self.mark = mark
        if onto is not None:
            self.onto = onto
        self.outs: list[weakref.ref[Storage] | None] = [None] * len(plan.outs)
        self.single = len(plan.outs) == 1 and plan.op is not SETTLED
        self.serial = 0  # the order of making
        self.used = 0  # the tick of the last use, for staleness
        self.record: Any = None  # of the step: see Note [Foresight]
        self.call = self.number = 0  # the index of its call, and its own, in the record
        length = 0
        for origin, _, _ in sources:
            if origin.__class__ is Recipe and origin.length > length:
                length = origin.length
        self.length: int = length + 1  # of the longest chain of recipes that ends with it

    def __getattr__(self, name: str) -> Any:
        """The initial value of an attribute that is rarely read."""
        value = _INITIAL.get(name, self)
        if value is self:
            raise AttributeError(name)
        setattr(self, name, value)
        return value

    @property
    def is_settled(self) -> bool:
        """Whether it is not run, since the bytes are present or copied out: Note [Offload]."""
        return self.plan.op is SETTLED

    @property
    def rooms(self) -> tuple[int, ...]:
        """The blocks of the results."""
        return self.plan.rooms if self.onto is None else (self.onto.room,)

    def nbytes(self, index: int) -> int:
        """The bytes in use of a result's block."""
        if self.onto is not None:
            return self.onto.nbytes
        spec = self.plan.outs[index]
        return max(spec.nbytes, spec.high)

    def holder(self, index: int) -> Storage | None:
        """The storage of result `index`, present or dropped, unless it was overwritten."""
        reference = self.outs[index]
        storage = None if reference is None else reference()
        return storage if storage is not None and storage.recipe is self else None

    def present(self, index: int) -> Storage | None:
        """The storage that holds the bytes of result `index`."""
        storage = self.holder(index)
        return storage if storage is not None and storage.block is not None else None

    def at_hand(self, index: int) -> bool:
        """Whether the bytes of result `index` are present or copied out."""
        storage = self.holder(index)
        return storage is not None and (storage.block is not None or storage.copy is not None)

    def adopt(self, index: int, storage: Storage) -> None:
        """Make the storage that of result `index`. Its bytes may be dropped after this."""
        self.outs[index] = list_droppable(storage)
        address = storage.address
        if address is None:
            address = storage.present_address
        storage.block, storage.address, storage.recipe = address, None, self
        storage.copy = None

    def index_of(self, storage: Storage) -> int:
        outs = self.outs
        if len(outs) == 1:
            return 0
        for i, reference in enumerate(outs):
            if reference is not None and reference() is storage:
                return i
        raise ValueError("a storage that is no result of the recipe")

    def missing(self) -> list[Recipe]:
        """The recipes to run before this one can, when its result is needed.

        That of a saved result is in backward: what no record saved is gone by then.
        """
        found = []
        for origin, index, _ in self.sources:
            if origin.__class__ is Recipe:
                reference = origin.outs[index]
                storage = None if reference is None else reference()
                if (
                    storage is None
                    or storage.recipe is not origin
                    or (self.saved is not None and origin.saved is None)
                    or (storage.block is None and storage.copy is None)
                ):
                    found.append(origin)
        return found


def path_of(recipe: Recipe) -> float:
    """The work of the longest chain of recipes that leads to one, with its own."""
    stack = [recipe] if recipe.path < 0.0 else []
    while stack:
        step = stack[-1]
        before: list[Recipe] = [o for o, _, _ in step.sources if o.__class__ is Recipe]
        waiting = [origin for origin in before if origin.path < 0.0]
        if waiting:
            stack.extend(waiting)
            continue
        stack.pop()
        step.path = max([origin.path for origin in before], default=0.0) + step.plan.cost
    return recipe.path


class Read:
    """An input of a replay's kernel; a `Value` is one too."""

    __slots__ = ("_memory", "_offset")

    def __init__(self, storage: Storage, offset: int) -> None:
        self._memory = storage
        self._offset = offset


def may_replace(plan: Plan, out: int, inputs: Sequence[Any], storage: Storage) -> bool:
    """Whether result `out` may be written over a storage, which is some of the inputs."""
    places = [i for i, value in enumerate(inputs) if value._memory is storage]
    return not Plans.read_twice and all(
        not inputs[i]._offset and writes_over(plan, out, i) for i in places
    )


def is_intact(
    plan: Plan, inputs: Sequence[Any], ins: Sequence[int], outs: Sequence[int | None]
) -> bool:
    """Whether the inputs are at these addresses, or a result that may replace them is."""
    for value, address in zip(inputs, ins, strict=True):
        storage = value._memory
        at = storage.present_address
        if at is not None:
            if at + value._offset != address:
                return False
        elif not any(
            out == address and may_replace(plan, i, inputs, storage) for i, out in enumerate(outs)
        ):
            return False
    return True


def source_of(value: Value) -> Source:
    storage = value._memory
    recipe = storage.recipe
    if recipe is not None and recipe.plan.op is not SETTLED:
        return recipe, 0 if len(recipe.outs) == 1 else recipe.index_of(storage), value._offset
    if id(storage) not in READ:
        enter(READ, storage)
    return storage, storage.version, value._offset


Key = tuple[Recipe, int]  # a result of a recipe


def serial_of(key: Key) -> int:
    return key[0].serial


def turn_of(key: Key) -> tuple[bool, int, int]:
    """The greatest is brought first: what is missing, by the length of the chain to it."""
    recipe, index = key
    return not recipe.at_hand(index), recipe.length, -recipe.serial


def steps_of(recipe: Recipe) -> list[Recipe]:
    """The recipe, after the writes before it whose results are not present."""
    steps = [recipe]
    while steps[-1].onto is not None:
        old: Recipe = steps[-1].sources[-1][0]
        if old.onto is None or old.at_hand(0):
            break
        steps.append(old)
    return steps[::-1]


def sources_of(recipe: Recipe, within: bool) -> set[Key]:
    """The results that a recipe reads; `within` a row of writes the old version is at hand."""
    keys = {
        (o, i) if o.__class__ is Recipe else (o.recipe, 0)
        for o, i, _ in recipe.sources
        if o.__class__ is Recipe or o.recipe is not None
    }
    if within:
        old, index, _ = recipe.sources[-1]
        keys.discard((old, index))
    return keys


def in_holder(recipe: Recipe, index: int, made: Storage) -> Storage:
    """The rebuilt bytes in the storage of this result, or in a new one where it is gone."""
    waiting = recipe.holder(index)
    if waiting is made:
        return made
    if waiting is not None:
        waiting.block, made.address = made.address, None
        return waiting
    recipe.adopt(index, made)
    return made


def enter(table: Weakly, thing: Any) -> weakref.ref[Any]:
    """Note an object weakly. Its removal runs no Python code, in which Ctrl-C would be lost."""
    key = id(thing)
    found = table[key] = weakref.ref(thing, functools.partial(table.pop, key))
    return found


def list_droppable(storage: Storage) -> weakref.ref[Storage]:
    """Enter a storage into DROPPABLE."""
    table = DROPPABLE.get(storage.pool)
    if table is None:
        table = DROPPABLE.setdefault(storage.pool, set())
    reference = weakref.ref(storage, table.discard)
    table.add(reference)
    return reference


@unheard
def list_pending() -> None:
    """Enter those of PENDING that are there into DROPPABLE."""
    while True:
        try:
            reference = PENDING.pop()  # in one call: other threads may do the same
        except IndexError:
            return
        storage = None if reference is None else reference()
        if storage is not None and storage.recipe is not None:
            list_droppable(storage)


def make_plain(storage: Storage) -> None:
    """Drop the storage's recipe: its bytes, which must be present, are kept.

    The caller holds `replay.LOCK`.
    """
    if storage.recipe is not None:
        assert storage.block is not None
        storage.address, storage.block, storage.recipe = storage.block, None, None
        storage.copy = None
        DROPPABLE.get(storage.pool, _NONE).discard(weakref.ref(storage))


def check_recipe(storage: Storage) -> None:
    """Refuse a storage without bytes that has no recipe."""
    if storage.recipe is None:
        raise RushlightError(
            "a tensor is read whose storage was resized to 0 bytes; give it memory with "
            ".untyped_storage().resize_(...) first. A sharded parameter is whole inside of its "
            "module's forward and in the backward of the module's results only: return what else "
            "is used, or call module.unshard()"
        )


def settled_plan(pool: Pool, nbytes: int) -> Plan:
    return Plan(SETTLED, (), (Spec.of(pool, uint8, (nbytes,)),), None)


def settle(storage: Storage, tick: int) -> None:
    """Let present bytes be dropped, from here on by a copy only. See Note [Offload].

    The caller holds `replay.LOCK`; the storage has a recipe, or nobody else has it.
    """
    old: Recipe | None = storage.recipe
    nbytes = storage.room if old is None else old.nbytes(old.index_of(storage))
    # No checkpoint made it, so none drops it.
    recipe = Recipe(settled_plan(storage.pool, nbytes), (), (), Mark(None))
    recipe.used = recipe.serial = tick
    if old is not None:
        recipe.record, recipe.call = old.record, old.call
    recipe.adopt(0, storage)


def with_recipe(pool: Pool) -> list[Storage]:
    """The storages of a pool that have a recipe, in the order of making."""
    every = [reference() for reference in _listed(pool)]
    return sorted([s for s in every if s is not None and s.recipe is not None], key=_order)


def bytes_with_recipe(pool: Pool, only: Callable[[Storage], bool] | None = None) -> int:
    """The bytes of a pool's present storages that have a recipe."""
    total = 0
    for reference in _listed(pool):
        storage = reference()
        if storage is not None and storage.recipe is not None and storage.block is not None:
            total += storage.room if only is None or only(storage) else 0
    return total


def _listed(pool: Pool) -> list[weakref.ref[Storage]]:
    list_pending()
    return list(DROPPABLE.get(pool, ()))


def _every_with_recipe() -> list[Storage]:
    list_pending()  # it may be the first of its pool
    return [s for pool in list(DROPPABLE) for s in with_recipe(pool)]


def _order(storage: Storage) -> tuple[int, int]:
    recipe: Recipe = storage.recipe
    return recipe.serial, recipe.index_of(storage)


def no_recipes() -> bool:
    """Whether no storage has a recipe: a write then needs no rebuild."""
    if PENDING:  # `list_pending` costs a tenth of a small write
        list_pending()
    return not any(DROPPABLE.values())


def readers(storages: Iterable[Storage]) -> list[Storage]:
    """The storages with a recipe that depends, directly or not, on one of the plain `storages`."""
    written = {s for s in storages if id(s) in READ}
    if not written:
        return []
    every = _every_with_recipe()
    reading = _reading((s.recipe for s in every), written)
    return [s for s in every if reading[s.recipe]]


def groups_of_sources(pool: Pool) -> tuple[list[tuple[int, list[Storage]]], int]:
    """Plain storages that only recipes hold, and the number of recipes that were looked at.

    Those from which the same storages were made are one group: their bytes, and these storages.
    """
    every = _every_with_recipe()
    read, looked_at = _plain_sources(pool, every)
    groups: dict[int, int] = {}
    unheld = 0  # the references of this loop: the first entry has no others
    for storage in list(read):
        mask, reads = read[storage]
        others = sys.getrefcount(storage) - reads
        if not mask:
            unheld = others
        elif others <= unheld and storage.present_address is not None:
            groups[mask] = groups.get(mask, 0) + storage.room
    made_from = [
        (nbytes, [s for i, s in enumerate(every) if mask >> i & 1])
        for mask, nbytes in groups.items()
    ]
    return made_from, looked_at


def _plain_sources(pool: Pool, every: list[Storage]) -> tuple[dict[Any, tuple[int, int]], int]:
    """For each plain storage: which of `every` were made from it (bits), and the reads of it."""
    masks = dict.fromkeys(_sources_first([s.recipe for s in every]), 0)
    for i, storage in enumerate(every):
        masks[storage.recipe] |= 1 << i
    read: dict[Any, tuple[int, int]] = {object(): (0, 0)}
    for recipe in reversed(masks):
        mask = masks[recipe]
        for origin, _, _ in recipe.sources:
            if origin.__class__ is Recipe:
                masks[origin] |= mask
            elif origin.pool is pool and origin.recipe is None:
                old, reads = read.get(origin, (0, 0))
                read[origin] = old | mask, reads + 1
    return read, len(masks)


def is_read(storage: Storage) -> bool:
    """Whether a recipe may read a plain storage."""
    return id(storage) in READ


def forget_reads(storages: Iterable[Storage]) -> None:
    """Note that no recipe reads the storages."""
    for storage in storages:
        READ.pop(id(storage), None)


def _reading(recipes: Iterable[Recipe], written: set[Storage]) -> dict[Recipe, bool]:
    reading: dict[Recipe, bool] = {}
    for recipe in _sources_first(recipes):
        reading[recipe] = any(
            reading[origin] if origin.__class__ is Recipe else origin in written
            for origin, _, _ in recipe.sources
        )
    return reading


def _sources_first(recipes: Iterable[Recipe]) -> list[Recipe]:
    """The recipes and all that they depend on, each after its sources."""
    order: list[Recipe] = []
    seen: set[Recipe] = set()
    stack = [(recipe, False) for recipe in recipes]
    while stack:
        recipe, sources_done = stack.pop()
        if sources_done:
            order.append(recipe)
        elif recipe not in seen:
            seen.add(recipe)
            stack.append((recipe, True))
            stack.extend((o, False) for o, _, _ in recipe.sources if o.__class__ is Recipe)
    return order
