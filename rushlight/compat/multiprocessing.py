"""PyTorch's `torch.multiprocessing`: Python's, whose queues send shared tensors, and `spawn`."""

from __future__ import annotations

import multiprocessing
import signal
import traceback
from collections.abc import Callable
from multiprocessing import *  # noqa: F403
from multiprocessing import connection, get_context
from typing import Any

from rushlight import sharing as _sharing  # registers how tensors are sent

__all__ = [
    *multiprocessing.__all__,
    "ProcessContext",
    "ProcessExitedException",
    "ProcessRaisedException",
    "SpawnContext",
    "get_all_sharing_strategies",
    "get_sharing_strategy",
    "set_sharing_strategy",
    "spawn",
    "start_processes",
]
_STRATEGY = ["file_descriptor"]
reductions = _sharing


def get_all_sharing_strategies() -> set[str]:
    """The one way in which shared tensors are sent: by file descriptor."""
    return set(_STRATEGY)


def get_sharing_strategy() -> str:
    """The way in which shared tensors are sent."""
    return _STRATEGY[0]


def set_sharing_strategy(new_strategy: str) -> None:
    """Accepts PyTorch's names; tensors are sent by file descriptor.

    Args:
        new_strategy (str): "file_descriptor" or "file_system".
    """
    if new_strategy not in ("file_descriptor", "file_system"):
        raise ValueError(f"set_sharing_strategy: {new_strategy!r} is no strategy")


class ProcessRaisedException(Exception):
    """A child process raised; the text has its traceback."""

    def __init__(self, msg: str, error_index: int, error_pid: int) -> None:
        super().__init__(msg)
        self.error_index, self.error_pid = error_index, error_pid


class ProcessExitedException(Exception):
    """A child process ended with an error code or by a signal."""

    def __init__(
        self,
        msg: str,
        error_index: int,
        error_pid: int,
        exit_code: int,
        signal_name: str | None = None,
    ) -> None:
        super().__init__(msg)
        self.error_index, self.error_pid = error_index, error_pid
        self.exit_code, self.signal_name = exit_code, signal_name


def _child(function: Callable[..., Any], rank: int, args: tuple[Any, ...], errors: Any) -> None:
    try:
        function(rank, *args)
    except KeyboardInterrupt:
        pass  # the parent was interrupted too
    except Exception:
        errors.put(traceback.format_exc())
        raise SystemExit(1) from None


class ProcessContext:
    """Processes that were started together; `join` waits, and raises what one of them raised."""

    def __init__(self, processes: list[Any], errors: list[Any]) -> None:
        self.processes, self.error_queues = processes, errors
        self._left = {process.sentinel: i for i, process in enumerate(processes)}

    def pids(self) -> list[int]:
        """The numbers of the processes."""
        return [process.pid for process in self.processes]

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """Wait for some to end; whether all have. The first error ends the others."""
        if not self._left:
            return True
        failed = None
        for sentinel in connection.wait(list(self._left), timeout):
            index = self._left.pop(sentinel)
            self.processes[index].join()
            if self.processes[index].exitcode != 0 and failed is None:
                failed = index
        if failed is None:
            return not self._left
        for process in self.processes:
            if process.is_alive():
                process.terminate()
            process.join(grace_period)
        raise self._error(failed)

    def _error(self, index: int) -> Exception:
        process = self.processes[index]
        if not self.error_queues[index].empty():
            text = self.error_queues[index].get()
            told = f"process {index} ended by this error:\n\n{text}"
            return ProcessRaisedException(told, index, process.pid)
        code = process.exitcode
        name = signal.Signals(-code).name if code < 0 else None
        told = f"process {index} ended {f'by {name}' if name else f'with exit code {code}'}"
        return ProcessExitedException(told, index, process.pid, code, name)


SpawnContext = ProcessContext


def start_processes(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
    **named: Any,
) -> ProcessContext | None:
    """Run `fn(rank, *args)` in processes; with `join`, wait for all of them."""
    context: Any = get_context(start_method)
    errors = [context.SimpleQueue() for _ in range(nprocs)]
    processes = [
        context.Process(target=_child, args=(fn, i, args, errors[i]), daemon=daemon)
        for i in range(nprocs)
    ]
    for process in processes:
        process.start()
    made = ProcessContext(processes, errors)
    if not join:
        return made
    while not made.join():
        pass
    return None


def spawn(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:
    """`start_processes` with fresh interpreters."""
    return start_processes(fn, args, nprocs, join, daemon, start_method)
