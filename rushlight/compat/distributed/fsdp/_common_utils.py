"""PyTorch's `torch.distributed.fsdp._common_utils`: names of parameters beneath wrappers."""

from __future__ import annotations

from typing import Any

from rushlight.distributed.fsdp.sharded_module import FSDPModule
from rushlight.distributed.fsdp.wrapper import FullyShardedDataParallel

FSDP_WRAPPED_MODULE = "_fsdp_wrapped_module"
FSDP_PREFIX = f"{FSDP_WRAPPED_MODULE}."
FSDP_FLATTENED = "_fsdp_flattened"


def clean_tensor_name(tensor_name: str) -> str:
    """The name of a parameter without the wrappers on its path.

    Args:
        tensor_name (str): The name.
    """
    return tensor_name.replace(FSDP_PREFIX, "").replace("_checkpoint_wrapped_module.", "")


def _is_fsdp_flattened(tensor: Any) -> bool:
    """False: parameters are sharded one by one."""
    return False


def _is_sharded(module: Any) -> bool:
    """Whether a module is sharded by itself."""
    return isinstance(module, (FSDPModule, FullyShardedDataParallel))


def _get_module_fsdp_state(module: Any) -> Any:
    """A sharded module, which holds its own state; None of another."""
    return module if _is_sharded(module) else None
