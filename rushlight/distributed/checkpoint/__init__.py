"""Checkpoints of many ranks: a folder of safetensors files and an index."""

from __future__ import annotations

from rushlight.distributed.checkpoint import state_dict as state_dict, stateful as stateful
from rushlight.distributed.checkpoint.folders import (
    async_save as async_save,
    load as load,
    save as save,
)
from rushlight.distributed.checkpoint.storage import (
    FileSystemReader as FileSystemReader,
    FileSystemWriter as FileSystemWriter,
)
