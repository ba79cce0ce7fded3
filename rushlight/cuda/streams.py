"""PyTorch's streams, events and graphs: work on a device is done in the order of the calls."""

from __future__ import annotations

import time
from typing import Any

from rushlight.core.errors import RushlightError
from rushlight.devices.shared.registry import pool_of
from rushlight.ops.create.creation import device_name
from rushlight.tensor import device as Device


def _wait() -> None:
    pool_of(device_name("cuda")).device.synchronize()


class Stream:
    """The one queue of work; all objects of this class are that queue."""

    def __init__(self, device: Any = None, priority: int = 0, **named: Any) -> None:
        self.device = Device("cuda")
        self.priority = priority
        self.stream_id = self.cuda_stream = self.device_index = 0

    def synchronize(self) -> None:
        """Wait until all work is done."""
        _wait()

    def query(self) -> bool:
        """Whether all work is done, which is waited for."""
        _wait()
        return True

    def wait_stream(self, stream: Stream) -> None:
        """Has no effect: work is in order."""

    def wait_event(self, event: Event) -> None:
        """Has no effect: work is in order."""

    def record_event(self, event: Event | None = None) -> Event:
        """An event at this place of the queue."""
        made = Event() if event is None else event
        made.record(self)
        return made

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream)

    def __hash__(self) -> int:
        return 0

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        return None


class ExternalStream(Stream):
    """A queue of another library: the one queue here."""


class Event:
    """A moment at which the work so far is done. With `enable_timing`, `record` waits for it."""

    def __init__(
        self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False
    ) -> None:
        self.timed = enable_timing
        self.at: float | None = None

    def record(self, stream: Stream | None = None) -> None:
        """Set the moment."""
        if self.timed:
            _wait()
        self.at = time.perf_counter()

    def synchronize(self) -> None:
        """Wait until the work before the moment is done."""
        _wait()

    def wait(self, stream: Stream | None = None) -> None:
        """Has no effect: work is in order."""

    def query(self) -> bool:
        """Whether the work before the moment is done, which is waited for."""
        _wait()
        return True

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds between two recorded events."""
        if not (self.timed and end_event.timed) or self.at is None or end_event.at is None:
            raise ValueError(
                "Event.elapsed_time: both events need enable_timing=True and must be recorded"
            )
        return 1000 * (end_event.at - self.at)


class stream:
    """A block whose work goes to a queue: the one there is."""

    def __init__(self, stream: Stream | None) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None


StreamContext = stream


def current_stream(device: Any = None) -> Stream:
    """The one queue.

    Args:
        device (device): The card; None for the current one.
    """
    return Stream()


default_stream = current_stream


def set_stream(stream: Stream) -> None:
    """Has no effect: there is one queue.

    Args:
        stream (Stream): A queue.
    """


def is_current_stream_capturing() -> bool:
    """False: launches are not captured."""
    return False


class CUDAGraph:
    """Captured launches, which are refused."""

    def __init__(self, *args: Any, **named: Any) -> None:
        raise RushlightError("cuda graphs are not supported: calls are cached, run them eagerly")


graph = make_graphed_callables = CUDAGraph
