"""PyTorch's `torch.profiler`: labels are accepted; a trace is not recorded yet."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

from rushlight.compat.autograd.profiler import record_function as record_function
from rushlight.core.errors import RushlightError


class ProfilerActivity(enum.Enum):
    """What PyTorch's profiler records."""

    CPU = 0
    XPU = 1
    CUDA = 2
    MTIA = 3
    HPU = 4
    PrivateUse1 = 5


class ProfilerAction(enum.Enum):
    """What a schedule asks for at a step."""

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


def schedule(
    *,
    wait: int,
    warmup: int,
    active: int,
    repeat: int = 0,
    skip_first: int = 0,
    skip_first_wait: int = 0,
) -> Callable[[int], ProfilerAction]:
    """The action of each step: cycles of waiting, warming up and recording."""

    def action(step: int) -> ProfilerAction:
        step -= skip_first
        cycle = wait + warmup + active
        if step < 0 or (repeat and step // cycle >= repeat):
            return ProfilerAction.NONE
        at = step % cycle
        if skip_first_wait and step < cycle:
            at = min(at + wait, cycle - 1)
        if at < wait:
            return ProfilerAction.NONE
        if at < wait + warmup:
            return ProfilerAction.WARMUP
        return ProfilerAction.RECORD_AND_SAVE if at == cycle - 1 else ProfilerAction.RECORD

    return action


class profile:
    """A recording of every op's time in PyTorch, which is refused here."""

    def __init__(self, *args: Any, **named: Any) -> None:
        raise RushlightError(
            "profiler.profile is not supported; memory.record() records memory by op and line, "
            "and explain() shows the kernels of a tensor"
        )


_KinetoProfile = profile


def tensorboard_trace_handler(
    dir_name: str, worker_name: str | None = None, use_gzip: bool = False
) -> Callable[[Any], None]:
    """A function that writes a finished profile into a folder."""

    def write(finished: Any) -> None:
        finished.export_chrome_trace(f"{dir_name}/{worker_name or 'worker'}.pt.trace.json")

    return write


def kineto_available() -> bool:
    """False: there is no profiler of the GPU."""
    return False


def supported_activities() -> set[ProfilerActivity]:
    """None: an empty set."""
    return set()
