"""Many processes: groups, collectives, data parallel training whose bits do not depend on them.

Owns: joining a group of processes (the store, MPI, NCCL), collectives on tensors and objects, their
sums in one fixed tree, time limits and the naming of ranks at fault, DistributedDataParallel,
logical shards, meshes of ranks, checkpoints of many ranks.
Takes: tensors and modules, libraries that move bytes (mpi4py, NCCL through CuPy), the variables of
torchrun, mpiexec and srun.
Gives: `torch.distributed`'s names, `DistributedDataParallel`, `DistributedError`.
Never: is loaded by `import rushlight`; waits without a limit; lets a library choose the order of a
sum; keeps memory outside of the pools.
"""

from __future__ import annotations

from typing import Any

from rushlight.lazy import Names

_NAMES = Names(__name__)
_NAMES.modules("algorithms checkpoint device_mesh fsdp nn optim pipelining tensor")
_NAMES.defined(
    {
        "rushlight.distributed.collectives": (
            "all_gather all_gather_into_tensor all_reduce all_reduce_coalesced all_to_all "
            "all_to_all_single barrier broadcast gather monitored_barrier reduce reduce_scatter "
            "reduce_scatter_tensor scatter all_gather_into_tensor=_all_gather_base "
            "reduce_scatter_tensor=_reduce_scatter_base"
        ),
        "rushlight.distributed.data_parallel": (
            "DistributedDataParallel DistributedDataParallel=DDP"
        ),
        "rushlight.distributed.device_mesh": "DeviceMesh init_device_mesh",
        "rushlight.distributed.errors": (
            "DistributedError DistributedError=DistBackendError DistributedError=DistError "
            "DistributedError=DistNetworkError DistributedError=DistStoreError "
            "QueueEmptyError"
        ),
        "rushlight.distributed.process_groups": "ProcessGroup default_pg_timeout is_initialized",
        "rushlight.distributed.joining": (
            "Backend GroupMember destroy_process_group get_backend get_global_rank get_group_rank "
            "get_node_local_rank get_process_group_ranks get_rank get_world_size group "
            "init_process_group is_available is_backend_available is_gloo_available "
            "is_mpi_available is_nccl_available is_torchelastic_launched is_ucc_available "
            "is_xccl_available new_group new_subgroups "
            "new_subgroups_by_enumeration get_default_backend_for_device get_pg_count "
            "supports_complex"
        ),
        "rushlight.distributed.messages": "P2POp batch_isend_irecv irecv isend recv send",
        "rushlight.distributed.planning": "Link Plan measured_link plan",
        "rushlight.distributed.objects": (
            "all_gather_object broadcast_object_list gather_object recv_object_list "
            "scatter_object_list send_object_list"
        ),
        "rushlight.distributed.reducer": "GradBucket",
        "rushlight.distributed.reducing": "ReduceOp ReduceOp=reduce_op",
        "rushlight.distributed.stores": "FileStore HashStore PrefixStore Store TCPStore",
        "rushlight.distributed.counting": "Traffic traffic",
        "rushlight.distributed.work": "Work",
    }
)
__all__ = sorted(name for name in _NAMES.sources if name[0] != "_")
_NAMES.modules_of("rushlight.compat.distributed", "distributed_c10d rpc")


def __getattr__(name: str) -> Any:
    return _NAMES.find(name)


def __dir__() -> list[str]:
    return _NAMES.listed()
