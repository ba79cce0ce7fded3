"""PyTorch's `torch.distributed.rpc`: calls in other processes, of which there is none."""

from __future__ import annotations

from typing import Any

from rushlight.core.errors import RushlightError


def is_available() -> bool:
    """False: there is one process."""
    return False


def init_rpc(*args: Any, **named: Any) -> None:
    """Refuses: there is one process."""
    raise RushlightError("distributed.rpc: calls in other processes are not supported")


rpc_sync = rpc_async = remote = TensorPipeRpcBackendOptions = shutdown = init_rpc
