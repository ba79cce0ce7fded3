"""Places for the blocks of a step that repeats, on devices whose driver allocates blocks.

# Note [Layout]
1. Inside a limit blocks are exchanged (Note [Budget] 5): some go back to the driver, and others are
   taken. A driver keeps what lies between blocks, so that it reserves up to twice the limit. But a
   step that repeats takes and gives back the same sizes in the same order. After two equal steps
   the places of all these blocks are planned at once, in one region; from then on the driver is
   asked for none.
2. A step's `events` are the sizes of what it takes, in order, and, negative, of what it gives back.
   The step is a circle: what is taken near its end is given back near the next one's beginning. So
   a block is an arc of that circle (`Stay`), and two may overlap in space where their arcs do not
   (`arrange`).
3. When a plan begins the cached blocks are given back, the driver gives its pages back to the
   system, and the same sizes are cached again, in the region. What holds values stays where it is.
4. A plan is followed as long as the events are those of its script. Which block of a size is given
   back depends on the order of the cached ones. There are no values in them, so they can be sorted
   when a step begins, as they were when the script was noted (`_sort`): then the same are given
   back. Where another one is, and the one whose time is over is cached too, they change places.
   Where that one holds a value it is a `stray` until it is cached. What can not have its place
   because of a stray is taken from the driver, and is a stray too; its place is `vacant`.
5. Where the events differ the plan is left. Blocks are then taken from gaps of the region, else
   from the driver, until a step has repeated again: more often (`patience`) where the plan had
   served few steps or found no room, since to begin one gives all cached blocks back and waits for
   the device. The last plans are kept. A region goes back to the driver with its last block.
6. Where the device joins cached blocks (Note [Budget] 5) a step has other events. So a step that
   asked for as many joined blocks as some before it is made without, for at most TRIAL steps
   (`learns`). Where no plan comes of them, or one that takes more than a limit by 1/SLACK, blocks
   are joined again, as they are when a plan is left: the region's blocks are then mapped pages
   like others.
7. Blocks of less than PAGED bytes are the driver's. Addresses have no influence on bits.
8. A block that Ctrl-C lost would keep its region for ever. So signals wait, but for the usual event
   of a plan, which is done without a call (Note [Counting and threads]); what was taken when one
   is heard is given back.
"""

from __future__ import annotations

import importlib
import random
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from rushlight.core import locks
from rushlight.core.errors import OutOfMemoryError
from rushlight.core.interrupts import Uninterrupted, unheard
from rushlight.devices.shared.allocator import PAGED, Pool

MOST_EVENTS = 1 << 13  # of a step that is planned
TRIES = 1 << 14  # to place a block
MOST_PLANS = 4
SERVED = 16  # steps that a plan has to serve
QUIET = 4  # equal steps before a device that joins is tried without
TRIAL = 6
SLACK = 11
_UNKNOWN = ~MOST_EVENTS
_POWERS = (0.0, 0.3, 0.5, 0.75, 1.0)  # of the length of a stay beside its size


class Memory(Protocol):
    """What a driver gives."""

    def take(self, nbytes: int) -> int: ...

    def give(self, address: int, nbytes: int) -> None: ...

    def shrink(self) -> None:
        """Give all that is in no block back to the system; it may wait for the device."""


class Stay(NamedTuple):
    """A block from the event that takes it to the one that gives it back, around the circle."""

    nbytes: int
    taken: int
    given: int


class Plan:
    """The offsets of the blocks that each event takes or gives back, over one lap or two."""

    __slots__ = ("begun", "events", "laps", "offsets", "script", "size")

    def __init__(self, events: list[int], takers: list[int]) -> None:
        stays, self.laps = pair(events, takers)
        found, self.size = arrange(stays)
        self.events, self.script = events, events * self.laps
        self.offsets = [0] * len(self.script)
        # Those there when a lap begins, by lap and size: their numbers among the cached ones, and
        # their offsets.
        self.begun: list[defaultdict[int, dict[int, int]]] = []
        for stay, offset in zip(stays, found, strict=True):
            self.offsets[stay.taken] = self.offsets[stay.given] = offset
        for lap in range(self.laps):
            first, begun = lap * len(events), defaultdict[int, dict[int, int]](dict)
            for stay, offset in zip(stays, found, strict=True):
                is_around = stay.given < stay.taken
                if is_around if not lap else stay.taken < first <= stay.given:
                    number = ~takers[stay.given - first]
                    begun[stay.nbytes][number if number < MOST_EVENTS else ~stay.given] = offset
            self.begun.append(begun)

    def order(self, lap: int, room: int, count: int, behind: int) -> list[int]:
        """The offsets of `count` cached blocks of one size when a lap begins.

        Those that are never given back lie at `behind`, one after the other.
        """
        begun, order = self.begun[lap][room], []
        for number in range(count):
            order.append(begun.get(number, behind))
            behind += 0 if number in begun else room
        return order

    def vacant(self, found: Sequence[tuple[int, list[int]]]) -> int:
        """The bytes of places that none of the cached blocks has when the plan begins."""
        count = {room: len(blocks) for room, blocks in found}
        return sum(
            room * len(begun.keys() - range(count.get(room, 0)))
            for room, begun in self.begun[0].items()
        )


class Region:
    """A block of the driver with blocks of ours: their sizes, by address."""

    __slots__ = ("size", "start", "used")

    def __init__(self, start: int, size: int) -> None:
        self.start, self.size = start, size
        self.used: dict[int, int] = {}

    def gaps(self) -> list[tuple[int, int]]:
        """What is in no block: addresses and bytes."""
        found, end = [], self.start
        for address in (*sorted(self.used), self.start + self.size):
            if address > end:
                found.append((end, address - end))
            end = address + self.used.get(address, 0)
        return found

    def gap(self, nbytes: int) -> int | None:
        """The smallest gap that suffices."""
        gaps = [(size, address) for address, size in self.gaps() if size >= nbytes]
        return min(gaps)[1] if gaps else None


class Layout:
    """The blocks of one device: see Note [Layout]."""

    def __init__(self, memory: Memory, joins: bool = False) -> None:
        self.memory = memory
        self.joins = joins  # whether the device joins blocks
        self.learns = not joins
        self.pool: Pool | None = None
        self.asked = self.asked_before = 0  # for joined blocks: all, and those of the step before
        self.trial = 0  # steps without joined blocks
        self.lock = locks.reentrant_lock()
        self.regions: list[Region] = []  # a plan that is followed has the last
        self.is_whole = False  # whether `events` began with a step
        self.events: list[int] = []
        self.before: list[int] = []  # those of the step before
        # Of each event that gives back: the one that took the block, or ~number, where it was that
        # number of the cached ones of its size when the step began, or _UNKNOWN.
        self.takers: list[int] = []
        self.taken: dict[int, int] = {}  # the same, of the blocks that there are, by address
        self.equal = 0  # steps in turn that were equal to the one before
        self.patience = 1  # such steps before a plan begins
        self.served = 0  # steps of the plan
        self.plans: list[Plan] = []
        self.plan: Plan | None = None
        self.now = -1  # the next event of the plan; negative: it is not followed
        self.script: list[int] = []  # of the plan, and 0, which is no event
        self.places: list[int] = []  # the addresses of the script's blocks
        # The places of cached blocks when a lap begins, by lap and size, in the pool's order.
        self.orders: list[dict[int, list[int]]] = []
        self.free: dict[int, list[int]] = {}  # the pool's cached blocks
        self.strays: dict[int, int] = {}  # sizes by address
        self.vacant: defaultdict[int, list[int]] = defaultdict(list)  # addresses by size

    # ---- blocks ----

    @unheard
    def take(self, nbytes: int) -> int:
        if nbytes < PAGED or (self.now < 0 and not self.learns):
            return self.memory.take(nbytes)
        address = None
        try:
            with self.lock:
                now = self.now
                if now >= 0 and not self.strays and self.script[now] == nbytes:
                    self.regions[-1].used[self.places[now]] = nbytes  # no call: see Note [Layout] 8
                    self.now = now + 1
                    address = self.places[now]
                else:
                    with Uninterrupted():
                        address = self._take(nbytes)
            return address
        except BaseException:  # Ctrl-C, when it was taken
            if address is not None:
                self.give(address, nbytes)
            raise

    def _take(self, nbytes: int) -> int:
        now = self.now
        if now >= 0:
            if self.script[now] == nbytes:
                address = self._take_planned(self.places[now], nbytes)
                self.now = now + 1
                return address
            self._leave()
        address = self._take_any(nbytes)
        if len(self.events) < MOST_EVENTS:
            self.taken[address] = len(self.events)
            self.takers.append(_UNKNOWN)
            self.events.append(nbytes)
        return address

    def _take_any(self, nbytes: int) -> int:
        for region in self.regions:
            address = region.gap(nbytes)
            if address is not None:
                region.used[address] = nbytes
                return address
        return self.memory.take(nbytes)

    @unheard
    def give(self, address: int, nbytes: int) -> None:
        if nbytes < PAGED or (self.now < 0 and not self.learns):
            self.memory.give(address, nbytes)
            return
        given, heard = False, None
        while not given:
            try:
                with self.lock:
                    now = self.now
                    if (
                        now >= 0
                        and not self.strays
                        and self.script[now] == -nbytes
                        and self.places[now] == address
                    ):
                        del self.regions[-1].used[address]
                        self.now = now + 1
                        given = True
                    else:
                        with Uninterrupted():
                            given = True  # whatever the driver says
                            self._give(address, nbytes)
            except BaseException as error:  # Ctrl-C; before it is given it is tried again
                heard = error
        if heard is not None:
            try:
                raise heard
            finally:
                del heard  # its traceback refers to this frame

    def _give(self, address: int, nbytes: int) -> None:
        now = self.now
        if now >= 0:
            if self.script[now] == -nbytes:
                self.now = now + 1
                self._give_planned(self.places[now], address, nbytes)
                return
            self._leave()
        if len(self.events) < MOST_EVENTS:
            self.takers.append(self.taken.pop(address, _UNKNOWN))
            self.events.append(-nbytes)
        self._release(address, nbytes)

    def _release(self, address: int, nbytes: int) -> None:
        for region in self.regions:
            if address in region.used:
                del region.used[address]
                if not region.used and (self.now < 0 or region is not self.regions[-1]):
                    self.regions.remove(region)
                    self.memory.give(region.start, region.size)
                return
        self.memory.give(address, nbytes)

    # ---- a plan that is followed ----

    def _take_planned(self, place: int, nbytes: int) -> int:
        if not self.strays or self._clear(place, nbytes):
            self.regions[-1].used[place] = nbytes
            return place
        stray = self.memory.take(nbytes)
        self.strays[stray] = nbytes
        self.vacant[nbytes].append(place)
        return stray

    def _give_planned(self, over: int, address: int, nbytes: int) -> None:
        """Free the block at `address`, where the time of the one at `over` is over."""
        vacant = self.vacant[nbytes]
        if over in vacant:
            vacant.remove(over)
        elif over == address or self._replace(over, address, nbytes):
            self._release(over, nbytes)
            return
        else:
            self.strays[over] = nbytes
        if self.strays.pop(address, None) is None and address in self.regions[-1].used:
            vacant.append(address)
        self._release(address, nbytes)

    def _replace(self, address: int, place: int, nbytes: int) -> bool:
        """Cache the block at `place` instead of the one at `address`, where that is cached."""
        blocks = self.free[nbytes]
        try:
            at = blocks.index(address)
            if blocks[at] == address:  # here, since another thread may have taken it
                blocks[at] = place
                return True
        except (IndexError, ValueError):
            pass
        return False

    def _clear(self, place: int, nbytes: int) -> bool:
        """Move what is cached there elsewhere; whether the place is free now."""
        return all(
            self._settle(stray, size) or self._expel(stray, size)
            for stray, size in list(self.strays.items())
            if stray < place + nbytes and place < stray + size
        )

    def _settle(self, stray: int, nbytes: int) -> bool:
        """Give a stray that is cached a vacant place; whether it has one now."""
        for place in self.vacant[nbytes]:
            if any(s < place + nbytes and place < s + size for s, size in self.strays.items()):
                continue
            if not self._replace(stray, place, nbytes):
                return False
            del self.strays[stray]
            self.vacant[nbytes].remove(place)
            self.regions[-1].used[place] = nbytes
            self._release(stray, nbytes)
            return True
        return False

    def _expel(self, stray: int, nbytes: int) -> bool:
        """Let a stray that is cached be a block of the driver; whether it is one now."""
        if stray not in self.free[nbytes]:
            return False
        place = self.memory.take(nbytes)
        if not self._replace(stray, place, nbytes):
            self.memory.give(place, nbytes)
            return False
        del self.strays[stray]
        if self.vacant[nbytes]:
            self.strays[place] = nbytes
        self._release(stray, nbytes)
        return True

    def _sort(self, orders: dict[int, list[int]]) -> None:
        """Cache blocks in the order that they had when the script was noted."""
        for room, order in orders.items():
            blocks = self.free[room]
            found = list(blocks)
            if found == order:
                continue
            others = [address for address in found if address not in order]
            after = []
            for place in order:
                if place in found:
                    after.append(place)
                elif others:
                    after.append(others.pop())
            after += others
            if blocks == found:  # here, since another thread may have taken some
                blocks[:] = after

    def _wait_longer(self) -> None:
        """Begin the next plan later, unless this one has served."""
        self.patience = 1 if self.served >= SERVED else min(2 * self.patience, 64)

    def _leave(self) -> None:
        """Stop following the plan."""
        self._wait_longer()
        self.now, self.is_whole = -1, False
        self.before, self.equal = [], 0
        self._begin_events()
        self.strays.clear()
        self.vacant.clear()
        if self.joins:
            self._join_again()
        for region in [region for region in self.regions if not region.used]:
            self.regions.remove(region)
            self.memory.give(region.start, region.size)

    # ---- a device that joins ----

    def _join_again(self) -> None:
        """Let the region's blocks be mapped pages like others, and cached ones be joined."""
        for region in self.regions:
            for address, nbytes in region.gaps():
                self.memory.give(address, nbytes)
        self.regions.clear()
        self.learns = False
        if self.pool is not None:
            self.pool.joins = True

    def _is_tried(self, pool: Pool) -> bool:
        """Whether the step that begins is made without joined blocks."""
        if self.learns:
            return True
        asked, self.asked = pool.regrouped - self.asked, pool.regrouped
        self.equal = self.equal + 1 if 0 < asked == self.asked_before else 0
        self.asked_before = asked
        has_served = self.plans and self.patience == 1
        if self.equal < (1 if has_served else QUIET * self.patience):
            return False
        self.learns, self.is_whole, self.trial, self.equal = True, False, 0, 0
        pool.joins = False
        return True

    # ---- steps ----

    @unheard
    def begin_step(self, pool: Pool) -> None:
        """A step begins inside a limit."""
        with self.lock:
            plan = self.plan
            self.pool = pool
            if self.now >= 0 and plan is not None:
                lap, rest = divmod(self.now, len(plan.events))
                if not rest:  # a step without events, such as one of an estimate, is none
                    self.now %= len(plan.script)
                    self.served += lap > 0
                    for stray, nbytes in list(self.strays.items()):
                        self._settle(stray, nbytes)
                    self._sort(self.orders[lap % plan.laps])
                    return
                self._leave()
            if self.joins and not self._is_tried(pool):
                return
            events, takers = self.events if self.is_whole else [], self.takers
            repeats = events == self.before and 0 < len(events) < MOST_EVENTS and is_closed(events)
            self.equal = self.equal + 1 if repeats else 0
            self.before, self.is_whole = events, True
            self._begin_events()
            is_due = self.equal >= (1 if self.joins else self.patience)
            if not is_due or not self._begin_plan(events, takers, pool):
                self._begin_events()
                self.trial += 1
                if self.joins and (is_due or self.trial > TRIAL):
                    self.served = 0
                    self._leave()
                    return
                for room in [room for room in list(pool.free) if room >= PAGED]:
                    for number, address in enumerate(pool.free[room]):
                        self.taken[address] = ~number

    def _begin_events(self) -> None:
        self.events, self.takers = [], []
        self.taken.clear()

    def _begin_plan(self, events: list[int], takers: list[int], pool: Pool) -> bool:
        """Plan a step, and give the cached blocks their places; False: there is no room."""
        plan = next((plan for plan in self.plans if plan.events == events), None)
        if plan is None:
            plan = Plan(events, takers)
        others = [other for other in self.plans if other is not plan]
        self.plans = [*others[1 - MOST_PLANS :], plan]
        with Uninterrupted():
            return self._follow(plan, pool)

    def _follow(self, plan: Plan, pool: Pool) -> bool:
        self.plan, self.served = plan, 0
        found = [(room, list(blocks)) for room, blocks in list(pool.free.items()) if blocks]
        pool.give_back([room for room, _ in found])
        self.memory.shrink()
        size, behind, limit = plan.size, {}, pool.limit or 0
        for room, blocks in found:
            if room >= PAGED:
                behind[room] = size
                begun = plan.begun[0][room]
                size += room * len(set(range(len(blocks))).difference(begun))
        if self.joins and size + pool.held - plan.vacant(found) > limit + limit // SLACK:
            return False
        try:
            region = self._region(size)
        except OutOfMemoryError:
            if not self.joins:  # else the caller does
                self._wait_longer()
            return False
        self.now, self.script, self.free = 0, [*plan.script, 0], pool.free
        self.places = [region.start + offset for offset in plan.offsets]
        self.orders = []
        for lap in range(plan.laps):
            orders = {}
            for room, blocks in found:
                if room >= PAGED:
                    order = plan.order(lap, room, len(blocks), behind[room])
                    orders[room] = [region.start + offset for offset in order]
            self.orders.append(orders)
        try:
            self._cache_again(found, pool)
        except OutOfMemoryError:
            self._leave()
            return False
        for room, begun in plan.begun[0].items():
            places = {region.start + offset for offset in begun.values()}
            self.vacant[room] += places.difference(self.orders[0].get(room, ()))
        return True

    def _region(self, size: int) -> Region:
        """A region of about so many bytes: one of which values hold some, or a new one."""
        for region in self.regions:
            if size <= region.size <= size + size // 16:
                self.regions.remove(region)
                self.strays.update(region.used)
                break
        else:
            region = Region(self.memory.take(size), size)
        self.regions.append(region)
        return region

    def _cache_again(self, found: list[tuple[int, list[int]]], pool: Pool) -> None:
        """Cache as many blocks of each size as there were, those of the plan in its region."""
        limit = pool.limit
        for room, blocks in found:
            places = self.orders[0].get(room)
            for number in range(len(blocks)):
                if limit is not None and pool.held + room > limit:
                    raise OutOfMemoryError("another thread was quicker")
                pool.held += room
                try:
                    if places is None:
                        address = self.memory.take(room)
                    else:
                        address = self._take_planned(places[number], room)
                except BaseException:
                    pool.held -= room
                    raise
                pool.free[room].append(address)


def is_closed(events: list[int]) -> bool:
    """Whether a step gives back as many blocks of each size as it takes."""
    return sorted([n for n in events if n > 0]) == sorted([-n for n in events if n < 0])


def pair(events: list[int], takers: list[int]) -> tuple[list[Stay], int]:
    """The blocks of a step that takes what it gives back, and after how many laps they are alike.

    What is given back in a later step than it was taken in may be there for more than a step: then
    two such blocks change places with every step.
    """
    stays = [Stay(events[at], at, given) for given, at in enumerate(takers) if at >= 0]
    rest = sorted({*range(len(events))}.difference(*[stay[1:] for stay in stays]))
    taken: defaultdict[int, list[int]] = defaultdict(list)
    for at in rest:
        if events[at] > 0:
            taken[events[at]].append(at)
    late = [Stay(-events[at], taken[-events[at]].pop(), at) for at in rest if events[at] < 0]
    if all(stay.given < stay.taken for stay in late):
        return [*stays, *late], 1
    lap = len(events)
    stays += [Stay(nbytes, at + lap, given + lap) for nbytes, at, given in stays]
    for nbytes, at, given in late:
        stays += [Stay(nbytes, at, given + lap), Stay(nbytes, at + lap, given)]
    return stays, 2


def arrange(stays: Sequence[Stay]) -> tuple[list[int], int]:
    """An offset for each block, and the end of all.

    One after the other is put at the lowest place that is free during its stay, large and long ones
    first. Of some such orders, and of others that chance makes of them, the best is taken.
    """
    total = 1 + max([max(stay.taken, stay.given) for stay in stays])
    spans = [(stay.given - stay.taken) % total for stay in stays]
    dice = random.Random(0)  # the same each time
    best: tuple[list[int], int] | None = None
    for number in range(min(256, 5 + TRIES // len(stays))):
        is_plain = number < len(_POWERS)
        power = _POWERS[number] if is_plain else dice.random()
        weights = [
            stay.nbytes * span**power * (1.0 if is_plain else 1 + 0.6 * dice.random())
            for stay, span in zip(stays, spans, strict=True)
        ]
        offsets = _place(stays, sorted(range(len(stays)), key=weights.__getitem__, reverse=True))
        end = max([offset + stay.nbytes for offset, stay in zip(offsets, stays, strict=True)])
        if best is None or end < best[1]:
            best = offsets, end
    assert best is not None
    return best


def _place(stays: Sequence[Stay], order: list[int]) -> list[int]:
    np: Any = importlib.import_module("numpy")  # here, since devices are opened without it
    first, last = np.array([stay[1:] for stay in stays], np.int64)[order].T
    sizes = np.array([stay.nbytes for stay in stays], np.int64)[order]
    around = last < first
    placed = np.zeros(len(order), np.int64)
    for i in range(1, len(order)):
        # Two arcs are apart where one ends before the other begins. One that goes around the
        # circle is apart from another where that lies between its end and its beginning.
        before, after = last[:i] < first[i], last[i] < first[:i]
        either = ~(before & after) if around[i] else ~(before | after)
        meets = np.where(around[:i], True if around[i] else ~(before & after), either)
        taken = placed[:i][meets]
        up = np.argsort(taken, kind="stable")
        ends = np.maximum.accumulate((taken + sizes[:i][meets])[up])
        gaps = np.append(taken[up], np.iinfo(np.int64).max) - np.concatenate(([0], ends))
        place = int(np.argmax(gaps >= sizes[i]))
        placed[i] = ends[place - 1] if place else 0
    offsets = [0] * len(order)
    for number, offset in zip(order, placed.tolist(), strict=True):
        offsets[number] = offset
    return offsets
