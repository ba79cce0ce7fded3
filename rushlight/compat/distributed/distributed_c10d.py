"""PyTorch's `torch.distributed.distributed_c10d`: the names of `rushlight.distributed`."""

from __future__ import annotations

from typing import Any

from rushlight import distributed
from rushlight.distributed.joining import groups
from rushlight.distributed.process_groups import resolved
from rushlight.lazy import MissingName

_get_default_group = resolved
__all__ = list(distributed.__all__)


def _get_default_store() -> Any:
    """The world's store."""
    return resolved().world.store


def _resolve_process_group(group_name: str) -> Any:
    """The group of a name."""
    found = next((group for group, name in groups().items() if name == group_name), None)
    if found is None:
        raise RuntimeError(f"distributed: there is no group {group_name!r}")
    return found


def __getattr__(name: str) -> Any:
    if name == "_pg_map":
        return groups()
    if name.startswith("__"):
        raise MissingName(__name__, name)
    return getattr(distributed, name)
