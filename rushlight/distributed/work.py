"""Calls under way: `async_op=True` gives a Work, run by one thread in the order of the calls."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from rushlight.compat.futures import Future
from rushlight.distributed.errors import DistributedError


class Work:
    """A collective under way, with its tensors until it is waited for.

    What a program holds follows from its calls, not from how far the thread of calls has come.
    """

    def __init__(self, run: Callable[[], Any], result: Any = None) -> None:
        self._run = run
        self._result = result
        self._ended = threading.Event()
        self._error: BaseException | None = None
        self._future: Future[Any] | None = None
        self._settling = threading.Lock()  # two threads may come to set the future
        self._settled = False
        self.source = -1

    def _perform(self) -> None:
        try:
            given = self._run()
            if self._result is None:
                self._result = given
        except BaseException as error:
            self._error = error
        self._ended.set()
        if self._future is not None:
            self._settle(self._future)

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Wait until it has ended; its error is raised here."""
        if not self._ended.wait(None if timeout is None else timeout.total_seconds()):
            raise DistributedError(f"Work.wait: not ended within {timeout}")
        self._run = _nothing
        if self._error is not None:
            raise self._error
        return True

    def is_completed(self) -> bool:
        """Whether it has ended, well or not."""
        return self._ended.is_set()

    def is_success(self) -> bool:
        """Whether it has ended without an error."""
        return self._ended.is_set() and self._error is None

    def exception(self) -> BaseException | None:
        """The error it ended with."""
        return self._error

    def result(self) -> Any:
        """The tensors it wrote."""
        self.wait()
        return self._result

    def source_rank(self) -> int:
        """Whose message came, for a receive from any rank."""
        return self.source

    def get_future(self) -> Future[Any]:
        """A future that is set when it has ended."""
        with self._settling:
            future: Future[Any] = Future() if self._future is None else self._future
            self._future = future
        if self._ended.is_set():
            self._settle(future)
        return future

    def _settle(self, future: Future[Any]) -> None:
        with self._settling:
            if self._settled:
                return
            self._settled = True
        if self._error is not None:
            future.set_exception(self._error)
        else:
            future.set_result(self._result)


def _nothing() -> None:
    return None


class Worker:
    """The thread that runs asynchronous calls, one after another."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._given = self._done = 0  # no call is kept: it has tensors

    def submit(self, work: Work) -> Work:
        """Run it after those before it."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="collectives", daemon=True)
            self._thread.start()
        self._given += 1
        self._calls.put(work)
        return work

    @property
    def is_busy(self) -> bool:
        """Whether a call is under way."""
        return self._done < self._given

    def _serve(self) -> None:
        while (work := self._calls.get()) is not None:
            work._perform()
            del work
            self._done += 1

    def end(self) -> None:
        """Stop after the last call."""
        if self._thread is not None:
            self._calls.put(None)
            self._thread = None
