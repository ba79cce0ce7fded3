"""Memory and time of a function before it runs: `estimate`, `fits`, `suggest`."""

from __future__ import annotations

import contextlib
import copy
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from rushlight.core.errors import BudgetError, OutOfMemoryError
from rushlight.devices.shared.allocator import Pool
from rushlight.devices.shared.registry import pool_of
from rushlight.memory.account import Account, accounts
from rushlight.memory.budget import budget as Budget, parse_bytes
from rushlight.memory.owners import (
    ACTIVATIONS,
    DATA,
    GRADIENTS,
    KINDS,
    PARAMETERS,
    STATE as OPTIMIZER_STATE,
    Owners,
)
from rushlight.memory.standing import Places, World, standing
from rushlight.memory.watching import Recorder
from rushlight.tape.memory.offload import Offloaded
from rushlight.tape.memory.replay import COUNTERS
from rushlight.tape.record.source_line import here
from rushlight.tape.record.state import STATE

SHARES = (1.0, 0.75, 0.5, 0.35, 0.25)
_MOST_EVENTS = 2_000_000
_WORK_OF_COPY = 0.5  # of a byte, one way, as `Offload.work` counts it
_MOST_ROWS = 6  # of modules and lines, in the text

Limit = int | str | Budget | None


@dataclass
class Estimate:
    """What a function will need. Bytes are of `device`, unless they are by device."""

    device: str
    peaks: dict[str, int]  # by device
    before: int  # bytes in use before the call
    after: int  # bytes at the end of the call
    second: int  # the peak of a second call
    calls: int  # launches of kernels
    owners: dict[str, int] = field(default_factory=dict)  # at the peak, by kind
    modules: dict[str, int] = field(default_factory=dict)  # at the peak
    lines: dict[str, int] = field(default_factory=dict)  # at the peak
    reads: dict[str, int] = field(default_factory=dict)  # source lines that read elements
    budget: int | None = None
    recomputed: int = 0  # calls run again inside the budget, in a second call
    offloaded: int = 0  # bytes copied out and back inside the budget, in a second call
    slowdown: float = 1.0  # the work of a second call inside the budget, relative to none

    @property
    def peak(self) -> int:
        """The most bytes in use at once."""
        return self.peaks[self.device]

    @property
    def parameters(self) -> int:
        """Bytes of parameters at the peak."""
        return self.owners[PARAMETERS]

    @property
    def gradients(self) -> int:
        """Bytes of leaves' gradients at the peak."""
        return self.owners[GRADIENTS]

    @property
    def optimizer_state(self) -> int:
        """Bytes of optimisers' state at the peak."""
        return self.owners[OPTIMIZER_STATE]

    @property
    def data(self) -> int:
        """Bytes of inputs and targets at the peak."""
        return self.owners[DATA]

    @property
    def activations(self) -> int:
        """Bytes of saved results of the forward pass at the peak."""
        return self.owners[ACTIVATIONS]

    def __str__(self) -> str:
        rows = [f"{self.device}: {_size(self.peak)} at the peak, {_size(self.before)} before"]
        rows += [
            f"{name}: {_size(size)}" for name, size in self.peaks.items() if name != self.device
        ]
        if self.second != self.peak:
            rows.append(f"{_size(self.second)} in a second call")
        if self.budget is not None:
            copies = f"{_size(self.offloaded)} copied out and back, " if self.offloaded else ""
            rows.append(
                f"inside {_size(self.budget)}: {self.recomputed} calls run again, {copies}"
                f"{self.slowdown:.2f} times the time"
            )
        for title, sizes in (
            ("owner", self.owners),
            ("module", self.modules),
            ("line", self.lines),
        ):
            largest = [(n, s) for n, s in Counter(sizes).most_common(_MOST_ROWS) if s]
            if largest:
                rows += ["", f"{'at the peak':>12}  {title}"]
                rows += [f"{_size(size):>12}  {name}" for name, size in largest]
        if self.reads:
            lines = ", ".join(self.reads)
            rows += ["", f"elements were read as zeros in {lines}"]
        return "\n".join(rows)


def _size(nbytes: int) -> str:
    for unit, power in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if nbytes >= 1 << power:
            return f"{nbytes / (1 << power):.1f} {unit}"
    return f"{nbytes} bytes"


def estimate(
    fn: Callable[..., Any], *args: Any, budget: Limit = None, device: Any = None, **kwargs: Any
) -> Estimate:
    """The memory that `fn(*args, **kwargs)` will need, before any is taken.

    The function runs twice on a stand-in of its device, which counts bytes and calls and computes
    nothing; afterwards tensors, gradients, optimisers, buffers, flags and random states are as
    before. Models, optimisers and data are found from the function's closure, the globals it names
    and its arguments, on any device; `device` estimates for another than theirs. Elements read as
    zeros: `loss.item()` is 0.0, a condition on elements takes that branch, and a result whose size
    depends on them is empty. `Estimate.reads` lists the lines that read any.

    Inside `budget`, or inside the budget around the call, `recomputed` and `slowdown` tell what the
    limit costs; BudgetError says that it does not suffice.

    Args:
        fn (function): The call that is measured, a whole training step.
        args: Its arguments.
        budget (int or str): A limit in bytes, or a text such as "2GiB".
        device (device): The device to estimate for; None for that of the tensors.
        kwargs: Its keyword arguments.
    """
    _check_function("estimate", "fn", fn)
    world = World(fn, args, kwargs)

    def call() -> None:
        fn(*args, **kwargs)

    return _estimated(world, call, budget, device)


def _check_function(caller: str, name: str, given: object) -> None:
    if not callable(given):
        raise TypeError(f"memory.{caller}: {name} is a function, got {given!r}")


def _estimated(world: World, call: Callable[[], None], budget: Limit, device: Any) -> Estimate:
    limit = _in_force(world, device) if budget is None else budget
    run = _Run(world, call, device, records=True, budget=limit)
    found = run.result()
    if limit is not None:
        free = _Run(world, call, device)
        found.slowdown = run.work_relative_to(free)
        found.budget = limit.limit if isinstance(limit, Budget) else parse_bytes(limit)
    return found


def _in_force(world: World, device: Any) -> Budget | None:
    """A budget like those around the caller: limit on the real device, policy, offload."""
    try:
        limit = pool_of(Places(world, device).main).limit
    except RuntimeError:
        limit = None
    if limit is None:
        return None
    found = Budget(limit)
    region = STATE.get().region
    while region is not None:
        found.policy = found.policy or region.policy
        found.offload = found.offload or copy.copy(region.offload)
        region = region.outer
    return found


class _Run:
    """Two calls of a function on stand-ins."""

    def __init__(
        self,
        world: World,
        call: Callable[[], None],
        device: Any,
        records: bool = False,
        budget: Limit = None,
    ) -> None:
        self.reads: Counter[str] = Counter()
        self.accounts: list[Account] = []
        with standing(world, device) as places:
            self.device = places.main
            main = places(self.device)
            self.before = main.live
            limit = _limited(budget)
            with limit, self._noting(places):
                with self._recording(records):
                    self._call(places, call)
                self.peaks = {n: pool.peak for n, pool in places.pools.items() if pool.peak}
                self.peaks.setdefault(self.device, 0)
                self.after, self.calls = main.live, self.counted
                self.base = main.live
                self._call(places, call)
                self.second = main.peak

    def _call(self, places: Places, call: Callable[[], None]) -> None:
        for pool in places.pools.values():
            pool.peak = pool.live
            pool.device.calls, pool.device.work = 0, 0.0  # type: ignore[attr-defined]
        again, copied = COUNTERS.nodes, Offloaded.out + Offloaded.back
        call()
        devices: list[Any] = [pool.device for pool in places.pools.values()]
        self.again = COUNTERS.nodes - again
        self.copied = Offloaded.out + Offloaded.back - copied
        self.counted = sum(device.calls for device in devices)
        self.work = sum(device.work for device in devices) + _WORK_OF_COPY * self.copied

    @contextlib.contextmanager
    def _recording(self, wanted: bool) -> Iterator[None]:
        if not wanted:
            yield
            return
        recorder = Recorder(_MOST_EVENTS)
        recorder.start()
        try:
            owners = Owners(recorder)
            owners.look()
            yield
            recorder.look_back()
            owners.look()
        finally:
            recorder.stop()
        self.accounts = accounts(recorder, owners)
        recorder.forget()

    @contextlib.contextmanager
    def _noting(self, places: Places) -> Iterator[None]:
        def note() -> None:
            line = here()
            self.reads[f"{line.file}:{line.line} in {line.function}"] += 1

        places.when_read(note)
        try:
            yield
        finally:
            places.when_read(None)

    def work_relative_to(self, other: _Run) -> float:
        return self.work / other.work if other.work else 1.0

    def result(self) -> Estimate:
        found = Estimate(
            *(self.device, self.peaks, self.before, self.after, self.second, self.calls),
            owners=dict.fromkeys(KINDS, 0),
            reads=dict(self.reads),
            recomputed=self.again,
            offloaded=self.copied,
        )
        for account in self.accounts:
            if account.device == self.device and not account.pool.device.limits.computes:
                _describe_peak(found, account)
        return found


def _limited(budget: Limit) -> contextlib.AbstractContextManager[Any]:
    if budget is None:
        return contextlib.nullcontext()
    return budget if isinstance(budget, Budget) else Budget(budget)


def _describe_peak(found: Estimate, account: Account) -> None:
    """Who owns the bytes at the peak."""
    moment = account.peak_moment
    found.owners = account.by_kind(moment)
    modules: Counter[str] = Counter()
    lines: Counter[str] = Counter()
    for span in account.at(moment):
        modules[span.module or span.name.rpartition(".")[0]] += span.nbytes
        lines[span.place] += span.nbytes
    found.modules = {name: size for name, size in modules.most_common() if name}
    found.lines = {name: size for name, size in lines.most_common() if name}


# ---- the largest batch ----


def fits(
    fn: Callable[..., Any],
    make_inputs: Callable[[int], Any],
    limit: int | str | None = None,
    device: Any = None,
    low: int = 1,
    high: int = 1 << 20,
) -> tuple[int, Estimate]:
    """The largest n for which `fn(*make_inputs(n))` fits, and its estimate.

    `make_inputs(n)` gives the arguments for a batch of n, a tuple or one tensor. They are made on
    the stand-in too. A batch fits where two calls need at most `limit` bytes; without one, where
    they succeed inside the budget around the caller, else in the memory that the device has free.
    n is searched from `low` to `high` by doubling and bisection.

    Args:
        fn (function): The call that is measured, a whole training step.
        make_inputs (function): Gives the arguments for a batch of n.
        limit (int or str): Bytes, or a text such as "2GiB".
        device (device): The device to estimate for; None for that of the tensors.
        low (int): The least n.
        high (int): The largest n.
    """
    _check_function("fits", "fn", fn)
    _check_function("fits", "make_inputs", make_inputs)
    if not 1 <= low <= high:
        raise ValueError(f"memory.fits: low must be from 1 to high, got {low} and {high}")
    search = _Search(fn, make_inputs, device, limit)
    if not search.tries(low):
        raise OutOfMemoryError(
            f"memory.fits: a batch of {low} needs {search.needed(low)} bytes on "
            f"{search.device}, and {search.most} are free"
        )
    best, bound = low, low
    while best < high:
        bound = min(2 * best, high)
        if not search.tries(bound):
            break
        best = bound
    while bound - best > 1:
        middle = (best + bound) // 2
        best, bound = (middle, bound) if search.tries(middle) else (best, middle)
    return best, search.estimate(best)


class _Search:
    """Batches of a function against a limit."""

    def __init__(
        self,
        fn: Callable[..., Any],
        make_inputs: Callable[[int], Any],
        device: Any,
        limit: int | str | None,
    ) -> None:
        self.fn, self.make_inputs, self.given = fn, make_inputs, device
        self.world = World(fn, make_inputs)
        self.device = Places(self.world, device).main
        self.budget = _in_force(self.world, device) if limit is None else None
        if limit is not None:
            self.most = parse_bytes(limit)
        elif self.budget is not None:
            self.most = self.budget.limit
        else:
            self.most = _free_bytes(self.device)

    def _call(self, n: int) -> Callable[[], None]:
        def call() -> None:
            inputs = self.make_inputs(n)
            self.fn(*(inputs if isinstance(inputs, (tuple, list)) else (inputs,)))

        return call

    def needed(self, n: int) -> int:
        """The most bytes of two calls, without a budget."""
        run = _Run(self.world, self._call(n), self.given)
        return max(run.peaks[self.device], run.second)

    def tries(self, n: int) -> bool:
        try:
            if self.budget is None:
                return self.needed(n) <= self.most
            _Run(self.world, self._call(n), self.given, budget=self.budget)
        except (BudgetError, OutOfMemoryError):
            return False
        return True

    def estimate(self, n: int) -> Estimate:
        return _estimated(self.world, self._call(n), self.budget, self.given)


def _free_bytes(name: str) -> int:
    """What a peak may be: the device's free memory, and what the pool holds."""
    pool: Pool = pool_of(name)
    free = getattr(pool.device, "free_bytes", None)
    if free is None:
        raise ValueError(f"memory.fits: {name} does not tell its free memory; give limit=...")
    return int(free()) + pool.held


# ---- budgets against time ----


@dataclass
class Choice:
    """A budget and what it costs."""

    share: float  # of the activations
    budget: int
    succeeds: bool
    peak: int = 0
    recomputed: int = 0  # calls run again
    slowdown: float = 0.0
    least: int = 0  # where it fails: the least budget that is known to suffice


def suggest(
    fn: Callable[..., Any],
    *args: Any,
    device: Any = None,
    shares: Sequence[float] = SHARES,
    **kwargs: Any,
) -> list[Choice]:
    """Print what budgets cost: peak, calls run again and time, for shares of the activations.

    The activations are the peak of a second call of `fn(*args, **kwargs)` less what is in use
    before it. Nothing is computed: see `estimate`.

    Args:
        fn (function): The call that is measured, a whole training step.
        args: Its arguments.
        device (device): The device to estimate for; None for that of the tensors.
        shares (floats): The budgets, as shares of the activations.
        kwargs: Its keyword arguments.
    """
    _check_function("suggest", "fn", fn)
    if not shares or min(shares) <= 0:
        raise ValueError(f"memory.suggest: shares are positive numbers, got {shares!r}")
    world = World(fn, args, kwargs)

    def call() -> None:
        fn(*args, **kwargs)

    free = _Run(world, call, device)
    rows = [f"{'budget':>12}  {'share':>5}  {'peak':>12}  {'run again':>9}  {'time':>5}"]
    rows.append(f"{'none':>12}  {'':>5}  {_size(free.second):>12}  {0:>9}  {1:>5.2f}")
    found = []
    for share in shares:
        limit = free.base + int(share * (free.second - free.base))
        choice = Choice(share, limit, True)
        found.append(choice)
        start = f"{_size(limit):>12}  {share:>5.0%}"
        try:
            run = _Run(world, call, device, budget=limit)
        except BudgetError as error:
            fit = [free.second, *[c.budget for c in found[:-1] if c.succeeds]]
            choice.succeeds = False
            choice.least = min([error.least, *[size for size in fit if size > limit]])
            rows.append(f"{start}  fails: {_size(choice.least)} suffice")
            continue
        choice.peak, choice.recomputed = run.second, run.again
        choice.slowdown = run.work_relative_to(free)
        rows.append(f"{start}  {_size(run.second):>12}  {run.again:>9}  {choice.slowdown:>5.2f}")
    print("\n".join(rows))
    return found
