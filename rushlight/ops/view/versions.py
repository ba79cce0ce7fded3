"""The recipes of in-place writes: each makes the next version of a storage. See Note [Recipes]."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rushlight.core.cache import Cache
from rushlight.core.dtypes import int32
from rushlight.devices.shared.allocator import Storage
from rushlight.ops.view.views import copy_into
from rushlight.tape.memory.recipe import Onto, Recipe, source_of
from rushlight.tape.record.op import Plan
from rushlight.tape.record.value import Value

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
    whole = enough and spec.contiguous and not target._offset
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
