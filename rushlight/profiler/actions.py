"""What a profile records and when: activities, schedules, and where finished traces go."""

from __future__ import annotations

import enum
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


class ProfilerActivity(enum.Enum):
    """What is recorded: the host's calls, or an accelerator's kernels. CUDA stands for each."""

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
    """The action of each step: cycles of waiting, warming up and recording.

    Args:
        wait (int): Steps of a cycle without a recording.
        warmup (int): Steps that are recorded and dropped.
        active (int): Steps that are recorded.
        repeat (int): Cycles; 0 for ever.
        skip_first (int): Steps before the first cycle.
        skip_first_wait (int): Other than 0: the first cycle does not wait.
    """
    if min(wait, warmup, repeat, skip_first) < 0 or active < 1:
        raise ValueError(
            "schedule: wait, warmup, repeat and skip_first are not negative, active is at least 1; "
            f"got {wait}, {warmup}, {repeat}, {skip_first}, {active}"
        )
    cycle = wait + warmup + active

    def action(step: int) -> ProfilerAction:
        at = step - skip_first
        if at < 0:
            return ProfilerAction.NONE
        if skip_first_wait:
            at += wait
        if repeat and at // cycle >= repeat:
            return ProfilerAction.NONE
        place = at % cycle
        if place < wait:
            return ProfilerAction.NONE
        if place < wait + warmup:
            return ProfilerAction.WARMUP
        return ProfilerAction.RECORD_AND_SAVE if place == cycle - 1 else ProfilerAction.RECORD

    return action


def tensorboard_trace_handler(
    dir_name: str, worker_name: str | None = None, use_gzip: bool = False
) -> Callable[[Any], None]:
    """A function that writes a finished profile into a folder, one file for each.

    Args:
        dir_name (str): The folder; it is made.
        worker_name (str): The begin of the files' names; host and process by default.
        use_gzip (bool): Compress them.
    """

    def write(finished: Any) -> None:
        folder = Path(dir_name)
        folder.mkdir(parents=True, exist_ok=True)
        worker = worker_name or f"{socket.gethostname()}_{os.getpid()}"
        ending = ".pt.trace.json" + (".gz" if use_gzip else "")
        finished.export_chrome_trace(str(folder / f"{worker}.{time.time_ns()}{ending}"))

    return write
