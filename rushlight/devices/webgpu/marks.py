"""Times of launches by timestamp queries at the begin and the end of compute passes.

While launches are timed the stream has another class: dispatches of different launches lie in
different passes, each with two queries. A submit ends with a copy of its queries, which are read
when the times are asked for. See Note [Marks].
"""

from __future__ import annotations

import importlib
import threading
import time
from typing import Any

from rushlight.core.interrupts import Uninterrupted
from rushlight.devices.webgpu.stream import BATCH, Stream

WAITING = 1024  # submits whose queries wait to be read


class _Begun(threading.local):
    """The launches of this thread that have begun and not ended, by number."""

    def __init__(self) -> None:
        self.launches: tuple[int, ...] = ()


class WebGPUMarks:
    """See Note [Marks]; `device` is the driver of a stream."""

    means = "timestamp queries around the compute passes of a launch"

    def __init__(self, device: Any) -> None:
        self.device = device
        self.begun = _Begun()
        self.first = self.count = 0  # the numbers of launches that are not read yet
        self.known: dict[int, tuple[float, float]] = {}
        self.period = _period(device.gpu)
        usage = device.wgpu.BufferUsage
        self.queries = device.gpu.create_query_set(type="timestamp", count=2 * BATCH)
        self.resolved = device.gpu.create_buffer(
            size=16 * BATCH, usage=usage.QUERY_RESOLVE | usage.COPY_SRC
        )
        self.reading = usage.MAP_READ | usage.COPY_DST
        self.waiting: list[tuple[Any, list[tuple[int, ...]]]] = []  # copies, and whose passes
        with device.lock:
            device.stream.flush()
            self.ticks, self.clock = 0.0, 0.0
            self.ticks, self.clock = self._now()
            device.stream.__class__ = TimedStream
            device.stream.begin_timing(self)

    def _now(self) -> tuple[float, float]:
        """The same moment on the device's clock and on the host's."""
        gpu = self.device.gpu
        encoder = gpu.create_command_encoder()
        encoder.begin_compute_pass(timestamp_writes=self.writes(0)).end()
        copy = self.resolve(encoder, 1)
        gpu.queue.submit([encoder.finish()])
        submitted = time.perf_counter()
        return self._ticks(copy)[0], submitted

    def writes(self, number: int) -> dict[str, Any]:
        """The two queries of pass `number` of a submit."""
        return {
            "query_set": self.queries,
            "beginning_of_pass_write_index": 2 * number,
            "end_of_pass_write_index": 2 * number + 1,
        }

    def resolve(self, encoder: Any, passes: int) -> Any:
        """Encode a copy of the queries of so many passes into a buffer to read."""
        copy = self.device.gpu.create_buffer(size=16 * passes, usage=self.reading)
        encoder.resolve_query_set(self.queries, 0, 2 * passes, self.resolved, 0)
        encoder.copy_buffer_to_buffer(self.resolved, 0, copy, 0, 16 * passes)
        return copy

    def _ticks(self, copy: Any) -> list[float]:
        copy.map_sync("READ")
        found = copy.read_mapped(copy=True).cast("Q").tolist()
        copy.unmap()
        copy.destroy()
        return [float(ticks) for ticks in found]

    # ---- of a profile ----

    def begin(self) -> int:
        with self.device.lock:
            number, first = self.count, self.first
            self.count += 1
        self.begun.launches += (number,)
        return number - first

    def end(self) -> None:
        self.begun.launches = self.begun.launches[:-1]
        if len(self.waiting) > WAITING:
            self._take()

    def read(self) -> list[tuple[float, float] | None]:
        with self.device.lock:
            self.device.stream.flush()
            self._take()
            known, self.known = self.known, {}
            first = self.first
            end = self.first = self.count
        return [known.get(number) for number in range(first, end)]

    def _take(self) -> None:
        with self.device.lock:
            waiting, self.waiting = self.waiting, []
            for copy, passes in waiting:
                ticks = self._ticks(copy)
                for i, launches in enumerate(passes):
                    span = self._seconds(ticks[2 * i]), self._seconds(ticks[2 * i + 1])
                    for number in launches:
                        known = self.known.get(number, span)
                        self.known[number] = min(known[0], span[0]), max(known[1], span[1])

    def _seconds(self, ticks: float) -> float:
        return self.clock + (ticks - self.ticks) * self.period * 1e-9

    def close(self) -> None:
        with self.device.lock:
            self.device.stream.flush()
            self.device.stream.__class__ = Stream
            for copy, _ in self.waiting:
                copy.destroy()
            self.waiting = []
            self.queries.destroy()
            self.resolved.destroy()


class TimedStream(Stream):
    """A stream whose passes hold the dispatches of one launch."""

    def begin_timing(self, marks: WebGPUMarks) -> None:
        self.marks = marks
        self.owner: tuple[int, ...] = ()
        self.passes: list[tuple[int, ...]] = []

    def record(
        self, pipeline: Any, group: Any, block: bytes, groups: tuple[int, int], work: int
    ) -> None:
        if self._pass is not None and self.owner != self.marks.begun.launches:
            with Uninterrupted():
                self._pass.end()
                self._pass = self._pipeline = None
        super().record(pipeline, group, block, groups, work)

    def _begin(self) -> None:
        if self._encoder is None:
            self._encoder = self.gpu.create_command_encoder()
        self.owner = self.marks.begun.launches
        queries = self.marks.writes(len(self.passes))
        self._pass = self._encoder.begin_compute_pass(timestamp_writes=queries)
        self.passes.append(self.owner)

    def _end(self) -> None:
        if self._pass is not None:
            super()._end()
        if self.passes:
            copy = self.marks.resolve(self._encoder, len(self.passes))
            self.marks.waiting.append((copy, self.passes))
            self.passes = []


def _period(gpu: Any) -> float:
    """Nanoseconds per tick."""
    try:
        native = importlib.import_module("wgpu.backends.wgpu_native._ffi")
        return float(native.lib.wgpuQueueGetTimestampPeriod(gpu.queue._internal))
    except (ImportError, AttributeError):
        return 1.0
