"""Rebuilding dropped storage from its recipe.

# Note [Replay]
1. `Rebuild` makes dropped bytes from the nearest ancestors that are present: depth first, with a
   stack of frames. Of a recipe's sources those that are missing come first, the one with the
   longest chain of recipes before the others: little is held while a chain is rebuilt.
2. Pinned is what the running kernel reads and writes. All else that has a recipe may be dropped for
   a replay's own allocations, in this order: what the replay does not need; what it needs again
   later (`uses`); the sources that waiting frames have so far, of each frame once; gradients. What
   was dropped is rebuilt when its turn comes, and what it reads counts as needed again (`expect`):
   each recipe runs once where memory allows, and at most `MOST_RUNS` times in one replay. After
   that, BudgetError.
3. Results that nobody holds are freed after their last use in the replay.
4. Writes in a row are applied to one block, from the last version that is present, or whole.
5. Every storage that can be dropped has a recipe, and every storage with a recipe has address None,
   its bytes present or not. So its address is read only here, under LOCK: `bring` inside a region,
   for a caller that pins it during a read or write; `addresses` outside, which makes it plain. A
   plain storage is never dropped.
6. Pins are those of all live `Pins` objects: one that Ctrl-C left behind ends with its frame.
7. A block becomes a storage's bytes only after the kernel that fills it was launched: after an
   error the storage is still dropped.
8. Where only gradients are left to drop, a call gives up an input that can be rebuilt, if its
   kernel may write a result over it: the result gets the input's block (`Pins.replaceable`). If
   another thread was quicker to take the block, the inputs are brought again.
"""

from __future__ import annotations

import contextlib
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from time import perf_counter
from typing import Any, ClassVar

from rushlight.core import locks
from rushlight.core.errors import BudgetError, InplaceError, RushlightError
from rushlight.core.interrupts import unheard
from rushlight.devices.shared.allocator import Storage
from rushlight.tape.memory import offload, refusal
from rushlight.tape.memory.recipe import (
    LONGEST,
    MOST_WRITES,
    UNTIMED,
    Key,
    Mark,
    Read,
    Recipe,
    Source,
    forget_reads,
    in_holder,
    is_intact,
    make_plain,
    may_replace,
    readers,
    serial_of,
    settle,
    settled_plan,
    source_of,
    sources_of,
    steps_of,
    turn_of,
)
from rushlight.tape.record import template
from rushlight.tape.record.op import Plan
from rushlight.tape.record.state import STATE
from rushlight.tape.record.value import Value
from rushlight.tape.record.written import describe_writes

LOCK = locks.reentrant_lock()

MOST_RUNS = 16

_defined: dict[str, Any] = {}
exec(template.making_storage(), {"new": object.__new__, "Storage": Storage}, _defined)
# A new storage of a pool: make_storage(pool, room, birth=0). See Note [Call template].
make_storage: Callable[..., Storage] = _defined["make_storage"]


class Counters:
    """Counts of rebuilt calls and bytes since the last reset, and the clock of use."""

    nodes = 0
    nbytes = 0
    tick = 0
    drops = 0  # values dropped so far
    # Is told of drops and rebuilds: see Note [Recording memory].
    watch: ClassVar[Any] = None


# A kernel that is about to run: its plan, or None where no result may replace an input; its inputs;
# its results so far; of a replay, the frame.
Running = tuple["Plan | None", Sequence[Any], list[Storage], "Frame | None"]


class Pins:
    """Storages that must not be dropped during one call; a context manager."""

    __slots__ = ("__weakref__", "expected", "frames", "groups", "me", "uses")

    every: ClassVar[list[weakref.ref[Pins]]] = []
    running: ClassVar[list[Running]] = []

    def __init__(self, storages: Iterable[Storage] = ()) -> None:
        self.groups: list[list[Storage]] = [list(storages)]
        self.frames: list[Frame] = []  # of a replay; the last one runs
        self.uses: dict[Key, int] = {}  # what the replay still needs, and how often
        self.expected: dict[Recipe, list[Key]] = {}  # the recipes to run, and what they read

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
        found = {value._memory for _, inputs, *_ in cls.running for value in inputs}
        for pins in cls._alive():
            for group in pins.groups:
                found.update(group)
            for frame in pins.frames:
                if frames or frame.is_firm or frame is pins.frames[-1]:
                    found.update(frame.there.values())
        return found

    @classmethod
    def replaceable(cls, room: int) -> list[Storage]:
        """An input of the running kernel whose block its next result may get, or none."""
        if not cls.running:
            return []
        plan, inputs, made, own = cls.running[-1]
        if plan is None or len(made) == len(plan.outs):  # it runs: this is its scratch
            return []
        others = {value._memory for _, more, *_ in cls.running[:-1] for value in more}
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


def run_in_region(
    plan: Plan, inputs: Sequence[Value], params: tuple[Any, ...], region: Any
) -> list[Storage]:
    """Fill new storages by `plan`, with the inputs pinned and a recipe left on the results."""
    with LOCK:
        try:
            storages: list[Storage] | None = None
            while storages is None:
                ins = present(inputs)
                if ins is None:
                    with Pins() as pins:
                        ins = bring(inputs, pins)
                storages, seconds = _run_pinned(plan, inputs, ins, params)
        except BudgetError as error:
            raise refusal.explained(error, plan, inputs) from None
        rebuilt = region.rebuilds(plan)
        sources = note_call(plan, inputs, region, seconds, rebuilt)
        if rebuilt:
            adopt_all(Recipe(plan, params, sources, region.mark), storages, region)
    return storages


def run_over(
    plan: Plan, inputs: Sequence[Value], params: tuple[Any, ...], region: Any, over: int
) -> list[Storage]:
    """`run_in_region` with result `over` in the memory of the first input.

    Nobody needs that input again, it has a recipe, and the kernel can write in place.
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
    sources = note_call(plan, inputs, region)
    assert not inputs[0]._offset and storages[over].room == plan.rooms[over]
    make_plain(storages[over])  # the old bytes end here, whatever happens
    plan.launch(*[s.address for s in storages], *ins, *plan.tail, *params)  # type: ignore[misc]
    if region.rebuilds(plan):
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


def _run_pinned(
    plan: Plan, inputs: Sequence[Value], ins: list[int], params: tuple[Any, ...]
) -> tuple[list[Storage] | None, float]:
    """The results, and the time of the launch: Note [Foresight] 3. None: an input is gone."""
    # No call between `append` and `try` or in `finally`: Ctrl-C leaves nothing pinned.
    running, pool = Pins.running, plan.pool
    storages: list[Storage] = []
    outs, before = [], Counters.drops
    try:
        running.append((plan, inputs, storages, None))
        for room in plan.rooms:
            storage = make_storage(pool, room)
            storages.append(storage)
            outs.append(storage.address)
        if before != Counters.drops and not is_intact(plan, inputs, ins, outs):
            return None, UNTIMED
        drops, began = Counters.drops, perf_counter()
        plan.launch(*outs, *ins, *plan.tail, *params)  # type: ignore[misc]
        seconds = perf_counter() - began
    finally:
        del running[-1]
    timed = drops == Counters.drops and pool.device.limits.host_memory
    return storages, seconds if timed else UNTIMED


def note_call(
    plan: Plan,
    inputs: Sequence[Value],
    region: Any,
    seconds: float = UNTIMED,
    rebuilt: bool = True,
) -> tuple[Source, ...]:
    """Count a call and the uses of its inputs; the sources of its recipe, where it is `rebuilt`."""
    tick = Counters.tick = Counters.tick + 1
    record, foresight = None, region.foresight
    if foresight is not None:
        foresight.call(plan, seconds)
        record = foresight.record
    if region.listens:
        for value in inputs:
            region.use(value._memory)
    sources = []
    for value in inputs:
        recipe = value._memory.recipe
        if recipe is not None:
            recipe.used = tick
            if record is not None and recipe.record is record:
                record.uses[recipe.call].append(foresight.now)
        if rebuilt:
            sources.append(source_of(value))
    return tuple(sources)


def adopt_all(recipe: Recipe, storages: Sequence[Storage | None], region: Any) -> None:
    """Give a recipe to the storages of its results; None where a result has none."""
    recipe.used = recipe.serial = Counters.tick
    if recipe.length >= LONGEST or recipe.writes > MOST_WRITES:
        for storage in storages:  # a chain of recipes must end: see Note [Recipes]
            if storage is not None:
                settle_here(storage)
        return
    foresight = region.foresight
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
        if foresight is not None and recipe.record is foresight.record:
            recipe.record.uses[recipe.call].append(foresight.now)  # else it seems useless
        if storage.present_address is None:
            refill([(storage.recipe, storage.recipe.index_of(storage))])
        if not settle_here(storage):
            make_plain(storage)


def settle_here(storage: Storage) -> bool:
    """Settle a storage, where a budget around copies values out; whether it is. LOCK is held."""
    if not offload.here().takes(storage.pool):
        return False
    if storage.recipe is None or not storage.recipe.is_settled:
        settle(storage, Counters.tick)
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


refusal.EXPLAINED.update((run_in_region.__code__, run_over.__code__, fetch.__code__))


def check_recipe(storage: Storage) -> None:
    """Refuse a storage without bytes that has no recipe."""
    if storage.recipe is None:
        raise RushlightError(
            "a tensor is read whose storage was resized to 0 bytes; give it memory with "
            ".untyped_storage().resize_(...) first"
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
        self.began = 0.0  # when its first step ran, for `Counters.watch`
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

    def look(self) -> Key | None:
        """Pin what is present, in order; the first result that is not."""
        while self.order:
            recipe, index = self.order[-1]
            found = recipe.holder(index)
            if found is None or (found.block is None and not _copy_back(found)):
                return recipe, index
            self.there[recipe, index] = found
            self.order.pop()
        return None


class Rebuild:
    """A replay: makes results of recipes present. See Note [Replay]. The caller holds LOCK."""

    def __init__(self, targets: Sequence[Key], pins: Pins) -> None:
        self.targets = targets
        self.pins = pins
        self.made: dict[Key, Storage] = {}  # held while the replay needs them
        self.runs: Counter[Recipe] = Counter()
        for recipe, index in targets:
            if not recipe.at_hand(index):
                pins.expect(recipe)

    def run(self, hold: bool) -> list[Storage]:
        """A storage for each target; with `hold` they stay pinned, else only the last is sure."""
        found: dict[Key, Storage] = {}
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

    def _bring(self, keys: Sequence[Key]) -> dict[Key, Storage]:
        """Make results present."""
        frames = self.pins.frames = [Frame(None, keys)]
        made: list[Storage] = []  # holds results until they are pinned
        while True:
            frame = frames[-1]
            missing = frame.look()
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
        watch = Counters.watch
        if watch is not None and not frame.began:
            frame.began = perf_counter()
        reads = [self._read(source, frame) for source in step.sources]
        made = _run_again(step, reads, frame)
        if made is None:
            frame.expect(sources_of(step, within=bool(frame.storages)))
            return []
        frame.storages = made
        Counters.nodes += 1
        Counters.nbytes += sum(spec.nbytes for spec in step.plan.outs)
        del frame.steps[0]
        if frame.steps:
            frame.expect(sources_of(frame.steps[0], within=True))
            return []
        return self._finish(frame, recipe)

    def _read(self, source: Source, frame: Frame) -> Read:
        origin, index, offset = source
        if origin.__class__ is not Recipe:
            if origin.version != index:
                _refuse(frame.steps[0])
            return Read(origin, offset)
        storage = frame.there.get((origin, index))
        if storage is None:  # the old version, in the block of this row of writes
            (storage,) = frame.storages
        return Read(storage, offset)

    def _finish(self, frame: Frame, recipe: Recipe) -> list[Storage]:
        """Give the results to their storages, and free what no later step reads."""
        Counters.tick += 1
        made = [in_holder(recipe, i, storage) for i, storage in enumerate(frame.storages)]
        if Counters.watch is not None:
            Counters.watch.rebuilt(recipe, frame.storages, made, perf_counter() - frame.began)
        for i, storage in enumerate(made):
            if (recipe, i) in self.pins.uses:
                self.made[recipe, i] = storage
        for key in self.pins.ran(recipe):
            self.made.pop(key, None)
        self.runs[recipe] += 1
        recipe.runs += 1
        if self.runs[recipe] > MOST_RUNS:
            raise BudgetError(
                f"{recipe.plan.op.name} was rebuilt {MOST_RUNS} times for one value: the limit is "
                "too near to the least one",
                (recipe.plan.pool.limit or 0) + sum(recipe.rooms),
            )
        return made


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
        drops, running = Counters.drops, Pins.running
        try:
            running.append((plan if replaces else None, reads, storages, frame))
            for old, room in zip(there, recipe.rooms, strict=True):
                storages.append(old or Storage(plan.pool, room))
        finally:
            del running[-1]
        outs = [s.present_address for s in storages]
        if drops != Counters.drops and not is_intact(plan, reads, ins, outs):
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
    Counters.tick += 1
    if Counters.watch is not None:
        event = Recipe(settled_plan(storage.pool, storage.room), (), (), Mark(None))
        Counters.watch.rebuilt(event, (made,), (storage,), perf_counter() - began)
    return True


def before_write(*storages: Storage) -> None:
    """Make every storage that depends on a plain storage plain, while its bytes are present.

    See Note [Recipes].
    """
    found = readers(storages)
    if found:
        with Pins(storages):
            for reader in found:
                cut(reader)
    forget_reads(storages)
