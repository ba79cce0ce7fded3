"""The account of a recording: who owned which bytes, from when to when.

# Note [Account]
1. A moment is one change of the bytes in use on a device, or the begin of an optimiser's step;
   moment 0 is the start. A `Span` is a number of bytes with one owner, from the moment they are
   counted to the moment they are not.
2. Bytes come with a `Birth` or `Taken` of the same pool and size before them in the events. They go
   with the storage whose end follows in the events, or with the `Dropped` before them; else they
   are the newest scratch of that size.
3. A dropped and rebuilt storage has a span for each time. The bytes of a rebuild belong to the
   storage that waits for them.
4. What no span explains is `other`, so the owners add up to the bytes in use at every moment.
5. An op's seconds are the time to the next event; they are its own where the device is synchronous.
   On other devices, and on `null`, shares are of the work that the plans count.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from rushlight.core.shapes import Spec
from rushlight.devices.shared.allocator import Pool
from rushlight.memory.owners import (
    ACTIVATIONS,
    DATA,
    FLIGHT,
    GRADIENTS,
    KINDS,
    OTHER,
    STATE,
    TEMPORARIES,
    WORKSPACES,
    Owners,
)
from rushlight.memory.watching import (
    BACKWARD,
    FORWARD,
    STEP,
    Birth,
    CopiedOut,
    Dropped,
    Origin,
    Rebuilt,
    Recorder,
    Stepped,
    Taken,
)
from rushlight.tape.record.op import Plan
from rushlight.tape.record.source_line import SourceLine

BEFORE, MADE, REBUILT = "before the recording", "made", "rebuilt"
FREED, DROPPED = "freed", "dropped"


class Span:
    """Bytes with one owner. See Note [Account]."""

    __slots__ = ("began", "born", "died", "ended", "kind", "name", "nbytes", "origin")

    def __init__(self, origin: Origin | None, nbytes: int, born: int, began: str) -> None:
        self.origin = origin
        self.nbytes = nbytes
        self.born = born
        self.died: int | None = None  # None: alive at the end
        self.began = began
        self.ended = ""
        self.kind = OTHER
        self.name = ""

    def alive(self, moment: int) -> bool:
        return self.born <= moment and (self.died is None or moment < self.died)

    def end(self, moment: int, how: str) -> None:
        self.died, self.ended = moment, how

    @property
    def module(self) -> str:
        return "" if self.origin is None else self.origin.module

    @property
    def op(self) -> str:
        return "" if self.origin is None else self.origin.op

    @property
    def line(self) -> SourceLine | None:
        """The user's line; in a backward pass that of the call whose derivative ran."""
        origin = self.origin
        if origin is None:
            return None
        return origin.place if origin.derived is None else origin.derived[1]

    @property
    def place(self) -> str:
        """The file, from the working directory where it is inside, line and function."""
        line = self.line
        if line is None:
            return ""
        home = os.path.join(os.getcwd(), "")
        return f"{line.file.removeprefix(home)}:{line.line} in {line.function}"

    @property
    def work(self) -> str:
        """The op, and what it was run for."""
        origin = self.origin
        if origin is None or not origin.op:
            return ""
        if origin.derived is None:
            return origin.op
        return f"{origin.op}, backward of {origin.derived[0]}"


class Account:
    """The account of one device."""

    def __init__(self, pool: Pool, live: int, held: int) -> None:
        self.pool = pool
        self.device: str = pool.device.name
        limits = pool.device.limits
        self.timed = limits.computes and not limits.asynchronous
        self.clocks: list[float] = [0.0]  # of every moment, in seconds from the start
        self.live: list[int] = [live]
        self.held: list[int] = [held]
        self.phases: list[str] = [FORWARD]
        self.spans: list[Span] = []
        self.drops: list[Span] = []
        self.rebuilds: list[Rebuilt] = []
        self.copies: list[CopiedOut] = []
        self.limit: int | None = None  # the least budget's
        self.seconds: dict[Origin, float] = {}  # of the op of each block
        self.elapsed = 0.0
        self.complete = True

    @property
    def peak(self) -> int:
        return max(self.live)

    @property
    def peak_moment(self) -> int:
        return self.live.index(self.peak)

    def at(self, moment: int) -> list[Span]:
        """The spans that are alive, largest first."""
        return sorted((s for s in self.spans if s.alive(moment)), key=lambda s: -s.nbytes)

    def by_kind(self, moment: int) -> dict[str, int]:
        """Bytes of every kind of owner; they add up to the bytes in use."""
        sums = dict.fromkeys(KINDS, 0)
        for span in self.spans:
            if span.alive(moment):
                sums[span.kind] += span.nbytes
        sums[OTHER] += self.live[moment] - sum(sums.values())
        return sums

    def cost_of(self, origin: Origin) -> float:
        """What an op took: seconds, or work where seconds are not known."""
        return self.seconds.get(origin, 0.0) if self.timed else origin.cost

    @property
    def total_cost(self) -> float:
        """What the recording took, in the unit of `cost_of`."""
        if self.timed:
            return self.elapsed
        return sum(origin.cost for origin in self.seconds)


def accounts(recorder: Recorder, owners: Owners) -> list[Account]:
    """An account of every device that was used, the largest first."""
    reader = _Reader(recorder)
    reader.read(list(recorder.events))
    found = []
    for pool, account in reader.accounts.items():
        _classify(account, recorder, owners)
        _settle(account)
        account.complete = not recorder.full
        if len(account.live) > 1 or account.live[0]:
            found.append((account.peak, pool.device.name, account))
    return [account for _, _, account in sorted(found, key=lambda f: f[:2], reverse=True)]


class _Reader:
    """Reads events in their order."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.accounts = {
            pool: Account(pool, live, held) for pool, (live, held, _) in recorder.before.items()
        }
        self.present: dict[Birth, Span] = {}
        self.seen: set[Birth] = set()
        self.waiting: list[Birth | Taken] = []  # births whose bytes are not counted yet
        self.dropping: list[Birth | None] = []
        # Moments at which bytes went, by pool and size, until their owner is known.
        self.gone: dict[tuple[Pool, int], list[int]] = {}
        self.scratch: dict[tuple[Pool, int], list[Span]] = {}
        self.last: Origin | None = None
        self.untimed: list[tuple[Account, int]] = []  # moments since the last event with a time

    def read(self, events: Sequence[Any]) -> None:
        for birth in self.recorder.old:
            self._open(birth, 0, BEFORE)
        items = iter(events)
        for event in items:
            if isinstance(event, Pool):
                self._change(self.accounts[event], next(items))
            elif isinstance(event, Birth) and event in self.seen:
                self._close(event)
            elif isinstance(event, (Birth, Taken)):
                self._ask(event)
            elif isinstance(event, Dropped):
                self._time(event.clock)
                self.dropping.append(event.birth)
            elif isinstance(event, Rebuilt):
                self._move(event)
            elif isinstance(event, Stepped):
                self._step(event)
            elif isinstance(event, CopiedOut):
                self.accounts[event.pool].copies.append(event)
        end = self.recorder.ended or self.recorder.now()
        self._time(end)
        for (pool, room), moments in self.gone.items():
            self._end_scratch(pool, room, moments)
        for pool, account in self.accounts.items():
            self._fill_held(account, pool.held)
            account.elapsed = end - self.recorder.began

    def _ask(self, event: Birth | Taken) -> None:
        self._time(event.clock)
        if isinstance(event, Birth):
            self.seen.add(event)
        account = self.accounts[event.pool]
        self._fill_held(account, event.held)
        if event.limit is not None:
            account.limit = min(event.limit, account.limit or event.limit)
        self.last = event
        self.waiting.append(event)

    def _fill_held(self, account: Account, held: int) -> None:
        """The bytes held since the request before this one."""
        for moment in range(len(account.held) - 1, 0, -1):
            if account.held[moment] >= 0:
                break
            account.held[moment] = max(held, account.live[moment])

    def _time(self, clock: float) -> None:
        """Bytes go when an op has ended: at the time of the next event."""
        for account, moment in self.untimed:
            account.clocks[moment] = clock - self.recorder.began
        self.untimed.clear()
        if self.last is not None:
            seconds = self.accounts[self.last.pool].seconds
            seconds[self.last] = max(clock - self.last.clock, 0.0)
            self.last = None

    def _change(self, account: Account, live: int) -> None:
        delta = live - account.live[-1]
        moment = len(account.live)
        account.live.append(live)
        account.held.append(-1)
        account.clocks.append(account.clocks[-1])
        phase = account.phases[-1] if self.last is None else self.last.phase
        account.phases.append(phase)
        if delta > 0:
            if self.last is not None:
                account.clocks[moment] = self.last.clock - self.recorder.began
            self._arrive(account, delta, moment)
        else:
            self.untimed.append((account, moment))
            self._leave(account, -delta, moment)

    def _step(self, event: Stepped) -> None:
        """A moment of an optimiser's step, at which nothing changes."""
        self._time(event.clock)
        for account in self.accounts.values():
            if not account.live[-1] and len(account.live) == 1:
                continue  # a device that is not used
            account.live.append(account.live[-1])
            account.held.append(-1)
            account.clocks.append(event.clock - self.recorder.began)
            account.phases.append(STEP)

    def _arrive(self, account: Account, room: int, moment: int) -> None:
        for i in range(len(self.waiting) - 1, -1, -1):
            origin = self.waiting[i]
            if origin.pool is account.pool and origin.room in (room, 0):
                del self.waiting[i:]
                origin.room = room
                origin.spec = origin.spec if origin.plan is None else _spec_of(origin.plan, room)
                self._open(origin, moment, REBUILT if origin.again else MADE)
                return

    def _open(self, origin: Origin, moment: int, began: str) -> None:
        account = self.accounts[origin.pool]
        span = Span(origin, origin.room, moment, began)
        account.spans.append(span)
        if isinstance(origin, Birth):
            self.seen.add(origin)
            self.present[origin] = span
        else:
            self.scratch.setdefault((origin.pool, origin.room), []).append(span)

    def _leave(self, account: Account, room: int, moment: int) -> None:
        for i, birth in enumerate(self.dropping):
            span = None if birth is None else self.present.get(birth)
            if span is not None and birth is not None and span.nbytes == room:
                span.end(moment, DROPPED)
                account.drops.append(span)
                del self.dropping[i], self.present[birth]
                return
        self.gone.setdefault((account.pool, room), []).append(moment)

    def _close(self, birth: Birth) -> None:
        """A storage ended. If it had bytes, they went just before."""
        span = self.present.pop(birth, None)
        moments = self.gone.get((birth.pool, birth.room))
        if span is not None and moments:
            span.end(moments.pop(), FREED)

    def _move(self, event: Rebuilt) -> None:
        """Rebuilt bytes go to the storage that waits for them."""
        self._time(event.clock)
        for made, owner in zip(event.made, event.owners, strict=True):
            if made is None or owner is None or made is owner:
                continue
            span = self.present.pop(made, None)
            if span is not None:
                span.origin, span.began = owner, REBUILT
                self.present[owner] = span
        pools = {birth.pool for birth in event.owners if birth is not None}
        for pool in pools or set(list(self.accounts)[:1]):
            self.accounts[pool].rebuilds.append(event)

    def _end_scratch(self, pool: Pool, room: int, moments: list[int]) -> None:
        """What no storage explains is the end of scratch."""
        later = self.scratch.get((pool, room), [])[::-1]
        begun: list[Span] = []
        for moment in moments:
            while later and later[-1].born < moment:
                begun.append(later.pop())
            if begun:
                begun.pop().end(moment, FREED)


def _spec_of(plan: Plan, room: int) -> Spec | None:
    """The first result of a plan that has this size."""
    for spec, other in zip(plan.outs, plan.rooms, strict=True):
        if other == room:
            return spec
    return None


def _classify(account: Account, recorder: Recorder, owners: Owners) -> None:
    """The kind and the name of every span."""
    for span in account.spans:
        origin = span.origin
        if origin is None:
            continue
        mark = owners.marks.get(origin) if isinstance(origin, Birth) else None
        if mark is not None:
            span.kind, span.name = mark
        elif isinstance(origin, Taken):
            span.kind = WORKSPACES
        elif isinstance(origin, Birth) and origin in recorder.gradients:
            span.kind = GRADIENTS
            span.name = owners.gradient_name(recorder.gradients[origin])
        elif origin.phase == BACKWARD:
            span.kind = FLIGHT
        elif origin.phase == STEP:
            span.kind = STATE if span.died is None else TEMPORARIES
        elif not origin.reads and not origin.module:
            span.kind = DATA
        else:
            kept = origin in recorder.saved or _outlives_forward(account, span)
            span.kind = ACTIVATIONS if kept else TEMPORARIES


def _settle(account: Account) -> None:
    """Replace references to storages, which would note their ends, by plain requests."""
    told: dict[Origin, Origin] = {}

    def settled(origin: Origin | None) -> Origin | None:
        if isinstance(origin, Birth):
            if origin not in told:
                told[origin] = origin.told()
            return told[origin]
        return origin

    for span in account.spans:
        span.origin = settled(span.origin)
    account.seconds = {
        origin: seconds for o, seconds in account.seconds.items() if (origin := settled(o))
    }


def _outlives_forward(account: Account, span: Span) -> bool:
    """Whether a value of a forward pass was kept for more than that pass."""
    return span.died is None or span.ended == DROPPED or account.phases[span.died] != FORWARD
