"""Ray as a launcher: an actor of the cluster runs each rank's process on its host.

The store is in the process that launches (Note [Rendezvous]). An actor gives its process the
variables of `torchrun`, prints its lines with the rank before them, which Ray brings to the
launcher, and ends it with itself. A rank that fails makes the others raise, by the store.
"""

from __future__ import annotations

import collections
import importlib
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from rushlight.distributed import store_server
from rushlight.distributed.errors import DistributedError

_KEPT_LINES = 50


def library() -> Any:
    """The module `ray`."""
    os.environ.setdefault("RAY_DEDUP_LOGS", "0")  # every rank's lines are shown
    try:
        return importlib.import_module("ray")
    except ImportError:
        raise DistributedError(
            "launch --ray: Ray is not installed; pip install ray, on all hosts of the cluster"
        ) from None


class Seat:
    """A rank's place in the cluster; an actor has one."""

    def host(self) -> str:
        """The address of its host."""
        found: str = library().util.get_node_ip_address()
        return found

    def run(self, command: Sequence[str], variables: dict[str, str]) -> tuple[int, str]:
        """Run the rank's process; its exit status and the last lines it wrote."""
        rank = variables["RANK"]
        process = subprocess.Popen(
            list(command),
            env={**os.environ, **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        kept: collections.deque[str] = collections.deque(maxlen=_KEPT_LINES)
        try:
            for line in process.stdout or ():
                kept.append(line)
                print(f"[{rank}] {line}", end="", flush=True)
            return process.wait(), "".join(kept)
        finally:
            process.kill()


def run(command: Sequence[str], variables: dict[str, str], count: int) -> int:
    """Run a program in `count` ranks on a Ray cluster; the exit status of the first that failed.

    RAY_ADDRESS says which cluster; without it Ray starts one on this host.
    """
    ray = library()
    if not ray.is_initialized():
        ray.init(address=os.environ.get("RAY_ADDRESS"), include_dashboard=False)
    server, port = store_server.in_thread("", 0, count)
    made: Any = ray.remote(num_cpus=1, max_restarts=0)(Seat)
    seats = [made.remote() for _ in range(count)]
    try:
        hosts = ray.get([seat.host.remote() for seat in seats])
        common = {
            **variables,
            "WORLD_SIZE": str(count),
            "MASTER_ADDR": ray.util.get_node_ip_address(),
            "MASTER_PORT": str(port),
            "RUSHLIGHT_STORE": "1",
            "PYTHONUNBUFFERED": "1",
        }
        pending = {}
        for rank, seat in enumerate(seats):
            own = {
                "RANK": str(rank),
                "LOCAL_RANK": str(hosts[:rank].count(hosts[rank])),
                "LOCAL_WORLD_SIZE": str(hosts.count(hosts[rank])),
            }
            pending[seat.run.remote(list(command), {**common, **own})] = rank
        return _waited(ray, pending, server)
    finally:
        server.end()
        for seat in seats:
            ray.kill(seat)


def _waited(ray: Any, pending: dict[Any, int], server: store_server.Server) -> int:
    """Until all have ended; what the first that failed wrote comes last."""
    first: tuple[int, int, str] | None = None
    while pending:
        (done,), _ = ray.wait(list(pending), num_returns=1)
        rank = pending.pop(done)
        try:
            status, told = ray.get(done)
        except ray.exceptions.RayError as error:
            status, told = 1, f"{error}\n"
        if status:
            server.lost.append(rank)  # the others may wait for it to join
            first = first or (rank, status, told)
    if first is None:
        return 0
    rank, status, told = first
    print(f"rushlight launch: rank {rank} failed first (exit status {status})", file=sys.stderr)
    sys.stderr.write(told)
    return 128 - status if status < 0 else status
