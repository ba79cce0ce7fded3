"""A step on any number of ranks, without them: bytes per rank, bytes sent, and an estimated time.

# Note [Planned ranks]
1. The program of one rank runs on a stand-in of its device (Note [Standing in]), in a world of
   `world_size` ranks whose transport counts bytes and moves none. So the collectives are those of
   a real run, and their bytes are equal to what `traffic()` counts there.
2. Objects of other ranks are taken to be equal to this rank's. Elements read as zeros.
3. Asynchronous calls run at once: there is nothing to wait for.
4. The time of a call is `sent / bandwidth`, the latency once for each round of messages, and the
   gap once for each message. Whether it runs beside the computation is not known, so there are two
   bounds for a step.
"""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from rushlight.core.dtypes import uint8
from rushlight.distributed import counting, process_groups
from rushlight.distributed.collectives import all_gather_into_tensor, barrier
from rushlight.distributed.counting import Traffic, traffic
from rushlight.distributed.data_parallel import DistributedDataParallel
from rushlight.distributed.environment import Place
from rushlight.distributed.errors import DistributedError
from rushlight.distributed.fsdp import fully_shard
from rushlight.distributed.process_groups import ProcessGroup, World, resolved
from rushlight.distributed.transport import Polled, Span
from rushlight.distributed.waiting import Pace
from rushlight.distributed.work import Work, Worker
from rushlight.memory.standing import World as Reached, standing
from rushlight.nn.containers import ModuleList, Sequential
from rushlight.nn.module import Module
from rushlight.ops.create.creation import empty


@dataclass(frozen=True)
class Link:
    """What connects ranks: bytes a second each way, and seconds.

    `latency` is of a message; `gap` is the time a rank takes to send one more.
    """

    bandwidth: float
    latency: float
    gap: float = 1e-6

    def seconds(self, sent: Traffic) -> float:
        """The time of some calls. See Note [Planned ranks] 4."""
        return sent.sent / self.bandwidth + sent.rounds * self.latency + sent.messages * self.gap


@dataclass
class Plan:
    """What a step needs on each of `world_size` ranks."""

    world_size: int
    device: str
    parameters: int  # bytes of the tensors that the program keeps, before the first step
    kept: int  # those it keeps after a step: with gradients and the optimiser's state
    peak: int  # the most bytes of a rank at once, in a later step
    traffic: dict[str, Traffic]  # of a later step, by collective
    setup: dict[str, Traffic] = field(default_factory=dict)  # before the first step
    compute: float | None = None  # seconds of a step without the others
    link: Link | None = None

    @property
    def sent(self) -> int:
        """Bytes that a rank sends in a step."""
        return sum(one.sent for one in self.traffic.values())

    @property
    def communication(self) -> float:
        """Seconds of a step's collectives, one after another."""
        if self.link is None:
            raise ValueError("plan: give link=Link(bandwidth, latency) for a time")
        return sum(self.link.seconds(one) for one in self.traffic.values())

    @property
    def seconds(self) -> tuple[float, float]:
        """A step at best, all of it beside the computation, and at worst."""
        compute = self.compute or 0.0
        return max(compute, self.communication), compute + self.communication

    def __str__(self) -> str:
        rows = [
            f"{self.world_size} ranks on {self.device}: {_size(self.peak)} at the peak of a rank, "
            f"{_size(self.kept)} after a step, {_size(self.sent)} sent by each in a step"
        ]
        for name, one in sorted(self.traffic.items()):
            rows.append(
                f"{_size(one.sent):>12}  {name}: {one.calls} calls, {one.rounds} rounds, "
                f"{one.messages} messages"
            )
        if self.link is not None:
            best, worst = self.seconds
            rows.append(
                f"{self.communication * 1e3:.3g} ms of communication; a step takes "
                f"{best * 1e3:.3g} to {worst * 1e3:.3g} ms"
            )
        return "\n".join(rows)


def _size(nbytes: int) -> str:
    for unit, power in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if nbytes >= 1 << power:
            return f"{nbytes / (1 << power):.2f} {unit}"
    return f"{nbytes} bytes"


# ---- a world that counts ----


class _Nothing(Polled):
    """No bytes are under way."""

    source = 0

    def done(self) -> bool:
        return True


_NOTHING = _Nothing()


class Counting:
    """The transport of planned ranks: bytes are counted by the calls, and none move."""

    name = "plan"
    shares = False
    moves = False

    def __init__(self, on_host: bool) -> None:
        self.on_host = on_host

    def exchange(self, sent: Sequence[Span], received: Sequence[Span], mark: int) -> _Nothing:
        return _NOTHING

    def spread(self, sent: Span, received: Sequence[Span], mark: int) -> _Nothing:
        return _NOTHING

    def broadcast(self, span: Span, root: int, mark: int) -> _Nothing:
        return _NOTHING

    def send(self, span: Span, to: int, tag: int) -> _Nothing:
        return _NOTHING

    def receive(self, span: Span, source: int, tag: int) -> _Nothing:
        return _NOTHING

    def batch(self) -> contextlib.nullcontext[None]:
        return contextlib.nullcontext()

    def subset(self, ranks: Sequence[int], number: int) -> Counting:
        return self

    def close(self) -> None:
        """Nothing is held."""


class _AtOnce(Worker):
    """Runs asynchronous calls when they are made."""

    def submit(self, work: Work) -> Work:
        work._perform()
        return work


@contextlib.contextmanager
def planned_world(size: int, rank: int, on_host: bool) -> Iterator[ProcessGroup]:
    """A block in which this process is one of `size` planned ranks."""
    joined = process_groups._Joined
    before, counts = (joined.world, joined.default), dict(counting.Counted.by_name)
    pace = Pace.eager
    world = World(Place(rank, size), None, Counting(on_host), _AtOnce)
    group = ProcessGroup(world, "world0", range(size), world.transport, 1.0)
    world.groups["world0"] = group
    joined.world, joined.default = world, group
    counting.Counted.by_name.clear()
    try:
        yield group
    finally:
        joined.world, joined.default = before
        Pace.eager = pace
        counting.Counted.by_name.clear()
        counting.Counted.by_name.update(counts)


# ---- strategies ----


STRATEGIES = ("ddp", "shards", "fsdp")


class Strategy:
    """How a program is spread over ranks: `strategy(module)`, `strategy.optimizer(kind, ...)`.

    Args:
        name (str): "ddp", "shards", "fsdp".
        world_size (int): The number of ranks.
    """

    def __init__(self, name: str, world_size: int) -> None:
        if name not in STRATEGIES:
            raise ValueError(f"plan: strategy is one of {', '.join(STRATEGIES)}, got {name!r}")
        self.name, self.world_size = name, world_size

    def __call__(self, module: Module) -> Module:
        """The module, spread."""
        if self.name == "fsdp":
            for layer in _layers(module):
                fully_shard(layer)
            return fully_shard(module)
        if self.name == "shards":
            return DistributedDataParallel(module, shards=self.world_size)
        return DistributedDataParallel(module)

    def optimizer(self, kind: Any, parameters: Any, **options: Any) -> Any:
        """An optimiser of the spread module's parameters."""
        return kind(parameters, **options)


def _layers(module: Module) -> Iterator[Module]:
    """What the outermost lists of modules hold."""
    for child in module.children():
        if isinstance(child, (ModuleList, Sequential)):
            yield from child
        else:
            yield from _layers(child)


def plan(
    build: Callable[..., Callable[[], Any]],
    *args: Any,
    world_size: int,
    strategy: str | None = None,
    rank: int = 0,
    device: Any = "cpu",
    link: Link | None = None,
    compute: float | None = None,
) -> Plan:
    """What a step needs on `world_size` ranks, without them. See Note [Planned ranks].

    Args:
        build (function): Makes the model and its optimiser and gives the function of one step. It
            runs as rank `rank` of `world_size`: `DDP`, `fully_shard` and the collectives are the
            real ones. With a strategy it gets that first: `strategy(module)` spreads the module,
            `strategy.optimizer(torch.optim.AdamW, parameters, lr=...)` makes its optimiser.
        args: Its further arguments.
        world_size (int): The number of ranks.
        strategy (str): "ddp", "shards" or "fsdp"; without it `build` spreads its module.
        rank (int): The rank that is planned.
        device (device): The device whose kernels and memory count; it need not be there.
        link (Link): What connects the ranks, given or by `measured_link()`.
        compute (float): Seconds of a step on one rank without the others.
    """
    if not callable(build):
        raise TypeError(f"plan: a function that gives the step is expected, got {build!r}")
    if world_size < 1 or not 0 <= rank < world_size:
        raise ValueError(f"plan: rank {rank} of {world_size} ranks")
    words = args if strategy is None else (Strategy(strategy, world_size), *args)
    with standing(Reached(build, args), device) as places:
        name = places.main
        pool = places(name)
        before = pool.live
        with planned_world(world_size, rank, name != "cuda"):
            step = build(*words)
            if not callable(step):
                raise TypeError(f"plan: build gives the function of one step, got {step!r}")
            setup, parameters = traffic(reset=True), pool.live - before
            step()  # makes gradients and the optimiser's state
            traffic(reset=True)
            pool.peak = pool.live
            step()
            kept, peak = pool.live - before, pool.peak - before
            found = Plan(world_size, name, parameters, kept, peak, traffic(), setup)
            del step, words
        gc.collect()  # modules and their hooks refer to one another; nothing is left on a stand-in
    found.compute, found.link = compute, link
    return found


def measured_link(group: Any = None, nbytes: int = 16 << 20, repeats: int = 5) -> Link:
    """The link between the ranks of a group, by their least times; all of them make this call.

    Args:
        group (ProcessGroup): The ranks; the default group without it.
        nbytes (int): Bytes that each sends for the bandwidth.
        repeats (int): How often.
    """
    pg = resolved(group)
    if pg.size() == 1:
        raise DistributedError("measured_link: one rank has no link")
    others = pg.size() - 1
    mine = empty(nbytes // others, dtype=uint8)
    whole = empty(mine.numel() * pg.size(), dtype=uint8)
    latency = min(_timed(lambda: barrier(pg)) for _ in range(20 * repeats))
    times = [_timed(lambda: all_gather_into_tensor(whole, mine, pg)) for _ in range(repeats + 1)]
    return Link(mine.numel() * others / max(min(times) - latency, 1e-9), latency)


def _timed(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
