"""PyTorch's `torch.distributed`: there is one process, and no group of processes."""

from __future__ import annotations

from typing import Any

from rushlight.compat.distributed import device_mesh as device_mesh, rpc as rpc, tensor as tensor
from rushlight.core.errors import RushlightError


class ProcessGroup:
    """The class of groups of processes in PyTorch; nothing here is an instance of it."""


class Work:
    """The class of operations under way in PyTorch; nothing here is an instance of it."""


class ReduceOp:
    """How values of processes are put together."""

    SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR = range(8)


class group:
    """The group of all processes, of which there is none."""

    WORLD: Any = None


GroupMember = group


def is_available() -> bool:
    """False: programs take their way for one process."""
    return False


def is_initialized() -> bool:
    """False: there is no group of processes."""
    return False


def _absent() -> bool:
    """False: no library of that name."""
    return False


is_nccl_available = is_gloo_available = is_mpi_available = is_ucc_available = _absent
is_torchelastic_launched = is_xccl_available = _absent


def get_rank(group: Any = None) -> int:
    """0: there is one process."""
    return 0


def get_world_size(group: Any = None) -> int:
    """1: there is one process."""
    return 1


def init_process_group(*args: Any, **named: Any) -> None:
    """Refuses: there is one process."""
    raise RushlightError(
        "distributed.init_process_group: training in several processes is not supported; run the "
        "program in one"
    )


def destroy_process_group(group: Any = None) -> None:
    """Accepted: there is no group."""


def _refuse(*args: Any, **named: Any) -> Any:
    """Refuses: there is no group of processes."""
    raise RushlightError("distributed: there is no group of processes; is_initialized() tells so")


all_reduce = all_gather = broadcast = reduce = gather = scatter = barrier = _refuse
all_gather_object = broadcast_object_list = gather_object = all_gather_into_tensor = _refuse
reduce_scatter_tensor = reduce_scatter = all_to_all = send = recv = isend = irecv = _refuse
monitored_barrier = new_group = get_backend = _refuse
