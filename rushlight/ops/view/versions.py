"""In-place writes and their recipes: each makes a storage's next version. See Note [Recipes]."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rushlight.core.cache import Cache
from rushlight.core.dtypes import int32
from rushlight.core.errors import AnomalyError, BudgetError
from rushlight.devices.shared.allocator import Storage
from rushlight.ops.view.laid import copy_into
from rushlight.tape.memory import refusal, replay
from rushlight.tape.memory.recipe import Onto, Recipe, make_plain, no_recipes, source_of
from rushlight.tape.record.op import Plan
from rushlight.tape.record.state import STATE, impure
from rushlight.tape.record.value import Value
from rushlight.tape.record.written import mark_written

_COPIES = Cache()


def recipe_of(
    targets: Sequence[Value],
    plan: Plan,
    inputs: Sequence[Value],
    params: tuple[Any, ...],
    region: Any,
) -> Recipe | None:
    """The recipe of the bits after a write in a region; None where they cannot be dropped.

    It is called before the write: the target's recipe is that of the old bits.
    """
    target = targets[0]
    storage, spec = target._memory, target._spec
    old = storage.recipe
    if old is None or len(targets) > 1:
        return None
    sources, index = tuple([source_of(v) for v in inputs]), old.index_of(storage)
    nbytes = old.nbytes(index)
    # Rooms are rounded up, so a part may have the same as the whole.
    enough = plan.rooms[0] == storage.room and spec.nbytes >= nbytes
    whole = enough and spec.dense and not target._offset
    if whole and all(origin is not old and origin is not storage for origin, _, _ in sources):
        return Recipe(plan, params, sources, region.mark)
    if old.is_settled:  # there is no other block with the old bits
        return None
    if whole:
        onto = Onto(0, storage.room, nbytes, None)
    else:
        onto = Onto(target._offset, storage.room, nbytes, _copy_of_block(storage))
    recipe = Recipe(plan, params, (*sources, (old, index, 0)), region.mark, onto)
    recipe.writes = old.writes + 1
    return recipe


def _copy_of_block(storage: Storage) -> Callable[[int, int], None]:
    """A function (to, from) that copies blocks of this size on this device."""
    key = (storage.pool, storage.room)
    found: Callable[[int, int], None] | None = _COPIES.get(key)
    if found is None:
        launch, tail = copy_into(storage.pool, int32, (storage.room // 4,), (1,), (1,))

        def copy(to: int, source: int) -> None:
            launch(to, source, *tail)

        found = _COPIES.keep(key, copy)
    return found


def write_into(
    targets: Sequence[Value], plan: Plan, inputs: Sequence[Value], params: tuple[Any, ...]
) -> None:
    """Run `plan` with the targets' memory as its outputs; nothing is recorded."""
    assert plan.launch is not None
    storages = [t._memory for t in targets]
    if not STATE.get().special and no_recipes():  # nothing was dropped, and no recipe reads it
        _launch_into(storages, plan, _addresses(targets), _addresses(inputs), params)
        return
    impure()
    saving = STATE.get().saving
    if saving is not None:
        saving.before_write(storages)
    values, running = [*targets, *inputs], replay.Pins.running
    with replay.LOCK:
        replay.before_write(*storages)
        try:
            found = replay.present(values)
            if found is None:
                with replay.Pins() as pins:
                    _write_found(targets, plan, inputs, params, replay.bring(values, pins))
                return
            # No call between `append` and `try` or in `finally`: see `template.following`.
            try:
                running.append((None, values, (), None))
                _write_found(targets, plan, inputs, params, found)
            finally:
                del running[-1]
        except BudgetError as error:
            raise refusal.explained(error, plan, values) from None


refusal.EXPLAINED.add(write_into.__code__)


def _write_found(
    targets: Sequence[Value],
    plan: Plan,
    inputs: Sequence[Value],
    params: tuple[Any, ...],
    found: Sequence[int],
) -> None:
    """`write_into` at the addresses of targets and inputs, which are pinned. LOCK is held."""
    storages, region, recipe = [t._memory for t in targets], STATE.get().region, None
    outs, ins = found[: len(targets)], found[len(targets) :]
    if region is not None:
        recipe = recipe_of(targets, plan, inputs, params, region)
        replay.note_call(plan, [*targets, *inputs], region, rebuilt=False)
    droppable = [storage for storage in storages if storage.recipe is not None]
    try:
        _launch_into(storages, plan, outs, ins, params)
    finally:
        for storage in storages:
            make_plain(storage)
    if recipe is not None:
        replay.adopt_all(recipe, storages, region)
    else:
        for storage in droppable:
            replay.settle_here(storage)


def _addresses(values: Sequence[Value]) -> list[int]:
    try:
        return [v._memory.address + v._offset for v in values]  # type: ignore[operator]
    except TypeError:  # freed memory, which raises there
        return replay.addresses(values)


def _launch_into(
    storages: Sequence[Storage],
    plan: Plan,
    outs: Sequence[int],
    ins: Sequence[int],
    params: tuple[Any, ...],
) -> None:
    try:
        plan.launch(*outs, *ins, *plan.tail, *params)  # type: ignore[misc]
    except AnomalyError:  # it was written all the same
        mark_written(*storages)
        raise
    mark_written(*storages)
