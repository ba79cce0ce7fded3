"""`torch.profiler.profile`: steps, schedules, and what a finished recording tells."""

from __future__ import annotations

import atexit
import json
import os
import sys
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any

from rushlight import accelerator
from rushlight.core.errors import RushlightError
from rushlight.profiler.actions import ProfilerAction, ProfilerActivity
from rushlight.profiler.events import OP, EventList, read_events
from rushlight.profiler.recorder import LABEL, Recorder
from rushlight.profiler.trace import as_trace, stacks_of, write_trace

_RECORDS = (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)


class Profile:
    """A recording of one block, and what it tells; without steps and schedules."""

    def __init__(
        self,
        *,
        activities: Iterable[ProfilerActivity] | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_flops: bool = False,
        with_modules: bool = False,
        **named: Any,
    ) -> None:
        self.activities = set(ProfilerActivity) if activities is None else set(activities)
        if not self.activities:
            raise ValueError("profile: no activity is named")
        self.record_shapes = record_shapes
        self.profile_memory = profile_memory
        self.with_stack = with_stack
        self.with_flops = with_flops
        self.with_modules = with_modules
        self.recorder: Recorder | None = None
        self.metadata: dict[str, Any] = {}
        self._events: EventList | None = None

    def start(self) -> None:
        """Begin to record."""
        devices = self.activities != {ProfilerActivity.CPU}
        self.recorder = Recorder(stacks=self.with_stack, devices=devices)
        self._events = None
        self.recorder.start()

    def stop(self) -> None:
        """End the recording."""
        if self.recorder is not None:
            self.recorder.stop()

    start_trace, stop_trace, prepare_trace = start, stop, lambda self: None

    def __enter__(self) -> Any:
        self.start()
        return self

    def __exit__(
        self, kind: type | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _read(self) -> tuple[Recorder, EventList]:
        recorder = self.recorder
        if recorder is None:
            raise RushlightError("profile: nothing was recorded; run the program in its `with`")
        if Recorder.running is recorder:
            raise RushlightError("profile: it is still recording; read it after its `with`")
        if self._events is None:
            shown = self.record_shapes, self.with_flops, self.profile_memory
            self._events = read_events(recorder, *shown)
        return recorder, self._events

    # ---- what it tells ----

    def events(self) -> EventList:
        """All events, in the order of their begins."""
        return self._read()[1]

    def key_averages(
        self,
        group_by_input_shape: bool = False,
        group_by_stack_n: int = 0,
        group_by_overload_name: bool = False,
        by: str = OP,
    ) -> EventList:
        """The events added up by name; `by` "module" or "line": launches by those.

        Args:
            group_by_input_shape (bool): Apart for each list of operands' shapes (record_shapes).
            group_by_stack_n (int): Apart for the innermost frames, so many (with_stack).
            group_by_overload_name (bool): Has no effect: ops have no overloads here.
            by (str): "op", "module" or "line".
        """
        grouped = group_by_input_shape, group_by_stack_n
        return self.events().key_averages(*grouped, by=by, with_modules=self.with_modules)

    def table(self, **named: Any) -> str:
        """`key_averages().table(...)`."""
        return self.key_averages().table(**named)

    def export_chrome_trace(self, path: str | os.PathLike[str]) -> None:
        """Write a trace that Perfetto (ui.perfetto.dev) and chrome://tracing open; .gz packs it."""
        recorder, events = self._read()
        write_trace(path, as_trace(recorder, events, self.profile_memory, self.metadata))

    def export_stacks(
        self, path: str | os.PathLike[str], metric: str = "self_cpu_time_total"
    ) -> None:
        """Write frames and microseconds for a flame graph; needs with_stack=True."""
        if not self.with_stack:
            raise RushlightError("export_stacks: the profile has no stacks; say with_stack=True")
        _, events = self._read()
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(stacks_of(events, metric.replace("cuda", "device")))

    def export_memory_timeline(self, path: str, device: str | None = None) -> None:
        """Refused: `memory.record()` has the timeline of memory."""
        raise RushlightError(
            "export_memory_timeline: use rushlight.memory.record() and its report('out.html')"
        )

    def add_metadata(self, key: str, value: str) -> None:
        """Add text to the trace."""
        self.metadata[key] = value

    def add_metadata_json(self, key: str, value: str) -> None:
        """Add text in JSON to the trace, as data."""
        self.metadata[key] = json.loads(value)

    preset_metadata_json = add_metadata_json

    def toggle_collection_dynamic(self, enable: bool, activities: Iterable[Any]) -> None:
        """Refused: a recording has all events between its begin and its end."""
        raise RushlightError("toggle_collection_dynamic: use a schedule, or several profiles")


class profile(Profile):
    """Record every launch with its op, module and source line, on every device.

    Args:
        activities (Iterable): ProfilerActivity.CPU alone leaves the devices' own times out.
        schedule (Callable): The action of each step: see `schedule`. None: everything is recorded.
        on_trace_ready (Callable): Called with the profile when a recording has ended.
        record_shapes (bool): Keep the operands' shapes.
        profile_memory (bool): Show allocated bytes, and the bytes in use in the trace.
        with_stack (bool): Keep the user's stack; the line of the call is always known.
        with_flops (bool): Show multiplications and additions of products and convolutions.
        with_modules (bool): Show the calls of modules in tables; traces always have them.
    """

    def __init__(
        self,
        *,
        activities: Iterable[ProfilerActivity] | None = None,
        schedule: Callable[[int], ProfilerAction] | None = None,
        on_trace_ready: Callable[..., Any] | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_flops: bool = False,
        with_modules: bool = False,
        experimental_config: Any = None,
        execution_trace_observer: Any = None,
        acc_events: bool = False,
        use_cuda: bool | None = None,
        custom_trace_id_callback: Any = None,
    ) -> None:
        if use_cuda is False:
            activities = [ProfilerActivity.CPU]
        super().__init__(
            activities=activities,
            record_shapes=record_shapes,
            profile_memory=profile_memory,
            with_stack=with_stack,
            with_flops=with_flops,
            with_modules=with_modules,
        )
        self.schedule = schedule
        self.on_trace_ready = on_trace_ready
        self.step_num = 0
        self.current_action = ProfilerAction.NONE
        self._step_began = 0.0

    def _wanted(self) -> ProfilerAction:
        return ProfilerAction.RECORD if self.schedule is None else self.schedule(self.step_num)

    def start(self) -> None:
        """Begin, with the action of step 0."""
        self._enter(self._wanted())

    def stop(self) -> None:
        """End: what is being recorded is finished."""
        self._finish(self.current_action in _RECORDS)
        self.current_action = ProfilerAction.NONE

    def step(self) -> None:
        """Tell that the next step begins."""
        self._note_step()
        self.step_num += 1
        before, wanted = self.current_action, self._wanted()
        if before is ProfilerAction.RECORD_AND_SAVE:
            self._finish(True)
            self._enter(wanted)
        elif before is ProfilerAction.WARMUP and wanted in _RECORDS:
            assert self.recorder is not None
            self.recorder.forget()
        elif (before is ProfilerAction.NONE) != (wanted is ProfilerAction.NONE):
            self._finish(before in _RECORDS)
            self._enter(wanted)
        self.current_action = wanted
        self._begin_step()

    def _enter(self, wanted: ProfilerAction) -> None:
        if wanted is not ProfilerAction.NONE:
            super().start()
        self.current_action = wanted
        self._begin_step()

    def _begin_step(self) -> None:
        recorder = Recorder.running
        self._step_began = recorder.now() if recorder is not None else 0.0

    def _note_step(self) -> None:
        recorder = self.recorder
        if recorder is not None and Recorder.running is recorder:
            begin = max(self._step_began, recorder.began)
            recorder.note(f"ProfilerStep#{self.step_num}", LABEL, begin)

    def _finish(self, save: bool) -> None:
        recorder = self.recorder
        if recorder is None or Recorder.running is not recorder:
            return
        recorder.stop()
        if save and self.on_trace_ready is not None:
            self.on_trace_ready(self)

    def set_custom_trace_id_callback(self, callback: Any) -> None:
        """Has no effect: traces have no id."""

    def get_trace_id(self) -> str | None:
        """None: traces have no id."""
        return None


def kineto_available() -> bool:
    """True: kernels of every device are timed."""
    return True


def supported_activities() -> set[ProfilerActivity]:
    """CPU, and CUDA where there is an accelerator, of whichever kind."""
    found = {ProfilerActivity.CPU}
    return found | {ProfilerActivity.CUDA} if accelerator.is_available() else found


def profile_at_exit(path: str) -> None:
    """Profile the program from here on; write its trace, and a table, when it ends."""
    recording = Profile(record_shapes=True, profile_memory=True)
    recording.start()

    def finish() -> None:
        recording.stop()
        recording.export_chrome_trace(path)
        for by in (OP, "line"):
            found = recording.key_averages(by=by)
            by_device = any(row.self_device_time_total for row in found)
            order = "self_device_time_total" if by_device else "self_cpu_time_total"
            print(found.table(order, row_limit=12), file=sys.stderr)
        print(f"rushlight: the trace of the program is in {path}", file=sys.stderr)

    atexit.register(finish)
