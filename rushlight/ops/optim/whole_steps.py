"""The writes of an optimiser's step: all prepared, then all made.

# Note [Whole steps]
1. A step is made of moves: writes by kernels, and changes of plain numbers. `Moves` collects them.
   Before `make` nothing visible to the program has changed, so an error while they are collected
   (no memory, a refused gradient) leaves parameters, state and counters unchanged. After that
   nothing allocates or fails.
2. Where a kernel's plan is known and its operands have no recipe, a move is one tuple, (function,
   *args), of a builtin function. They run in one C call of the interpreter, which handles no
   signal: Ctrl-C comes before the first or after the last.
3. Where something has a recipe, they and other moves (`Write`) are made while signals are blocked;
   see `inplace.finish_all`.
4. On a device with lists (Note [Lists of operands]) the launches of one kernel with the same
   numbers are one.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import starmap
from operator import add, attrgetter, call, setitem
from types import BuiltinFunctionType
from typing import Any

from rushlight.core.interrupts import Uninterrupted
from rushlight.devices.shared.allocator import Storage
from rushlight.ops.view.inplace import Update, Write, finish_all, plan_sum
from rushlight.tape.memory import replay
from rushlight.tape.memory.recipe import no_recipes
from rushlight.tape.record.source_line import CALLED, user_frame
from rushlight.tape.record.state import STATE, impure
from rushlight.tape.record.value import Value

_get_frame = sys._getframe
# Loops over a step's operands use these: a comprehension costs twice as much.
_SPEC, _MEMORY, _ADDRESS, _OFFSET = map(
    attrgetter, ("_spec", "_memory", "_memory.address", "_offset")
)


def has_lists(value: Value) -> bool:
    """Whether its device has lists: Note [Lists of operands]."""
    pool: Any = value._spec.device
    return pool.device.limits.lists is not None


class Moves:
    """The changes of a step. See Note [Whole steps]."""

    __slots__ = ("acts", "begun", "ends", "lists", "quick", "read", "storages", "writes")

    def __init__(self) -> None:
        self.acts: list[tuple[Any, ...]] = []  # (function, *args), in order
        self.storages: list[Storage] = []  # storages that the launches among them write to
        self.read: list[Any] = []  # owners of the memory of addresses among them
        self.writes: list[Write] = []
        self.begun: dict[Any, dict[str, Any]] = {}  # new state, by parameter
        self.ends: list[tuple[Any, ...]] = []  # acts that come after all others
        # By launch and numbers: a plan, and items by the address of what they write to first.
        self.lists: dict[tuple[Any, ...], tuple[Any, dict[int, tuple[int, ...]]]] = {}
        state = STATE.get()
        # Whether launches may be collected: nothing but a region is around them.
        self.quick = not state.special or (state.regional and state.saving is None)

    def add(self, update: Update, values: tuple[Value, ...], params: tuple[float, ...]) -> None:
        """`update(values, params)`."""
        plan: Any = update.plans.get(tuple(map(_SPEC, values)))
        if plan is None or not self.quick or plan.launch.__class__ is not BuiltinFunctionType:
            self.writes.append(update.prepared(values, params))
            return
        try:
            addresses = (*map(add, map(_ADDRESS, values), map(_OFFSET, values)),)
        except TypeError:  # a dropped gradient; see Note [Hot path]
            self.writes.append(update.prepared(values, params))
            return
        targets = update.targets
        self.read.append(values)
        self.acts.append((plan.launch, *addresses[:targets], *addresses, *plan.tail, *params))
        self.storages += map(_MEMORY, values[:targets])

    def add_listed(
        self, update: Update, values: tuple[Value, ...], params: tuple[float, ...]
    ) -> None:
        """`update(values, params)`, in one launch with others; on a device with lists."""
        plan: Any = update.plans.get(tuple(map(_SPEC, values)))
        if plan is None:
            plan = update.prepared(values, params).plan
        items = self._items(plan, params)
        if items is None:
            self.add(update, values, params)
            return
        try:
            addresses = (*map(add, map(_ADDRESS, values), map(_OFFSET, values)),)
        except TypeError:  # a dropped gradient; see Note [Hot path]
            self.add(update, values, params)
            return
        if addresses[0] in items:  # written to twice, in order
            self.add(update, values, params)
            return
        targets = update.targets
        items[addresses[0]] = (*addresses[:targets], *addresses, *plan.tail)
        self.read.append(values)
        self.storages += map(_MEMORY, values[:targets])

    def _items(self, plan: Any, params: tuple[float, ...]) -> dict[int, tuple[int, ...]] | None:
        """The items of the launch for a plan; None where it is no launch over lists."""
        launch, kernel = plan.launch, plan.kernel
        is_other = launch.__class__ is not BuiltinFunctionType  # with checks, or from Python
        if not self.quick or plan.pool.device.limits.lists is None or is_other:
            return None
        if kernel is None or kernel.rank:  # not flat
            return None
        # A launch stands for its kernel and pool, and costs less to look up.
        return self.lists.setdefault((launch, params), (plan, {}))[1]

    def add_rows(self, update: Update, rows: Sequence[tuple[Value, ...]]) -> None:
        """`add_listed` of each, in steps for all of them."""
        operands = [*zip(*rows, strict=True)]
        try:
            places = [[*map(add, map(_ADDRESS, o), map(_OFFSET, o))] for o in operands]
        except TypeError:  # a dropped gradient; see Note [Hot path]
            places = []
        known: dict[tuple[Any, ...], Any] = {}
        specs = [*zip(*[map(_SPEC, o) for o in operands], strict=True)]
        for each, values in dict(zip(specs, rows, strict=True)).items():
            plan: Any = update.plans.get(each)
            if plan is None:
                plan = update.prepared(values, ()).plan
            known[each] = self._items(plan, ()), plan.tail
        apart = places and len({*places[0]}) == len(rows)  # nothing is written to twice
        if not apart or any(items is None or items for items, _ in known.values()):
            for values in rows:
                self.add_listed(update, values, ())
            return
        targets = update.targets
        for each, item in zip(specs, zip(*places[:targets], *places, strict=True), strict=True):
            items, tail = known[each]
            items[item[0]] = item + tail
        self.read += rows
        for written in operands[:targets]:
            self.storages += map(_MEMORY, written)

    def put(self, table: dict[Any, Any], key: Any, value: Any) -> None:
        """`table[key] = value`."""
        self.acts.append((setitem, table, key, value))

    def begin(self, states: dict[Any, Any], p: Any, state: dict[str, Any]) -> None:
        """Set a parameter's first state, in the empty dict that was read before, if any."""
        known = states.get(p)
        if known is None:
            self.put(states, p, state)
        else:
            self.ends.append((known.update, state))

    def replace(self, state: dict[str, Any], new: dict[str, Any]) -> None:
        """Replace the content of a state by that of `new`."""
        self.acts += [(state.clear,), (state.update, new)]

    def make(self) -> None:
        """Make all changes."""
        frame = user_frame(_get_frame(2))  # beyond the optimiser's own
        self.make_at((frame.f_code, frame.f_lasti, CALLED.get()))

    def make_at(self, place: Any) -> None:
        """Make all changes; `place` is the source line for anomalies, see Note [Source lines]."""
        storages = self.storages
        for (_, params), (plan, items) in self.lists.items():
            if items:
                listed = plan.pool.device.limits.lists(plan.kernel)
                self.acts += listed((*items.values(),), params)
        if self.ends:
            self.acts += self.ends
        if self.writes or not storages or not no_recipes():
            if self.writes or self.acts:
                finish_all(self.writes, [*self.acts, (_mark, storages, place)], storages)
            return
        unmarked, acting = iter(storages), starmap(call, self.acts)
        try:
            deque(acting, 0)
            # The interpreter handles signals between two, so the rest is recorded.
            for storage in unmarked:
                storage.version += 1
                storage.written = place
        except BaseException:  # Ctrl-C, after the acts
            with Uninterrupted():
                _mark(unmarked, place)
            raise


def held_apart(value: Value) -> Value:
    """The value, without a recipe: as a state it would keep what this step read for all later."""
    if value._memory.recipe is not None:
        replay.cut(value._memory)
    return value


def _mark(storages: Iterable[Storage], place: Any) -> None:
    """Count the writes."""
    for storage in storages:
        storage.version += 1
        storage.written = place


def add_all(
    pairs: Sequence[tuple[Value, Value]], writes: Sequence[Write], then: Sequence[tuple[Any, ...]]
) -> None:
    """target += value for each of the pairs, prepared writes, and calls: all or nothing."""
    moves = Moves()
    moves.writes += writes
    for target, value in pairs:
        plan: Any = plan_sum(target, value)
        storage, other = target._memory, value._memory
        if (
            moves.quick
            and plan.launch.__class__ is BuiltinFunctionType
            and storage.address is not None
            and other.address is not None
        ):
            at = storage.address + target._offset
            moves.acts.append((plan.launch, at, at, other.address + value._offset, *plan.tail))
            moves.storages.append(storage)
            moves.read.append(value)
        else:
            moves.writes.append(Write([target], plan, (target, value), ()))
            moves.acts.append((setattr, storage, "written", None))  # no source line
    impure()
    moves.acts += then
    moves.make_at(None)  # no source line
