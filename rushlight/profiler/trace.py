"""The trace of a profile in Chrome's format, which Perfetto and chrome://tracing open.

Slices of one track are nested or apart. The host's threads are tracks of the process; every
asynchronous device is a process with one track, and an arrow leads from a launch to its kernel.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator
from typing import Any

from rushlight.profiler.events import OP, EventList, FunctionEvent
from rushlight.profiler.recorder import BUILD, COPY, LABEL, MODULE, WAIT, Recorder
from rushlight.version import __version__

_CATEGORIES = {
    OP: "cpu_op",
    LABEL: "user_annotation",
    MODULE: "module",
    COPY: "memcpy",
    BUILD: "build",
    WAIT: "synchronize",
}
_DEVICE_PROCESS = 1 << 20  # the first process number that stands for a device


def as_trace(
    recorder: Recorder, events: EventList, memory: bool, metadata: dict[str, Any]
) -> dict[str, Any]:
    """The trace as plain data."""
    own = os.getpid()
    threads = {ident: i + 1 for i, ident in enumerate(recorder.names)}
    devices = sorted({event.device for event in events if event.kernels})
    processes = {name: _DEVICE_PROCESS + i for i, name in enumerate(devices)}
    made: list[dict[str, Any]] = [_meta("process_name", own, 0, name="python"), _first(own)]
    for ident, number in threads.items():
        made.append(_meta("thread_name", own, number, name=recorder.names[ident]))
    for name, number in processes.items():
        made.append(_meta("process_name", number, 0, name=name))
        made.append(_meta("thread_name", number, 1, name="kernels"))
    ends: dict[int, float] = {}  # of the devices' tracks
    for event in events:
        track = own, threads.get(event.thread, 0)
        reach = event.time_range
        made.append(
            _slice(_CATEGORIES[event.kind], event, track, (reach.start, reach.elapsed_us()))
        )
        for kernel in event.kernels if not _has_inner(event) else ():
            other = processes[kernel.device], 1
            start = max(kernel.time_range.start, ends.get(other[0], 0.0))
            end = ends[other[0]] = max(start, kernel.time_range.end)
            made.append(_arrow("s", event.id, track, reach.start))
            made.append(_slice("kernel", event, other, (start, end - start)))
            made.append({**_arrow("f", event.id, other, start), "bp": "e"})
        if memory and event.live >= 0:
            made.append(_counter(event, own))
    return {
        "schemaVersion": 1,
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": int(recorder.epoch * 1e9),
        "rushlight": __version__,
        "deviceTimes": recorder.means,
        **metadata,
        "traceEvents": made,
    }


def _has_inner(event: FunctionEvent) -> bool:
    """Whether launches inside of it show its kernels."""
    return any(child.kernels for child in event.cpu_children)


def _meta(what: str, process: int, thread: int, **args: Any) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": process, "tid": thread, "ts": 0, "args": args}


def _first(process: int) -> dict[str, Any]:
    return _meta("process_sort_index", process, 0, sort_index=0)


def _slice(
    category: str, event: FunctionEvent, track: tuple[int, int], span: tuple[float, float]
) -> dict[str, Any]:
    """A slice on a track (process and thread), from a moment on for a length."""
    shown = {"ph": "X", "cat": category, "name": event.name, "pid": track[0], "tid": track[1]}
    return {**shown, "ts": span[0], "dur": span[1], "args": _details(event)}


def _arrow(end: str, number: int, track: tuple[int, int], at: float) -> dict[str, Any]:
    """One end of an arrow from a launch to its kernel."""
    shown = {"ph": end, "cat": "ac2g", "name": "ac2g", "id": number}
    return {**shown, "pid": track[0], "tid": track[1], "ts": at}


def _counter(event: FunctionEvent, process: int) -> dict[str, Any]:
    shown = {"ph": "C", "cat": "memory", "name": f"bytes in use on {event.device}", "pid": process}
    return {**shown, "tid": 0, "ts": event.time_range.start, "args": {"bytes": event.live}}


def _details(event: FunctionEvent) -> dict[str, Any]:
    found = {
        "line": event.line,
        "module": event.module,
        "phase": event.phase,
        "derivative of": event.derived,
        "operands": event.detail if event.kind == OP else "",
        "of": event.detail if event.kind != OP else "",
        "Input Dims": event.input_shapes,
        "Input type": event.dtypes,
        "stack": event.stack,
    }
    return {"External id": event.id, **{name: value for name, value in found.items() if value}}


def write_trace(path: str | os.PathLike[str], trace: dict[str, Any]) -> None:
    """Write a trace; a name that ends in .gz is compressed."""
    text = json.dumps(trace, separators=(",", ":")).encode()
    name = os.fspath(path)
    with gzip.open(name, "wb") if name.endswith(".gz") else open(name, "wb") as file:
        file.write(text)


def stacks_of(events: EventList, metric: str) -> Iterator[str]:
    """Lines `outermost;...;innermost microseconds`, as flame graphs are made of."""
    for event in events:
        weight = int(getattr(event, metric))
        if event.stack and weight > 0:
            frames = [frame.replace(";", ",").replace(" ", "_") for frame in reversed(event.stack)]
            yield f"{';'.join(frames)};{event.name} {weight}\n"
