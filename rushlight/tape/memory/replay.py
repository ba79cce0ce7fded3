"""Calls in regions, and the bytes of storages that may be dropped.

# Note [Replay]
1. `Rebuild` (rebuild.py) makes dropped bytes from the nearest ancestors that are present: depth
   first, with a stack of frames. Of a recipe's sources those that are missing come first, the one
   with the longest chain of recipes before the others: little is held while a chain is rebuilt.
2. Pinned is what the running kernel reads and writes. All else that has a recipe may be dropped for
   a replay's own allocations, in this order: what the replay does not need; what it needs again
   later (`uses`); the sources that waiting frames have so far, of each frame once; gradients. What
   was dropped is rebuilt when its turn comes, and what it reads counts as needed again (`expect`):
   each recipe runs once where memory allows, and at most `MOST_RUNS` times in one replay. After
   that, BudgetError.
3. Results that nobody holds are freed after their last use in the replay.
4. Writes in a row are applied to one block, from the last version that is present, or whole: to a
   copy of it, or to its own block where only the replay has that.
5. Every storage that can be dropped has a recipe, and every storage with a recipe has address None,
   its bytes present or not. So its address is read only here and in rebuild.py, under LOCK: `bring`
   inside a region, for a caller that pins it during a read or write; `addresses` outside, which
   makes it plain; `Derivative.held` (Note [Derivatives] 8). A plain storage is never dropped.
6. Pins are those of all live `Pins` objects: one that Ctrl-C left behind ends with its frame.
7. A block becomes a storage's bytes only after the kernel that fills it was launched: after an
   error the storage is still dropped.
8. Where only gradients are left to drop, a call gives up an input that can be rebuilt, if its
   kernel may write a result over it: the result gets the input's block (`Pins.replaceable`). If
   another thread was quicker to take the block, the inputs are brought again.
9. A replay first runs all recipes that are missing, each after its sources. Where one of the values
   that it holds for later is dropped on the way, it goes on by frames, from what is present.
"""

from __future__ import annotations

import contextlib
import functools
import weakref
from collections.abc import Callable, Iterable, Sequence
from time import perf_counter
from typing import Any

from rushlight.core.errors import BudgetError
from rushlight.devices.shared.allocator import Storage
from rushlight.tape.memory import offload, refusal, tracebacks
from rushlight.tape.memory.pins import COUNTERS, LOCK, NAMES, Pins, make_storage
from rushlight.tape.memory.rebuild import Rebuild, first_result
from rushlight.tape.memory.recipe import (
    LONGEST,
    MOST_WRITES,
    PENDING,
    READ,
    SMALLEST_DROP,
    UNTIMED,
    Key,
    Recipe,
    Source,
    check_recipe,
    enter,
    forget_reads,
    is_intact,
    make_plain,
    readers,
    serial_of,
    settle,
    source_of,
)
from rushlight.tape.record import template
from rushlight.tape.record.op import Plan
from rushlight.tape.record.state import STATE
from rushlight.tape.record.value import Value


def run_in_region(
    plan: Plan, inputs: Sequence[Value], params: tuple[Any, ...], region: Any
) -> list[Storage]:
    """Fill new storages by `plan`, with the inputs pinned and a recipe left on the results."""
    made = following(len(inputs), len(plan.rooms))(plan, inputs, params, region)
    if made is not None:
        return made
    with LOCK:
        storages, seconds = _run_pinned(plan, inputs, params, region.foresight)
        if plan.room < SMALLEST_DROP and not region.rebuilds(plan):
            note_call(plan, inputs, region, seconds, False)
            return storages
        sources = note_call(plan, inputs, region, seconds)
        adopt_all(Recipe(plan, params, sources, region.mark), storages, region)
    return storages


@functools.cache
def following(ins: int, outs: int) -> Callable[..., list[Storage] | None]:
    """`run_in_region` for the next call of a followed record: Note [Foresight] 5.

    The function, for these numbers of inputs and results, takes the plan, the inputs, the launch
    parameters, the region and the results' first version. It returns None where it is another call,
    an input is dropped, or the results may have no room together. The results are in PENDING.
    """
    if ins > MOST_UNROLLED or outs > MOST_UNROLLED:
        return not_followed
    made: dict[str, Any] = {}
    exec(template.following(ins, outs), NAMES, made)
    follow: Callable[..., list[Storage] | None] = made["follow"]
    refusal.EXPLAINED.add(follow.__code__)
    return follow


MOST_UNROLLED = 16  # operands; also bounds how many functions `following` keeps
NAMES.update(
    BudgetError=BudgetError,
    COUNTERS=COUNTERS,
    LOCK=LOCK,
    LONGEST=LONGEST,
    PENDING=PENDING,
    Pins=Pins,
    READ=READ,
    Recipe=Recipe,
    SMALLEST_DROP=SMALLEST_DROP,
    enter=enter,
    is_intact=is_intact,
    refusal=refusal,
    source_of=source_of,
    weakly=weakref.ref,
)


def not_followed(*_: Any) -> None:
    """`following` for calls of more operands: they run as those of other steps do."""


def _run_pinned(
    plan: Plan, inputs: Sequence[Value], params: tuple[Any, ...], foresight: Any
) -> tuple[list[Storage], float]:
    """The results, and the time of the launch: Note [Foresight] 3."""
    pool, running = plan.pool, Pins.running
    timed = foresight is not None and foresight.is_timing
    by_host = timed and pool.device.limits.host_memory
    try:
        while True:
            ins = present(inputs)
            if ins is None:
                with Pins() as pins:
                    ins = bring(inputs, pins)
            storages: list[Storage] = []
            outs, drops = [], COUNTERS.drops
            try:
                running.append((plan, inputs, storages, None))
                for room in plan.rooms:
                    alone = not plan.rest or storages
                    storage = make_storage(pool, room) if alone else first_result(plan, plan.rest)
                    storages.append(storage)
                    outs.append(storage.address)
                if drops != COUNTERS.drops and not is_intact(plan, inputs, ins, outs):
                    del storages, storage  # their blocks are free when the inputs are brought
                    continue
                first = foresight.mark(pool) if timed else None
                drops, began = COUNTERS.drops, perf_counter()
                plan.launch(*outs, *ins, *plan.tail, *params)  # type: ignore[misc]
                seconds = perf_counter() - began
                if drops != COUNTERS.drops:
                    return storages, UNTIMED
                if first is not None:
                    foresight.marks[foresight.now + 1] = first, foresight.mark(pool)
                return storages, seconds if by_host else UNTIMED
            finally:
                del running[-1]
    except BudgetError as error:
        raise refusal.explained(error, plan, inputs) from None


def give_up(storage: Storage) -> bool:
    """Make a storage plain, so that it can be written over; whether it is. LOCK is held."""
    recipe = storage.recipe
    if recipe is None:
        return True
    if storage.block is None or recipe.is_settled:
        return False
    make_plain(storage)
    return True


def run_over(
    plan: Plan, inputs: Sequence[Value], params: tuple[Any, ...], region: Any, over: int
) -> list[Storage]:
    """`run_in_region` with result `over` in the memory of the first input.

    Nobody needs that input again, and the kernel can write in place. Where it has no recipe, the
    results get none.
    """
    with LOCK:
        try:
            ins = present(inputs)
            if ins is not None:
                return _write_over(plan, inputs, ins, params, region, over)
            with Pins() as pins:
                return _write_over(plan, inputs, bring(inputs, pins), params, region, over)
        except BudgetError as error:
            raise refusal.explained(error, plan, inputs) from None


def _write_over(
    plan: Plan,
    inputs: Sequence[Value],
    ins: list[int],
    params: tuple[Any, ...],
    region: Any,
    over: int,
) -> list[Storage]:
    running, pool = Pins.running, plan.pool
    storages: list[Storage] = []
    try:
        running.append((None, inputs, storages, None))
        for i, room in enumerate(plan.rooms):
            storages.append(inputs[0]._memory if i == over else make_storage(pool, room))
    finally:
        del running[-1]
    # A recipe would read what is written over, where that has none itself.
    is_rebuilt = inputs[0]._memory.recipe is not None and region.rebuilds(plan)
    sources = note_call(plan, inputs, region, rebuilt=is_rebuilt)
    assert not inputs[0]._offset and storages[over].room == plan.rooms[over]
    make_plain(storages[over])  # the old bytes end here, whatever happens
    plan.launch(*[s.address for s in storages], *ins, *plan.tail, *params)  # type: ignore[misc]
    if is_rebuilt:
        adopt_all(Recipe(plan, params, sources, region.mark), storages, region)
    return storages


def present(inputs: Sequence[Value]) -> list[int] | None:
    """The inputs' addresses; None where one is dropped."""
    found = []
    for value in inputs:
        storage = value._memory
        address = storage.address
        if address is None:
            address = None if storage.recipe is None else storage.block
            if address is None:
                return None
        found.append(address + value._offset)
    return found


def note_call(
    plan: Plan,
    inputs: Sequence[Value],
    region: Any,
    seconds: float = UNTIMED,
    rebuilt: bool = True,
) -> tuple[Source, ...]:
    """Count a call and the uses of its inputs; the sources of its recipe, where it is `rebuilt`."""
    tick = COUNTERS.tick = COUNTERS.tick + 1
    record, foresight = None, region.foresight
    if foresight is not None:
        foresight.call(plan, seconds)
        if not foresight.followed:
            record = foresight.record
    if region.listens:
        for value in inputs:
            region.use(value._memory)
    sources: list[Source] = []
    for value in inputs:
        storage = value._memory
        recipe = storage.recipe
        if recipe is not None:
            recipe.used = tick
            if record is not None and recipe.record is record:
                record.uses[recipe.call].append(foresight.place)
            if rebuilt and recipe.single:
                sources.append((recipe, 0, value._offset))
                continue
        if rebuilt:
            sources.append(source_of(value))
    return tuple(sources)


def adopt_all(recipe: Recipe, storages: Sequence[Storage | None], region: Any) -> None:
    """Give a recipe to the storages of its results; None where a result has none."""
    foresight = region.foresight
    if foresight is not None and foresight.is_plain and foresight.is_fleeting:
        return  # Note [Foresight] 6
    recipe.used = recipe.serial = COUNTERS.tick
    if recipe.length >= LONGEST or recipe.writes > MOST_WRITES:
        for storage in storages:  # a chain of recipes must end: see Note [Recipes]
            if storage is not None:
                settle_here(storage)
        return
    if foresight is not None:
        foresight.number(recipe)
    pool = recipe.plan.pool
    if pool.reclaim is None:
        region.enable_reclaim(pool)
    for i, storage in enumerate(storages):
        if storage is not None:
            recipe.adopt(i, storage)
    if region.witness is not None:
        region.witness.see(recipe, storages)


def addresses(inputs: Sequence[Value]) -> list[int]:
    """The inputs' addresses, for a call outside of every region; they become plain."""
    with LOCK:
        for value in inputs:
            keep(value._memory)
        return [v._memory.address + v._offset for v in inputs]  # type: ignore[operator]


def bring(inputs: Sequence[Value], pins: Pins) -> list[int]:
    """The inputs' addresses, after rebuilding dropped ones; all are pinned. LOCK is held."""
    found = present(inputs)
    if found is None:
        for value in inputs:
            if value._memory.present_address is None:
                check_recipe(value._memory)
        every = {v._memory: v._memory.recipe for v in inputs if v._memory.recipe is not None}
        keys = [(recipe, recipe.index_of(storage)) for storage, recipe in every.items()]
        Rebuild(sorted(keys, key=serial_of), pins).run(hold=True)
    else:
        pins.groups.append([v._memory for v in inputs])
    return found or [v._memory.present_address + v._offset for v in inputs]  # type: ignore[operator]


def pinned_addresses(inputs: Sequence[Value]) -> list[int]:
    """`bring` for a caller that has pinned the inputs itself."""
    with Pins() as pins:
        return bring(inputs, pins)


def keep(storage: Storage) -> int:
    """The storage's address, rebuilt if it was dropped; it is never dropped again."""
    address = storage.address
    if address is None:
        with LOCK:
            # Else another thread was first, or it was present.
            if storage.present_address is None:
                check_recipe(storage)
                refill([(storage.recipe, storage.recipe.index_of(storage))])
            make_plain(storage)
            address = storage.address
    assert address is not None
    return address


def cut(storage: Storage) -> None:
    """Let a storage keep none of its recipe's sources: it becomes plain, or settled."""
    with LOCK:
        region, recipe = STATE.get().region, storage.recipe
        foresight = None if region is None or recipe is None else region.foresight
        if foresight is not None and foresight.learns and recipe.record is foresight.record:
            recipe.record.uses[recipe.call].append(foresight.place)  # else it seems useless
        if storage.present_address is None:
            refill([(storage.recipe, storage.recipe.index_of(storage))])
        if not settle_here(storage):
            make_plain(storage)


def settle_here(storage: Storage) -> bool:
    """Settle a storage, where a budget around copies values out; whether it is. LOCK is held."""
    if not offload.here().takes(storage.pool):
        return False
    if storage.recipe is None or not storage.recipe.is_settled:
        settle(storage, COUNTERS.tick)
        STATE.get().region.enable_reclaim(storage.pool)
    return True


def fetch(storages: Iterable[Storage]) -> None:
    """Rebuild what a derivative is about to read, as far as there is room.

    Its rule may come to a save only when it has made some gradients, which take room.
    """
    with LOCK:
        missing = [s for s in storages if s.recipe is not None and s.block is None]
        if missing:
            with contextlib.suppress(BudgetError):
                keys = [(s.recipe, s.recipe.index_of(s)) for s in missing]
                refill(sorted(keys, key=serial_of))


NAMES["adopt_all"] = adopt_all

refusal.EXPLAINED.update(
    (
        run_in_region.__code__,
        _run_pinned.__code__,
        run_over.__code__,
        fetch.__code__,
    )
)


def refill(targets: Sequence[Key], hold: bool = False) -> list[Storage]:
    """A storage for each result of a recipe: the present one, or a rebuilt one.

    The first may be dropped for the last, unless `hold`: then all are present, and plain.
    """
    with Pins() as pins:
        found = Rebuild(targets, pins).run(hold)
        if hold:
            for storage in found:
                make_plain(storage)
    return found


def before_write(*storages: Storage) -> None:
    """Make every storage that depends on a plain storage plain, while its bytes are present.

    See Note [Recipes].
    """
    found = readers(storages)
    if tracebacks.are_kept() and any(reader.present_address is None for reader in found):
        found = []
        tracebacks.release_all(storages[0].pool)
        found = readers(storages)
    if found:
        try:
            with Pins(storages):
                for reader in reversed(found):  # from the last: to make it makes those before it
                    cut(reader)
        except BudgetError as error:
            raise refusal.explained_write(error, found) from None
    forget_reads(storages)


refusal.EXPLAINED.add(before_write.__code__)
