"""Rebuilding dropped storage from its recipe.

# Note [Replay]
1. A storage whose bytes are dropped has address None. `refill` makes them from the nearest ancestors that are there,
   each recipe at most once, without recursion. What is needed only on the way is let go after its last use.
2. What a call or a rebuild still has to read is pinned, so that making room for its results does not drop it.
3. A block becomes a storage's bytes only after the kernel that fills it was launched: an error on the way leaves
   dropped what was dropped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from rushlight.core import locks
from rushlight.core.errors import BudgetError, InplaceError, RushlightError
from rushlight.devices.allocator import Storage
from rushlight.tape.op import Plan, describe
from rushlight.tape.place import here
from rushlight.tape.recipe import LONGEST, Recipe, Source, make_plain, readers
from rushlight.tape.value import Value
from rushlight.tape.written import describe_writes

LOCK = locks.reentrant_lock()

Made = dict[tuple[Recipe, int], Storage]


class Counters:
    """What was rebuilt since the last reset, and the clock of use."""

    nodes = 0
    nbytes = 0
    tick = 0


class Pins:
    """Storages that must not be dropped now; a context for one call."""

    counts: dict[Storage, int] = {}  # noqa: RUF012 (one table for the process, under LOCK)

    def __init__(self, storages: Iterable[Storage] = ()) -> None:
        self.first = storages
        self.mine: dict[Storage, int] = {}

    def __enter__(self) -> Pins:
        try:
            for storage in self.first:
                self.add(storage)
        except BaseException:  # Ctrl-C: what stays pinned stays for good
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for storage, times in self.mine.items():
            _change(self.counts, storage, -times)

    def add(self, storage: Storage, times: int = 1) -> None:
        _change(self.mine, storage, times)
        _change(self.counts, storage, times)

    def remove(self, storage: Storage) -> None:
        self.add(storage, -1)


def _change(counts: dict[Storage, int], storage: Storage, times: int) -> None:
    left = counts.get(storage, 0) + times
    if left:
        counts[storage] = left
    else:
        counts.pop(storage, None)


def run_in_region(plan: Plan, inputs: Sequence[Value], params: tuple[Any, ...], region: Any) -> list[Storage]:
    """Fill new storages by `plan`, with the inputs pinned and a recipe left on the results."""
    with LOCK, Pins(v.memory for v in inputs):
        try:
            ins = _addresses(inputs)
            storages = [Storage(plan.pool, room) for room in plan.rooms]
            assert plan.launch is not None
            plan.launch(*[s.address for s in storages], *ins, *plan.tail, *params)
        except BudgetError as error:
            raise BudgetError(f"{plan.op.name} of {describe(plan.ins)}, {here()}: {error}", error.least) from None
        leave_recipe(plan, inputs, params, storages, region)
    return storages


def leave_recipe(
    plan: Plan, inputs: Sequence[Value], params: tuple[Any, ...], storages: Sequence[Storage], region: Any
) -> None:
    Counters.tick += 1
    for value in inputs:
        region.use(value.memory)
        if value.memory.recipe is not None:
            value.memory.recipe.used = Counters.tick
    if region.rebuilds(plan):
        adopt_all(Recipe(plan, params, tuple(Source(v) for v in inputs), region.mark), storages, region)


def adopt_all(recipe: Recipe, storages: Sequence[Storage], region: Any) -> None:
    recipe.used = Counters.tick
    if recipe.length >= LONGEST:
        return  # a chain of recipes must end somewhere: see Note [Recipes] 3
    for i, storage in enumerate(storages):
        recipe.adopt(i, storage)
        region.watch(storage.pool)


def addresses(inputs: Sequence[Value]) -> list[int]:
    """The inputs' addresses, after rebuilding what was dropped."""
    with LOCK, Pins(v.memory for v in inputs):
        return _addresses(inputs)


def _addresses(inputs: Sequence[Value]) -> list[int]:
    for value in inputs:
        if value.memory.address is None:
            rebuild(value.memory)
    return [v.memory.address + v.offset for v in inputs]  # type: ignore[operator]


def ensure(storage: Storage) -> int:
    """The storage's address, rebuilt if it was dropped."""
    address = storage.address
    if address is None:
        with LOCK:
            if storage.address is None:  # else another thread was quicker
                rebuild(storage)
            address = storage.address
    assert address is not None
    return address


def keep(storage: Storage) -> None:
    """Have the bytes, and never drop them again."""
    with LOCK:
        ensure(storage)
        make_plain(storage)


def rebuild(target: Storage) -> None:
    """Fill a dropped storage."""
    if target.recipe is None:
        raise RushlightError(
            "a tensor is read whose storage was resized to 0 bytes; give it memory with .untyped_storage().resize_(...) first"
        )
    refill([(target.recipe, target.recipe.place_of(target))])


def refill(targets: Sequence[tuple[Recipe, int]]) -> list[Storage]:
    """A storage for each result of a recipe: the one that is there, or a rebuilt one."""
    found: Made = {(r, i): storage for r, i in targets if (storage := r.present(i)) is not None}
    order = _order(recipe for recipe, index in targets if (recipe, index) not in found)
    wanted = set(targets)
    with Pins() as pins:
        # What the steps read: storages that are there now, and results of earlier steps.
        there = {s: storage for step in order for s in step.sources if (storage := s.present()) is not None}
        for storage in there.values():
            pins.add(storage)
        uses = Counter(s.key for step in order for s in step.sources if s not in there)
        made: Made = {}
        for step in order:
            read = [there.pop(s) if s in there else _used(s.key, made, uses) for s in step.sources]
            for i, storage in enumerate(_run_again(step, read)):
                if (step, i) in wanted:
                    found[step, i] = storage
                if uses[step, i]:
                    made[step, i] = storage
                    pins.add(storage, uses[step, i])
            for storage in read:
                pins.remove(storage)
    return [found[key] for key in targets]


def _used(key: Any, made: Made, uses: Counter[Any]) -> Storage:
    uses[key] -= 1
    return made[key] if uses[key] else made.pop(key)


def _order(targets: Iterable[Recipe]) -> list[Recipe]:
    """The recipes to run, sources first."""
    order: list[Recipe] = []
    seen: set[Recipe] = set()
    stack = [(recipe, False) for recipe in targets]
    while stack:
        step, ready = stack.pop()
        if ready:
            order.append(step)
        elif step not in seen:
            seen.add(step)
            if not all(source.intact() for source in step.sources):
                writes = describe_writes(s.memory for s in step.sources if s.memory is not None and not s.intact())
                raise InplaceError(
                    f"{step.plan.op.name}: a dropped result must be rebuilt, but one of its inputs was overwritten "
                    f"in place {writes}; write to a clone instead, or leave the budget or checkpoint first"
                )
            stack.append((step, True))
            stack.extend((recipe, False) for recipe in step.missing())
    return order


def _run_again(recipe: Recipe, sources: Sequence[Storage]) -> list[Storage]:
    plan = recipe.plan
    ins = [storage.address + source.offset for storage, source in zip(sources, recipe.sources, strict=True)]  # type: ignore[operator]
    # Results that are there are written again, with the same bits.
    storages = [recipe.present(i) or Storage(plan.pool, room) for i, room in enumerate(plan.rooms)]
    plan.launch(*[s.address for s in storages], *ins, *plan.tail, *recipe.params)  # type: ignore[misc]
    Counters.nodes += 1
    Counters.nbytes += sum(spec.nbytes for spec in plan.outs)
    Counters.tick += 1
    recipe.used = Counters.tick
    return [_settled(recipe, i, storage) for i, storage in enumerate(storages)]


def _settled(recipe: Recipe, index: int, made: Storage) -> Storage:
    """The made bytes in the storage that waits for them, or in a new one where nobody waits any more."""
    waiting = recipe.holder(index)
    if waiting is made:
        return made
    if waiting is not None:
        waiting.address, made.address = made.address, None
        return waiting
    reference = recipe.outs[index]
    if reference is None or reference() is None:  # else it is held, but overwritten since
        recipe.adopt(index, made)
    return made


def before_write(storage: Storage) -> None:
    """Settle what was made from a plain storage, while its bytes are still there. See Note [Recipes] 4."""
    for reader in readers(storage):
        with Pins([storage]):
            keep(reader)
