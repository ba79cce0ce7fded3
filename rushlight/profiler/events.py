"""Events of a profile: what PyTorch's `FunctionEvent` and `EventList` tell, from a recording."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from rushlight.profiler.recorder import BUILD, COPY, LABEL, MODULE, WAIT, Launch, Recorder, Span
from rushlight.profiler.table import as_table
from rushlight.tape.record.source_line import SourceLine

OP = "op"
KINDS = (OP, LABEL, MODULE, COPY, BUILD, WAIT)


class Interval:
    """Microseconds since the begin of the profile."""

    __slots__ = ("end", "start")

    def __init__(self, start: float, end: float) -> None:
        self.start = start
        self.end = end

    def elapsed_us(self) -> float:
        """The length."""
        return self.end - self.start


class Kernel:
    """The work of a launch on an asynchronous device."""

    __slots__ = ("device", "duration", "name", "time_range")

    def __init__(self, name: str, device: str, start: float, end: float) -> None:
        self.name = name
        self.device = device
        self.time_range = Interval(start, end)
        self.duration = end - start


class FunctionEvent:
    """A launch, a module's call, a labelled block, a copy, a build of a kernel, or a wait."""

    def __init__(self, name: str, kind: str, thread: int, start: float, end: float) -> None:
        self.id = 0
        self.name = self.key = name
        self.kind = kind
        self.thread = thread
        self.time_range = Interval(start, end)
        self.count = 1
        self.device = "cpu"
        self.phase = ""
        self.module = ""
        self.line = ""  # file:line of the call, in a backward pass of the forward call
        self.derived = ""  # in a backward pass: the op whose derivative this is
        self.detail = ""
        self.input_shapes: list[list[int]] = []
        self.dtypes: list[str] = []
        self.stack: list[str] = []
        self.kernels: list[Kernel] = []
        self.memory = 0
        self.live = -1  # bytes of the device in use; -1: unknown
        self.flops = 0
        self.cpu_parent: FunctionEvent | None = None
        self.cpu_children: list[FunctionEvent] = []
        self.walk = -1
        self.is_async = False

    # ---- times in microseconds ----

    @property
    def cpu_time_total(self) -> float:
        """The host's time in it."""
        return self.time_range.elapsed_us()

    cpu_time = cpu_time_total

    @property
    def self_cpu_time_total(self) -> float:
        """The host's time in it and in nothing below it."""
        return self.cpu_time_total - sum([child.cpu_time_total for child in self.cpu_children])

    @property
    def self_device_time_total(self) -> float:
        """The device's time in its own launch."""
        if not self.kernels:
            return 0.0
        inner = sum([child.device_time_total for child in self.cpu_children])
        return max(0.0, sum([kernel.duration for kernel in self.kernels]) - inner)

    @property
    def device_time_total(self) -> float:
        """The device's time in its launches and those below it."""
        return self.self_device_time_total + sum([c.device_time_total for c in self.cpu_children])

    device_time = device_time_total
    cuda_time_total = cuda_time = device_time_total
    self_cuda_time_total = self_device_time_total

    # ---- bytes ----

    @property
    def self_memory(self) -> int:
        return self.memory

    @property
    def total_memory(self) -> int:
        return self.memory + sum([child.total_memory for child in self.cpu_children])

    @property
    def is_user_annotation(self) -> bool:
        """Whether it is a block of `record_function`."""
        return self.kind == LABEL

    def __repr__(self) -> str:
        where = f", {self.line}" if self.line else ""
        return f"<{self.kind} {self.name}: {self.cpu_time_total:.3f} us{where}>"


class FunctionEventAvg:
    """Events with one key, added up."""

    def __init__(self, first: FunctionEvent, key: str) -> None:
        self.key = self.name = key
        self.kind = first.kind
        self.input_shapes = first.input_shapes
        self.stack = first.stack
        self.device = first.device
        self.module = first.module
        self.line = first.line
        self.count = 0
        self.cpu_time_total = self.self_cpu_time_total = 0.0
        self.device_time_total = self.self_device_time_total = 0.0
        self.cpu_memory_usage = self.self_cpu_memory_usage = 0
        self.device_memory_usage = self.self_device_memory_usage = 0
        self.flops = 0

    def add(self, event: FunctionEvent) -> None:
        """Add an event."""
        self.count += 1
        if not _is_inside(event, self.key):  # its time is in the outer event's
            self.cpu_time_total += event.cpu_time_total
            self.device_time_total += event.device_time_total
        self.self_cpu_time_total += event.self_cpu_time_total
        self.self_device_time_total += event.self_device_time_total
        self.flops += event.flops
        if event.device == "cpu":
            self.cpu_memory_usage += event.total_memory
            self.self_cpu_memory_usage += event.self_memory
        else:
            self.device_memory_usage += event.total_memory
            self.self_device_memory_usage += event.self_memory

    @property
    def cpu_time(self) -> float:
        """The mean host time."""
        return self.cpu_time_total / max(self.count, 1)

    @property
    def device_time(self) -> float:
        """The mean device time."""
        return self.device_time_total / max(self.count, 1)

    @property
    def cuda_time(self) -> float:
        return self.device_time

    @property
    def cuda_time_total(self) -> float:
        return self.device_time_total

    @property
    def self_cuda_time_total(self) -> float:
        return self.self_device_time_total

    @property
    def self_cuda_memory_usage(self) -> int:
        return self.self_device_memory_usage

    @property
    def cuda_memory_usage(self) -> int:
        return self.device_memory_usage

    def __repr__(self) -> str:
        return f"<{self.key}: {self.count} calls, {self.self_cpu_time_total:.3f} us of the host>"


def _is_inside(event: FunctionEvent, key: str) -> bool:
    """Whether an outer event of the same kind has the same name."""
    outer = event.cpu_parent
    while outer is not None:
        if outer.key == key and outer.kind == event.kind:
            return True
        outer = outer.cpu_parent
    return False


class EventList(list[Any]):
    """Events, or their sums."""

    def __init__(self, events: Iterable[Any] = (), means: dict[str, str] | None = None) -> None:
        super().__init__(events)
        self.means = means or {}  # by device: how its times are measured

    @property
    def self_cpu_time_total(self) -> float:
        """The host's time in all of them, in microseconds."""
        return sum([event.self_cpu_time_total for event in self])

    def key_averages(
        self,
        group_by_input_shapes: bool = False,
        group_by_stack_n: int = 0,
        group_by_overload_name: bool = False,
        by: str = OP,
        with_modules: bool = True,
    ) -> EventList:
        """The events added up: by name, also by shapes or frames; `by` "module" or "line".

        By module and line, launches are added up: module calls and blocks would count them twice.
        `with_modules` False leaves the calls of modules out.
        """
        if by not in (OP, MODULE, "line"):
            raise ValueError(f"key_averages: by is 'op', 'module' or 'line', got {by!r}")
        found: dict[Any, FunctionEventAvg] = {}
        for event in self:
            if (by != OP and event.kind != OP) or (event.kind == MODULE and not with_modules):
                continue
            shown = event.key if by == OP else (getattr(event, by) or "(none)")
            key: tuple[Any, ...] = (shown, event.kind, event.device if by == OP else "")
            if group_by_input_shapes:
                key += (str(event.input_shapes),)
            if group_by_stack_n > 0:
                key += tuple(event.stack[:group_by_stack_n])
            if key not in found:
                found[key] = FunctionEventAvg(event, shown)
            found[key].add(event)
        for average in found.values():
            average.stack = average.stack[: group_by_stack_n or None] if group_by_stack_n else []
            average.input_shapes = average.input_shapes if group_by_input_shapes else []
        return EventList(found.values(), self.means)

    def total_average(self) -> FunctionEventAvg:
        """All events as one."""
        total = FunctionEventAvg(FunctionEvent("Total", OP, 0, 0, 0), "Total")
        for average in self.key_averages() if self and hasattr(self[0], "time_range") else self:
            total.count += average.count
            total.self_cpu_time_total += average.self_cpu_time_total
            total.self_device_time_total += average.self_device_time_total
        total.cpu_time_total = total.self_cpu_time_total
        total.device_time_total = total.self_device_time_total
        return total

    def table(
        self,
        sort_by: str | None = None,
        row_limit: int = 100,
        max_src_column_width: int = 75,
        max_name_column_width: int = 55,
        max_shapes_column_width: int = 80,
        header: str | None = None,
        top_level_events_only: bool = False,
        time_unit: str | None = None,
    ) -> str:
        """The events as text; sort_by is a name such as "self_cpu_time_total" or "count"."""
        kept: list[Any] = list(self)
        if top_level_events_only:
            kept = [e for e in kept if getattr(e, "cpu_parent", None) is None]
        widths = max_name_column_width, max_shapes_column_width, max_src_column_width
        return as_table(kept, self.means, sort_by, row_limit, widths, header, time_unit)

    def __str__(self) -> str:
        return self.table()


# ---- from a recording ----


def read_events(
    recorder: Recorder, shapes: bool = False, flops: bool = False, memory: bool = False
) -> EventList:
    """The events of a recording that has ended, in the order of their begins."""
    found = [_of_launch(recorder, Launch(*each), shapes, flops) for each in recorder.launches]
    for event in found:
        event.memory, event.live = (event.memory, event.live) if memory else (0, -1)
    found += [_of_span(recorder, span) for span in recorder.spans]
    found += _passes(found)
    found.sort(key=lambda event: (event.time_range.start, -event.time_range.end))
    _nest(found)
    for number, event in enumerate(found):
        event.id = number
    return EventList(found, recorder.means)


def _micro(recorder: Recorder, clock: float) -> float:
    return max(0.0, (clock - recorder.began) * 1e6)


def shown_line(place: Any) -> str:
    """file:line of a code object and an instruction."""
    where = SourceLine(place[0], place[1], None)
    return f"{where.file}:{where.line}"


def _frame(place: Any) -> str:
    where = SourceLine(place[0], place[1], None)
    return f"{where.file}({where.line}): {where.function}"


def _of_launch(recorder: Recorder, launch: Launch, shapes: bool, flops: bool) -> FunctionEvent:
    plan = launch.plan
    begin, end = _micro(recorder, launch.begin), _micro(recorder, launch.end)
    event = FunctionEvent(plan.op.name, OP, launch.thread, begin, end)
    event.device = plan.pool.device.name
    event.phase, event.walk = launch.phase, launch.walk
    event.module, event.line = launch.module, shown_line(launch.place)
    if launch.derived is not None:
        event.derived, place, event.module = launch.derived
        event.line = shown_line(place)
    event.detail = ", ".join(map(repr, plan.ins))
    if shapes:
        event.input_shapes = [list(spec.shape) for spec in plan.ins]
        event.dtypes = [spec.dtype.name for spec in plan.ins]
    event.stack = [_frame(place) for place in launch.stack]
    event.memory, event.live = launch.rooms, launch.live
    event.flops = 2 * plan.products if flops else 0
    if launch.mark is not None:
        pool, number = launch.mark
        ran = recorder.ran.get(pool, ())
        span = ran[number] if number < len(ran) else None
        if span is not None:
            start, stop = (_micro(recorder, each) for each in span)
            event.kernels = [Kernel(event.name, event.device, start, stop)]
    return event


def _of_span(recorder: Recorder, span: Span) -> FunctionEvent:
    begin, end = _micro(recorder, span.begin), _micro(recorder, span.end)
    event = FunctionEvent(span.name, span.kind, span.thread, begin, end)
    event.detail, event.module = span.detail, span.module
    return event


def _passes(events: list[FunctionEvent]) -> Iterator[FunctionEvent]:
    """A block for each backward pass and thread, around its launches."""
    found: dict[tuple[int, int], FunctionEvent] = {}
    for event in events:
        if event.walk < 0:
            continue
        reach = event.time_range
        block = found.get((event.walk, event.thread))
        if block is None:
            block = FunctionEvent("backward", LABEL, event.thread, reach.start, reach.end)
            found[event.walk, event.thread] = block
        block.time_range.start = min(block.time_range.start, reach.start)
        block.time_range.end = max(block.time_range.end, reach.end)
    yield from found.values()


def _nest(events: list[FunctionEvent]) -> None:
    """Find each event's parent: the innermost on its thread that it begins in.

    What reaches beyond its parent, as a derived block may, is cut.
    """
    open_events: dict[int, list[FunctionEvent]] = {}
    for event in events:
        stack = open_events.setdefault(event.thread, [])
        while stack and stack[-1].time_range.end <= event.time_range.start:
            stack.pop()
        if stack:
            event.cpu_parent = stack[-1]
            stack[-1].cpu_children.append(event)
            event.time_range.end = min(event.time_range.end, stack[-1].time_range.end)
        stack.append(event)
