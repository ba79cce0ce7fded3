"""Groups of processes: joining, leaving, and running a call of one group.

# Note [Calls of a group]
1. All ranks of a group make the same calls in the same order; a call has a number, by which ranks
   that are behind are named.
2. A call runs in the caller's thread, or after the group's asynchronous ones before it in theirs.
   Calls of two groups do not wait for each other, since ranks may make them in another order;
   where one reads what the other makes it is told so (`all_reduce(after=...)`). On a card all
   groups share one thread: its stream would stop at the first that waits.
3. After a DistributedError the world is broken: later calls raise the same error at once. So it is
   after an interrupt in a call, and after any error where ranks have met in shared memory: others
   may have ended the call and gone on with the other half of their block. Any other error, as one
   of a budget, leaves the group as it is, since all ranks may have raised it; those that wait for a
   rank that did learn it when they ask for its call (`World.where`).
4. Messages of a call are marked by its name, number, dtype and number of elements (`Call.mark`), so
   that those of another call are not taken for them.
"""

from __future__ import annotations

import atexit
import collections
import contextlib
import itertools
import os
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from rushlight.core.dtypes import uint8
from rushlight.core.errors import ShapeError
from rushlight.distributed import arenas, environment, mpi, nccl
from rushlight.distributed.alone import Alone
from rushlight.distributed.arenas import Arena
from rushlight.distributed.counting import Traffic, of as traffic_of
from rushlight.distributed.environment import Place
from rushlight.distributed.errors import DistributedError
from rushlight.distributed.store import RAISED, Watch, Where, start_server
from rushlight.distributed.stores import Store, WorldStore
from rushlight.distributed.transport import Moving, Span, Transport, below
from rushlight.distributed.waiting import Call, Pace, differing, finish, marked
from rushlight.distributed.work import Work, Worker
from rushlight.ops.create.creation import empty
from rushlight.tape.record.state import no_grad

_SERIALS = itertools.count()  # worlds of this process, planned ones too
_RECENT = 64  # calls by which ranks that made others are told
DEFAULT_TIMEOUT = timedelta(minutes=30)
default_pg_timeout = DEFAULT_TIMEOUT


class ProcessGroup:
    """Some ranks of the world, in an order of their own.

    Args:
        world (World): All ranks.
        name (str): The same on all ranks.
        ranks (sequence): The members' ranks in the world.
        transport (Transport): Moves bytes between them.
        timeout (float): Seconds after which a call fails.
    """

    def __init__(
        self, world: World, name: str, ranks: Sequence[int], transport: Transport, timeout: float
    ) -> None:
        self.world = world
        self.group_name = name
        self.ranks = list(ranks)
        self.transport = transport
        self.timeout = timeout
        self.worker = world.work() if transport.on_host else world.worker
        self.made = 0
        self.arena: Arena | None = None
        self.rooms: Any = None  # a weak reference to memory of calls under way
        self.shares = transport.shares and len(ranks) > 1
        self._rank = self.ranks.index(world.place.rank)
        self._words: tuple[Span, list[Span]] | None = None

    def rank(self) -> int:
        """This process's rank in the group."""
        return self._rank

    def size(self) -> int:
        """How many ranks the group has."""
        return len(self.ranks)

    def name(self) -> str:
        """The name of the transport."""
        return self.transport.name

    def index(self, rank: int) -> int:
        """The rank in the group of a rank of the world."""
        if rank not in self.ranks:
            raise ValueError(f"rank {rank} is not in the group of ranks {self.ranks}")
        return self.ranks.index(rank)

    @property
    def may_share(self) -> bool:
        """Whether the ranks share memory, as far as is known."""
        return self.shares and arenas.HALF > 0

    def words(self) -> tuple[Span, list[Span]]:
        """A byte to send and one for each rank's, by which ranks meet."""
        if self._words is None:
            device = "cpu" if self.transport.on_host else "cuda"
            kept = empty(self.size() + 1, dtype=uint8, device=device)
            whole = Span(kept.data_ptr(), kept.numel(), kept)
            self._words = whole.part(0, 1), [whole.part(n + 1, 1) for n in range(self.size())]
        return self._words

    def inside(self, rank: int) -> int:
        """A rank of the group, as given by a caller."""
        if not 0 <= rank < len(self.ranks):
            raise ValueError(f"rank {rank} of a group of {len(self.ranks)} ranks")
        return rank

    def __repr__(self) -> str:
        return f"ProcessGroup({self.group_name!r}, ranks={self.ranks})"


class Line:
    """One call of one group, while it runs: it moves bytes, counts them and waits for them."""

    __slots__ = ("group", "transport", "call", "rank", "size", "traffic", "met")

    def __init__(self, group: ProcessGroup, call: Call, traffic: Traffic) -> None:
        self.group = group
        self.transport = group.transport
        self.call = call
        self.rank, self.size = group.rank(), group.size()
        self.traffic = traffic
        self.met = False  # in this call

    def exchange(self, sent: Sequence[Span], received: Sequence[Span]) -> None:
        """The n-th span goes to rank n, and rank n's comes into the n-th."""
        sizes = [span.nbytes for n, span in enumerate(sent) if span.nbytes and n != self.rank]
        self.traffic.count(sum(sizes), len(sizes))
        self._check_own(sent[self.rank], received[self.rank])
        self.finish(self.transport.exchange(sent, received, self.call.mark))

    def spread(self, sent: Span, received: Sequence[Span]) -> None:
        """One span goes to all, and rank n's comes into the n-th."""
        self.traffic.count(sent.nbytes * (self.size - 1), self.size - 1)
        self._check_own(sent, received[self.rank])
        self.finish(self.transport.spread(sent, received, self.call.mark))

    def _check_own(self, sent: Span, received: Span) -> None:
        """What this rank gives itself is copied without a message, whose size would be checked."""
        if received.nbytes and received.nbytes != sent.nbytes:
            raise ShapeError(
                f"{self.call}: this rank gives itself {sent.nbytes} bytes where {received.nbytes} "
                "are expected"
            )

    def broadcast(self, span: Span, root: int) -> None:
        """The root's bytes come to all."""
        targets = len(below(self.rank, root, self.size))
        self.traffic.count(span.nbytes * targets, targets)
        self.finish(self.transport.broadcast(span, root, self.call.mark))

    def meet(self) -> None:
        """Wait until all ranks are here."""
        self.met = True
        arena = self.group.arena
        if arena is None or not arenas.MEETS:
            sent, received = self.group.words()
            self.finish(self.transport.spread(sent, received, self.call.mark))
            return
        meeting = arena.meet(self.call.mark)
        self.finish(meeting)
        if meeting.others:
            raise self._differing(meeting.others[0])

    def _differing(self, inside: int) -> DistributedError:
        """A rank of the group came with another call."""
        group, call = self.group, self.call
        watch: Any = group.world.watch
        told = {group.world.place.rank: str(call)}
        made = watch.places(call.ranks, call.group, call.number)
        told.update((rank, where.text) for rank, where in made.items())
        if group.ranks[inside] not in told:  # it has raised, and ended
            _, why = watch.trouble or (-1, "")
            told[group.ranks[inside]] = f"another call. {why}"
        return differing(call, told)

    def arena(self, nbytes: int) -> Arena | None:
        """Memory that the group's ranks share, for so many bytes of each; all ask together."""
        group = self.group
        if not group.may_share:
            return None
        half = arenas.half_for(nbytes)
        if group.arena is None or group.arena.size < half:
            made = arenas.make(self.rank, self.size, half, self._first_spread)
            group.shares = made is not None or group.arena is not None
            group.arena = group.arena if made is None else made
        return group.arena

    def _first_spread(self, sent: Span, received: Sequence[Span]) -> None:
        self.finish(self.transport.spread(sent, received, self.call.mark))

    def finish(self, moving: Moving) -> None:
        """Wait until the bytes have come. See Note [Watch] 2."""
        finish(moving, self.call, self.group.world.watch, self.group.timeout)


class World:
    """All ranks, as this process knows them: connection, MPI, groups, the thread of calls."""

    def __init__(
        self,
        place: Place,
        watch: Watch | None,
        transport: Transport,
        work: type[Worker] = Worker,
    ) -> None:
        self.place = place
        self.watch = watch
        self.transport = transport
        self.work = work
        self.worker = work()  # of groups on cards
        self.groups: dict[str, ProcessGroup] = {}
        self.ended: dict[str, int] = {}  # the calls of groups that were left
        self.error: DistributedError | None = None
        self.running: dict[str, Call] = {}  # by group
        self.recent: collections.deque[Call] = collections.deque(maxlen=_RECENT)
        self.raised: collections.deque[tuple[Call, str]] = collections.deque(maxlen=_RECENT)
        self.compares = environment.debug_level() == "DETAIL"
        self.count = 0
        self.agreed: dict[tuple[int, ...], int] = {}  # groups whose members alone made them
        self.serial = next(_SERIALS)
        Pace.choose(environment.local_size(place.size))
        if watch is not None:
            watch.place = self.where

    def where(self, group: str, number: int) -> Where:
        """The call with this number, if it was made not long ago; else where this rank is."""
        for call, why in tuple(self.raised):
            if (call.group, call.number) == (group, number):
                return Where(f"{call} raised {why}", RAISED)
        for call in tuple(self.recent):
            if (call.group, call.number) == (group, number):
                return Where(str(call), call.mark)
        running = dict(self.running)
        found = running.get(group) or next(iter(running.values()), None)
        return Where() if found is None else Where(str(found))

    @property
    def store(self) -> Store:
        """The world's store of values."""
        if self.watch is None:
            raise DistributedError("distributed: a group of one process has no store")
        return WorldStore(self.watch)

    def run(
        self,
        group: ProcessGroup,
        name: str,
        body: Callable[[Line], Any],
        asynchronous: bool = False,
        result: Any = None,
        shape: str = "",
        kind: str = "",
    ) -> Work | None:
        """Run `body` as the group's next call. See Note [Calls of a group].

        `shape` describes it where calls are compared. `kind` is what must be equal on all ranks.
        """
        group.made += 1
        mark = marked(f"{name} {group.made} {kind}")
        call = Call(name, group.group_name, group.ranks, group.made, shape, mark)
        self.recent.append(call)

        def perform() -> Any:
            if self.error is not None:
                raise self.error.with_traceback(None)  # not those of all calls before this one
            self.running[call.group] = call
            traffic = traffic_of(name)
            traffic.calls += 1
            line = Line(group, call, traffic)
            try:
                with no_grad():
                    if self.compares and self.watch is not None:
                        self._compare(group, call)
                    return body(line)
            except DistributedError as error:
                self._break(error)
                raise
            except BaseException as error:
                if line.met or not isinstance(error, Exception):  # see rule 3
                    why = f"{call}: it was left in the middle: {error!r}"
                    self._break(DistributedError(why, self.place.rank, name))
                elif group.size() > 1:
                    self.raised.append((call, repr(error)))
                raise
            finally:
                self.running.pop(call.group, None)

        if asynchronous:
            return group.worker.submit(Work(perform, result))
        if group.worker.is_busy:
            group.worker.submit(Work(perform)).wait()
        else:
            perform()
        return None

    def _break(self, error: DistributedError) -> None:
        """Later calls raise the error, as those under way do, and other ranks are told."""
        if error is not self.error:
            self.error = error
            self.tell(error)
            if self.watch is not None and self.watch.trouble is None:
                self.watch.trouble = error.rank, str(error)

    def _compare(self, group: ProcessGroup, call: Call) -> None:
        """Refuse a call that differs between ranks: its name, shapes, dtypes or order."""
        key = f"call/{group.group_name}/{call.number}/"
        mine = f"{call.name}({call.shape})"
        watch: Any = self.watch
        store = WorldStore(watch, "", group.timeout)
        store.set(f"{key}{self.place.rank}", mine)
        try:
            keys = [f"{key}{rank}" for rank in group.ranks]
            told = watch.ask(group.timeout, do="get", keys=keys)
        except DistributedError as error:
            if error.rank >= 0:
                raise DistributedError(f"{call}: {error}", error.rank, call.name) from None
            missing = [rank for rank in group.ranks if not store.check([f"{key}{rank}"])]
            raise DistributedError(
                f"{call}: ranks {missing} did not make it within {group.timeout:g} s",
                missing[0] if missing else -1,
                call.name,
            ) from None
        made = dict(zip(group.ranks, told, strict=True))
        if len(set(made.values())) > 1:
            raise differing(call, made)
        # All ranks have read the call before this one.
        store.delete_key(f"call/{group.group_name}/{call.number - 1}/{self.place.rank}")

    def tell(self, error: BaseException) -> None:
        """Tell the others that this rank raised; who was to blame goes first."""
        if self.watch is None or self.watch.trouble is not None:
            return
        rank = error.rank if isinstance(error, DistributedError) and error.rank >= 0 else -1
        lines = "".join(traceback.format_exception_only(error)).strip()
        with contextlib.suppress(DistributedError):
            self.watch.fail(lines, self.place.rank if rank < 0 else rank)

    def leave(self) -> None:
        """At the end of the process. See Note [Waiting for MPI] 2."""
        for worker in (self.worker, *(group.worker for group in self.groups.values())):
            worker.end()
        if self.watch is None:
            return
        # Others may be in the last call of a group that this rank has left.
        done = self.ended | {group.group_name: group.made for group in self.groups.values()}
        others = [rank for rank in range(self.place.size) if rank != self.place.rank]
        patience = max((group.timeout for group in self.groups.values()), default=60.0)
        whole = self.error is None and self.watch.leave(done, others, patience)
        if isinstance(self.transport, mpi.MPITransport):
            self.transport.end(whole)
        self.watch.close()


class _Joined:
    """The world of this process, and its default group."""

    world: World | None = None
    default: ProcessGroup | None = None


def is_initialized() -> bool:
    """Whether this process has joined a group."""
    return _Joined.default is not None


def resolved(group: Any = None) -> ProcessGroup:
    """The group, or the default one."""
    found = _Joined.default if group is None else group
    if found is None:
        raise ValueError(
            "distributed: there is no group of processes; call init_process_group first"
        )
    if not isinstance(found, ProcessGroup):
        raise TypeError(f"distributed: a ProcessGroup is expected, got {found!r}")
    return found


def default_group() -> ProcessGroup | None:
    """The group of all ranks, where this process has joined."""
    return _Joined.default


def join(
    place: Place, backend: str, timeout: float, init_timeout: float | None = None
) -> ProcessGroup:
    """Join the world; a process that was in it before joins again."""
    if _Joined.default is not None:
        raise ValueError("init_process_group: the default group is there already")
    world = _Joined.world
    if world is None or (world.place.rank, world.place.size) != (place.rank, place.size):
        world = _Joined.world = _enter(place, init_timeout or timeout)
        atexit.register(_leave_at_exit, world, os.getpid())
        sys.excepthook = _Telling(world, sys.excepthook)
    world.error = None
    transport = world.transport
    if backend == "nccl":
        store = None if world.watch is None else WorldStore(world.watch, "", timeout)
        transport = nccl.start(world.place, store, world.count)
    made = ProcessGroup(world, f"world{world.count}", range(place.size), transport, timeout)
    world.count += 1
    world.groups[made.group_name] = made
    _Joined.default = made
    return made


def known_place(rank: int, size: int) -> Place | None:
    """The place of this process in a world that it has been in, if it had this rank and size."""
    world = _Joined.world
    found = None if world is None else world.place
    return found if found is not None and (found.rank, found.size) == (rank, size) else None


def _enter(place: Place, timeout: float) -> World:
    if place.size == 1:
        return World(place, None, Alone())
    if place.managed:
        transport = mpi.start(place, timeout)
        host, port = transport.agree(lambda: (mpi.host_name(), start_server(place.size, 0)))
        return World(place, Watch(host, port, place.rank, timeout), transport)
    mpi.library()  # a missing one is told before others are waited for
    if place.rank == 0 and not place.served:
        start_server(place.size, place.port)
    watch = Watch(place.host, place.port, place.rank, timeout)
    store = WorldStore(watch, "join/", timeout)
    store.set(str(place.rank), "here")
    try:
        store.wait([str(rank) for rank in range(place.size)])
    except DistributedError as error:
        if error.rank >= 0:
            why = f"init_process_group: {error}"
            raise DistributedError(why, error.rank, "init_process_group") from None
        missing = [rank for rank in range(place.size) if not store.check([str(rank)])]
        raise DistributedError(
            f"init_process_group: ranks {missing} of {place.size} did not come within "
            f"{timeout:g} s",
            missing[0] if missing else -1,
            "init_process_group",
        ) from None
    return World(place, watch, mpi.start(place, timeout, watch))


def part(ranks: Sequence[int], timeout: float | None, base: ProcessGroup) -> ProcessGroup | None:
    """A group of some ranks; all ranks make this call, and None is for those not in it."""
    world = base.world
    number = world.count
    world.count += 1
    made: list[ProcessGroup] = []

    def body(line: Line) -> None:
        if world.place.rank in ranks:
            inside = [base.index(rank) for rank in ranks]
            transport = base.transport.subset(inside, number)
            seconds = base.timeout if timeout is None else timeout
            made.append(ProcessGroup(world, f"group{number}", ranks, transport, seconds))
            world.groups[made[0].group_name] = made[0]

    world.run(base, "new_group", body, shape=str(list(ranks)))
    return made[0] if made else None


def part_of_members(
    ranks: Sequence[int], timeout: float | None, base: ProcessGroup
) -> ProcessGroup | None:
    """A group of some ranks, which alone make this call: they agree on its number by the store."""
    world = base.world
    if world.place.rank not in ranks:
        return None
    seconds = base.timeout if timeout is None else timeout
    number = _agreed(world, ranks, seconds)
    inside = [base.index(rank) for rank in ranks]
    transport = base.transport.subset(inside, number)
    made = ProcessGroup(world, f"group{number}", ranks, transport, seconds)
    world.groups[made.group_name] = made
    return made


def _agreed(world: World, ranks: Sequence[int], seconds: float) -> int:
    """A number below 0, which no group that all ranks make has."""
    if world.watch is None:
        return -1
    times = world.agreed[tuple(ranks)] = world.agreed.get(tuple(ranks), 0) + 1
    store, key = WorldStore(world.watch, "group/", seconds), f"{list(ranks)}/{times}"
    if world.place.rank == ranks[0]:
        store.set(key, str(-store.add("count", 1)))
    return int(store.get(key))


def dissolve(group: ProcessGroup | None) -> None:
    """Leave a group; without one, all of them."""
    default = _Joined.default
    if default is None:
        return
    gone = [group] if group is not None and group is not default else list(_groups(default))
    for one in gone:
        default.world.groups.pop(one.group_name, None)
        default.world.ended[one.group_name] = one.made
        if one.worker is not default.world.worker:
            one.worker.end()
        if one.transport is not default.world.transport and default.world.error is None:
            one.transport.close()
    if group is None or group is default:
        _Joined.default = None


def _groups(default: ProcessGroup) -> list[ProcessGroup]:
    return list(default.world.groups.values())


class _Telling:
    """An excepthook that tells the other ranks before it prints."""

    def __init__(self, world: World, before: Callable[..., Any]) -> None:
        self.world = world
        self.before = before

    def __call__(self, kind: Any, error: BaseException, trace: Any) -> None:
        if threading.current_thread() is threading.main_thread():
            self.world.error = self.world.error or DistributedError(str(error))
            self.world.tell(error)
        self.before(kind, error, trace)


def _leave_at_exit(world: World, pid: int) -> None:
    if os.getpid() == pid:  # not in a forked child
        world.leave()
