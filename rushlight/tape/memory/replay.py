"""Rebuilding dropped storage from its recipe.

# Note [Replay]
1. `refill` makes dropped bytes from the nearest ancestors that are present, each recipe at most
   once, without recursion. Intermediate results are freed after their last use.
2. Every storage that can be dropped has a recipe, and every storage with a recipe has address None,
   its bytes present or not. So its address is read only here, under LOCK: `pinned_addresses` inside
   a region, for a caller that pins it during a read or write; `addresses` outside, which makes it
   plain. A plain storage is never dropped.
3. Pins are those of all live `Pins` objects: one that Ctrl-C left behind ends with its frame.
4. A block becomes a storage's bytes only after the kernel that fills it was launched: after an
   error the storage is still dropped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from time import perf_counter
from typing import Any, ClassVar

from rushlight.core import locks
from rushlight.core.errors import BudgetError, InplaceError, RushlightError
from rushlight.core.interrupts import unheard
from rushlight.devices.shared.allocator import Storage
from rushlight.tape.memory.recipe import (
    LONGEST,
    Recipe,
    Source,
    Weakly,
    enter,
    forget_reads,
    make_plain,
    readers,
)
from rushlight.tape.record.op import Plan, describe
from rushlight.tape.record.source_line import here
from rushlight.tape.record.value import Value
from rushlight.tape.record.written import describe_writes

LOCK = locks.reentrant_lock()

Made = dict[tuple[Recipe, int], Storage]


class Counters:
    """Counts of rebuilt calls and bytes since the last reset, and the clock of use."""

    nodes = 0
    nbytes = 0
    tick = 0
    # Is told of drops and rebuilds: see Note [Recording memory].
    watch: ClassVar[Any] = None


class Pins:
    """Storages that must not be dropped during one call; a context manager."""

    every: ClassVar[Weakly] = {}

    def __init__(self, storages: Iterable[Storage] = ()) -> None:
        self.counts: dict[Storage, int] = {}
        for storage in storages:
            self.add(storage)

    def __enter__(self) -> Pins:
        enter(self.every, self)
        return self

    @unheard
    def __exit__(self, *_: object) -> None:
        self.counts.clear()

    def add(self, storage: Storage, times: int = 1) -> None:
        self.counts[storage] = self.counts.get(storage, 0) + times

    def remove(self, storage: Storage) -> None:
        left = self.counts[storage] = self.counts[storage] - 1
        if not left:
            del self.counts[storage]

    @classmethod
    def pinned(cls) -> set[Storage]:
        """All pinned storages."""
        alive = [reference() for reference in list(cls.every.values())]
        return {storage for pins in alive if pins is not None for storage in pins.counts}


def run_in_region(
    plan: Plan, inputs: Sequence[Value], params: tuple[Any, ...], region: Any
) -> list[Storage]:
    """Fill new storages by `plan`, with the inputs pinned and a recipe left on the results."""
    with LOCK, Pins(v._memory for v in inputs):
        try:
            ins = pinned_addresses(inputs)
            storages = [Storage(plan.pool, room) for room in plan.rooms]
            assert plan.launch is not None
            plan.launch(*[s.address for s in storages], *ins, *plan.tail, *params)
        except BudgetError as error:
            name = f"{plan.op.name} of {describe(plan.ins)}" if plan.ins else plan.op.name
            raise BudgetError(f"{name}, {here()}: {error}", error.least) from None
        leave_recipe(plan, inputs, params, storages, region)
    return storages


def leave_recipe(
    plan: Plan,
    inputs: Sequence[Value],
    params: tuple[Any, ...],
    storages: Sequence[Storage],
    region: Any,
) -> None:
    Counters.tick += 1
    for value in inputs:
        region.use(value._memory)
        if value._memory.recipe is not None:
            value._memory.recipe.used = Counters.tick
    if region.rebuilds(plan):
        adopt_all(
            Recipe(plan, params, tuple(Source(v) for v in inputs), region.mark), storages, region
        )


def adopt_all(recipe: Recipe, storages: Sequence[Storage], region: Any) -> None:
    recipe.used = Counters.tick
    if recipe.length >= LONGEST:
        return  # a chain of recipes must end: see Note [Recipes] 3
    for i, storage in enumerate(storages):
        recipe.adopt(i, storage)
        region.enable_reclaim(storage.pool)
    if region.witness is not None:
        region.witness.see(recipe, storages)


def addresses(inputs: Sequence[Value]) -> list[int]:
    """The inputs' addresses, for a call outside of every region; they become plain."""
    with LOCK:
        for value in inputs:
            keep(value._memory)
        return [v._memory.address + v._offset for v in inputs]  # type: ignore[operator]


def pinned_addresses(inputs: Sequence[Value]) -> list[int]:
    """The inputs' addresses, after rebuilding dropped ones.

    The caller holds LOCK and has pinned them.
    """
    for value in inputs:
        if value._memory.present_address is None:
            rebuild(value._memory)
    return [v._memory.present_address + v._offset for v in inputs]  # type: ignore[operator]


def keep(storage: Storage) -> int:
    """The storage's address, rebuilt if it was dropped; it is never dropped again."""
    address = storage.address
    if address is None:
        with LOCK:
            # Else another thread was first, or it was present.
            if storage.present_address is None:
                rebuild(storage)
            make_plain(storage)
            address = storage.address
    assert address is not None
    return address


def rebuild(target: Storage) -> None:
    """Fill a dropped storage."""
    if target.recipe is None:
        raise RushlightError(
            "a tensor is read whose storage was resized to 0 bytes; give it memory with "
            ".untyped_storage().resize_(...) first"
        )
    refill([(target.recipe, target.recipe.index_of(target))])


def refill(targets: Sequence[tuple[Recipe, int]], hold: bool = False) -> list[Storage]:
    """A storage for each result of a recipe: the present one, or a rebuilt one.

    The first may be dropped for the last, unless `held`: then all are present, and plain.
    """
    found: Made = {(r, i): storage for r, i in targets if (storage := r.present(i)) is not None}
    order, there = _order(recipe for recipe, index in targets if (recipe, index) not in found)
    wanted = set(targets)
    with Pins() as pins:
        for storage in there.values():
            pins.add(storage)
        if hold:
            for storage in found.values():
                pins.add(storage)
        uses = Counter(s.key for step in order for s in step.sources if s not in there)
        made: Made = {}
        for step in order:
            read = [there.pop(s) if s in there else _used(s.key, made, uses) for s in step.sources]
            for i, storage in enumerate(_run_again(step, read)):
                if (step, i) in wanted:
                    found[step, i] = storage
                    if hold:
                        pins.add(storage)
                if uses[step, i]:
                    made[step, i] = storage
                    pins.add(storage, uses[step, i])
            for storage in read:
                pins.remove(storage)
        if hold:
            for storage in found.values():
                make_plain(storage)
    return [found[key] for key in targets]


def _used(key: Any, made: Made, uses: Counter[Any]) -> Storage:
    uses[key] -= 1
    return made[key] if uses[key] else made.pop(key)


def _order(targets: Iterable[Recipe]) -> tuple[list[Recipe], dict[Source, Storage]]:
    """The recipes to run, sources first, and the present storages they read."""
    order: list[Recipe] = []
    there: dict[Source, Storage] = {}
    seen: set[Recipe] = set()
    stack = [(recipe, False) for recipe in targets]
    while stack:
        step, ready = stack.pop()
        if ready:
            order.append(step)
        elif step not in seen:
            seen.add(step)
            if not all(source.intact() for source in step.sources):
                writes = describe_writes(
                    s.memory for s in step.sources if s.memory is not None and not s.intact()
                )
                raise InplaceError(
                    f"{step.plan.op.name}: a dropped result must be rebuilt, but one of its inputs "
                    f"was overwritten in place {writes}; write to a clone instead, or leave the "
                    "budget or checkpoint first"
                )
            stack.append((step, True))
            for source in step.sources:
                storage = source.present()
                if storage is not None:
                    there[source] = storage
                elif source.recipe is not None:
                    stack.append((source.recipe, False))
    return order, there


def _run_again(recipe: Recipe, sources: Sequence[Storage]) -> list[Storage]:
    """The results, from pinned sources."""
    plan, watch = recipe.plan, Counters.watch
    began = 0.0 if watch is None else perf_counter()
    ins = [
        storage.present_address + source.offset  # type: ignore[operator]
        for storage, source in zip(sources, recipe.sources, strict=True)
    ]
    # Present results are written again, with the same bits; room for the others must not drop them.
    there = [recipe.present(i) for i in range(len(plan.rooms))]
    with Pins(storage for storage in there if storage is not None):
        storages = [
            old or Storage(plan.pool, room) for old, room in zip(there, plan.rooms, strict=True)
        ]
        launch = plan.launch if recipe.proof is None else recipe.proof
        launch(*[s.present_address for s in storages], *ins, *plan.tail, *recipe.params)  # type: ignore[misc]
    Counters.nodes += 1
    Counters.nbytes += sum(spec.nbytes for spec in plan.outs)
    Counters.tick += 1
    recipe.used = Counters.tick
    owners = [_in_holder(recipe, i, storage) for i, storage in enumerate(storages)]
    if watch is not None:
        watch.rebuilt(recipe, storages, owners, perf_counter() - began)
    return owners


def _in_holder(recipe: Recipe, index: int, made: Storage) -> Storage:
    """The rebuilt bytes in the storage of this result, or in a new one where it is gone."""
    waiting = recipe.holder(index)
    if waiting is made:
        return made
    if waiting is not None:
        waiting.block, made.address = made.address, None
        return waiting
    reference = recipe.outs[index]
    if reference is None or reference() is None:  # else it is held, but overwritten since
        recipe.adopt(index, made)
    return made


def before_write(storage: Storage) -> None:
    """Make every storage that depends on a plain storage plain, while its bytes are present.

    See Note [Recipes] 4.
    """
    with Pins([storage]):
        for reader in readers(storage):
            keep(reader)
    forget_reads(storage)
