"""One rank's parameters and buffers, on all ranks."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from rushlight.distributed.collectives import broadcast
from rushlight.distributed.process_groups import ProcessGroup, resolved
from rushlight.nn.module import Module
from rushlight.ops.view.views import cat
from rushlight.tape.record.state import no_grad
from rushlight.tensor import Tensor


def copy_from(group: ProcessGroup, tensors: Sequence[Tensor], root: int) -> None:
    """Give one rank's elements to all, in a buffer for each dtype."""
    kinds: dict[Any, list[Tensor]] = {}
    for tensor in tensors:
        if tensor.numel():
            kinds.setdefault((tensor.dtype, tensor.device), []).append(tensor.detach())
    with no_grad():
        for same in kinds.values():
            flat = cat([tensor.reshape(-1) for tensor in same])
            broadcast(flat, group=group, group_src=root)
            if group.rank() != root:
                parts = flat.split([tensor.numel() for tensor in same])
                for tensor, part in zip(same, parts, strict=True):
                    tensor.copy_(part.view(tensor.shape))


def _sync_module_states(
    module: Module,
    process_group: Any,
    broadcast_bucket_size: int,
    src: int,
    params_and_buffers_to_ignore: Collection[str],
    broadcast_buffers: bool = True,
) -> None:
    """A rank's parameters and buffers come to all: PyTorch's name for libraries.

    Args:
        module (Module): The module.
        process_group (ProcessGroup): The ranks.
        broadcast_bucket_size (int): Has no effect.
        src (int): The rank whose state it is.
        params_and_buffers_to_ignore (collection): Names that are left out.
        broadcast_buffers (bool): Whether buffers come, too.
    """
    group = resolved(process_group)
    named = [*module.named_parameters(), *(module.named_buffers() if broadcast_buffers else ())]
    kept = [tensor for name, tensor in named if name not in params_and_buffers_to_ignore]
    copy_from(group, kept, group.index(src))
