"""PyTorch's `torch.futures`: results that other threads set."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Future(Generic[T]):
    """A result that is set once; `then` and `add_done_callback` run when it is."""

    def __init__(self, *, devices: Any = None) -> None:
        self._held: concurrent.futures.Future[T] = concurrent.futures.Future()

    def done(self) -> bool:
        """Whether the result is set."""
        return self._held.done()

    def wait(self) -> T:
        """The result, when it is set; its error is raised."""
        return self._held.result()

    def value(self) -> T:
        """The result, which must be set."""
        if not self.done():
            raise RuntimeError("Future.value: the result is not set; wait() waits for it")
        return self._held.result()

    def set_result(self, result: T) -> None:
        """Set the result."""
        if self.done():
            raise RuntimeError("Future.set_result: the result is set already")
        self._held.set_result(result)

    def set_exception(self, result: BaseException) -> None:
        """Set an error, which `wait` raises."""
        self._held.set_exception(result)

    def add_done_callback(self, callback: Callable[[Future[T]], None]) -> None:
        """Call `callback(future)` when the result is set."""
        self._held.add_done_callback(lambda _: callback(self))

    def then(self, callback: Callable[[Future[T]], Any]) -> Future[Any]:
        """A future of `callback(future)`."""
        made: Future[Any] = Future()

        def run(_: Future[T]) -> None:
            try:
                made.set_result(callback(self))
            except Exception as error:
                made.set_exception(error)

        self.add_done_callback(run)
        return made


def wait_all(futures: Sequence[Future[Any]]) -> list[Any]:
    """The results of all."""
    return [future.wait() for future in futures]


def collect_all(futures: Sequence[Future[Any]]) -> Future[list[Future[Any]]]:
    """A future of the list, set when all of them are."""
    made: Future[list[Future[Any]]] = Future()
    waiting = [len(futures)]

    def one(_: Future[Any]) -> None:
        waiting[0] -= 1
        if not waiting[0]:
            made.set_result(list(futures))

    for future in futures:
        future.add_done_callback(one)
    if not futures:
        made.set_result([])
    return made
