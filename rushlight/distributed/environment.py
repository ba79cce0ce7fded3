"""Where this process stands among the others: what its starter put into the environment.

# Note [Starters]
1. RANK and WORLD_SIZE, with MASTER_ADDR and MASTER_PORT, are set by `rushlight launch`, by
   `torchrun` and by hand. The process joins through the store at that address.
2. `mpiexec` sets variables of its own; then MPI knows rank and size, and the store's address goes
   from rank 0 to the others by MPI.
3. `srun` sets SLURM_PROCID and SLURM_NTASKS. The first host of the step holds the store, at a port
   that follows from the numbers of job and step: a job may run several steps at once.
4. `torchrun` keeps MASTER_PORT for a store of its own; ours is then at the next port.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

PORT = 29500
_STEPS = 7919  # between the ports of two steps: jobs that run together have numbers that are nearer
# What an `mpiexec` sets. Open MPI sets PMIX_RANK, but no size under that prefix.
_MANAGED_RANKS = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK", "PMIX_RANK")
_MANAGED_SIZES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE", "SLURM_NTASKS")


@dataclass(frozen=True)
class Place:
    """A rank among `size`, and where the store is.

    `managed`: an `mpiexec` started the process, and MPI finds the others. `served`: the starter
    runs the store; else rank 0 does.
    """

    rank: int
    size: int
    host: str = "127.0.0.1"
    port: int = PORT
    managed: bool = False
    served: bool = False


def _number(name: str) -> int | None:
    text = os.environ.get(name, "")
    return int(text) if text.lstrip("-").isdigit() else None


def first_host(nodes: str) -> str:
    """The first host of Slurm's list: "gpu[03-07,12],cpu1" begins with gpu03."""
    found = re.match(r"([^,\[]+)(?:\[([^\],-]+))?", nodes)
    return "127.0.0.1" if found is None else found[1] + (found[2] or "")


def _first(*names: str, otherwise: int) -> int:
    """The number in the first of these variables that has one."""
    return next((number for number in map(_number, names) if number is not None), otherwise)


def _first_text(*names: str) -> str:
    """The first of these variables that is not empty."""
    return next(filter(None, (os.environ.get(name, "") for name in names)), "")


def is_managed() -> bool:
    """Whether an `mpiexec` started this process."""
    return any(name in os.environ for name in _MANAGED_RANKS)


def place(rank: int = -1, size: int = -1, host: str = "", port: int = 0) -> Place | None:
    """This process's place; given numbers and addresses go first. None where nothing tells it."""
    if is_managed() and not host:
        rank = _first(*_MANAGED_RANKS, otherwise=0)
        return Place(rank, _first(*_MANAGED_SIZES, otherwise=1), managed=True)
    if rank < 0:
        rank = _first("RANK", "SLURM_PROCID", otherwise=-1)
    if size < 0:
        size = _first("WORLD_SIZE", "SLURM_NTASKS", otherwise=-1)
    if rank < 0 or size < 0:
        return None
    if host:
        return Place(rank, size, host, port)
    return Place(rank, size, *_address(), served="RUSHLIGHT_STORE" in os.environ)


def _address() -> tuple[str, int]:
    host, port = os.environ.get("MASTER_ADDR", ""), _number("MASTER_PORT")
    nodes = _first_text("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST")
    if not host and nodes:
        host = first_host(nodes)
        step = _STEPS * (_number("SLURM_STEP_ID") or 0)
        port = port or 20000 + ((_number("SLURM_JOB_ID") or 0) + step) % 20000
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE", "").lower() == "true" and port:
        port += 1
    return host or "127.0.0.1", port or PORT


def local_rank() -> int:
    """The rank among the processes of this host; 0 where nothing tells it."""
    names = ("LOCAL_RANK", "MPI_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID")
    return _first(*names, otherwise=0)


def local_size(otherwise: int) -> int:
    """How many of the processes are on this host; `otherwise` where nothing tells it."""
    names = ("LOCAL_WORLD_SIZE", "MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE")
    return _first(*names, otherwise=otherwise)


def core_count() -> int:
    """The cores this process may use."""
    found = getattr(os, "sched_getaffinity", None)
    return len(found(0)) if found is not None else os.cpu_count() or 1


def debug_level() -> str:
    """TORCH_DISTRIBUTED_DEBUG: DETAIL compares every collective's call before it runs."""
    return os.environ.get("TORCH_DISTRIBUTED_DEBUG", "OFF").upper()


def error_file() -> str:
    """TORCHELASTIC_ERROR_FILE, by which torchrun learns what a process raised; "" without it."""
    return os.environ.get("TORCHELASTIC_ERROR_FILE", "")
