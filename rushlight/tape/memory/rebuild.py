"""Replays: dropped results of recipes made again. See Note [Replay]."""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from collections.abc import Sequence
from time import perf_counter

from rushlight.core.errors import BudgetError, InplaceError
from rushlight.devices.shared.allocator import Pool, Storage
from rushlight.tape.memory import offload, refusal
from rushlight.tape.memory.foresight import FORESIGHT
from rushlight.tape.memory.pins import COUNTERS, LOCK, Frame, Pins, make_storage
from rushlight.tape.memory.recipe import (
    MOST_RUNS,
    Key,
    Mark,
    Read,
    Recipe,
    Source,
    bytes_with_recipe,
    check_recipe,
    in_holder,
    is_intact,
    make_plain,
    settled_plan,
    sources_of,
)
from rushlight.tape.memory.requirement import static_bytes
from rushlight.tape.record.op import Plan
from rushlight.tape.record.written import describe_writes


def _look(frame: Frame) -> Key | None:
    """Pin what is present, in order; the first result that is not."""
    while frame.order:
        recipe, index = frame.order[-1]
        found = recipe.holder(index)
        if found is None or (found.block is None and not _copy_back(found)):
            return recipe, index
        frame.there[recipe, index] = found
        frame.order.pop()
    return None


class Rebuild:
    """A replay: makes results of recipes present. See Note [Replay]. The caller holds LOCK."""

    def __init__(self, targets: Sequence[Key], pins: Pins) -> None:
        self.targets = targets
        self.pins = pins
        self.made: dict[Key, Storage] = {}  # held while the replay needs them

    def run(self, hold: bool) -> list[Storage]:
        """A storage for each target; with `hold` they stay pinned, else only the last is sure."""
        found = None
        with contextlib.suppress(BudgetError):  # frames give up more, one after the other
            found = self._run_straight()
        if found is not None:
            self.pins.groups.append([found[key] for key in self.targets])
            self.pins.frames = []
            return self.pins.groups[-1]
        found = {}
        for recipe, index in self.targets:
            if not recipe.at_hand(index):
                self.pins.expect(recipe)
        uses = self.pins.uses
        for key in self.targets if hold else ():
            uses[key] = uses.get(key, 0) + 1
        for keys in [self.targets] if hold else [[key] for key in self.targets]:
            found |= self._bring(keys)
            if hold:
                self.pins.groups.append(list(found.values()))
            self.pins.frames = []
        self.pins.uses, self.pins.expected = {}, {}
        return [found[key] for key in self.targets]

    # ---- all that is missing, one after the other: Note [Replay] 9 ----

    def _run_straight(self) -> dict[Key, Storage] | None:
        """The targets; None where something is dropped on the way, or is not run as recipes are."""
        order = self._order()
        if order is None:
            return None
        left = Counter(self.targets)  # reads to come
        for recipe in order:
            left.update([(o, i) for o, i, _ in recipe.sources if o.__class__ is Recipe])
        kept, now = Frame(None), Frame(None)
        held = kept.there
        for recipe, index in left:
            storage = recipe.present(index)
            if storage is not None:
                held[recipe, index] = storage
        self.pins.frames = [kept, now]
        for recipe in order:
            plan, ins, sources = recipe.plan, [], []
            now.there.clear()
            for origin, index, offset in recipe.sources:
                if origin.__class__ is Recipe:
                    key = (origin, index)
                    storage = now.there[key] = held[key]
                    sources.append(key)
                    ins.append(storage.block + offset)  # type: ignore[operator]
                else:
                    ins.append(origin.address + offset)
            if plan.rest and not _fits(plan):
                return None
            storages: list[Storage] = []
            for i, room in enumerate(plan.rooms):
                there = recipe.present(i)  # written again, with the same bits
                if there is not None:
                    now.there[recipe, i] = there
                storages.append(there or make_storage(plan.pool, room))
                if kept.is_firm:
                    return None
            plan.launch(*[s.present_address for s in storages], *ins, *plan.tail, *recipe.params)  # type: ignore[misc]
            _count_launch(plan)
            self._count(recipe)
            for i, storage in enumerate(storages):
                storage = in_holder(recipe, i, storage)
                if left[recipe, i]:
                    held[recipe, i] = storage
            for key in sources:
                left[key] -= 1
                if not left[key]:
                    held.pop(key, None)
            if kept.is_firm:  # the launch took scratch
                return None
        return held

    def _order(self) -> list[Recipe] | None:
        """The recipes to run, each after those it reads; None where one needs more than a run."""
        if COUNTERS.watch is not None or offload.here() is not offload.NEVER:
            return None
        order: list[Recipe] = []
        seen: set[Recipe] = set()
        stack = [(recipe, False) for recipe, i in self.targets if recipe.present(i) is None]
        stack.reverse()
        while stack:
            recipe, is_last = stack.pop()
            if is_last:
                order.append(recipe)
                continue
            if recipe in seen:
                continue
            seen.add(recipe)
            if recipe.onto is not None or recipe.proof is not None or recipe.is_settled:
                return None
            stack.append((recipe, True))
            for origin, index, _ in recipe.sources:
                if origin.__class__ is Recipe:
                    if origin.present(index) is None:
                        stack.append((origin, False))
                elif origin.version != index or origin.address is None:
                    return None
        return order

    def _count(self, recipe: Recipe) -> None:
        """Count a recipe that was run again."""
        COUNTERS.tick += 1
        recipe.runs += 1
        FORESIGHT.note_run(recipe)

    # ---- in slices that fit ----

    def _bring(self, keys: Sequence[Key]) -> dict[Key, Storage]:
        """Make results present."""
        frames = self.pins.frames = [Frame(None, keys)]
        made: list[Storage] = []  # holds results until they are pinned
        while True:
            frame = frames[-1]
            missing = _look(frame)
            made = []
            if missing is not None:
                frames.append(Frame(missing[0]))
            elif frame.recipe is None:
                return frame.there
            else:
                made = self._step(frame, frame.recipe)
                if made:
                    frames.pop()

    def _step(self, frame: Frame, recipe: Recipe) -> list[Storage]:
        """Run the next step of a frame whose sources are pinned; the results after the last."""
        step = frame.steps[0]
        watch = COUNTERS.watch
        if watch is not None and not frame.began:
            frame.began = perf_counter()
        reads = [self._read(source, frame) for source in step.sources]
        if step.onto is not None and not frame.storages and self._may_take_over(step, reads, frame):
            make_plain(reads[-1]._memory)
            frame.storages = [reads[-1]._memory]
        made = _run_again(step, reads, frame)
        if made is None:
            frame.expect(sources_of(step, within=bool(frame.storages)))
            return []
        frame.storages = made
        _count_launch(step.plan)
        del frame.steps[0]
        if frame.steps:
            frame.expect(sources_of(frame.steps[0], within=True))
            return []
        return self._finish(frame, recipe)

    def _may_take_over(self, step: Recipe, reads: Sequence[Read], frame: Frame) -> bool:
        """Whether a write may go to the old version itself, which only this frame has."""
        old, (origin, index, _) = reads[-1]._memory, step.sources[-1]
        if origin.__class__ is not Recipe or step.proof is not None or step.present(0) is not None:
            return False
        key = (origin, index)
        if old.room != step.rooms[0] or self.pins.uses.get(key, 0) > 1 or old.copy is not None:
            return False
        free, held = [sys.getrefcount(thing) for thing in (object(), old)]
        own = 1 + [read._memory for read in reads].count(old) + (self.made.get(key) is old)
        return held - free == own + 1  # by the frame, `reads` and `made`, and by `old`

    def _read(self, source: Source, frame: Frame) -> Read:
        origin, index, offset = source
        if origin.__class__ is not Recipe:
            if origin.version != index:
                _refuse(frame.steps[0])
            if origin.present_address is None:
                check_recipe(origin)
            return Read(origin, offset)
        storage = frame.there.get((origin, index))
        if storage is None:  # the old version, in the block of this row of writes
            (storage,) = frame.storages
        return Read(storage, offset)

    def _finish(self, frame: Frame, recipe: Recipe) -> list[Storage]:
        """Give the results to their storages, and free what no later step reads."""
        self._count(recipe)
        made = [in_holder(recipe, i, storage) for i, storage in enumerate(frame.storages)]
        if COUNTERS.watch is not None:
            COUNTERS.watch.rebuilt(recipe, frame.storages, made, perf_counter() - frame.began)
        for i, storage in enumerate(made):
            if (recipe, i) in self.pins.uses:
                self.made[recipe, i] = storage
        for key in self.pins.ran(recipe):
            self.made.pop(key, None)
        self.pins.runs[recipe] += 1
        if self.pins.runs[recipe] > MOST_RUNS:
            pool = recipe.plan.pool
            error = BudgetError(
                f"{recipe.plan.op.name} was rebuilt {MOST_RUNS} times for one value: the limit is "
                "too near to the least one",
                (pool.limit or 0) + sum(recipe.rooms),
            )
            raise refusal.explained_here(error, pool)
        return made


def _count_launch(plan: Plan) -> None:
    COUNTERS.nodes += 1
    COUNTERS.nbytes += sum([spec.nbytes for spec in plan.outs])


def _refuse(step: Recipe) -> None:
    writes = describe_writes(
        origin
        for origin, version, _ in step.sources
        if isinstance(origin, Storage) and origin.version != version
    )
    raise InplaceError(
        f"{step.plan.op.name}: a dropped result must be rebuilt, but one of its inputs was "
        f"overwritten in place {writes}; write to a clone instead, or leave the budget or "
        "checkpoint first"
    )


def _run_again(recipe: Recipe, reads: Sequence[Read], frame: Frame) -> list[Storage] | None:
    """The results, from pinned sources; in a row of writes, the block of those before.

    None where a source is gone.
    """
    plan, onto, before = recipe.plan, recipe.onto, frame.storages
    pool = plan.pool
    ins = [r._memory.present_address + r._offset for r in reads]  # type: ignore[operator]
    launch = plan.launch if recipe.proof is None else recipe.proof
    assert launch is not None
    launch = offload.Speed.timed(plan, launch)
    if before and onto is not None:
        (storage,) = before
        launch(storage.address + onto.offset, *ins[:-1], *plan.tail, *recipe.params)  # type: ignore[operator]
        return before
    # Present results are written again, with the same bits; room for the others must not drop them.
    there = [recipe.present(i) for i in range(len(recipe.outs))]
    replaces = onto is None and recipe.proof is None
    storages: list[Storage] = []
    with Pins(storage for storage in there if storage is not None):
        drops, running = COUNTERS.drops, Pins.running
        try:
            running.append((plan if replaces else None, reads, storages, frame))
            for old, room in zip(there, recipe.rooms, strict=True):
                rest = 0 if storages or onto is not None else plan.rest
                rest -= sum([s.room for s in there[1:] if rest and s is not None])
                storages.append(old or (first_result(plan, rest) if rest else Storage(pool, room)))
        finally:
            del running[-1]
        outs = [s.present_address for s in storages]
        if drops != COUNTERS.drops and not is_intact(plan, reads, ins, outs):
            return None
        if onto is not None:
            if onto.copy is not None:
                onto.copy(outs[0], ins[-1])  # type: ignore[arg-type]
            outs = [outs[0] + onto.offset]  # type: ignore[operator]
            ins = ins[:-1]
        launch(*outs, *ins, *plan.tail, *recipe.params)
    return storages


def _copy_back(storage: Storage) -> bool:
    """Fill a dropped storage from its copy; whether it has one. See Note [Offload]."""
    copy = storage.copy
    if copy is None:
        return False
    began = perf_counter()
    made = copy.back(storage)
    offload.Offloaded.back += storage.room
    storage.block, made.address = made.address, None
    COUNTERS.tick += 1
    if COUNTERS.watch is not None:
        event = Recipe(settled_plan(storage.pool, storage.room), (), (), Mark(None))
        COUNTERS.watch.rebuilt(event, (made,), (storage,), perf_counter() - began)
    return True


def scratch_left(pool: Pool, limit: int) -> int:
    """What a limit leaves beside the running call and gradients on their way."""
    with LOCK:
        pinned = Pins.pinned()
        kept = bytes_with_recipe(pool, lambda s: s.recipe.fleeting or s in pinned)
        return limit - static_bytes(pool) - kept


def _fits(plan: Plan) -> bool:
    """Whether all that a call takes has room, without dropping gradients."""
    pool, limit, room = plan.pool, plan.pool.limit, plan.room + plan.rest
    return limit is None or pool.live + room <= limit or room <= scratch_left(pool, limit)


def first_result(plan: Plan, rest: int) -> Storage:
    """With room for the `rest` of what a call takes, or it replaces an input: Note [Replay] 8."""
    pool, limit = plan.pool, plan.pool.limit
    tight = limit is not None and pool.live + plan.room + rest > limit
    if not tight:
        return make_storage(pool, plan.room)
    kept = make_storage(pool, rest)
    if any(value._memory.present_address is None for value in Pins.running[-1][1]):
        return kept  # it is an input's block already
    first = make_storage(pool, plan.room)
    del kept
    return first


# The code that launches kernels again or copies bytes back: others find it on the stack.
IN_REBUILD = {_run_again.__code__, _copy_back.__code__, Rebuild._run_straight.__code__}
