"""PyTorch's `torch.distributed.launcher.api`: a function in several processes of this host."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import socket
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rushlight.core.errors import RushlightError

__all__ = ["LaunchConfig", "elastic_launch", "launch_agent"]


@dataclass
class LaunchConfig:
    """How many processes, and how they start.

    What is about hosts that come and go, and about logs, has no effect.
    """

    min_nodes: int
    max_nodes: int
    nproc_per_node: int
    logs_specs: Any = None
    run_id: str = ""
    role: str = "default_role"
    rdzv_endpoint: str = ""
    rdzv_backend: str = "etcd"
    rdzv_configs: dict[str, Any] = field(default_factory=dict)
    rdzv_timeout: int = -1
    max_restarts: int = 3
    monitor_interval: float = 0.1
    start_method: str = "spawn"
    log_line_prefix_template: str | None = None
    metrics_cfg: dict[str, str] = field(default_factory=dict)
    local_addr: str | None = None


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        number: int = found.getsockname()[1]
        return number


def _child(place: dict[str, str], entrypoint: Any, args: tuple[Any, ...], answer: Any) -> None:
    os.environ.update(place)
    try:
        answer.send((True, entrypoint(*args)))
    except BaseException:
        answer.send((False, traceback.format_exc()))
        raise SystemExit(1) from None


def launch_agent(
    config: LaunchConfig, entrypoint: Callable[..., Any] | str | None, args: list[Any]
) -> dict[int, Any]:
    """Run a function in several processes; its results by rank.

    Args:
        config (LaunchConfig): How many processes, and how they start.
        entrypoint (callable): The function.
        args (list): Its arguments.
    """
    if not callable(entrypoint):
        raise RushlightError("launcher: a program is started by `rushlight launch`, or by run.main")
    if (config.min_nodes, config.max_nodes) != (1, 1):
        raise RushlightError("launcher: functions start on one host; use `rushlight launch`")
    for attempt in range(config.max_restarts + 1):
        results, problem = _attempt(config, entrypoint, tuple(args), attempt)
        if not problem:
            return results
    raise RuntimeError(f"elastic_launch: {problem}")


def _attempt(
    config: LaunchConfig, entrypoint: Any, args: tuple[Any, ...], attempt: int
) -> tuple[dict[int, Any], str]:
    """The results of all ranks; or what the first that failed said, after which all are ended."""
    context: Any = multiprocessing.get_context(config.start_method)
    port, count = _free_port(), config.nproc_per_node
    processes, answers = [], {}
    for rank in range(count):
        place = {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "GROUP_RANK": "0",
            "WORLD_SIZE": str(count),
            "LOCAL_WORLD_SIZE": str(count),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "TORCHELASTIC_RESTART_COUNT": str(attempt),
            "TORCHELASTIC_MAX_RESTARTS": str(config.max_restarts),
            "TORCHELASTIC_RUN_ID": config.run_id or "none",
        }
        mine, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_child, args=(place, entrypoint, args, theirs))
        process.start()
        theirs.close()
        processes.append(process)
        answers[mine] = rank
    try:
        return _answers(answers)
    finally:
        for process in processes:
            if process.is_alive():
                process.join(1.0)
                process.terminate()
            process.join()


def _answers(answers: dict[Any, int]) -> tuple[dict[int, Any], str]:
    results: dict[int, Any] = {}
    waiting: dict[Any, int] = dict(answers)
    while waiting:
        found: list[Any] = list(multiprocessing.connection.wait(list(waiting)))
        for ready in found:
            rank = waiting.pop(ready)
            try:
                good, result = ready.recv()
            except EOFError:
                good, result = False, "the process ended without an answer"
            if not good:
                return {}, f"rank {rank} failed:\n{result}"
            results[rank] = result
    return results, ""


class elastic_launch:
    """A function that runs in several processes when it is called; its results by rank.

    Args:
        config (LaunchConfig): How many processes, and how they start.
        entrypoint (callable): The function.
    """

    def __init__(self, config: LaunchConfig, entrypoint: Any) -> None:
        self._config, self._entrypoint = config, entrypoint

    def __call__(self, *args: Any) -> dict[int, Any]:
        return launch_agent(self._config, self._entrypoint, list(args))
