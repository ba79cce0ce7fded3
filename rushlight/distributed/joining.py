"""Joining, leaving and asking: `init_process_group` and its neighbours."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlparse

from rushlight.distributed import environment, mpi, nccl, sync_batch_norm as sync_batch_norm
from rushlight.distributed.collectives import NonMember
from rushlight.distributed.environment import Place
from rushlight.distributed.errors import DistributedError
from rushlight.distributed.process_groups import (
    DEFAULT_TIMEOUT,
    ProcessGroup,
    default_group,
    dissolve,
    is_initialized,
    join,
    known_place,
    part,
    part_of_members,
    resolved,
)
from rushlight.distributed.reducing import ReduceOp
from rushlight.distributed.store import start_server

_BACKENDS = {"mpi", "gloo", "nccl", "auto", "ucc"}


class Backend(str):
    """The names of backends; "gloo" is served by MPI."""

    UNDEFINED = "undefined"
    GLOO = "gloo"
    NCCL = "nccl"
    MPI = "mpi"
    UCC = "ucc"
    default_device_backend_map: ClassVar[dict[str, str]] = {"cpu": GLOO, "cuda": NCCL}


class GroupMember:
    """The default group, and what stands for a group this process is not in."""

    NON_GROUP_MEMBER = NonMember()

    class _World:
        def __get__(self, instance: Any, owner: Any) -> ProcessGroup | None:
            return default_group()

    WORLD = _World()


group = GroupMember


def is_available() -> bool:
    """Whether a library that carries messages is installed."""
    return mpi.is_installed()


def is_mpi_available() -> bool:
    """Whether mpi4py is installed."""
    return mpi.is_installed()


def is_gloo_available() -> bool:
    """Whether what stands for gloo is installed: MPI."""
    return mpi.is_installed()


def is_nccl_available() -> bool:
    """Whether CuPy, which has NCCL, is installed."""
    return nccl.is_installed()


def is_ucc_available() -> bool:
    """False: MPI stands for it."""
    return False


is_xccl_available = is_ucc_available


def is_torchelastic_launched() -> bool:
    """Whether `torchrun` or `rushlight launch` started this process."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def is_backend_available(backend: str) -> bool:
    """Whether a backend of that name can be used."""
    return {"mpi": is_mpi_available, "gloo": is_gloo_available, "nccl": is_nccl_available}.get(
        backend.lower(), is_ucc_available
    )()


def _chosen(backend: str | None) -> str:
    """The transport of a backend's name: "cpu:gloo,cuda:nccl" takes NCCL where it can."""
    names = [word.rpartition(":")[2] for word in (backend or "auto").lower().split(",")]
    for name in names:
        if name not in _BACKENDS:
            raise ValueError(
                f"init_process_group: backend {name!r} is none of {', '.join(sorted(_BACKENDS))}"
            )
    return "nccl" if names == ["nccl"] else "mpi"


def _located(method: str | None, rank: int, size: int) -> Place | None:
    """The place that `init_method` names."""
    if method is None or method.startswith("env://"):
        return environment.place(rank, size)
    parsed = urlparse(method)
    asked = {key: int(values[0]) for key, values in parse_qs(parsed.query).items()}
    rank, size = asked.get("rank", rank), asked.get("world_size", size)
    if parsed.scheme == "tcp":
        return environment.place(rank, size, parsed.hostname or "127.0.0.1", parsed.port or 0)
    if parsed.scheme == "file":
        return _by_file(Path(parsed.netloc + parsed.path), rank, size)
    raise ValueError(f"init_process_group: init_method {method!r} is no env://, tcp:// or file://")


def _serving(size: int) -> Place:
    """Rank 0's place, with a store that it starts at a free port."""
    return Place(0, size, mpi.host_name(), start_server(size, 0), served=True)


def _by_store(store: Any, rank: int, size: int, name: str) -> Place:
    """The address of the world's own store, which rank 0 writes into the user's."""
    joined = known_place(rank, size)
    if joined is not None or size <= 1:
        return joined or Place(rank, size)
    key = f"rushlight/{name}"
    if rank == 0:
        place = _serving(size)
        store.set(key, f"{place.host} {place.port}")
        return place
    host, port = bytes(store.get(key)).decode().split()
    return Place(rank, size, host, int(port))


def _by_file(path: Path, rank: int, size: int) -> Place | None:
    """The store's address, which rank 0 writes into a file that all can read.

    A file may be left from an earlier run, so the others look until the address answers.
    """
    joined = known_place(rank, size)
    if joined is not None or size <= 1:
        return joined or Place(rank, size)
    if rank == 0:
        place = _serving(size)
        waiting = path.with_name(f"{path.name}.{os.getpid()}")
        waiting.write_text(f"{place.host} {place.port}\n")
        waiting.replace(path)
        return place
    until = time.monotonic() + DEFAULT_TIMEOUT.total_seconds()
    while time.monotonic() < until:
        words = path.read_text().split() if path.exists() else []
        if len(words) == 2 and _answers(words[0], int(words[1])):
            return Place(rank, size, words[0], int(words[1]))
        time.sleep(0.02)
    raise DistributedError(f"init_process_group: rank 0 wrote no address into {path}")


def _answers(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), 1.0).close()
    except OSError:
        return False
    return True


def init_process_group(
    backend: str | None = None,
    init_method: str | None = None,
    timeout: timedelta | None = None,
    world_size: int = -1,
    rank: int = -1,
    store: Any = None,
    group_name: str = "",
    pg_options: Any = None,
    device_id: Any = None,
) -> None:
    """Join the group of all processes, which then is the default one.

    Rank and size come from the arguments, from `init_method`, or from what the starter put into the
    environment: Note [Starters]. Without any of them "mpi" and "auto" make a group of one.

    Args:
        backend (str): "mpi", "gloo" (MPI too), "nccl" between CUDA cards, or "auto".
        init_method (str): "env://", "tcp://host:port" or "file:///path".
        timeout (timedelta): After it a call raises DistributedError; 30 minutes.
        world_size (int): How many processes there are.
        rank (int): The number of this one.
        store (Store): By which the processes find one another, in place of `init_method`.
        group_name (str): Has no effect.
        pg_options: Has no effect.
        device_id: Has no effect.
    """
    chosen = _chosen(backend)
    seconds = (timeout or DEFAULT_TIMEOUT).total_seconds()
    if store is None:
        place = _located(init_method, rank, world_size)
    elif init_method is not None or rank < 0 or world_size < 1:
        raise ValueError(
            "init_process_group: a store needs rank and world_size, and takes no init_method; got "
            f"rank={rank}, world_size={world_size}, init_method={init_method!r}"
        )
    else:
        place = _by_store(store, rank, world_size, group_name)
    if place is None and (backend or "auto").lower() in ("mpi", "auto") and world_size <= 1:
        place = Place(0, 1)
    if place is None:
        raise ValueError(
            "init_process_group: nothing tells this process's rank. Start the program by "
            "`rushlight launch -n 2 script.py`, torchrun, mpiexec or srun, or give rank, "
            "world_size and init_method"
        )
    if not 0 <= place.rank < place.size:
        raise ValueError(f"init_process_group: rank {place.rank} of {place.size} processes")
    join(place, chosen, seconds)


def destroy_process_group(group: Any = None) -> None:
    """Leave a group; without one, all of them."""
    if not isinstance(group, NonMember):
        dissolve(group)


def get_rank(group: Any = None) -> int:
    """This process's rank in the group, -1 outside of it; 0 before any group is joined."""
    if isinstance(group, NonMember):
        return -1
    return resolved(group).rank() if group is not None or is_initialized() else 0


def get_world_size(group: Any = None) -> int:
    """How many ranks the group has, -1 outside of it; 1 before any group is joined."""
    if isinstance(group, NonMember):
        return -1
    return resolved(group).size() if group is not None or is_initialized() else 1


def get_backend(group: Any = None) -> str:
    """The name of the group's transport."""
    return Backend(resolved(group).name())


def get_node_local_rank(fallback_rank: int | None = None) -> int:
    """The rank among the processes of this host."""
    return environment.local_rank() if fallback_rank is None else fallback_rank


def get_process_group_ranks(group: Any) -> list[int]:
    """The group's ranks in the world."""
    return list(resolved(group).ranks)


def get_group_rank(group: Any, global_rank: int) -> int:
    """The rank in the group of a rank of the world."""
    return resolved(group).index(global_rank)


def get_global_rank(group: Any, group_rank: int) -> int:
    """The rank in the world of a rank of the group."""
    return resolved(group).ranks[group_rank]


def new_group(
    ranks: Sequence[int] | None = None,
    timeout: timedelta | None = None,
    backend: str | None = None,
    pg_options: Any = None,
    use_local_synchronization: bool = False,
    group_desc: str | None = None,
    device_id: Any = None,
    sort_ranks: bool = True,
) -> Any:
    """A group of some ranks; every rank of the world makes this call.

    Args:
        ranks (sequence): Ranks of the world; all without it.
        timeout (timedelta): After it a call raises; the default group's without it.
        backend (str): The default group's, whatever is given.
        pg_options: Has no effect.
        use_local_synchronization (bool): Whether the members alone make this call.
        group_desc (str): Has no effect.
        device_id: Has no effect.
        sort_ranks (bool): Whether the members are numbered in the world's order, not the given one.
    """
    base = resolved()
    chosen = list(range(base.size())) if ranks is None else [int(rank) for rank in ranks]
    if len(set(chosen)) != len(chosen) or not all(0 <= rank < base.size() for rank in chosen):
        raise ValueError(f"new_group: ranks {chosen} of a world of {base.size()}")
    make = part_of_members if use_local_synchronization else part
    ordered = sorted(chosen) if sort_ranks else chosen
    made = make(ordered, None if timeout is None else timeout.total_seconds(), base)
    return GroupMember.NON_GROUP_MEMBER if made is None else made


def new_subgroups(
    group_size: int | None = None, group: Any = None, timeout: timedelta | None = None
) -> tuple[Any, list[Any]]:
    """Groups of `group_size` ranks that follow one another: this process's, and all."""
    world = resolved(group)
    size = group_size or world.size()
    if world.size() % size:
        raise ValueError(f"new_subgroups: {world.size()} ranks in groups of {size}")
    made = [new_group(range(low, low + size), timeout) for low in range(0, world.size(), size)]
    return made[world.rank() // size], made


def new_subgroups_by_enumeration(
    ranks_per_subgroup_list: Sequence[Sequence[int]], timeout: timedelta | None = None
) -> tuple[Any, list[Any]]:
    """Groups of the given ranks: this process's, None outside of them, and all."""
    given = [rank for ranks in ranks_per_subgroup_list for rank in ranks]
    if len(set(given)) != len(given):
        raise ValueError(f"new_subgroups_by_enumeration: ranks in two groups: {given}")
    made = [new_group(ranks, timeout) for ranks in ranks_per_subgroup_list]
    own = next((one for one in made if isinstance(one, ProcessGroup)), None)
    return own, made


def get_default_backend_for_device(device: Any) -> str:
    """The transport for tensors of a device."""
    return "nccl" if str(device).partition(":")[0] == "cuda" else "gloo"


def groups() -> dict[ProcessGroup, str]:
    """The groups that this process is in, and their names."""
    found = default_group()
    return {} if found is None else {one: name for name, one in found.world.groups.items()}


def get_pg_count() -> int:
    """How many groups this process is in."""
    return len(groups())


def supports_complex(reduceOp: Any) -> bool:
    """Whether complex numbers are combined by an operation."""
    return reduceOp in (ReduceOp.SUM, ReduceOp.AVG, ReduceOp.PRODUCT)
