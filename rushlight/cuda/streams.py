"""PyTorch's streams, events and graphs. See Note [Streams] in `devices/cuda/streams.py`.

Kernels run in the order of the calls, whatever stream is current. On `cuda` a stream of one's own
carries copies from and to pinned memory, which run beside the kernels. Another device that `cuda`
stands for has no such copies: there, streams and events are names for places in that one order.
"""

from __future__ import annotations

import time
from contextvars import ContextVar, Token
from typing import Any

from rushlight.core.errors import RushlightError
from rushlight.core.interrupts import unheard
from rushlight.devices.shared.allocator import Pool
from rushlight.devices.shared.registry import parted, pool_of
from rushlight.ops.create.creation import device_name
from rushlight.tensor import device as Device

_CURRENT: ContextVar[Stream | None] = ContextVar("rushlight_stream", default=None)


def _card(device: Any = None) -> Any:
    """A card; None is the current one."""
    return pool_of(device_name("cuda" if device is None else Device(device))).device


class Stream:
    """A queue of work on the card, beside the default one.

    `priority`: a lower number goes first, where the driver knows priorities.
    """

    def __init__(self, device: Any = None, priority: int = 0, **named: Any) -> None:
        card = _card(device)
        queues = card.limits.queues
        self._set(card, None if queues is None else queues.open(int(priority)), int(priority))

    def _set(self, card: Any, queue: Any, priority: int = 0) -> None:
        self.card = card
        self.queue = queue
        self.priority = priority
        self.blocks: list[stream] = []  # `with` blocks of the stream itself
        self.device_index = parted(card.name)[1]
        self.device = Device("cuda", self.device_index)
        self.device_type = 1
        self.stream_id = self.cuda_stream = 0 if queue is None else queue.handle

    @property
    def _is_beside(self) -> bool:
        return self.queue is not None and self.queue is not self.queue.main

    def _mark(self, timed: bool) -> Any:
        """A mark after the copies of this stream, and the kernels of its blocks."""
        if self._is_beside and _CURRENT.get() is self:
            self.queue.wait(self.queue.main.mark())
        return self.queue.mark(timed)

    def synchronize(self) -> None:
        """Wait until the work given to this stream is done."""
        if self._is_beside:
            self._mark(timed=False)
            self.queue.synchronize()
        else:
            self.card.synchronize()

    def query(self) -> bool:
        """Whether the work given to this stream is done; without such streams it is waited for."""
        if self.queue is None:
            self.card.synchronize()
            return True
        if self._is_beside:
            self._mark(timed=False)
        return bool(self.queue.done())

    def wait_event(self, event: Event) -> None:
        """Have later work of this stream wait for an event."""
        if self.queue is None or event.mark is None:
            return
        self.queue.wait(event.mark)
        if self._is_beside and _CURRENT.get() is self:
            self.card.limits.queues.arrivals.expect(self.queue, self.queue.mark())

    def wait_stream(self, stream: Stream) -> None:
        """Have later work of this stream wait for the work given to another one so far."""
        self.wait_event(stream.record_event())

    def record_event(self, event: Event | None = None) -> Event:
        """An event at this place of the stream."""
        made = Event() if event is None else event
        made.record(self)
        return made

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Stream):
            return False
        return self.cuda_stream == other.cuda_stream and self.device_index == other.device_index

    def __hash__(self) -> int:
        return hash((self.cuda_stream, self.device_index))

    def __repr__(self) -> str:
        return f"<rushlight.cuda.Stream device={self.device} cuda_stream={self.cuda_stream:#x}>"

    def __enter__(self) -> Stream:
        self.blocks.append(stream(self))
        self.blocks[-1].__enter__()
        return self

    @unheard
    def __exit__(self, *error: object) -> None:
        self.blocks.pop().__exit__(*error)


class ExternalStream(Stream):
    """A stream that another library made, by its address."""

    def __init__(self, stream_ptr: int, device: Any = None, **named: Any) -> None:
        card = _card(device)
        queues = card.limits.queues
        self._set(card, None if queues is None else queues.adopt(int(stream_ptr)))


def get_stream_from_external(data_ptr: int, device: Any = None) -> ExternalStream:
    """The stream of another library at an address.

    Args:
        data_ptr (int): The address of the driver's stream.
        device (device): The card; None for the current one.
    """
    return ExternalStream(data_ptr, device)


class Event:
    """A place in a stream; with `enable_timing` its time is measured, by the card where it can be.

    Without streams of one's own, `record` with timing waits for the work so far.
    """

    def __init__(
        self,
        enable_timing: bool = False,
        blocking: bool = False,
        interprocess: bool = False,
        external: bool = False,
    ) -> None:
        if interprocess:
            raise RushlightError("cuda.Event: events are not shared between processes")
        self.timed = enable_timing
        self.at: float | None = None
        self.mark: Any = None
        self.card: Any = None  # of the stream in which it was recorded

    def record(self, stream: Stream | None = None) -> None:
        """Set the place: after the work given to a stream so far; None is the current one."""
        place = current_stream() if stream is None else stream
        self.card = place.card
        if place.queue is not None:
            self.mark = place._mark(self.timed)
            return
        if self.timed:
            place.card.synchronize()
        self.at = time.perf_counter()

    def synchronize(self) -> None:
        """Wait until the work before the place is done."""
        if self.mark is not None:
            self.mark.wait()
        elif self.at is not None:
            self.card.synchronize()

    def wait(self, stream: Stream | None = None) -> None:
        """Have later work of a stream wait for this event; None is the current one."""
        (current_stream() if stream is None else stream).wait_event(self)

    def query(self) -> bool:
        """Whether the work before the place is done; without marks on the card it is waited for."""
        if self.mark is not None:
            return bool(self.mark.done())
        self.synchronize()
        return True

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds between two recorded events."""
        if not (self.timed and end_event.timed):
            raise ValueError("Event.elapsed_time: both events need enable_timing=True")
        if self.mark is not None and end_event.mark is not None:
            end_event.mark.wait()
            return float(end_event.mark.since(self.mark))
        if self.at is None or end_event.at is None:
            raise ValueError("Event.elapsed_time: both events must be recorded")
        return 1000 * (end_event.at - self.at)


def _current_queue(pool: Pool) -> Any:
    """The side stream of the calling thread: `Pool.queue`."""
    found = _CURRENT.get()
    own = pool.device.limits.queues
    if found is None or own is None or not found._is_beside or found.queue.main is not own.main:
        return None
    return found.queue


class stream:
    """A block in which a stream is the current one of the thread; None changes nothing."""

    def __init__(self, stream: Stream | None) -> None:
        self.stream = stream
        self.token: Token[Stream | None] | None = None

    def __enter__(self) -> None:
        if self.stream is not None:
            self.token = _CURRENT.set(self.stream)
            _begin(self.stream)

    @unheard
    def __exit__(self, *_: object) -> None:
        if self.stream is not None and self.token is not None:
            _end(self.stream)
            _CURRENT.reset(self.token)
            self.token = None


StreamContext = stream


def _begin(stream: Stream) -> None:
    if stream._is_beside:
        Pool.queue = staticmethod(_current_queue)
        stream.card.limits.queues.arrivals.begin(stream.queue)


def _end(stream: Stream) -> None:
    """Leave a block: later copies of the stream follow the kernels that were launched in it."""
    if stream._is_beside and stream.card.limits.queues.arrivals.end(stream.queue):
        stream.queue.wait(stream.queue.main.mark())


def current_stream(device: Any = None) -> Stream:
    """The stream that is current in this thread.

    Args:
        device (device): The card; None for the current one.
    """
    found = _CURRENT.get()
    return default_stream(device) if found is None or found.card is not _card(device) else found


def default_stream(device: Any = None) -> Stream:
    """The stream of the kernels.

    Args:
        device (device): The card; None for the current one.
    """
    card = _card(device)
    queues = card.limits.queues
    made = object.__new__(Stream)
    made._set(card, None if queues is None else queues.main)
    return made


def set_stream(stream: Stream | None) -> None:
    """Make a stream the current one of this thread.

    Args:
        stream (Stream): A stream; None changes nothing.
    """
    if stream is None:
        return
    before = _CURRENT.get()
    if before is not None:
        _end(before)
    _CURRENT.set(stream)
    _begin(stream)


def is_current_stream_capturing() -> bool:
    """False: launches are not captured."""
    return False


class CUDAGraph:
    """Captured launches, which are refused."""

    def __init__(self, *args: Any, **named: Any) -> None:
        raise RushlightError("cuda graphs are not supported: calls are cached, run them eagerly")


graph = make_graphed_callables = graph_pool_handle = CUDAGraph
