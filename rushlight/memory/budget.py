"""Budgets: a limit on the bytes of device memory, kept by dropping and rebuilding values."""

from __future__ import annotations

import os
import re
from pathlib import Path
from types import TracebackType
from typing import Any

from rushlight.core.config import program_budget
from rushlight.core.errors import OutOfMemoryError, RushlightError
from rushlight.core.interrupts import unheard
from rushlight.devices.shared.allocator import Pool
from rushlight.devices.shared.registry import opened
from rushlight.ops.create.creation import default_pool, resolve_pool
from rushlight.tape.memory import tracebacks
from rushlight.tape.memory.foresight import FORESIGHT
from rushlight.tape.memory.offload import Offload
from rushlight.tape.memory.policy import Policy
from rushlight.tape.memory.rebuild import scratch_left
from rushlight.tape.memory.refusal import refuse
from rushlight.tape.memory.region import Region, begin_growth
from rushlight.tape.memory.replay import LOCK
from rushlight.tape.record.state import PROGRAM, STATE, Changed, set_program_region

_UNITS = {"": 1, "b": 1}
_UNITS |= {f"{p}ib": 1 << (10 * i) for i, p in enumerate("kmgt", 1)}
_UNITS |= {f"{p}b": 1000**i for i, p in enumerate("kmgt", 1)}


def parse_bytes(size: float | str) -> int:
    """A number of bytes: 1048576, "64MiB", "6GiB", "1.5GB".

    Args:
        size (number or str): Bytes, or a number with a unit.
    """
    wanted = "a size is a number of bytes or like '64MiB' or '1.5GB'"
    if isinstance(size, bool):
        raise TypeError(f"{wanted}, got {size!r}")
    if not isinstance(size, str):
        try:
            return int(size)
        except (TypeError, ValueError, OverflowError) as error:  # a list, nan, infinity
            kind = TypeError if isinstance(error, TypeError) else ValueError
            raise kind(f"{wanted}, got {size!r}") from None
    match = re.fullmatch(r"\s*([0-9]+\.?[0-9]*|\.[0-9]+)\s*([a-zA-Z]*)\s*", size)
    if match is None or match[2].lower() not in _UNITS:
        raise ValueError(f"{wanted}, got {size!r}")
    return int(float(match[1]) * _UNITS[match[2].lower()])


class budget(Region):
    """`with budget("64MiB"):` keeps device memory under a limit.

    Inside, every call leaves a recipe. When a request would cross the limit, cached blocks are
    freed, then values that can be rebuilt are dropped, those with the least work per byte and
    staleness first; they are rebuilt when next needed, with the same bits. A request that does not
    fit raises BudgetError, whose `required_bytes` is a limit for the whole step. The limit applies
    to each device in use, or to `device` alone. It binds the code inside, and the threads of a
    backward pass inside: other threads are not refused, but the memory they take counts.

    `policy.score(storage)` replaces the order: the lowest score is dropped first. See `Candidate`.

    `offload` says whether dropped values are copied out, and copied back when next needed, instead
    of rebuilt. True: to host memory, from devices whose memory the host cannot read. "auto": those
    for which that takes less time than rebuilding. "disk": to a temporary file without a name, from
    every device; a `Path` is the file's folder. Values that cannot be rebuilt, such as gradients,
    optimiser state and data made inside, are then dropped too. False: never; None: what the budget
    around this one says, or never.
    """

    foresight = FORESIGHT

    def __init__(
        self,
        limit: int | str,
        device: Any = None,
        policy: Policy | None = None,
        offload: bool | str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__()
        self.offload = None if offload is None else Offload(offload)
        if policy is not None and not callable(getattr(policy, "score", None)):
            raise TypeError(f"budget: a policy has a method score(storage), got {policy!r}")
        self.policy = policy
        self.limit = parse_bytes(limit)
        if self.limit <= 0:
            raise ValueError(f"budget: the limit must be positive, got {limit!r}")
        self.device = device
        self.pool: Pool | None = None  # the device it applies to; None is all
        self.state = Changed(region=self)

    def __enter__(self) -> budget:
        if self.state.tokens:
            raise RuntimeError(
                "budget: this one is entered already; make another for a block inside it"
            )
        super().__init__()  # its source line is where it is entered, not where it was made
        self.find_pool()
        if self.offload is not None:
            with LOCK:
                self.offload.begin()
        if self.outer is None or self.outer.foresight is None:
            with LOCK:
                FORESIGHT.begin()
                begin_growth(opened())
        self.state.__enter__()
        try:
            trim_to_limits()
        except BaseException:
            self.state.__exit__(None, None, None)
            raise
        return self

    def find_pool(self) -> None:
        """Open the device that the budget applies to, or the default one."""
        own = default_pool() if self.device is None else resolve_pool(self.device)
        self.pool = None if self.device is None else own

    @unheard
    def __exit__(
        self, kind: type | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.state.__exit__(kind, error, trace)
        if kind is not None:
            with LOCK:  # other threads' calls may be noted
                FORESIGHT.forget()
        if self.offload is not None:
            with LOCK:
                self.offload.begin()
        if isinstance(error, OutOfMemoryError):
            tracebacks.clear(error)


def trim_to_limits() -> None:
    """Free cached blocks beyond the limits of the budgets around the calling thread.

    Where values hold more, those are dropped that can be rebuilt: a request may be given a block
    that was cached or dropped without another look at the limit.
    """
    for pool in opened():
        limit = pool.limit
        while limit is not None and pool.held > limit:
            dropped = pool.reclaim is not None and pool.live > limit and pool.reclaim(pool, 0, None)
            if not (pool.trim(pool.held - limit) or dropped):
                break


def set_budget(
    limit: int | str | None,
    device: Any = None,
    policy: Policy | None = None,
    offload: bool | str | os.PathLike[str] | None = None,
) -> None:
    """Keep the whole program, all of its threads, under a limit: `set_budget("2GiB")`.

    It replaces the limit that was set for the same `device` (None is every device) and None takes
    it away. Budgets in `with` blocks are inside it: the least limit holds. `RUSHLIGHT_BUDGET=2GiB`
    in the environment, or `RUSHLIGHT_BUDGET=cuda=6GiB,cpu=2GiB,offload=auto`, sets it from the
    start. Processes of a DataLoader have a budget each.

    Args:
        limit (int or str): Bytes, or a text such as "2GiB"; None for no limit.
        device (device): The device; None for every device but `null`, which takes no memory.
        policy (Policy): What is dropped first; None for the default policy.
        offload (bool, str or path): Where dropped values go; see `budget`.
    """
    state = STATE.get()
    if state.region is not PROGRAM.region:
        raise RuntimeError(
            "set_budget: inside a budget or a checkpoint; call it outside of the `with` block"
        )
    found = None if limit is None else budget(limit, device, policy, offload)
    if found is not None:
        found.find_pool()
    pool = None if device is None else resolve_pool(device)
    every = [kept for kept in _program_budgets() if kept.pool is not pool]
    set_program_region(None)
    for kept in [*every, *([] if found is None else [found])]:
        Region.__init__(kept)  # inside the one before
        set_program_region(kept)
    trim_to_limits()


def get_budget(device: Any = None) -> int | None:
    """The limit, in bytes, on a device where this is called; None where there is none.

    Args:
        device (device): A device or its name; None for the default device.
    """
    return Pool.bound(resolve_pool(device))


def _program_budgets() -> list[budget]:
    """The budgets of `set_budget`, outermost first."""
    found = []
    region = PROGRAM.region
    while region is not None:
        found.append(region)
        region = region.outer
    return found[::-1]


def set_budget_from_environment() -> None:
    """Apply RUSHLIGHT_BUDGET: limits and `offload=`, separated by commas."""
    text = program_budget()
    try:
        limits, offload = _read_budgets(text)
        for device, limit in limits.items():
            set_budget(limit, device or None, offload=offload)
    except (ValueError, RushlightError) as error:
        error.args = (f"RUSHLIGHT_BUDGET={text}: {error}",)
        raise error from None


def _read_budgets(text: str) -> tuple[dict[str, str], bool | str | os.PathLike[str] | None]:
    """The limits by device ("" is every device), and where dropped values go."""
    given: dict[str, str] = {}
    for word in text.split(","):
        name, _, value = map(str.strip, word.rpartition("="))
        if not value:
            raise ValueError(
                f"{word!r} is no limit; write 2GiB, or cuda=6GiB,cpu=2GiB,offload=auto"
            )
        if name in given:
            raise ValueError(f"{name or 'a limit of every device'} is given twice")
        given[name] = value
    where = given.pop("offload", None)
    if not given:
        raise ValueError("no limit is given; write 2GiB,offload=auto")
    if where is None or where.lower() in _OFFLOADS:
        return given, None if where is None else _OFFLOADS[where.lower()]
    if os.sep in where:
        return given, Path(where)
    raise ValueError(
        f"offload is true, false, auto, disk or a folder with a {os.sep!r}, got {where!r}"
    )


_OFFLOADS: dict[str, bool | str] = {
    "true": True,
    "false": False,
    "auto": "auto",
    "disk": "disk",
}


def _bound(pool: Pool) -> int | None:
    """The least limit of the budgets around the calling thread."""
    region = STATE.get().region
    if region is None:
        return None
    bounds: dict[Pool, int | None] = region.bounds
    if pool not in bounds:
        bounds[pool] = _least(region, pool)
    return bounds[pool]


def _least(region: Region | None, pool: Pool) -> int | None:
    least = None
    # The program's budget of every device is not for `null`, which takes no memory: models are
    # built there that are larger than any.
    free = _program_budgets() if pool.device.name == "null" else []
    while region is not None:
        if isinstance(region, budget) and (
            region.pool is pool or (region.pool is None and region not in free)
        ):
            least = region.limit if least is None else min(least, region.limit)
        region = region.outer
    return least


Pool.bound = staticmethod(_bound)
Pool.refuse = staticmethod(refuse)
Pool.scratch_left = staticmethod(scratch_left)
